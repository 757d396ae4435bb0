"""The promises about deliveries, as a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table
from rich.text import Text

NAMES = ("one order", "no cycles", "each publisher's order", "nothing twice", "nothing lost", "nothing else")


def promises(counts: Sequence[int | None], *, unexpected: str, unknown: Collection[str] = ()) -> Table:
    """Return a line for each promise about deliveries; ``counts``: how often each is broken, None if not known;
    ``unknown``: those of which it cannot be told, unless they are broken."""
    table = Table("promise", "broken by", "how often", "verdict")
    table.columns[2].justify = "right"
    broken_by = (
        "pairs of events in opposite orders",
        "cycles in the union of all delivery orders",
        "events after a later one",
        "repeated deliveries",
        "events never delivered",
        unexpected,
    )
    for promise, by, count in zip(NAMES, broken_by, counts, strict=True):
        shown = "not known" if count is None else f"{count:,}"
        if count:
            table.add_row(promise, by, Text(shown, style="red"), Text("broken", style="red"))
        elif promise in unknown or count is None:
            table.add_row(promise, by, shown, Text("cannot be told", style="yellow"))
        else:
            table.add_row(promise, by, shown, Text("kept", style="green"))
    return table
