"""Redis Streams: a stream a region, read by a subscriber all at once in one blocking call; publishers pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.peers.redis_client import redis_client
from laboratory.bench.workload import Payload

BLOCK_MS = 1_000
READ_COUNT = 500
STREAM_LENGTH = 100_000


@dataclass(frozen=True, slots=True)
class StreamsPeer(OnRedis):
    name: str = "streams"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with redis_client(url, name) as redis:

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                if len(events) == 1:
                    [(region, payload)] = events
                    await redis.xadd(region, {"e": orjson.dumps(payload)}, maxlen=STREAM_LENGTH)
                    return
                pipeline = redis.pipeline(transaction=False)
                for region, payload in events:
                    pipeline.xadd(region, {"e": orjson.dumps(payload)}, maxlen=STREAM_LENGTH)
                await pipeline.execute()

            yield publish

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        async with redis_client(url, name) as redis:
            cursors: dict[Any, Any] = dict.fromkeys((region.encode() for region in regions), b"0")
            active()
            while True:
                reply: Any = await redis.xread(cursors, count=READ_COUNT, block=BLOCK_MS)
                for stream, entries in reply:
                    for _, fields in entries:
                        deliver(orjson.loads(fields[b"e"]))
                    cursors[stream] = entries[-1][0]
