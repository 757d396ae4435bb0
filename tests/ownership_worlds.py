"""Servers that claim entities, publish for them, and hand them over, with faults at every step; and who judges that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import gamecast
from gamecast import Authority, Client, Conflict, Event, GamecastError
from gamecast.client.ownership import handover_of

REGIONS = ("forest", "river")
PREFIX = "owner:"


class Server:
    """One server of a world: it follows both regions, owns entities, and keeps the authorities that it has lost."""

    def __init__(self, client: Client, world: World) -> None:
        self.client = client
        self.world = world
        self.held: list[Authority] = []
        self.stale: list[Authority] = []
        """What a paused process would go on to use."""
        self.owners: dict[tuple[str, str], str | None] = {}
        """Region and entity → the position of its owner, as far as this server has been told."""
        self.following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.client.subscribe(*REGIONS)
        self.following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        while self.following is not None and not self.following.done():
            self.following.cancel()  # again, where a call that was to be broken off has taken it for that
            await asyncio.wait([self.following], timeout=1)

    async def _follow(self) -> None:
        random = self.world.random
        async for item in self.client:
            if not isinstance(item, Event) or item.key is None:
                continue
            entity = item.key.removeprefix(PREFIX)
            for region, position in item.positions.items():
                self.owners[region, entity] = None if item.payload is None else position
            if random.random() < 0.1:
                self.world.counts["never accepted"] += 1
                continue
            with suppress(GamecastError):
                mine = await self.world.at_risk(self.client.accept(item))
                if mine is not None:
                    self.world.took(mine)
                    self.held.append(mine)
                    self.world.counts["accepted"] += 1

    async def step(self) -> None:
        """Do one thing."""
        random, world = self.world.random, self.world
        choice = random.random()
        with suppress(GamecastError):
            if self.stale and choice < 0.25:
                await self._publish(random.choice(self.stale))
            elif not self.held or choice < 0.4:
                region, entity = random.choice(REGIONS), random.choice(world.entities)
                known = self.owners.get((region, entity))
                mine = await world.at_risk(self.client.authority(region, entity, after=known))
                world.took(mine)
                self.held.append(mine)
                world.counts["claimed"] += 1
            elif choice < 0.7:
                await asyncio.gather(
                    *(self._publish(random.choice(self.held)) for _ in range(3)), return_exceptions=True
                )
            else:
                mine = self.held.pop(random.randrange(len(self.held)))
                self.stale = [*self.stale[-5:], mine]
                if choice < 0.9:
                    other = random.choice([server.client.name for server in world.servers])
                    await world.at_risk(mine.hand_to(other, to=random.choice((*REGIONS, None)), state={"hp": 7}))
                    world.counts["handed over"] += 1
                elif choice < 0.95:
                    await world.at_risk(mine.release())
                else:
                    world.counts["paused"] += 1

    async def _publish(self, mine: Authority) -> None:
        payload = {"by": self.client.name, "entity": mine.entity, "token": mine.position}
        try:
            await mine.publish(payload)
        except Conflict:
            self.world.counts["refused"] += 1
            raise


class World:
    """Servers of one network, and an observer that has the order."""

    def __init__(self, seed: int, fault: Callable[[Random], Awaitable[None]]) -> None:
        self.random = Random(seed)
        self.entities = ("goblin", "wolf")
        self.servers: list[Server] = []
        self.tokens: Counter[tuple[str, str, str]] = Counter()
        self.counts: Counter[str] = Counter()
        self._fault = fault

    def took(self, mine: Authority) -> None:
        """Note that an authority was returned."""
        self.tokens[mine.region, mine.entity, mine.position] += 1

    async def at_risk(self, call: Awaitable[Any]) -> Any:
        """Await a call; at times, break connections or the call itself off in its middle."""
        chance = self.random.random()
        if chance > 0.3:
            return await call
        running = asyncio.ensure_future(call)
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        if chance < 0.1:
            self.counts["cancelled"] += 1
            running.cancel()
            try:
                return await running
            except asyncio.CancelledError:
                raise GamecastError("cancelled") from None
        self.counts["faults"] += 1
        await self._fault(self.random)
        return await running

    async def play(self, clients: Sequence[Client], observer: Client, steps: int) -> list[Event]:
        """Run it; return all events in the observer's order."""
        await observer.subscribe(*REGIONS)
        self.servers = [Server(client, self) for client in clients]
        for server in self.servers:
            await server.start()
        await asyncio.gather(*(self._run(server, steps) for server in self.servers))
        for server in self.servers:
            await server.stop()
        for region in REGIONS:
            await self._mark(observer, region)
        events: list[Event] = []
        ends = 0
        async for item in observer:
            assert isinstance(item, Event), item
            events.append(item)
            ends += item.payload == "end"
            if ends == len(REGIONS):
                return events
        raise AssertionError("the observer's connection has ended")

    async def _run(self, server: Server, steps: int) -> None:
        for _ in range(steps):
            await server.step()
            await asyncio.sleep(0)

    async def _mark(self, observer: Client, region: str) -> None:
        while True:
            try:
                await observer.publish(region, "end", key="end", only_if=None)
            except gamecast.PublishUncertain:
                continue
            except Conflict:
                return
            return


def offences(events: Iterable[Event], tokens: Counter[tuple[str, str, str]]) -> list[str]:
    """Return what is wrong: events of an owner where it was not the owner, and tokens that two have."""
    owners: dict[tuple[str, str], tuple[str, str, bool]] = {}
    found = [f"{token} was given {times} times" for token, times in tokens.items() if times > 1]
    for event in events:
        if event.key is not None and event.key.startswith(PREFIX):
            entity, handover = event.key.removeprefix(PREFIX), handover_of(event)
            for region, position in event.positions.items():
                before = owners.get((region, entity))
                if event.payload is None:
                    owners.pop((region, entity), None)
                    continue
                is_left = handover is not None and region == event.payload["from"]
                if is_left and (before is None or before[1] != event.sender or before[2]):
                    found.append(f"{event} hands over what is owned by {before}")
                if handover is None and "accepts" in event.payload and (before is None or before[1] != event.sender):
                    found.append(f"{event} accepts what is owned by {before}")
                owners[region, entity] = position, event.payload["owner"], handover is not None
        elif isinstance(event.payload, dict) and "token" in event.payload:
            [region] = event.regions
            owner = owners.get((region, event.payload["entity"]))
            if owner != (event.payload["token"], event.sender, False):
                found.append(f"{event} while the owner is {owner}")
    return found
