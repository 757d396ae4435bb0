"""Notes of frames, gathered in columns until there are enough of them to make rows of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from analytics.session.schema import EVENTS, Table
from gamecast.recording.columns import UNREADABLE, Columns

GATHERED_NOTES = 8_192
"""This many notes are gathered before they are made into rows."""

SLICE_NOTES = 512
"""This many notes are made into rows at a time; then other threads have their turn."""


def let_others_go_on() -> None:
    """Let another waiting thread run: otherwise Python lets a computing thread run for 5 ms, and the game waits."""
    time.sleep(0)


class Gathering:
    """Notes of one table. ``kind``: the fields of a note; ``make``: columns of such fields → rows."""

    def __init__(self, table: Table, kind: type[NamedTuple], make: Callable[[Columns], pa.Table]) -> None:
        self.table = table
        self.unreadable_events = 0
        """Events, or rows of a table without runs, of which no rows could be made; the code that counts them sets it to
        0."""
        self._fields: tuple[str, ...] = kind._fields
        self._make = make
        self._columns = self._none()

    @property
    def is_enough(self) -> bool:
        """Whether rows are worth making."""
        return len(self._columns[0]) >= GATHERED_NOTES

    def add(self, notes: Columns) -> None:
        """Gather notes, given by the column."""
        for column, values in zip(self._columns, notes, strict=True):
            column += values

    def take(self) -> Iterator[pa.Table]:
        """Make rows of the gathered notes, part by part."""
        taken, self._columns = self._columns, self._none()
        for start in range(0, len(taken[0]), SLICE_NOTES):
            yield from self._rows([column[start : start + SLICE_NOTES] for column in taken])
            let_others_go_on()

    def _rows(self, notes: list[list[Any]]) -> Iterator[pa.Table]:
        try:
            rows = self._make(notes)
        except UNREADABLE:  # one of them has an invalid stamp or invalid times
            if len(notes[0]) > 1:
                for note in zip(*notes, strict=True):
                    yield from self._rows([[field] for field in note])
            elif self.table.runs is None:
                self.unreadable_events += 1
            else:
                self.unreadable_events += notes[self._fields.index(EVENTS)][0]
        else:
            yield rows

    def _none(self) -> list[list[Any]]:
        return [[] for _ in self._fields]
