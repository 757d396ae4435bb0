"""Sessions of every kind in one world: some live, some replay, some leave and return, and all must show one order.

Nothing is simulated: the library itself runs, over a network in memory, or over an existing one. A world is drawn from
a seed; its timing is the event loop's.

One judge takes the logs of all sessions, and knows nothing of stamps. No two orders contradict each other, nor do all
of them together; each publisher's order holds; nothing comes twice; and a session that requested all of a region has
all of it. A session that returns counts as one with its earlier deliveries, for a game server keeps its world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from gamecast import Client, Event, connect
from gamecast.client.history import Since
from gamecast.errors import GamecastError, UnorderedHistory
from sequencing.checkers import DeliverySequence, judge
from sequencing.plan import Ordering

SETTLE_S = 20.0
"""How long the last events may take to all their subscribers."""
PAUSE_S = 0.004


@dataclass(frozen=True, slots=True)
class SessionWorld:
    """A network in memory, with ``nodes`` nodes.

    With causal ordering, publishers subscribe to the regions that they publish to, and are judged with the others. So
    all events delivered to one before it published must precede the published event for every subscriber.
    """

    seed: int
    nodes: int = 1
    ordering: Ordering = "acyclic"


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """The results of a world; ``refusals``: replays and returns that were refused because their regions have no order;
    ``wrong``: violations, the gravest first."""

    world: SessionWorld
    sessions: int
    published: int
    deliveries: int
    replays: int
    returns: int
    refusals: int
    wrong: tuple[str, ...]


@dataclass(slots=True)
class _Server:
    """A game server: its deliveries, over all of its connections."""

    name: str
    events: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    """The regions that it has left: its later deliveries are behind those that it would have missed there."""
    whole: set[str] = field(default_factory=set)
    """The regions of which it asked for everything, and has not left since."""
    cast: Client | None = None
    reading: asyncio.Task[None] | None = None
    gaps: int = 0

    def note(self, begins: Mapping[str, str]) -> None:
        """Go on after these positions, but where events behind them have come already."""
        for region, begin in begins.items():
            self.positions[region] = max(begin, self.positions.get(region, "0-0"), key=_place_of)

    async def read(self, cast: Client, arrived: asyncio.Event) -> None:
        async for item in cast:
            arrived.set()
            if not isinstance(item, Event):
                self.gaps += 1
                continue
            self.events.append(item.payload)
            self.regions.append(item.region)
            self.senders.append(item.sender)
            self.positions[item.region] = item.position


class _Life:
    def __init__(self, world: SessionWorld) -> None:
        self.random = Random(world.seed)
        self.ordering: Ordering = world.ordering
        self.url = f"memory://sessions-{world.seed}?nodes={world.nodes}"
        self.regions = [f"w{world.seed}-{name}" for name in "abcdefgh"[: self.random.randint(2, 8)]]
        self.published: dict[str, list[str]] = {region: [] for region in self.regions}
        self.servers: list[_Server] = []
        self.ended: list[_Server] = []
        """Servers that are no more."""
        self.replays = self.returns = self.refusals = 0
        self.wrong: list[str] = []
        self.arrived = asyncio.Event()
        """Set when any server has delivered something."""

    async def run(self) -> None:
        random = self.random
        # One client is always connected: a network in memory ends with the last that leaves.
        async with connect(self.url, name="host", ordering=self.ordering):
            senders = [_Server(f"p{number}") for number in range(random.randint(1, 3))]
            for sender in senders:
                await self._open(sender)
                if self.ordering == "causal":
                    chosen = random.sample(self.regions, random.randint(1, len(self.regions)))
                    await self._subscribed(sender, None, chosen)
            sending = [asyncio.create_task(self._publish(sender)) for sender in senders]
            for _ in range(random.randint(1, 4)):
                await self._begin(since=None)
            for _ in range(random.randint(4, 12)):
                await asyncio.sleep(random.random() * PAUSE_S * 4)
                await self._change()
            for task in sending:
                await task
            await self._settle()
            for server in [*self.servers, *senders]:
                await self._end(server)
            self.ended += senders

    async def _publish(self, sender: _Server) -> None:
        name, cast = sender.name, sender.cast
        assert cast is not None
        random, mine = Random(f"{self.url} {name}"), sorted(sender.joined) or self.regions
        for turn in range(random.randint(20, 80)):
            batch = [
                (region, f"{name}.{turn}.{place}")
                for place, region in enumerate(random.choices(mine, k=random.choice((1, 1, 2, 5))))
            ]
            for region, event in batch:
                self.published[region].append(event)
            await cast.publish_batch(batch)
            if random.random() < 0.5:
                await asyncio.sleep(random.random() * PAUSE_S)

    async def _change(self) -> None:
        random, here = self.random, [server for server in self.servers if server.cast is not None]
        away = [server for server in self.servers if server.cast is None]
        match random.choice(("live", "replay", "replay", "go", "back", "back", "join", "leave")):
            case "live":
                await self._begin(since=None)
            case "replay":
                self.replays += 1
                await self._begin(since=0)
            case "go" if here:
                await self._end(random.choice(here))
            case "back" if away:
                self.returns += 1
                await self._come_back(random.choice(away))
            case "join" if here:
                server = random.choice(here)
                assert server.cast is not None
                new = set(self.regions) - server.joined
                if new:
                    chosen = random.sample(sorted(new), random.randint(1, len(new)))
                    server.note(await server.cast.subscribe(*chosen))
                    server.joined |= set(chosen)
                    server.forgotten -= set(chosen)
            case "leave" if here:
                server = random.choice(here)
                assert server.cast is not None
                if server.joined:
                    region = random.choice(sorted(server.joined))
                    server.whole.discard(region)
                    server.joined.discard(region)
                    await server.cast.unsubscribe(region)
                    server.forgotten.add(region)

    async def _begin(self, since: int | None) -> None:
        random = self.random
        server = _Server(f"s{len(self.servers) + len(self.ended)}")
        self.servers.append(server)
        wanted = random.sample(self.regions, random.randint(1, len(self.regions)))
        await self._open(server)
        if await self._subscribed(server, dict.fromkeys(wanted, since) if since is not None else None, wanted):
            server.whole |= set(wanted if since is not None else ())

    async def _come_back(self, server: _Server) -> None:
        await self._open(server)
        since = {region: at for region, at in server.positions.items() if region not in server.forgotten}
        if since and not await self._subscribed(server, since, list(since)):
            self.wrong.append(f"refused: {server.name} came back, and the order of what it had was not kept")

    async def _subscribed(self, server: _Server, since: Since | None, wanted: Sequence[str]) -> bool:
        """Return whether a server has subscribed; it ends if its regions have no common order."""
        assert server.cast is not None
        try:
            await server.cast.subscribe(*wanted, since=since)
        except UnorderedHistory:
            self.refusals += 1
            await self._end(server)
            self.ended.append(server)
            self.servers.remove(server)
            return False
        server.joined = set(wanted)
        return True

    async def _open(self, server: _Server) -> None:
        server.cast = await connect(self.url, name=server.name, ordering=self.ordering).open()
        server.reading = asyncio.create_task(server.read(server.cast, self.arrived))

    async def _end(self, server: _Server) -> None:
        cast, reading, server.cast, server.reading = server.cast, server.reading, None, None
        if cast is None or reading is None:
            return
        reading.cancel()
        with suppress(asyncio.CancelledError, GamecastError):
            await reading
        await cast.close()

    async def _settle(self) -> None:
        """Wait until all connected subscribers have the last events; one that requested everything has everything."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while any(self._missing(server) for server in self.servers if server.cast is not None):
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            for server in self.servers:
                if server.cast is not None and (missing := self._missing(server)):
                    self.wrong.append(f"lost: {server.name} never got {len(missing)} events, {missing[0]} first")

    def _missing(self, server: _Server) -> list[str]:
        assert server.cast is not None
        had = set(server.events)
        return [
            event
            for region in sorted(server.whole & server.joined)
            for event in self.published[region]
            if event not in had
        ]


def run_sessions(world: SessionWorld) -> SessionsSeen:
    """Run a world in an event loop of its own, and judge it."""
    life = _Life(world)
    asyncio.run(life.run())
    servers = [*life.servers, *life.ended]
    sequences = [DeliverySequence(each.name, each.events, each.regions, each.senders) for each in servers]
    sent: dict[str, list[str]] = {}
    for events in life.published.values():
        for event in events:
            sent.setdefault(event.partition(".")[0], []).append(event)
    order = {name: sorted(events, key=_place) for name, events in sent.items()}
    verdict = judge(sequences, publication_order=order)
    wrong = [f"{offence.kind}: {offence.describe()}" for offence in verdict.examples]
    wrong += [f"gap: {each.name} got {each.gaps}" for each in servers if each.gaps]
    return SessionsSeen(
        world,
        sessions=len(servers),
        published=sum(map(len, life.published.values())),
        deliveries=sum(len(each.events) for each in servers),
        replays=life.replays,
        returns=life.returns,
        refusals=life.refusals,
        wrong=(*life.wrong, *wrong),
    )


def worlds(first: int, count: int, *, nodes: int, ordering: Ordering = "acyclic") -> Sequence[SessionWorld]:
    """Return the worlds of these seeds."""
    return [SessionWorld(seed, nodes, ordering) for seed in range(first, first + count)]


def _place_of(position: str) -> tuple[int, int]:
    epoch, _, sequence = position.partition("-")
    return int(epoch), int(sequence)


def _place(event: str) -> tuple[int, int]:
    _, turn, place = event.split(".")
    return int(turn), int(place)
