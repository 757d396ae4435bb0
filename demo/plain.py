"""The same workload over plain Redis Pub/Sub on the same servers: a game without gamecast.

Each region is a channel on one of the servers, chosen by hash. Each game server has one subscribing and one publishing
connection to every Redis server, as redis-py's own examples do it.

Game servers are separate programs, which read at their own times. On one event loop they would all read at the same
instants, and all would take the messages of several Redis servers in the same order. On a quiet machine that keeps an
order which nothing in Pub/Sub promises. So each game server has an event loop of its own here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from zlib import crc32

import orjson
import redis.asyncio

from demo.match.hosting import Publication, Workload
from demo.ownloop import OwnLoop
from demo.replay import BURST_EVENTS, Delivered, Pace, Progress, Replay, Silence, finish
from sequencing.errors import Unreachable

LOOPS_MAX = 32
"""With more game servers than that some share a loop: a thread and three file descriptors each are not free."""

ANSWER_S_MAX = 60.0
"""How long a server may take to answer: it has a busy machine to itself as little as we have."""

TOLD_EVERY_S = 0.1
"""How often deliveries are counted, for the progress and for the silence that ends the wait for lost ones."""


async def replay_plain(
    workload: Workload, redis_urls: Mapping[str, Sequence[str]], *, speed: float, progress: Progress
) -> Replay:
    """Publish and deliver the workload; losses end the wait after a silence.

    ``redis_urls``: game server → the URLs by which it reaches the Redis servers, in one order for all.
    """
    expected = workload.expected_deliveries()
    servers = {name: _GameServer(name, workload.membership[name], expected[name]) for name in workload.servers}
    silence = Silence()
    async with AsyncExitStack() as stack:
        names = workload.servers[:LOOPS_MAX]
        loops = dict(zip(servers, cycle([stack.enter_context(OwnLoop(name)) for name in names]), strict=False))
        for name, each in servers.items():
            stack.push_async_callback(_close, each, loops[name])
        await asyncio.gather(*(loops[name].run(each.open(redis_urls[name])) for name, each in servers.items()))
        begun_ns = time.monotonic_ns()
        pace = Pace(speed, workload.publications[0].t_s)
        publishing = [
            asyncio.create_task(loops[name].run(each.publish(workload.published_by(name), pace)))
            for name, each in servers.items()
        ]
        completing = [asyncio.create_task(loops[name].run(each.complete())) for name, each in servers.items()]
        listening = [
            asyncio.create_task(loops[name].run(each.listen(subscription)))
            for name, each in servers.items()
            for subscription in each.subscriptions
        ]
        telling = asyncio.create_task(_tell(servers.values(), silence, progress))
        await finish(publishing, completing, silence, background=[*listening, telling])
    seconds = max(1, max(each.last_ns for each in servers.values()) - begun_ns) / 1e9
    return Replay(len(workload.publications), {name: each.seen for name, each in servers.items()}, seconds)


class _GameServer:
    """One game server: all but ``last_ns`` and ``seen`` is for its own loop only."""

    def __init__(self, name: str, regions: frozenset[str], expected: int) -> None:
        self.seen: list[Delivered] = []
        self.last_ns = 0
        """When it last delivered, by the monotonic clock."""
        self.subscriptions: list[redis.asyncio.client.PubSub] = []
        self._name = name
        self._regions = regions
        self._expected = expected
        self._complete = asyncio.Event()
        self._clients: list[redis.asyncio.Redis] = []
        self._stack = AsyncExitStack()

    async def open(self, urls: Sequence[str]) -> None:
        """Connect and subscribe. Connections open on first use, which is not to count as a publication's delay."""
        self._clients = [await self._stack.enter_async_context(client_of(url)) for url in urls]
        self.subscriptions = await _subscribe(self._stack, self._clients, self._regions)
        await asyncio.gather(*(client.ping() for client in self._clients))
        if not self._expected:
            self._complete.set()

    async def close(self) -> None:
        """Close all connections."""
        await self._stack.aclose()

    async def listen(self, subscription: redis.asyncio.client.PubSub) -> None:
        """Deliver the messages of one connection, for ever."""
        async for message in subscription.listen():
            if message["type"] != "message":
                continue
            sent_at_ns, sender, payload = orjson.loads(message["data"])
            region = message["channel"].decode()
            self.seen.append(Delivered(payload["id"], region, sender, sent_at_ns, time.time_ns()))
            self.last_ns = time.monotonic_ns()
            if len(self.seen) == self._expected:
                self._complete.set()

    async def complete(self) -> None:
        """Return when as much is delivered as was to be."""
        await self._complete.wait()

    async def publish(self, publications: Sequence[Publication], pace: Pace) -> None:
        """Publish in order, with a pipeline to each Redis server for messages due at the same time."""
        due: list[Publication] = []
        for publication in publications:
            ahead_s = pace.ahead_s(publication.t_s)
            if ahead_s or len(due) == BURST_EVENTS:
                await send(self._name, self._clients, due)
                due = []
                await asyncio.sleep(pace.ahead_s(publication.t_s))
            due.append(publication)
        await send(self._name, self._clients, due)


async def _close(server: _GameServer, loop: OwnLoop) -> None:
    await loop.run(server.close())


async def _tell(servers: Collection[_GameServer], silence: Silence, progress: Progress) -> None:
    told = 0
    try:
        while True:
            await asyncio.sleep(TOLD_EVERY_S)
            if count := sum(len(each.seen) for each in servers) - told:
                silence.broken()
                progress(count)
                told += count
    finally:
        progress(sum(len(each.seen) for each in servers) - told)


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
                await until_confirmed(subscription)
            subscriptions.append(subscription)
    return subscriptions


def client_of(url: str) -> redis.asyncio.Redis:
    """Return a client that waits for as long as a server on a busy machine may take."""
    client: redis.asyncio.Redis = redis.asyncio.from_url(url, socket_timeout=ANSWER_S_MAX)
    return client


async def until_confirmed(subscription: redis.asyncio.client.PubSub) -> None:
    """Wait until the server has confirmed a channel; raises `Unreachable`."""
    if await subscription.get_message(timeout=ANSWER_S_MAX) is None:
        raise Unreachable(f"a Redis server did not confirm a subscription within {ANSWER_S_MAX:g} s")


async def send(sender: str, clients: Sequence[redis.asyncio.Redis], due: Sequence[Publication]) -> None:
    """Publish events, each over its region's server."""
    pipelines = [client.pipeline(transaction=False) for client in clients]
    for publication in due:
        message = orjson.dumps([time.time_ns(), sender, publication.payload])
        pipelines[place_of(publication.region, len(clients))].publish(publication.region, message)
    await asyncio.gather(*(pipeline.execute() for pipeline in pipelines))


def place_of(region: str, servers: int) -> int:
    """Return which of ``servers`` servers has the region's channel."""
    return crc32(region.encode()) % servers
