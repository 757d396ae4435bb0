"""Servers that roam over plain Redis Pub/Sub, as `demo.plain` replays those that stay.

To find in which order each channel's server took the events, a witness on every Redis server subscribes to all
channels: one connection gets everything in the order in which its server handles it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress

import orjson
import redis.asyncio

from demo.journey import Journey
from demo.match.hosting import Publication, Workload
from demo.patience import slowness
from demo.plain import client_of, place_of, send, until_confirmed
from demo.replay import BURST_EVENTS, IDLE_S_MAX, Delivered, Pace, Progress, Replay, Silence, finish
from sequencing.checkers.stays import Position

ALWAYS = "gamecast-demo"
"""A channel of no events that every connection is subscribed to: redis-py stops listening where there is none."""


async def replay_plain_roaming(
    workload: Workload, redis_urls: Sequence[str], *, speed: float, progress: Progress
) -> Replay:
    """Publish and deliver the workload; losses end the wait after a silence."""
    silence = Silence()
    async with AsyncExitStack() as stack:
        witness = _Witness(len(workload.publications))
        background = [witness.listen(await _listener(stack, url, everything=True)) for url in redis_urls]
        ports: dict[str, _PlainPort] = {}
        for name in workload.servers:
            clients = [await stack.enter_async_context(client_of(url)) for url in redis_urls]
            ports[name] = _PlainPort(name, clients, [await _listener(stack, url) for url in redis_urls])
        journey = Journey(workload, ports)

        async def receive(name: str, place: int) -> None:
            async for message in ports[name].messages(place):
                sent_at_ns, sender, payload = orjson.loads(message["data"])
                region = message["channel"].decode()
                journey.delivered(name, [Delivered(payload["id"], region, sender, sent_at_ns, time.time_ns())])
                silence.broken()
                progress(1)

        async def travel() -> None:
            await journey.drive(pace)
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S_MAX * slowness()):
                    await witness.complete.wait()
            # Events that the witness never received count as the last of all.
            journey.place(dict.fromkeys(journey.receipts(), (2, 0)) | witness.positions)

        background += [receive(name, place) for name in ports for place in range(len(redis_urls))]
        background += [port.send() for port in ports.values()]
        tasks = [asyncio.create_task(work) for work in background]
        try:
            await journey.settle()
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        begun_ns = time.monotonic_ns()
        pace = Pace(speed, workload.publications[0].t_s)
        completing = asyncio.create_task(journey.until_complete())
        await finish([asyncio.create_task(travel())], [completing], silence, background=tasks)
        seconds = max(1, silence.last_ns - begun_ns) / 1e9
    return Replay(len(workload.publications), journey.deliveries, seconds, journey.travels())


class _Witness:
    """Hears of every event, on all servers."""

    def __init__(self, events: int) -> None:
        self._events = events
        self.positions: dict[str, Position] = {}
        self.complete = asyncio.Event()

    async def listen(self, subscription: redis.asyncio.client.PubSub) -> None:
        async for message in subscription.listen():
            if message["type"] == "pmessage":
                # One server has all of a channel, so its order may number the events of all its channels.
                self.positions[orjson.loads(message["data"])[2]["id"]] = 1, len(self.positions) + 1
                if len(self.positions) == self._events:
                    self.complete.set()


class _PlainPort:
    """A game server's connections to every Redis server, as `Journey` uses them."""

    def __init__(
        self,
        name: str,
        clients: Sequence[redis.asyncio.Redis],
        subscriptions: Sequence[redis.asyncio.client.PubSub],
    ) -> None:
        self._name = name
        self._clients = clients
        self._subscriptions = subscriptions
        self._wanted: set[str] = set()
        self._unconfirmed: dict[str, deque[asyncio.Future[None]]] = {}
        """Channel → what waits for the answers to its subscribes and unsubscribes, in order."""
        self._queue: deque[tuple[Publication, asyncio.Future[None]]] = deque()
        self._queued = asyncio.Event()

    @property
    def decided(self) -> int:
        return 0

    async def subscribe(self, *regions: str) -> None:
        self._wanted.update(regions)
        await self._ask("subscribe", regions)

    async def unsubscribe(self, *regions: str) -> None:
        self._wanted.difference_update(regions)
        await self._ask("unsubscribe", regions)

    def publish(self, publication: Publication) -> asyncio.Future[None]:
        sent = asyncio.get_running_loop().create_future()
        self._queue.append((publication, sent))
        self._queued.set()
        return sent

    async def send(self) -> None:
        """Publish in order, with a pipeline to each server for the waiting messages."""
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                due = [self._queue.popleft() for _ in range(min(BURST_EVENTS, len(self._queue)))]
                await send(self._name, self._clients, [publication for publication, _ in due])
                for _, sent in due:
                    sent.set_result(None)

    async def messages(self, place: int) -> AsyncIterator[dict[str, bytes]]:
        """Yield messages from a server in the wanted channels to which this is already subscribed."""
        async for message in self._subscriptions[place].listen():
            channel = message["channel"].decode()
            if message["type"] == "message":
                if channel in self._wanted and not self._unconfirmed.get(channel):
                    yield message
            elif self._unconfirmed.get(channel):
                self._unconfirmed[channel].popleft().set_result(None)

    async def _ask(self, what: str, regions: Sequence[str]) -> None:
        confirmed = []
        for region in regions:
            confirmed.append(asyncio.get_running_loop().create_future())
            self._unconfirmed.setdefault(region, deque()).append(confirmed[-1])
        for place, subscription in enumerate(self._subscriptions):
            channels = [region for region in regions if place_of(region, len(self._subscriptions)) == place]
            if channels:
                await getattr(subscription, what)(*channels)
        await asyncio.gather(*confirmed)


async def _listener(stack: AsyncExitStack, url: str, *, everything: bool = False) -> redis.asyncio.client.PubSub:
    client = await stack.enter_async_context(client_of(url))
    subscription: redis.asyncio.client.PubSub = await stack.enter_async_context(client.pubsub())
    await (subscription.psubscribe("cell:*") if everything else subscription.subscribe(ALWAYS))
    await until_confirmed(subscription)
    return subscription
