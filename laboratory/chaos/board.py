"""The data that a run and its servers share while events flow: a few numbers in shared memory, without locks.

Each number has one writer at a time, and is aligned and eight bytes wide, so that a reader sees an old one or a new
one. A server that is killed leaves its numbers to its next life.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

from laboratory.processes.children import spawn


class Phase(IntEnum):
    """The present task of the servers."""

    ROAM = 0
    """Publish, join and leave."""
    SETTLE = 1
    """Nothing new."""
    LAST = 2
    """Publish one more round, and no more."""
    STOP = 3
    """Close and end."""


class Slot(IntEnum):
    """The numbers that a server reports."""

    SESSIONS = 0
    """Connections that it has begun to open."""
    PUBLISHED = 1
    DELIVERED = 2
    UNRESOLVED = 3
    """Events without a receipt or an error."""
    JOINING = 4
    """Regions that are asked for and not joined."""
    OPEN = 5
    """Whether it has a connection."""
    PHASE = 6
    """The last phase that it has seen."""


class Board:
    """One slot of numbers for each server, and the phase for all."""

    def __init__(self, servers: int) -> None:
        self._numbers = spawn.RawArray(ctypes.c_int64, 1 + servers * len(Slot))
        self._servers = servers

    @property
    def phase(self) -> Phase:
        """The present task of the servers."""
        return Phase(self._numbers[0])

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._numbers[0] = phase

    def get(self, server: int, slot: Slot) -> int:
        """Return a number of one server."""
        return int(self._numbers[1 + server * len(Slot) + slot])

    def put(self, server: int, slot: Slot, number: int) -> None:
        """Tell a number of one server."""
        self._numbers[1 + server * len(Slot) + slot] = number

    def add(self, server: int, slot: Slot, number: int = 1) -> None:
        """Add to a number of one server, in that server's process."""
        self.put(server, slot, self.get(server, slot) + number)

    def total(self, slot: Slot) -> int:
        """Return the sum over all servers."""
        return sum(self.get(server, slot) for server in range(self._servers))
