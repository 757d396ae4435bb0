"""One global Redis Stream: every subscriber reads all of it and drops events of other regions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.peers.redis_client import redis_client
from laboratory.bench.peers.streams import BLOCK_MS, READ_COUNT, STREAM_LENGTH
from laboratory.bench.workload import Payload

STREAM = b"world"


@dataclass(frozen=True, slots=True)
class SingleStreamPeer(OnRedis):
    """The region is a field of its own, so that only a subscriber's own events are decoded."""

    name: str = "single-stream"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with redis_client(url, name) as redis:

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                if len(events) == 1:
                    [(region, payload)] = events
                    await redis.xadd(STREAM, {"r": region, "e": orjson.dumps(payload)}, maxlen=STREAM_LENGTH)
                    return
                pipeline = redis.pipeline(transaction=False)
                for region, payload in events:
                    pipeline.xadd(STREAM, {"r": region, "e": orjson.dumps(payload)}, maxlen=STREAM_LENGTH)
                await pipeline.execute()

            yield publish

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        own = frozenset(region.encode() for region in regions)
        async with redis_client(url, name) as redis:
            cursor = b"0"
            active()
            while True:
                reply: Any = await redis.xread({STREAM: cursor}, count=READ_COUNT, block=BLOCK_MS)
                for _, entries in reply:
                    for _, fields in entries:
                        if fields[b"r"] in own:
                            deliver(orjson.loads(fields[b"e"]))
                    cursor = entries[-1][0]
