"""Tables of measurements. A command puts them into a document between two marks, so that figures are never typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from cli.outfiles import writing
from gamecast.errors import UsageError

WIDTH_MIN = 140


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are figures."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return the same for a terminal."""
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


def put_into(file: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` in a document.

    Raises `UsageError` if the document cannot be read or written, or has no such marks.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    try:
        document = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--into {file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--into {file}: is not UTF-8: {error.reason}") from error
    before, marked, rest = document.partition(begin)
    _, ended, after = rest.partition(end)
    if not (marked and ended):
        raise UsageError(f"--into {file}: has no lines {begin} and {end} between which to put the table")
    with writing(f"--into {file}"):
        file.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
