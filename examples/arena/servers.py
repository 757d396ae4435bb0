"""The game servers: each computes its world from the events that it is told, and decides for the bots that it hosts.

`Ours` hears and speaks through gamecast, `Plain` through Redis Pub/Sub on the same Redis servers and over the same
wires, a region being a channel on one of them. All else is the same.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any

import orjson
import redis.asyncio
import redis.exceptions

import gamecast

from .board import Board
from .bots import decide
from .visitors import hoard_key, nick_of, presence_deed, scores_of, visitor_deed
from .world import REGIONS, Bot, Deed, World, region_of, state

TICK_S = 0.1
TICKS_VARY = 0.2
"""By what part of `TICK_S` a tick is longer or shorter: with ticks of one length, servers that do not meet at the start
never do."""
AGES_KEPT = 500
CONNECT_AGAIN_S = 0.1
LATER_MAX = 2_000
"""Events that a server keeps to show its world as it was before them, while another server of the regions is behind."""
BOTS_DO = ("step", "grab", "hit")
REFILL_S = 4.0
"""After so long, the hoard that somebody has taken is full again."""


class GameServer:
    """What both kinds have in common."""

    def __init__(
        self, name: str, regions: frozenset[str], board: Board, computed_by: Mapping[str, Sequence[str]], random: Random
    ) -> None:
        """``computed_by``: arena → the game servers that compute it."""
        self.name = name
        self.regions = regions
        self.world = World(regions)
        self.hosted: list[str] = []
        """The bots for which it decides."""
        self.heard = 0
        self.shown = {name: state(thing) for name, thing in self.world.things.items()}
        """The states of the things after ``shown_at`` events."""
        self.shown_at = 0
        self._later: deque[dict[str, tuple[Any, ...] | None]] = deque()
        """What each event after these did; None: the figure was removed."""
        self.lost = 0
        """Events that it could not publish, and that it was told it will not hear."""
        self.ages_ms: deque[float] = deque(maxlen=AGES_KEPT)
        """How old the last events were when they came."""
        self._board = board
        self._computed_by = computed_by
        self._random = random

    def hear(self, deed: Deed, sent_at_ns: int) -> None:
        """Let an event happen in this server's world."""
        self.heard += 1
        self.ages_ms.append((time.time_ns() - sent_at_ns) / 1e6)
        touched = self.world.apply(deed)
        self._later.append({thing.name: state(thing) if thing.name in self.world.things else None for thing in touched})
        self.show(self.heard - LATER_MAX)
        for thing in touched:
            self._board.add(thing.name, self._computed_by[thing.arena])
            self._board.note(self.name, thing.name, state(thing))

    def show(self, event: int) -> None:
        """Let ``shown`` be the world after so many events, unless it is further already."""
        while self.shown_at < event:
            for name, found in self._later.popleft().items():
                if found is None:
                    self.shown.pop(name, None)
                else:
                    self.shown[name] = found
            self.shown_at += 1

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
    """A game server over gamecast. It hears visitors, too."""

    def __init__(
        self,
        client: gamecast.Client,
        regions: frozenset[str],
        board: Board,
        computed_by: Mapping[str, Sequence[str]],
        random: Random,
    ) -> None:
        super().__init__(client.name, regions, board, computed_by, random)
        self.sibling: GameServer | None = None
        """The server of the other game to which it passes on what visitors do, so that they play in both."""
        self._client = client
        self._refills: set[asyncio.Task[None]] = set()

    async def say(self, deeds: Sequence[tuple[str, Deed]]) -> None:
        """See `GameServer.say`."""
        try:
            await self._client.publish_batch(deeds)
        except gamecast.GamecastError:
            self.lost += len(deeds)

    async def listen(self) -> None:
        """See `GameServer.listen`."""
        try:
            async for item in self._client:
                await self._take(item)
        finally:
            for task in self._refills:
                task.cancel()

    async def _take(self, item: gamecast.Event | gamecast.Gap | gamecast.State | gamecast.Presence) -> None:
        if isinstance(item, gamecast.Gap):
            self.lost += max(1, item.last_sequence - item.first_sequence + 1)
        elif isinstance(item, gamecast.Presence):
            if deed := presence_deed(item.region, item.name, item.info, is_here=item.is_here):
                await self._hear_visitor(item.region, deed, item.sent_at_ns)
        elif not isinstance(item, gamecast.Event):
            pass  # the state at the beginning, when no visitor is there
        elif item.sender.startswith("~"):  # what the gateway puts before a visitor's name
            if deed := visitor_deed(item.region, item.sender, item.payload):
                await self._hear_visitor(item.region, deed, item.sent_at_ns)
                if deed["do"] == "take" and item.key == hoard_key(deed["arena"]):
                    task = asyncio.create_task(self._refill(item))
                    self._refills.add(task)
                    task.add_done_callback(self._refills.discard)
        elif (deed := item.payload) is not None and deed.get("do") in BOTS_DO:  # not the ogre, nor a refill
            self.hear(deed, item.sent_at_ns)

    async def _hear_visitor(self, region: str, deed: Deed, sent_at_ns: int) -> None:
        if deed["arena"] not in self.world.arenas:
            return
        self.hear(deed, sent_at_ns)
        if self.sibling is not None and self._computed_by[deed["arena"]][0] == self.name:
            await self.sibling.say([(region, deed)])

    async def _refill(self, taken: gamecast.Event) -> None:
        """Fill a hoard. All servers that saw it taken try, and the condition admits one."""
        await asyncio.sleep(REFILL_S)
        refill = {"do": "refill", "nick": nick_of(taken.payload), "scores": scores_of(taken.payload)}
        with suppress(gamecast.Conflict):
            await self._client.publish(taken.region, refill, key=taken.key, only_if=taken.position)


class Plain(GameServer):
    """A game server over Redis Pub/Sub, with a connection to each Redis server to hear from, and one to speak to."""

    def __init__(
        self, name: str, regions: frozenset[str], board: Board, computed_by: Mapping[str, Sequence[str]], random: Random
    ) -> None:
        super().__init__(name, regions, board, computed_by, random)
        self._clients: list[redis.asyncio.Redis] = []
        self._subscriptions: list[redis.asyncio.client.PubSub] = []

    async def open(self, stack: AsyncExitStack, urls: Sequence[str]) -> None:
        """Subscribe; ``urls``: of the Redis servers, in the order that all game servers have."""
        self._clients = [await stack.enter_async_context(redis.asyncio.from_url(url)) for url in urls]
        for place, client in enumerate(self._clients):
            channels = [region for region in self.regions if self._place(region) == place]
            if channels:
                subscription = await stack.enter_async_context(client.pubsub())
                await subscription.subscribe(*channels)  # and again by itself, whenever it connects again
                for _ in channels:
                    await subscription.get_message(timeout=10)
                self._subscriptions.append(subscription)
            await client.ping()

    async def say(self, deeds: Sequence[tuple[str, Deed]]) -> None:
        """See `GameServer.say`. One pipeline a Redis server, so that what one server says there stays in its order."""
        pipelines = [client.pipeline(transaction=False) for client in self._clients]
        for region, deed in deeds:
            pipelines[self._place(region)].publish(region, orjson.dumps([time.time_ns(), deed]))
        await asyncio.gather(*(self._execute(pipeline) for pipeline in pipelines if len(pipeline)))

    async def _execute(self, pipeline: redis.asyncio.client.Pipeline) -> None:
        count = len(pipeline)
        try:
            await pipeline.execute()
        except (redis.exceptions.RedisError, OSError):
            self.lost += count

    async def listen(self) -> None:
        """See `GameServer.listen`."""
        async with asyncio.TaskGroup() as group:
            for subscription in self._subscriptions:
                group.create_task(self._listen_to(subscription))

    async def _listen_to(self, subscription: redis.asyncio.client.PubSub) -> None:
        while True:
            with suppress(redis.exceptions.RedisError, OSError):  # its server is down
                async for message in subscription.listen():
                    if message["type"] == "message":
                        sent_at_ns, deed = orjson.loads(message["data"])
                        self.hear(deed, sent_at_ns)
            await asyncio.sleep(CONNECT_AGAIN_S)

    def _place(self, region: str) -> int:
        return list(REGIONS).index(region) % len(self._clients)
