"""What bounds gamecast: its own connection, and the calls of its script for a lone event, with nothing else around.

A script checks the publisher's row, draws numbers of the region and of the node, appends the event and pushes it; a
reader checks that what is pushed is the next of its region. There are no joins, no recovery, no receipts and no second
node. So this is nothing to use: no Python client of such events can be faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import hiredis
import orjson

from adapters.redis.places import connection_to
from adapters.redis.wire import Wire
from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.workload import Payload
from sequencing.errors import GamecastError

SCRIPT = """
local before, step = redis.call('HGET', KEYS[2], ARGV[2]), redis.call('HGET', KEYS[3], ARGV[2])
if before and tonumber(before) >= tonumber(ARGV[3]) then
  return 'seen'
end
redis.call('PUBLISH', '', '')
local numbers = redis.call('HMGET', KEYS[1], KEYS[4], '0')
local last, number = (numbers[1] or 0) + 1, (numbers[2] or 0) + 1
redis.call('XADD', KEYS[4], '1-' .. last, 'm', ARGV[4], 's', '0,' .. number, 'b', ARGV[1])
redis.call('PUBLISH', KEYS[4], last .. ' ' .. number .. '\\n' .. ARGV[1])
redis.call('HSET', KEYS[1], KEYS[4], last, '0', number)
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return last
"""
ROWS = "counters", "publishers", "steps"


class BareError(GamecastError):
    """A push was not the next of its region."""


@dataclass(frozen=True, slots=True)
class BarePeer(OnRedis):
    """One script call an event."""

    name: str = "bare"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        connection = connection_to(url)
        await connection.connect()
        wire, published = Wire(connection), 0
        [sha] = await wire.ask([_packed("SCRIPT", "LOAD", SCRIPT)], 1)

        async def publish(events: Sequence[tuple[str, Payload]]) -> None:
            nonlocal published
            packed = []
            for region, payload in events:
                published += 1
                keys, row = (*ROWS, region), f"{region}\n{name}"
                words = orjson.dumps(payload), row, published, f"0 1 1 1 {name}"
                packed.append(_packed("EVALSHA", sha, len(keys), *keys, *words))
            for reply in await wire.ask(packed, len(packed)):
                if not isinstance(reply, int):
                    raise BareError(f"the script has answered {reply!r}")

        try:
            yield publish
        finally:
            wire.close()
            await connection.disconnect(nowait=True)

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        connection = connection_to(url)
        await connection.connect()
        reader = _Reader(deliver, len(regions), active)
        wire = Wire(connection, reader)
        wire.write([_packed("SUBSCRIBE", *regions)])
        try:
            await reader.failed
        finally:
            wire.let_go()
            await connection.disconnect(nowait=True)


class _Reader:
    """Delivers where pushes arrive. Implements `adapters.redis.wire.Pushed`."""

    def __init__(self, deliver: Deliver, channels: int, active: Callable[[], None]) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deliver, self._channels, self._active = deliver, channels, active
        self._last_of: dict[bytes, int] = {}

    def take(self, message: Any) -> None:
        kind, channel, said = message
        if kind != b"message":
            self._channels -= 1
            if not self._channels:
                self._active()
            return
        head, _, body = said.partition(b"\n")
        last = int(head.split()[0])
        if last != self._last_of.get(channel, 0) + 1:
            self.lost(BareError(f"{last} has come after {self._last_of.get(channel, 0)}"))
        self._last_of[channel] = last
        self._deliver(orjson.loads(body))

    def all_taken(self) -> None:
        pass

    def lost(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)


def _packed(*command: Any) -> bytes:
    packed: bytes = hiredis.pack_command(command)
    return packed
