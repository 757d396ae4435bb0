"""The register of presence in the control Redis; see `adapters.presence` and presence.lua."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from adapters.presence import DUE_MAX, PRESENT_MS, Absent
from adapters.redis.connection import Script
from adapters.redis.control import RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.rows import pairs

PRESENCE = Script.beside(__file__, "presence.lua")
_GONE, _INCARNATION = "\n", "\n\n"


class RedisPresence:
    """One connection's access. Implements `adapters.presence.Presence`."""

    def __init__(self, control: RedisControl, turn: asyncio.Lock, name: str, incarnation: int) -> None:
        """``control``: shared with others, who take it by ``turn``."""
        self._control, self._turn = control, turn
        self._member = f"{name}\n{incarnation}"

    async def be(self, regions: Mapping[str, str], last_incarnation: int, *, is_known: bool) -> bool:
        """See `Presence.be`."""
        about = self._member, PRESENT_MS, last_incarnation, int(is_known)
        said = await self._run("be", *about, *chain.from_iterable(regions.items()))
        return bool(said == b"ok")

    async def beat(self) -> bool:
        """See `Presence.beat`."""
        return bool(await self._run("beat", self._member, PRESENT_MS) == b"ok")

    async def left(self, regions: Iterable[str]) -> None:
        """See `Presence.left`."""
        await self._run("left", self._member, *regions)

    async def end(self) -> None:
        """See `Presence.end`."""
        await self._run("end", self._member)

    async def due(self) -> list[Absent]:
        """See `Presence.due`."""
        found = []
        asked = DUE_MAX, PRESENT_MS // 4, PRESENT_MS // 2, PRESENT_MS
        for member, fields in await self._run("due", "", *asked):
            name, _, incarnation = member.decode().partition("\n")
            known = {key.decode(): value.decode() for key, value in pairs(fields)}
            last = int(known.pop(_INCARNATION, incarnation))
            known.pop(_GONE, None)
            found.append(Absent(name, int(incarnation), last, known))
        return found

    async def ended(self, absent: Absent) -> None:
        """See `Presence.ended`."""
        await self._run("ended", f"{absent.name}\n{absent.incarnation}")

    async def _run(self, *arguments: Any) -> Any:
        async with self._turn:
            return await self._control.run(PRESENCE, (ControlKeys.present,), *arguments)
