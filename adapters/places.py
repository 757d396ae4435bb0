"""Where a reader is in the streams that it reads, with a note of what has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Stream = TypeVar("Stream")
"""A stream's region, or its region and epoch where two epochs of a region may be read at once."""

Position = tuple[int, int]
"""(epoch, region sequence) of the last event that a reader has seen of a region."""


class Places(dict[Stream, Position]):
    """Stream → the position after which it is read.

    A reader that is given the same object again looks only at what has changed. Positions that frames have moved on
    (`moved`) are not among that: the reader has returned these frames itself.
    """

    def __init__(self, places: Iterable[tuple[Stream, Position]] = ()) -> None:
        super().__init__(places)
        self._changed: dict[Stream, None] = {}

    def put(self, stream: Stream, position: Position) -> None:
        """Read a stream after a position."""
        self[stream] = position
        self._changed[stream] = None

    def drop(self, stream: Stream) -> None:
        """Read a stream no more."""
        if self.pop(stream, None) is not None:
            self._changed[stream] = None

    def moved(self, stream: Stream, epoch: int, last: int) -> None:
        """Note the last frame that was returned of a stream."""
        at, before = self.get(stream, (0, 0))
        if at == epoch and last > before:
            self[stream] = epoch, last

    def take_changes(self) -> list[Stream]:
        """Return the streams that are new, gone, or to be read from elsewhere on, since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed
