"""channels_redis, the channel layer of Django Channels: a group a region, over Redis Pub/Sub."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish
from laboratory.bench.workload import Payload

EVENT, PROBE = "game.event", "game.probe"


@dataclass(frozen=True, slots=True)
class ChannelLayerPeer(OnRedis):
    """Its Pub/Sub layer: the other one, `channels_redis.core`, drops all beyond 100 messages a channel by default.

    It encodes and decodes by itself, with msgpack. It has no way to publish many at once.
    """

    name: str = "channels-redis"

    def missing(self) -> str | None:
        return None if find_spec("channels_redis") is not None else "pip install channels_redis"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        layer = _layer(url)

        async def publish(events: Sequence[tuple[str, Payload]]) -> None:
            for region, payload in events:
                await layer.group_send(region, {"type": EVENT, "event": payload})

        try:
            yield publish
        finally:
            await layer.flush()

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        layer = _layer(url)
        try:
            channel = await layer.new_channel()
            for region in regions:
                await layer.group_add(region, channel)
            async with asyncio.TaskGroup() as group:
                probing = group.create_task(_probe(layer, regions, name))
                unheard = set(regions)
                while True:
                    message = await layer.receive(channel)
                    if message["type"] == EVENT:
                        deliver(message["event"])
                    elif message["of"] == name and unheard:
                        unheard.discard(message["region"])
                        if not unheard:
                            probing.cancel()
                            active()
        finally:
            await layer.flush()


async def _probe(layer: Any, regions: Sequence[str], name: str) -> None:
    """Send until cancelled: `group_add` returns before the server has taken the subscription."""
    while True:
        for region in regions:
            await layer.group_send(region, {"type": PROBE, "of": name, "region": region})
        await asyncio.sleep(0.05)


def _layer(url: str) -> Any:
    from channels_redis.pubsub import RedisPubSubChannelLayer

    return RedisPubSubChannelLayer(hosts=[url])
