"""Tables of measurements."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

WIDTH_MIN = 140


def table_of(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    for place, column in enumerate(header):
        table.add_column(column, justify="right" if place else "left", no_wrap=not place)
    for row in rows:
        table.add_row(*row)
    return table


def wide_console() -> Console:
    """Return a console of at least `WIDTH_MIN` columns, so that wide tables are not squeezed into 80."""
    console = Console(highlight=False)
    return console if console.width >= WIDTH_MIN else Console(highlight=False, width=WIDTH_MIN)
