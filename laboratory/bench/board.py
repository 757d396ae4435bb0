"""The data that the two processes of a trial share while events flow: a few numbers in shared memory, without locks.

Each number has one writer, and is aligned and eight bytes wide, so that a reader sees an old one or a new one.
"""

from __future__ import annotations

import ctypes
from multiprocessing.context import SpawnContext

_PHASE, _DELIVERED, _DELIVERED_AT_NS, _STOP = range(4)

WAITING, WARM_UP, FAST, PACED = range(4)


class Board:
    """`phase` and `stop` are the publishers' to write, the others the subscribers'."""

    def __init__(self, context: SpawnContext) -> None:
        self._numbers = context.RawArray(ctypes.c_int64, 4)

    @property
    def phase(self) -> int:
        return self._numbers[_PHASE]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._numbers[_PHASE] = phase

    @property
    def delivered(self) -> int:
        """Calls of `deliver`, over all subscribers and phases."""
        return self._numbers[_DELIVERED]

    @property
    def delivered_at_ns(self) -> int:
        """When `delivered` last grew."""
        return self._numbers[_DELIVERED_AT_NS]

    def report(self, delivered: int, at_ns: int) -> None:
        self._numbers[_DELIVERED_AT_NS] = at_ns
        self._numbers[_DELIVERED] = delivered

    @property
    def stop(self) -> bool:
        return bool(self._numbers[_STOP])

    def request_stop(self) -> None:
        self._numbers[_STOP] = 1
