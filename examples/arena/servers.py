"""The game servers: each computes its world from the events that it is told, and decides for the bots that it hosts.

`Ours` hears and speaks through gamecast, `Plain` through Redis Pub/Sub on the same Redis servers and over the same
wires, a region being a channel on one of them. All else is the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import orjson
import redis.asyncio

import gamecast

from .board import Board
from .bots import decide
from .world import REGIONS, Bot, Deed, World, region_of, state

TICK_S = 0.1
TICKS_VARY = 0.2
"""By what part of `TICK_S` a tick is longer or shorter: with ticks of one length, servers that do not meet at the start
never do."""
AGES_KEPT = 500


class GameServer:
    """What both kinds have in common."""

    def __init__(self, name: str, regions: frozenset[str], board: Board, random: Random) -> None:
        self.name = name
        self.regions = regions
        self.world = World(regions)
        self.hosted: list[str] = []
        """The bots for which it decides."""
        self.heard = 0
        self.ages_ms: deque[float] = deque(maxlen=AGES_KEPT)
        """How old the last events were when they came."""
        self._board = board
        self._random = random

    def hear(self, deed: Deed, sent_at_ns: int) -> None:
        """Let an event happen in this server's world."""
        self.heard += 1
        self.ages_ms.append((time.time_ns() - sent_at_ns) / 1e6)
        for thing in self.world.apply(deed):
            self._board.note(self.name, thing.name, state(thing))

    async def play(self) -> None:
        """Decide for the hosted bots, tick by tick, until cancelled."""
        loop = asyncio.get_running_loop()
        tick_s = loop.time() + self._random.random() * TICK_S  # real servers do not tick in step
        while True:
            await asyncio.sleep(tick_s - loop.time())
            deeds = []
            for name in self.hosted:
                bot = self.world.things[name]
                assert isinstance(bot, Bot)
                deeds.append((region_of(bot), decide(self.world, bot, self._random)))
            await self.say(deeds)
            tick_s = max(tick_s + TICK_S * self._random.uniform(1 - TICKS_VARY, 1 + TICKS_VARY), loop.time())

    async def say(self, deeds: Sequence[tuple[str, Deed]]) -> None:
        """Publish what bots do, each in its region."""
        raise NotImplementedError

    async def listen(self) -> None:
        """Hear events until cancelled."""
        raise NotImplementedError


class Ours(GameServer):
    """A game server over gamecast."""

    def __init__(self, client: gamecast.Client, regions: frozenset[str], board: Board, random: Random) -> None:
        super().__init__(client.name, regions, board, random)
        self._client = client

    async def say(self, deeds: Sequence[tuple[str, Deed]]) -> None:
        """See `GameServer.say`."""
        await self._client.publish_batch(deeds)

    async def listen(self) -> None:
        """See `GameServer.listen`."""
        async for event in self._client:
            assert isinstance(event, gamecast.Event), f"no server goes away here, and yet: {event}"
            self.hear(event.payload, event.sent_at_ns)


class Plain(GameServer):
    """A game server over Redis Pub/Sub, with a connection to each Redis server to hear from, and one to speak to."""

    def __init__(self, name: str, regions: frozenset[str], board: Board, random: Random) -> None:
        super().__init__(name, regions, board, random)
        self._clients: list[redis.asyncio.Redis] = []
        self._subscriptions: list[redis.asyncio.client.PubSub] = []

    async def open(self, stack: AsyncExitStack, urls: Sequence[str]) -> None:
        """Subscribe; ``urls``: of the Redis servers, in the order that all game servers have."""
        self._clients = [await stack.enter_async_context(redis.asyncio.from_url(url)) for url in urls]
        for place, client in enumerate(self._clients):
            channels = [region for region in self.regions if self._place(region) == place]
            if channels:
                subscription = await stack.enter_async_context(client.pubsub())
                await subscription.subscribe(*channels)
                for _ in channels:
                    await subscription.get_message(timeout=10)
                self._subscriptions.append(subscription)
            await client.ping()

    async def say(self, deeds: Sequence[tuple[str, Deed]]) -> None:
        """See `GameServer.say`. One pipeline a Redis server, so that what one server says there stays in its order."""
        pipelines = [client.pipeline(transaction=False) for client in self._clients]
        for region, deed in deeds:
            pipelines[self._place(region)].publish(region, orjson.dumps([time.time_ns(), deed]))
        await asyncio.gather(*(pipeline.execute() for pipeline in pipelines if len(pipeline)))

    async def listen(self) -> None:
        """See `GameServer.listen`."""
        async with asyncio.TaskGroup() as group:
            for subscription in self._subscriptions:
                group.create_task(self._listen_to(subscription))

    async def _listen_to(self, subscription: redis.asyncio.client.PubSub) -> None:
        async for message in subscription.listen():
            if message["type"] == "message":
                sent_at_ns, deed = orjson.loads(message["data"])
                self.hear(deed, sent_at_ns)

    def _place(self, region: str) -> int:
        return list(REGIONS).index(region) % len(self._clients)
