"""The register of presence in the control Redis; see `adapters.presence` and presence.lua."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from adapters.presence import DUE_MAX, PRESENT_MS, Absent
from adapters.redis.connection import Script
from adapters.redis.control import RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.rows import pairs
from sequencing.errors import InvalidName
from sequencing.names import check_connection_name, check_region

PRESENCE = Script.beside(__file__, "presence.lua")
_log = logging.getLogger("gamecast")

_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
"""An incarnation: with more digits, scripts could not count with it."""
_INCARNATION = "\n\n"


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
        asked = DUE_MAX, PRESENT_MS // 4, PRESENT_MS // 2, PRESENT_MS
        while True:
            due = await self._run("due", "", *asked)
            absent = []
            for member, fields in due:
                try:
                    absent.append(read_absent(member, dict(pairs(fields))))
                except (ValueError, InvalidName) as error:
                    _log.warning("%s: removed %.200r, which is no connection: %s", ControlKeys.present, member, error)
                    await self._run("ended", member)
            if absent or len(due) < DUE_MAX:
                return absent

    async def ended(self, absent: Absent) -> None:
        """See `Presence.ended`."""
        await self._run("ended", f"{absent.name}\n{absent.incarnation}")

    async def _run(self, *arguments: Any) -> Any:
        async with self._turn:
            return await self._control.run(PRESENCE, (ControlKeys.present,), *arguments)


def read_absent(member: bytes, fields: Mapping[bytes, bytes]) -> Absent:
    """Return what is registered of a connection, without the regions that have no region's name.

    Raises `ValueError` and `InvalidName` for what no connection has written.
    """
    name, _, number = member.decode().partition("\n")
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{number[:40]!r} is no incarnation")
    incarnation = int(number)
    last = fields.get(_INCARNATION.encode(), b"").decode()
    regions: dict[str, str] = {}
    for region, position in fields.items():
        with suppress(ValueError, InvalidName):
            regions[check_region(region.decode())] = position.decode()
    return Absent(
        check_connection_name(name), incarnation, int(last) if _NUMBER.fullmatch(last) else incarnation, regions
    )
