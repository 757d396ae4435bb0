"""The same workload over plain Redis Pub/Sub on the same servers: what a game would do without gamecast.

Each region is a channel on one of the servers, chosen by hash. Each game server has one subscribing and one publishing
connection to every Redis server, as redis-py's own examples do it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from zlib import crc32

import orjson
import redis.asyncio

from gamecast.demo.hosting import Publication, Workload
from gamecast.demo.replay import BURST_EVENTS, Delivered, Pace, Progress, Replay, Silence, finish


async def replay_plain(
    workload: Workload, redis_urls: Mapping[str, Sequence[str]], *, speed: float, progress: Progress
) -> Replay:
    """Publish and deliver the workload; losses end the wait after a silence.

    ``redis_urls``: game server → the URLs by which it reaches the Redis servers, in one order for all.
    """
    deliveries: dict[str, list[Delivered]] = {name: [] for name in workload.servers}
    silence = Silence()
    async with AsyncExitStack() as stack:
        clients = {
            name: [await stack.enter_async_context(redis.asyncio.from_url(url)) for url in redis_urls[name]]
            for name in workload.servers
        }
        subscriptions = await asyncio.gather(
            *(_subscribe(stack, clients[name], workload.membership[name]) for name in workload.servers)
        )
        subscribed = [
            (name, subscription)
            for name, mine in zip(workload.servers, subscriptions, strict=True)
            for subscription in mine
        ]
        # Connections open on first use, which is not to count as a publication's delay.
        await asyncio.gather(*(client.ping() for mine in clients.values() for client in mine))
        complete = asyncio.Event()
        expected = Counter(workload.expected_deliveries())
        if not +expected:
            complete.set()
        begun_ns = time.monotonic_ns()
        pace = Pace(speed, workload.publications[0].t_s)

        async def receive(name: str, subscription: redis.asyncio.client.PubSub) -> None:
            seen = deliveries[name]
            async for message in subscription.listen():
                if message["type"] != "message":
                    continue
                sent_at_ns, sender, payload = orjson.loads(message["data"])
                region = message["channel"].decode()
                seen.append(Delivered(payload["id"], region, sender, sent_at_ns, time.time_ns()))
                silence.broken()
                progress(1)
                expected.subtract((name,))
                if not +expected:
                    complete.set()

        publishing = [
            asyncio.create_task(_publish(name, clients[name], workload.published_by(name), pace))
            for name in workload.servers
        ]
        receiving = [asyncio.create_task(receive(name, subscription)) for name, subscription in subscribed]
        waiting = asyncio.create_task(_wait(complete))
        await finish(publishing, [waiting], silence, background=receiving)
        seconds = max(1, silence.last_ns - begun_ns) / 1e9
    return Replay(len(workload.publications), deliveries, seconds)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _subscribe(
    stack: AsyncExitStack, clients: Sequence[redis.asyncio.Redis], regions: frozenset[str]
) -> list[redis.asyncio.client.PubSub]:
    subscriptions = []
    for place, client in enumerate(clients):
        channels = [region for region in regions if place_of(region, len(clients)) == place]
        if channels:
            subscription = await stack.enter_async_context(client.pubsub())
            await subscription.subscribe(*channels)
            for _ in channels:
                confirmed = await subscription.get_message(timeout=10)
                assert confirmed is not None
            subscriptions.append(subscription)
    return subscriptions


async def _publish(
    sender: str, clients: Sequence[redis.asyncio.Redis], publications: Sequence[Publication], pace: Pace
) -> None:
    """Publish in order, a pipeline to each server for what is due at once."""
    due: list[Publication] = []
    for publication in publications:
        ahead_s = pace.ahead_s(publication.t_s)
        if ahead_s or len(due) == BURST_EVENTS:
            await send(sender, clients, due)
            due = []
            await asyncio.sleep(pace.ahead_s(publication.t_s))
        due.append(publication)
    await send(sender, clients, due)


async def send(sender: str, clients: Sequence[redis.asyncio.Redis], due: Sequence[Publication]) -> None:
    pipelines = [client.pipeline(transaction=False) for client in clients]
    for publication in due:
        message = orjson.dumps([time.time_ns(), sender, publication.payload])
        pipelines[place_of(publication.region, len(clients))].publish(publication.region, message)
    await asyncio.gather(*(pipeline.execute() for pipeline in pipelines))


def place_of(region: str, servers: int) -> int:
    return crc32(region.encode()) % servers
