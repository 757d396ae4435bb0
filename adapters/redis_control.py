"""The control store in Redis: wishes, the record, the lease of whoever leads, and the news that everybody follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from adapters.redis_connection import RedisConnection, Script
from sequencing.plan import Plan
from sequencing.record import Record, Wish

CONTROL = Script.beside(__file__, "control.lua")

REGIONS_MAX = 4_000
"""How many regions one call tells of: a script can unpack no more than some 8,000 arguments."""

NEVER = "0-0"


class ControlKeys:
    """The Redis keys of what managers and connections tell each other."""

    record = "gamecast:{control}:record"
    wishes = "gamecast:{control}:wishes"
    published = "gamecast:{control}:published"
    lease = "gamecast:{control}:leader"
    news = "gamecast:{control}:news"
    asked = "gamecast:{control}:asked"
    every = (record, wishes, published, lease, news, asked)


class Seen(NamedTuple):
    """What a leader decides by. ``record``: None in a network that is new; ``asked``: where `RedisControl.asked`
    goes on."""

    record: Record | None
    wishes: Mapping[str, Wish]
    published: frozenset[str]
    announced: tuple[int, int]
    asked: str

    def is_announced(self, plan: Plan) -> bool:
        """Return whether everybody may know of a plan."""
        return (plan.epoch, plan.version) <= self.announced


class RedisControl:
    """One task's connection to the control store."""

    def __init__(self, url: str) -> None:
        """``url``: of the control Redis. Does not connect yet."""
        self._connection = RedisConnection(url)

    async def want(self, name: str, wish: Wish, published: Iterable[str] = ()) -> None:
        """Tell what a connection wants, and to which regions it publishes; what is older than what is known is void."""
        regions, document = sorted(published), orjson.dumps(wish.to_document())
        for start in range(0, max(len(regions), 1), REGIONS_MAX):
            some = regions[start : start + REGIONS_MAX]
            await self._run("want", name, wish.incarnation, wish.said, document, *some)

    async def look(self, token: str, lease_ms: int) -> Seen | None:
        """Take the lease or prolong it, and return what a leader decides by; None while somebody else leads."""
        leads, *rest = await self._run("look", token, lease_ms)
        if not leads:
            return None
        record, flat, published, announced, asked = rest
        pairs = zip(flat[::2], flat[1::2], strict=True)
        wishes = {name.decode(): Wish.from_document(orjson.loads(wish)) for name, wish in pairs}
        epoch, _, version = announced.decode().partition("-")
        return Seen(
            Record.from_json(record) if record else None,
            wishes,
            frozenset(region.decode() for region in published),
            (int(epoch), int(version)),
            asked.decode(),
        )

    async def renew(self, token: str, lease_ms: int) -> bool:
        """Prolong the lease; False when somebody else leads."""
        return bool(await self._run("renew", token, lease_ms))

    async def save(self, token: str, record: Record) -> bool:
        """Keep a record; False when the lease is lost."""
        return bool(await self._run("save", token, record.to_json()))

    async def announce(self, token: str, record: Record) -> bool:
        """Tell everybody of a plan that all nodes know, once; False when the lease is lost."""
        plan = record.plan
        return bool(await self._run("announce", token, plan.epoch, plan.version, record.to_json()))

    async def resign(self, token: str) -> None:
        """Give the lease back."""
        await self._run("resign", token)

    async def asked(self, after: str, *, block_ms: int) -> None:
        """Wait until somebody wants something new, or for ``block_ms``."""
        await self._connection.call("XREAD", "BLOCK", block_ms, "STREAMS", ControlKeys.asked, after)

    async def newest(self) -> Record | None:
        """Return what was announced last."""
        entries = await self._connection.call("XREVRANGE", ControlKeys.news, "+", "-", "COUNT", 1)
        return Record.from_json(entries[0][1][1]) if entries else None

    async def news(self, after: Plan | None, *, block_ms: int) -> list[Record]:
        """Return what was announced after a plan, in order, waiting up to ``block_ms`` for it."""
        place = f"{after.epoch}-{after.version}" if after is not None else NEVER
        reply = await self._connection.call("XREAD", "BLOCK", block_ms, "STREAMS", ControlKeys.news, place)
        return [Record.from_json(fields[1]) for _, fields in reply[0][1]] if reply else []

    async def close(self) -> None:
        """Release the connection."""
        await self._connection.close()

    async def _run(self, *arguments: Any) -> Any:
        return await self._connection.run(CONTROL, ControlKeys.every, *arguments)
