"""Redis Pub/Sub: a channel a region, one connection a subscriber, publishers pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.peers.redis_client import redis_client
from laboratory.bench.workload import Payload


@dataclass(frozen=True, slots=True)
class PubSubPeer(OnRedis):
    name: str = "pubsub"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with redis_client(url, name) as redis:

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                if len(events) == 1:
                    [(region, payload)] = events
                    await redis.publish(region, orjson.dumps(payload))
                    return
                pipeline = redis.pipeline(transaction=False)
                for region, payload in events:
                    pipeline.publish(region, orjson.dumps(payload))
                await pipeline.execute()

            yield publish

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        async with redis_client(url, name) as redis, redis.pubsub() as channels:
            await channels.subscribe(*regions)
            waiting_for = len(regions)
            async for message in channels.listen():
                if message["type"] == "message":
                    deliver(orjson.loads(message["data"]))
                elif message["type"] == "subscribe":
                    waiting_for -= 1
                    if waiting_for == 0:
                        active()
