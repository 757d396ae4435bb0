"""How far a command has come, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


def progress_bar(what: str, *, shown: bool = True) -> Progress:
    """Return a bar that counts ``what`` on standard error. What its console prints stands above it, or alone."""
    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or not shown)


def tracked(found: Iterable[T], count: int, what: str) -> Iterator[T]:
    """Yield what is found, and show how much of the ``count`` that is."""
    with progress_bar(what) as progress:
        yield from progress.track(found, total=count)
