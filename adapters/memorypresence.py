"""Who is present, in a network in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapters.memoryworld import MemoryWorld
from adapters.presence import Absent


class MemoryPresence:
    """One connection's access. Implements `adapters.presence.Presence`."""

    def __init__(self, world: MemoryWorld, name: str, incarnation: int) -> None:
        self._world, self._who = world, (name, incarnation)

    async def be(self, regions: Mapping[str, str], last_incarnation: int, *, is_known: bool) -> bool:
        """See `Presence.be`."""
        self._world.faults.require_reachable(self._who[0])
        return self._world.present.be(self._who, regions, last_incarnation, self._now_s(), is_known=is_known)

    async def beat(self) -> bool:
        """See `Presence.beat`."""
        self._world.faults.require_reachable(self._who[0])
        return self._world.present.beat(self._who, self._now_s())

    async def left(self, regions: Iterable[str]) -> None:
        """See `Presence.left`."""
        self._world.faults.require_reachable(self._who[0])
        self._world.present.left(self._who, regions)

    async def end(self) -> None:
        """See `Presence.end`."""
        self._world.present.end(self._who)

    async def due(self) -> list[Absent]:
        """See `Presence.due`."""
        self._world.faults.require_reachable(self._who[0])
        return self._world.present.due(self._now_s())

    async def ended(self, absent: Absent) -> None:
        """See `Presence.ended`."""
        self._world.present.ended(absent)

    def _now_s(self) -> float:
        return self._world.loop.time()
