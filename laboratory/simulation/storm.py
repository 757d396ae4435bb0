"""A network in memory in bad weather: requests take time, are lost, or arrive late; ends die, stop, and are cut off.

Nodes, control store, leaders, relays and connections are the product's own, as they run over ``memory://``. What this
adds is what lies between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import copy_context
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from adapters.leadership import BLIND_MS, TTL_MS
from adapters.manager import Manager
from adapters.memory import MemoryNetwork
from adapters.memoryupdates import MemoryUpdates
from adapters.memoryworld import MemoryControl, MemoryFaults, MemoryNode, MemoryNodeOperator, MemoryWorld
from adapters.presence import PresentInMemory
from adapters.relay import Relays, RelayTask
from laboratory.simulation.virtualtime import WHOSE, VirtualLoop
from sequencing.errors import Unreachable
from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.store import ControlStore, number_of
from sequencing.updates import decode

if TYPE_CHECKING:
    from adapters.network import Sender, UpdateUser
    from sequencing.sole import BeginAny, BeginNoMore
    from sequencing.transition import Task

CONTROL = "control"
"""The control store, as an end of requests."""
REFUSED_S = 0.002
"""How soon it is known that nothing listens at the other end."""
ANSWER_S_MAX = 5.0
"""So long an answer is waited for."""
NEWS_MS = 5_000
RELAY_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Weather:
    """``latency_s``, ``jitter_s``: of each way; ``lost``: the part of the requests that are lost, and of the answers;
    ``late``: the part of the lost requests that arrive later."""

    latency_s: float
    jitter_s: float
    lost: float = 0.0
    late: float = 0.5


class Storm(MemoryWorld):
    """The shared state of a world: what `MemoryWorld` has, without its leader and relays; and the weather."""

    def __init__(
        self,
        loop: VirtualLoop,
        random: Random,
        weather: Weather,
        *,
        nodes: int,
        lossy: Iterable[str] = (),
        is_alone: bool = False,
        give_up_s: float = 0.0,
    ) -> None:
        """``lossy``: the nodes that may be back with an older state; ``is_alone``: whether only the first node is
        registered; ``give_up_s``: after how long without an answer a node is given up, 0: never."""
        self.nodes = {f"n{number}": Node(f"n{number}") for number in range(1, nodes + 1)}
        there = list(self.nodes)[: 1 if is_alone else None]
        self._options = f"?give_up_s={give_up_s:g}" if give_up_s else ""
        urls = {node: self._url(node) for node in there}
        self.store = ControlStore(urls, ttl_ms=TTL_MS, blind_ms=BLIND_MS)
        self.store.lossy |= {node for node in lossy if node in there}
        self.lossy = frozenset(lossy)
        self.probes = {}
        self.present = PresentInMemory()
        self.update_users = {}
        self.loop = loop
        self.users = 1
        self.relays = _NoRelays()  # type: ignore[assignment] # a process of its own carries the links
        self.faults = MemoryFaults(self)
        self._changed = asyncio.Event()
        self.random, self.weather = random, weather
        self.lives: dict[str, int] = dict.fromkeys((*self.nodes, CONTROL), 1)
        """Node → the run of its server."""
        for node in self.lossy:
            self.nodes[node].admit("1")
        self.update_ways: dict[UpdateUser, StormyUpdates] = {}
        self.dead: set[str] = set()
        self.stopped_until: dict[str, float] = {}
        self.cut: set[frozenset[str]] = set()

    @property
    def cannot_plan(self) -> Exception | None:
        """See `MemoryWorld`: others lead."""
        return None

    async def end(self) -> None:
        """See `MemoryWorld`: nothing runs here."""

    def run_of(self, node: str) -> str:
        """Return the run of a node's server."""
        return str(self.lives[node])

    def register_all(self) -> None:
        """Register the nodes that are not."""
        for node in self.nodes:
            self.store.register(node, self._url(node), may_lose=node in self.lossy)
        self.changed()

    def _url(self, node: str) -> str:
        return f"redis://{node}{self._options}" if self._options else ""

    # What befalls it.

    def kill(self, end: str) -> None:
        """End a process as by SIGKILL. A node and the control store keep all that they have answered."""
        self.dead.add(end)
        if end in self.lives:
            self.lives[end] += 1
        self.changed()

    def start(self, end: str) -> None:
        """Start it again."""
        self.dead.discard(end)
        self.changed()

    def will_forget(self, node: str, in_s: float) -> None:
        """Have a node lose all that it learns from now on, when it is killed after some time."""
        machine, life, kept = self.nodes[node], self.lives[node], deepcopy(self.nodes[node])

        def forget() -> None:
            if self.lives[node] == life:
                self.kill(node)
                for each in fields(machine):
                    setattr(machine, each.name, getattr(kept, each.name))

        self.loop.call_later(in_s, forget)

    # What lies between.

    async def call(
        self,
        one: str,
        other: str,
        do: Callable[[], Awaitable[Any]],
        pause: Pause,
        fits: Callable[[], bool] | None = None,
    ) -> Any:
        """Have one end ask another one. ``fits``: whether the other end is the one that is meant.

        Raises `Unreachable`: then it is done, or not, or done later.
        """
        await self._travel(one, other, pause)
        dice, weather = self.random.random(), self.weather
        if dice < weather.lost:
            if self.random.random() < weather.late and other not in self.dead:
                self.loop.call_later(self.random.random(), _later, do)
            raise Unreachable(f"{other} does not answer {one}")
        if fits is not None and not fits():
            raise Unreachable(f"{other} is in another run")
        life = self.lives.get(other)
        answer = await do()
        if self.lives.get(other) != life or dice > 1 - weather.lost:
            raise Unreachable(f"the answer of {other} to {one} is lost")
        await self._travel(other, one, pause)
        return answer

    async def _travel(self, one: str, other: str, pause: Pause) -> None:
        weather, random = self.weather, self.random
        await pause.sleep(weather.latency_s + weather.jitter_s * random.random() ** 3)
        give_up_at = self.loop.time() + ANSWER_S_MAX
        while (until := max(self.stopped_until.get(_name(end), 0.0) for end in (one, other))) > self.loop.time():
            if until > give_up_at:
                await pause.sleep(give_up_at - self.loop.time())
                raise Unreachable(f"{other} does not answer {one}")
            await pause.sleep(until - self.loop.time())
        if not self.dead.isdisjoint((one, other)):
            if WHOSE.get() in self.dead:
                raise asyncio.CancelledError  # it is being ended
            await pause.sleep(REFUSED_S)
            raise Unreachable(f"nothing listens at {other}")
        if frozenset(map(_name, (one, other))) in self.cut:
            await pause.sleep(random.choice((REFUSED_S, ANSWER_S_MAX * random.random())))
            raise Unreachable(f"{other} is cut off from {one}")

    def arrival(self, one: str, other: str) -> float | None:
        """Return when a message from one end arrives at the other one, None if it does not."""
        weather, random = self.weather, self.random
        ends = {one, other}
        if ends & self.dead or frozenset(map(_name, ends)) in self.cut or random.random() < weather.lost:
            return None
        begin = max(self.loop.time(), *(self.stopped_until.get(_name(end), 0.0) for end in ends))
        return begin + weather.latency_s + weather.jitter_s * random.random() ** 3

    # The processes.

    def network(self, name: str, whose: str) -> MemoryNetwork:
        """Return the network as a connection of a process sees it."""
        return StormyNetwork(self, name, whose)

    async def manage(self, whose: str, ordering: Ordering, resume_s: float) -> None:
        """Be a leader candidate."""
        control = StormyControl(MemoryControl(self), self, whose, CONTROL, _OF_LEADERS)
        manager = Manager(control, lambda: StormyOperator(self, whose), ordering, resume_s=resume_s)
        await manager.run()

    async def carry(self, whose: str) -> None:
        """Carry all links."""
        relays = Relays(partial(self._relay_of, whose))
        pause, known = Pause(), None
        while True:
            try:
                news = await self.call(whose, CONTROL, partial(self._news, known), pause)
            except Unreachable:
                await asyncio.sleep(RELAY_AGAIN_S)
                continue
            for record in news:
                known = number_of(record.plan)
                relays.follow(record)

    async def _news(self, known: tuple[int, int] | None) -> Any:
        if not (news := self.store.news(known)):
            await self.change(NEWS_MS)
            news = self.store.news(known)
        return news

    def _relay_of(self, whose: str, source: str, target: str, plan: Plan) -> RelayTask:
        ends = plan.link_end(source), plan.link_end(target)
        return RelayTask(self._node_of(whose, source, plan), self._node_of(whose, target, plan), ends)

    def _node_of(self, whose: str, node: str, plan: Plan) -> Any:
        return StormyNode(MemoryNode(self, node), self, whose, node, plan)


class Pause:
    """The waits of one user of the network, which it can break off."""

    def __init__(self) -> None:
        self._broken = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait; raises `Unreachable` if that is broken off."""
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._broken.wait()
        except TimeoutError:
            return
        raise Unreachable("broken off")

    def break_off(self) -> None:
        """Break off the wait that there is."""
        self._broken.set()
        self._broken = asyncio.Event()


class Remote:
    """Something at another end: some of its methods are requests, the others are not."""

    def __init__(self, there: Any, storm: Storm, whose: str, end: str, requests: AbstractSet[str]) -> None:
        self._there, self._storm, self._whose, self._end, self._requests = there, storm, whose, end, requests
        self._pause = Pause()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._there, name)
        return partial(self._ask, method) if name in self._requests else method

    async def _ask(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        do = partial(method, *arguments, **options)
        return await self._storm.call(self._whose, self._end, do, self._pause, self._fits)

    def _fits(self) -> bool:
        return True


class StormyControl(Remote):
    """The control store, as a candidate uses it. A request that arrives late has what was known when it was made."""

    async def _ask(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        asking = copy(self._there)
        answer = await super()._ask(partial(getattr(type(asking), method.__name__), asking), *arguments, **options)
        self._there.learn(asking)
        return answer


class StormyNode(Remote):
    """One task's access to a node, in the run that a plan names."""

    def __init__(self, node: MemoryNode, storm: Storm, whose: str, name: str, plan: Plan) -> None:
        super().__init__(node, storm, whose, name, _OF_NODES)
        self._plan = plan

    def follow(self, plan: Plan) -> None:
        """See `Lane.follow`."""
        self._plan = plan

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._pause.break_off()
        await self._there.interrupt()

    async def close(self) -> None:
        """See `Reader.close`."""
        await self.interrupt()

    def _fits(self) -> bool:
        named = self._plan.runs.get(self._end)
        return named is None or named == self._storm.run_of(self._end)


class StormyNetwork(MemoryNetwork):
    """The network as one connection sees it."""

    def __init__(self, storm: Storm, name: str, whose: str) -> None:
        super().__init__("memory://storm", ordering="acyclic", retention_events=1_000_000)
        self._world, self._storm, self._whose = storm, storm, whose
        self._pauses = {request: Pause() for request in _OF_CONNECTIONS}

    async def open(self) -> None:
        """See `Network.open`."""

    async def close(self) -> None:
        """See `Network.close`."""

    async def stop_watching(self) -> None:
        """See `Network.stop_watching`."""
        self._pauses["news"].break_off()
        await super().stop_watching()

    def lane(self, node: str, plan: Plan, sender: Sender | None = None) -> Any:
        """See `Network.lane`."""
        return self._node(node, plan, sender)

    def reader(self, node: str, plan: Plan) -> Any:
        """See `Network.reader`."""
        return self._node(node, plan)

    def presence(self) -> Any:
        """See `Network.presence`."""
        return Remote(super().presence(), self._storm, self._whose, CONTROL, _OF_PRESENCE)

    def updates(self, user: UpdateUser) -> Any:
        """See `Network.updates`."""
        return StormyUpdates(self._storm, user, self._whose)

    def _node(self, node: str, plan: Plan, sender: Sender | None = None) -> StormyNode:
        there = MemoryNode(self._storm, node, self._name, sender)
        return StormyNode(there, self._storm, self._whose, node, plan)


def _stormy(request: str) -> Callable[..., Awaitable[Any]]:
    method = getattr(MemoryNetwork, request)

    async def ask(self: StormyNetwork, *arguments: Any, **options: Any) -> Any:
        asking = copy(self)
        do = partial(method, asking, *arguments, **options)
        answer = await self._storm.call(self._whose, CONTROL, do, self._pauses[request])
        self._name, self._connection, self._said = asking._name, asking._connection, asking._said
        return answer

    return ask


class StormyUpdates(MemoryUpdates):
    """The updates of one connection: in the order in which they were sent, if they come."""

    def __init__(self, storm: Storm, user: UpdateUser, whose: str) -> None:
        super().__init__(storm, user)
        self._storm, self._whose = storm, whose
        self._sent_at: dict[str, float] = {}
        """Node → when the last message arrives there."""
        storm.update_ways[user] = self
        self._taken_at = 0.0

    def send(self, node: str, region: str, message: bytes) -> None:
        """See `UpdatePort.send`."""
        if (at := self._storm.arrival(self._whose, node)) is not None:
            at = self._sent_at[node] = max(at, self._sent_at.get(node, 0.0))
            self._storm.loop.call_at(at, self._publish, node, region, message)

    def _publish(self, node: str, region: str, message: bytes) -> None:
        for user in list(self._storm.update_users.get((node, region), ())):
            self._storm.update_ways[user].bring(node, region, message)

    def bring(self, node: str, region: str, message: bytes) -> None:
        """Bring a message from a node to the user."""
        if (at := self._storm.arrival(node, self._whose)) is not None:
            at = self._taken_at = max(at, self._taken_at)
            self._storm.loop.call_at(at, self._user.take_updates, region, decode(message))


class StormyOperator(MemoryNodeOperator):
    """The nodes, as a leader accesses them."""

    def __init__(self, storm: Storm, whose: str) -> None:
        super().__init__(storm)
        self._storm, self._whose, self._pause = storm, whose, Pause()

    async def runs(self, nodes: Mapping[str, str]) -> Mapping[str, str]:
        """See `NodeOperator.runs`."""

        async def run_of(node: str) -> str:
            return self._storm.run_of(node)

        found: dict[str, str] = {}
        for node in nodes:
            try:
                found[node] = await self._storm.call(self._whose, node, partial(run_of, node), self._pause)
            except Unreachable:
                continue
        return found

    async def perform(self, task: Task | BeginAny | BeginNoMore, plan: Plan) -> Any:
        """See `NodeOperator.perform`."""
        named = plan.runs.get(task.node)
        do = partial(super().perform, task, plan)
        fits = None if named is None else lambda: self._storm.run_of(task.node) == named
        return await self._storm.call(self._whose, task.node, do, self._pause, fits)


def _name(end: str) -> str:
    """Return the name of a process without the number of its life."""
    return end.partition(".")[0]


class _NoRelays:
    def follow(self, _: object) -> None:
        """Others do."""


def _later(do: Callable[[], Awaitable[Any]]) -> None:
    async def done() -> None:
        await do()

    context = copy_context()
    context.run(WHOSE.set, "")
    task = asyncio.get_running_loop().create_task(done(), context=context)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())


_OF_LEADERS = frozenset(
    (
        *("look", "expected", "keep", "save", "announce", "grant", "settle", "found", "begin_to_plan", "proposal"),
        *("answer", "runs_seen", "note_runs", "incarnations", "resign", "asked"),
    )
)
_OF_NODES = frozenset(
    ("publish", "transfer", "read", "snapshots", "newest", "read_link", "sent", "taken", "acknowledge", "copied")
)
_OF_PRESENCE = frozenset(("be", "beat", "left", "end", "due", "ended"))
_OF_CONNECTIONS: Sequence[str] = (
    *("introduce", "renew", "join", "place", "declare_overlaps", "beat", "leave", "news", "plans", "ending"),
    *("no_leader_error", "latest_plan", "listed"),
)
for _request in _OF_CONNECTIONS:
    setattr(StormyNetwork, _request, _stormy(_request))
