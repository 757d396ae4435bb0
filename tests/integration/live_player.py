"""A game server made of the machines and of connections to real Redis nodes, and nothing else; and its relays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Self

from adapters.redis.announced import Told, Viewpoint
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.node import RedisNode
from laboratory.simulation.network import events_in
from laboratory.simulation.server import Delivered, Diary
from sequencing.errors import GamecastError, PublishUncertain, Superseded
from sequencing.frames import FrameKind
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.ready import Missing, Ready
from sequencing.record import Record
from sequencing.relay import Relay
from sequencing.resolved import Resolved
from sequencing.subscriber import Subscriber

IDLE_S = 0.002
BEAT_S = 1.0


class Live:
    """What follows the plans of a network, and speaks to the nodes in the runs that these name."""

    def __init__(self, url: str, nodes: Mapping[str, str]) -> None:
        self.nodes = nodes
        self.control, self._watch = LeaderControl(url), LeaderControl(url)
        self.plan: Plan | None = None
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._connections: list[RedisNode] = []

    def connection(self, name: str) -> RedisNode:
        self._connections.append(RedisNode(name, self.nodes[name]))
        return self._connections[-1]

    def start(self, *rounds: Callable[[], Awaitable[None]]) -> None:
        self._tasks = [asyncio.create_task(self._again(each)) for each in (self._follow, *rounds)]

    async def stop(self) -> None:
        self.stopping = True
        await asyncio.gather(*self._tasks)
        for connection in self._connections:
            await connection.close()
        await self.control.close()
        await self._watch.close()

    async def means(self, node: RedisNode) -> bool:
        """Whether the server behind a node is in the run that the plan names; there is a plan."""
        if self.plan is None:
            return False
        node.follow(self.plan)
        return node.name not in self.plan.runs or await node.run_id() == self.plan.runs[node.name]

    def heard(self, record: Record) -> None:
        self.plan = record.plan

    def record_of(self, told: Told) -> Record:
        return Record(told.plan)

    async def _again(self, round_: Callable[[], Awaitable[None]]) -> None:
        while not self.stopping:
            try:
                await round_()
            except GamecastError:
                await asyncio.sleep(0.02)

    async def _follow(self) -> None:
        if self.plan is None:
            newest = await self._watch.newest()
            if newest is not None:
                self.heard(newest)
            else:
                await asyncio.sleep(0.01)
            return
        for told in await self._watch.news(self.plan, block_ms=50):
            self.heard(self.record_of(told))


class LiveRelays(Live):
    """Relays for all links."""

    def start_all(self) -> None:
        names = sorted(self.nodes)
        self.start(*(self._carrier(a, b) for a in names for b in names if a != b))

    def _carrier(self, source: str, target: str) -> Callable[[], Awaitable[None]]:
        read_from, write_to = self.connection(source), self.connection(target)
        relay, ends = Relay(), ("", "")

        async def carry() -> None:
            nonlocal relay, ends
            if not (await self.means(read_from) and await self.means(write_to)):
                await asyncio.sleep(0.01)
                return
            assert self.plan is not None
            if ends != (now := (self.plan.link_end(source), self.plan.link_end(target))):
                relay, ends = Relay(), now
            read = await read_from.read_link(ends[1], relay.after, frames_max=relay.frames_max, block_ms=20)
            if frames := relay.read(read):
                accepted = relay.answered(await write_to.transfer(ends[0], frames))
                if accepted is not None:
                    await read_from.acknowledge(ends[1], accepted)
                    relay.trimmed(accepted)

        return carry


class LivePlayer(Live):
    """One game server. ``session``: what the judges of the simulation judge."""

    @classmethod
    async def join(cls, url: str, nodes: Mapping[str, str], name: str) -> Self:
        control = LeaderControl(url)
        try:
            return cls(url, nodes, name, await control.introduce(name))
        finally:
            await control.close()

    def __init__(self, url: str, nodes: Mapping[str, str], name: str, incarnation: int) -> None:
        super().__init__(url, nodes)
        self.name, self.incarnation = name, incarnation
        self.session = Diary(f"{name}#1")
        self.published_ms: dict[str, float] = {}
        self.seen: dict[str, tuple[str, int, int]] = {}
        """Event → (region, epoch, number), of what was delivered or has a receipt."""
        self.publisher: Publisher[str] = Publisher(name, incarnation)
        self.subscriber = Subscriber(name, incarnation)
        self._unplaced: set[str] = set()
        self._placing = frozenset[str]()
        self._viewpoint = Viewpoint()
        self._beat_at: float | None = None
        self.start(self._tell, *map(self._lane, nodes), *map(self._reader, nodes))

    def act(self, random: Random, regions: str) -> None:
        """Publish, join or leave."""
        dice = random.random()
        if dice < 0.8:
            for _ in range(random.choice((1, 2, 4))):
                self.publish(random.choice(regions))
        elif dice < 0.92:
            self._deliver(self.subscriber.subscribe(random.sample(regions, 2)))
        elif self.subscriber.joined:
            region = random.choice(sorted(self.subscriber.joined))
            items = self.subscriber.unsubscribe([region])
            self.session.note_left(region)
            self._deliver(items)

    def publish(self, region: str) -> None:
        event = f"{region}.{self.name}.{len(self.session.published)}"
        self.session.published.append((event, region))
        self.published_ms[event] = time.monotonic() * 1000
        if self.publisher.add(region, event.encode(), True, 0, event) is None:
            self._unplaced.add(region)

    @property
    def settled(self) -> bool:
        return not self.publisher.buffered.events and self.subscriber.joined == self.subscriber.wanted

    def record_of(self, told: Told) -> Record:
        self._viewpoint.belong_to(self.name, self.incarnation)
        return self._viewpoint.record(told)

    def heard(self, record: Record) -> None:
        super().heard(record)
        self.publisher.assign(record.plan)
        self._resolve(self.publisher.abandoned())
        self._deliver(self.subscriber.update(record))

    async def _tell(self) -> None:
        if self._beat_at is None or time.monotonic() - self._beat_at > BEAT_S:
            await self.control.beat(self.name, self.incarnation)
            self._beat_at = time.monotonic()
        if not self._unplaced <= self._placing:
            await self.control.place(self.name, self.incarnation, self._unplaced)
            self._placing = frozenset(self._unplaced)
        if (request := self.subscriber.request()) is None:
            await asyncio.sleep(IDLE_S)
            return
        [answer] = await self.control.join([(self.name, request)])
        if isinstance(answer, Superseded):
            raise answer
        self.subscriber.noted(request)

    def _lane(self, name: str) -> Callable[[], Awaitable[None]]:
        node = self.connection(name)

        async def publish() -> None:
            frames = self.publisher.take(name)
            if frames and await self.means(node):
                self._resolve(self.publisher.answered(name, await node.publish(frames)))
            await asyncio.sleep(IDLE_S)

        return publish

    def _reader(self, name: str) -> Callable[[], Awaitable[None]]:
        node = self.connection(name)

        async def read() -> None:
            reads = self.subscriber.reads(name)
            if not reads or not await self.means(node):
                await asyncio.sleep(IDLE_S)
                return
            for region, read in reads.items():
                if read.after is None:
                    [newest] = await node.newest([(region, read.epoch)])
                    self._deliver(self.subscriber.found_ends([(region, read.epoch, newest)]))
            after = {region: (read.epoch, read.after) for region, read in reads.items() if read.after is not None}
            if after:
                self._deliver(self.subscriber.receive(*await node.read(after, frames_max=64, block_ms=10)))

        return read

    def _resolve(self, resolved: Iterable[Resolved[str]]) -> None:
        for each in resolved:
            events = [event for event in each.tokens if event]
            if each.error is None:
                for number, event in enumerate(events, each.first_sequence):
                    self.session.receipts[event] = {each.region: (each.epoch, number)}
                    self.seen[event] = each.region, each.epoch, number
            else:
                assert isinstance(each.error, PublishUncertain), each.error
                self.session.uncertain.update(events)

    def _deliver(self, items: list[Ready | Missing]) -> None:
        session, now = self.session, time.monotonic() * 1000
        for item in items:
            if isinstance(item, Missing):
                session.deliveries.append(Delivered("", item.region, "", now, item))
            elif item.meta.kind == FrameKind.EVENTS:
                frame = item.frame
                events = events_in(frame.body)
                for number, event in enumerate(events, frame.last - len(events) + 1):
                    session.deliveries.append(Delivered(event, frame.region, event.split(".")[1], now))
                    self.seen[event] = frame.region, frame.epoch, number
        session.note_joined(self.subscriber.joined, now)
        for region, body in self.subscriber.marks():
            self.publisher.mark(region, body, "")


async def stopped(*lives: Live) -> None:
    """Stop them all."""
    await asyncio.gather(*(live.stop() for live in lives))
