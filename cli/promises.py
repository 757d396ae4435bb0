"""The promises about deliveries, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def promises(counts: Sequence[int | None], *, unexpected: str) -> Table:
    """Return a line for each promise about deliveries; ``counts``: how often each is broken, None if not known."""
    table = Table("promise", "broken by", "how often")
    table.columns[2].justify = "right"
    rows = (
        ("one order", "pairs of events in opposite orders"),
        ("no cycles", "cycles in the union of all delivery orders"),
        ("each publisher's order", "events after a later one"),
        ("nothing twice", "repeated deliveries"),
        ("nothing lost", "events never delivered"),
        ("nothing else", unexpected),
    )
    for (promise, by), count in zip(rows, counts, strict=True):
        shown = Text("not known") if count is None else Text(f"{count:,}", style="red" if count else "green")
        table.add_row(promise, by, shown)
    return table
