"""The data that a run and its servers share while events flow: a few numbers in shared memory, without locks.

Each number has one writer at a time, and is aligned and eight bytes wide, so that a reader sees an old one or a new
one. A server that is killed leaves its numbers to its next life.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum

from laboratory.processes.worker import spawn


class Phase(IntEnum):
    """The present task of the servers."""

    ROAM = 0
    """Publish, join and leave."""
    SETTLE = 1
    """Nothing new."""
    LAST = 2
    """Publish one more round, and no more."""
    LOOK = 3
    """Note who is present."""
    STOP = 4
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
    HERE = 7
    """The regions in which it is present, a bit each."""
    STRANGE = 8
    """Regions in which it sees others than are present by `HERE`."""


class Board:
    """One slot of numbers for each server, and the phase for all."""

    def __init__(self, servers: int) -> None:
        self._numbers = spawn.RawArray(ctypes.c_int64, 1 + servers * len(Slot))
        self.servers = servers

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
        return sum(self.get(server, slot) for server in range(self.servers))

    def busy(self, names: Sequence[str], *, lossy: bool = False) -> list[str]:
        """Return the servers that have something in flight, and what. ``names``: of all of them.

        ``lossy``: whether nodes may lose who is present.
        """
        phase, busy = self.phase, []
        for number, name in enumerate(names):
            told = {slot: self.get(number, slot) for slot in Slot}
            if told[Slot.PHASE] < phase:
                busy.append(f"{name} did not hear of the end")
            elif not told[Slot.OPEN]:
                busy.append(f"{name} has no connection")
            elif told[Slot.UNRESOLVED] or told[Slot.JOINING]:
                busy.append(
                    f"{name} has {told[Slot.UNRESOLVED]} events without an answer and {told[Slot.JOINING]} regions "
                    "that it joins or leaves"
                )
            elif told[Slot.STRANGE] and not lossy:
                busy.append(f"{name} sees others in {told[Slot.STRANGE]} regions than are present")
        return busy
