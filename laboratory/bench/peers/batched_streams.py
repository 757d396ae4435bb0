"""Redis Streams with many events an entry, as one would batch them by hand: frames without anything else.

A stream a region, as in `laboratory.bench.peers.streams`. While a request is in flight, published events gather, and
go together in the next one; there is no receipt for a single event. So it also shows the cost of order, receipts and
positions on top of batching.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from redis.asyncio import Redis

from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.peers.redis_client import redis_client
from laboratory.bench.peers.streams import BLOCK_MS, STREAM_LENGTH
from laboratory.bench.workload import Payload

ENTRY_EVENTS = 64
READ_COUNT = 128
LINGER_EVENTS = 2_048
LINGER_ROUNDS = 64
"""If there is more than one event, a request waits for this many, or for this many rounds of the event loop."""

READ_PAUSE_ROUNDS = 4
"""After a read the other subscribers go first, and more comes meanwhile. By measurement, as the numbers above."""


@dataclass(frozen=True, slots=True)
class BatchedStreamsPeer(OnRedis):
    name: str = "batched-streams"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with redis_client(url, name) as redis:
            batches = _Batches(redis)

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                batches.add(events)
                await asyncio.sleep(0)

            yield publish
            await batches.sent()

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        async with redis_client(url, name) as redis:
            cursors: dict[Any, Any] = dict.fromkeys((region.encode() for region in regions), b"0")
            active()
            while True:
                reply: Any = await redis.xread(cursors, count=READ_COUNT, block=BLOCK_MS)
                for stream, entries in reply:
                    for _, fields in entries:
                        for payload in orjson.loads(fields[b"e"]):
                            deliver(payload)
                    cursors[stream] = entries[-1][0]
                for _ in range(READ_PAUSE_ROUNDS):
                    await asyncio.sleep(0)


class _Batches:
    """The events that one publisher has not sent yet."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._open: dict[str, list[bytes]] = {}
        self._events = 0
        self._sending: asyncio.Task[None] | None = None

    def add(self, events: Sequence[tuple[str, Payload]]) -> None:
        opened, dumps = self._open, orjson.dumps
        for region, payload in events:
            gathered = opened.get(region)
            if gathered is None:
                gathered = opened[region] = []
            gathered.append(dumps(payload))
        self._events += len(events)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def sent(self) -> None:
        """Returns when all is sent; raises what hindered it."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        while self._open:
            rounds = LINGER_ROUNDS if self._events > 1 else 0
            while self._events < LINGER_EVENTS and rounds:
                await asyncio.sleep(0)
                rounds -= 1
            taken, self._open, self._events = self._open, {}, 0
            pipeline = self._redis.pipeline(transaction=False)
            for region, gathered in taken.items():
                for first in range(0, len(gathered), ENTRY_EVENTS):
                    entry = b"[%b]" % b",".join(gathered[first : first + ENTRY_EVENTS])
                    pipeline.xadd(region, {"e": entry}, maxlen=STREAM_LENGTH)
            await pipeline.execute()
