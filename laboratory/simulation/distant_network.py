"""A network with one fixed plan whose nodes and game servers are far from each other; the core's machines, as they are.

It does what the live one does, call by call, when nobody joins or leaves: a publisher has one request under way at each
ingress, a relay one transfer on each link, and a subscriber asks each egress again when it has its answer. What comes
to a place while somebody's question is on its way there, or the answer on its way back, waits for the next question;
until things come one at a time, and are pushed (`adapters.redis.pushes`).

Before the clock starts, everybody joins, over no distance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeVar

from adapters.redis.listening import LITTLE_FRAMES, LONE_READS
from adapters.relay import BLOCK_MS as RELAY_BLOCK_MS
from gamecast.client.reading import BLOCK_MS, FRAMES_MAX
from laboratory.simulation.distant import Conditions, DistantEngine
from laboratory.simulation.engine import Call, Process, Signal, Task
from laboratory.simulation.network import events_in
from sequencing.cut import NodeReads
from sequencing.errors import UsageError
from sequencing.frames import FrameKind, LinkedFrame, PublishedFrame, StampedFrame, parse_meta
from sequencing.node import Answer, Node, TransferAnswer
from sequencing.plan import Plan
from sequencing.ready import Ready
from sequencing.record import Record
from sequencing.relay import Relay
from sequencing.session import Effects, Session

SomeAnswer = TypeVar("SomeAnswer")

SETTLE_MS = 10_000.0
STALL_MS = 600_000.0
"""How long after the last publication something may still be under way, before the simulation is broken."""


@dataclass(frozen=True, slots=True)
class Sending:
    """Something to be published: when, by whom, where; ``event`` is unique."""

    at_ms: float
    server: str
    region: str
    event: str


@dataclass(frozen=True, slots=True)
class Received:
    """A delivery: of what, and when it was where, in ms after it was published.

    ``ingress_ms``: numbered at its ingress; ``egress_ms``: in its egress stream; ``delay_ms``: delivered.
    """

    event: str
    sender: str
    region: str
    ingress_ms: float
    egress_ms: float
    delay_ms: float


def simulate(
    plan: Plan,
    membership: Mapping[str, frozenset[str]],
    sendings: Sequence[Sending],
    trip_ms: Callable[[str, str], float],
    *,
    conditions: Conditions | None = None,
    seed: int = 0,
    block_ms: float = BLOCK_MS,
) -> dict[str, list[Received]]:
    """Publish everything, and return what each server of the membership delivers, in its order; that is all of it.

    ``trip_ms(from, to)``: the one-way delay between the machines of two servers or nodes of the plan. ``block_ms``: how
    long a subscriber's read waits at a node. Deterministic in its arguments.
    """
    world = _World(plan, membership, trip_ms, conditions, seed, block_ms)
    return world.play(sendings)


class _World:
    def __init__(
        self,
        plan: Plan,
        membership: Mapping[str, frozenset[str]],
        trip_ms: Callable[[str, str], float],
        conditions: Conditions | None,
        seed: int,
        block_ms: float,
    ) -> None:
        self.plan = replace(plan, runs={})  # no node begins anew here
        self.block_ms = block_ms
        self.sent_ms: dict[str, float] = {}
        self.ingress_ms: dict[str, float] = {}
        self.egress_ms: dict[str, float] = {}
        self._written_last: dict[str, tuple[str, ...]] = {}
        self._listening: dict[str, list[_Listening]] = {name: [] for name in plan.nodes}
        self._between = trip_ms
        self._apart = False
        self._conditions = conditions or Conditions()
        self.engine = DistantEngine(Random(seed), self._trip_ms)
        self.machines = {name: Node(name) for name in plan.nodes}
        for machine in self.machines.values():
            machine.install(plan.epoch, plan.version, self.plan.steps(machine.name))
        self.nodes = {name: Process(name, list) for name in plan.nodes}
        self.servers = {name: _Server(self, name, regions) for name, regions in sorted(membership.items())}
        self._machine_of = {name: name for name in (*self.nodes, *self.servers)}
        for source, target in sorted(self.plan.links):
            relay = Process(f"relay {source} {target}", partial(self._relays, source, target))
            self._machine_of[relay.name] = source
            self.engine.launch(relay)
        members = {name: server.regions for name, server in self.servers.items()}
        heard = {name: server.session.interest() for name, server in self.servers.items()}
        for server in self.servers.values():
            server.follow(Record(self.plan, members, heard))
            self.engine.launch(server.process)

    def play(self, sendings: Sequence[Sending]) -> dict[str, list[Received]]:
        if not self.engine.run(SETTLE_MS, lambda: all(server.joined for server in self.servers.values())):
            raise UsageError("under such conditions servers do not even join: less loss, or faster nodes, may help")
        self.engine.run(self.engine.now + self.block_ms)
        self._apart, self.engine.conditions = True, self._conditions
        begin_ms = self.engine.now
        for sending in sendings:
            server = self.servers[sending.server]
            self.engine.at(begin_ms + sending.at_ms, partial(server.publish, sending.region, sending.event))
        expected = sum(s.region in server.regions for s in sendings for server in self.servers.values())
        last_ms = max((sending.at_ms for sending in sendings), default=0.0)
        if not self.engine.run(
            begin_ms + last_ms + STALL_MS,
            lambda: sum(len(server.received) for server in self.servers.values()) >= expected,
        ):
            waited = f"{STALL_MS / 1000:g} s after the last publication"
            raise UsageError(
                f"under such conditions something is not delivered {waited}: less loss, or faster nodes, may help"
            )
        return {name: server.received for name, server in self.servers.items()}

    def publish(self, node: str, frames: Sequence[PublishedFrame]) -> list[Answer]:
        """Publish at a node, and note when."""
        for frame in frames:
            if frame.kind == FrameKind.EVENTS:
                self.ingress_ms |= dict.fromkeys(events_in(frame.body), self.engine.now)
                self._note_end(node, frame)
        return self._written(node, frames, self.machines[node].publish(frames))

    def transfer(self, source: str, target: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Transfer over a link, and note when."""
        for linked in frames:
            if parse_meta(linked.frame.meta).kind == FrameKind.EVENTS:
                self._note_end(target, linked.frame)
        written = [linked.frame for linked in frames]
        return self._written(target, written, self.machines[target].transfer(source, frames))

    def found_waking(self, node: str, after: Mapping[tuple[int, str], int]) -> list[StampedFrame] | None:
        """Return what a read that has waited is answered with: of those that it reads, the streams that are new, or the
        first that the last request wrote to, see `Conditions.whole_reads`."""
        if self.engine.conditions.whole_reads:
            return _finished(self.machines[node], after)
        for region in self._written_last.get(node, ()):
            streams = {key: last for key, last in after.items() if key[1] == region}
            if found := _finished(self.machines[node], streams):
                return found
        return None

    def _written(
        self, node: str, frames: Sequence[PublishedFrame] | Sequence[StampedFrame], answer: SomeAnswer
    ) -> SomeAnswer:
        self._written_last[node] = tuple(dict.fromkeys(frame.region for frame in frames))
        for listening in self._listening[node]:
            if come := _all_finished(self.machines[node], listening.after):
                listening.after |= {(frame.epoch, frame.region): frame.last for frame in come}
                hear = partial(listening.hear, come, self.engine)
                listening.arrives_ms = self.engine.send(
                    node, listening.server, hear, not_before_ms=listening.arrives_ms
                )
        return answer

    def listen(self, node: str, listening: _Listening) -> bool:
        """Push to a server from now on what ends at a node."""
        self._listening[node].append(listening)
        return True

    def _note_end(self, node: str, frame: PublishedFrame | StampedFrame) -> None:
        if self.plan.paths[frame.region][-1] == node:
            self.egress_ms |= dict.fromkeys(events_in(frame.body), self.engine.now)

    def _trip_ms(self, here: str, there: str) -> float:
        one, other = self._machine_of[here], self._machine_of[there]
        return self._between(one, other) if self._apart and one != other else 0.0

    def _relays(self, source: str, target: str) -> list[Task]:
        return [self._carry(source, target)]

    def _carry(self, source: str, target: str) -> Task:
        here = self.machines[source]
        relay = Relay()
        while True:
            read = partial(_linked, here, target, relay.after, relay.frames_max)
            found = yield Call(self.nodes[source], read, RELAY_BLOCK_MS)
            frames = relay.read(found or [])
            if not frames:
                continue
            answer = yield Call(self.nodes[target], partial(self.transfer, source, target, frames))
            accepted = relay.answered(answer)
            if accepted is not None:
                yield Call(self.nodes[source], partial(_trim, here, target, accepted))
                relay.trimmed(accepted)


@dataclass(slots=True, eq=False)
class _Listening:
    """What a node pushes to a server: what comes after some places, (epoch, region) → region sequence."""

    server: str
    after: dict[tuple[int, str], int]
    arrives_ms: float = 0.0
    come: list[StampedFrame] = field(default_factory=list)
    heard: Signal = field(default_factory=Signal)

    def hear(self, frames: Sequence[StampedFrame], engine: DistantEngine) -> None:
        self.come += frames
        engine.give(self.heard)


class _Server:
    """A game server: a session, with a task for each node that it speaks to."""

    def __init__(self, world: _World, name: str, regions: frozenset[str]) -> None:
        self.regions = regions
        self.session: Session[str] = Session(name, 1, causal=world.plan.ordering == "causal")
        self.session.subscribe(regions)
        self.received: list[Received] = []
        self._world = world
        paths = world.plan.paths.values()
        self._to_publish = {node: Signal() for node in sorted({path[0] for path in paths})}
        self._to_read = {node: Signal() for node in sorted({path[-1] for path in paths})}
        self.process = Process(name, self._tasks)

    @property
    def joined(self) -> bool:
        return self.session.joined >= self.regions

    def follow(self, record: Record) -> None:
        self._carry_out(self.session.changed(record))

    def publish(self, region: str, event: str) -> None:
        self._world.sent_ms[event] = self._world.engine.now
        node = self.session.publish(region, event.encode(), True, 0, event)
        assert node is not None, "the plan has all regions"
        self._world.engine.give(self._to_publish[node])

    def _tasks(self) -> list[Task]:
        return [*map(self._publish_at, self._to_publish), *map(self._read_at, self._to_read)]

    def _publish_at(self, node: str) -> Task:
        world = self._world
        while True:
            frames = self.session.take(node)
            if not frames:
                yield self._to_publish[node]
                continue
            answers = yield Call(world.nodes[node], partial(world.publish, node, frames))
            self._carry_out(self.session.answered(node, answers))
            self.session.ask_again(node)

    def _read_at(self, node: str) -> Task:
        world, session = self._world, self.session
        process, machine = world.nodes[node], world.machines[node]
        looks, lone = NodeReads(), 0
        listening: _Listening | None = None
        while True:
            reads = {region: read for region, read in session.reads().items() if read.node == node}
            if not reads:
                yield self._to_read[node]
                continue
            if unknown := [(read.epoch, region) for region, read in reads.items() if read.after is None]:
                ends = yield Call(process, partial(_ends, machine, unknown))
                places = ((region, epoch, newest) for (epoch, region), newest in zip(unknown, ends, strict=True))
                self._carry_out(session.found_ends(places))
                continue
            after = {(read.epoch, region): read.after or 0 for region, read in reads.items()}
            look, streams = partial(_finished, machine, after), {region: read.epoch for region, read in reads.items()}
            found: list[StampedFrame] = []
            may_wait = looks.may_wait(streams)
            if listening is not None and may_wait:
                if not listening.come:
                    yield listening.heard
                    continue
                found, listening.come = listening.come, []
                self._carry_out(session.read(looks.result(streams, found, len(found) + 1)))
                continue
            if listening is None and lone >= LONE_READS:
                listening, may_wait = _Listening(self.process.name, dict(after)), False
                yield Call(process, partial(world.listen, node, listening))
            if may_wait:
                found = (yield Call(process, look, world.block_ms, partial(world.found_waking, node, after))) or []
            if not may_wait or (len({frame.region for frame in found}) == 1 and not looks.are_next(found)):
                found = yield Call(process, partial(_all_finished, machine, after))
            if may_wait:
                lone = lone + 1 if 0 < len(found) <= LITTLE_FRAMES else 0
            self._carry_out(session.read(looks.result(streams, found, FRAMES_MAX)))

    def _carry_out(self, effects: Effects[str]) -> None:
        world = self._world
        for item in effects.deliver:
            assert isinstance(item, Ready), f"nothing is lost here, and yet {item} is missing"
            if item.meta.kind == FrameKind.EVENTS:
                for event in events_in(item.frame.body):
                    times_ms = world.ingress_ms[event], world.egress_ms[event], world.engine.now
                    since_ms = (at_ms - world.sent_ms[event] for at_ms in times_ms)
                    self.received.append(Received(event, item.meta.publisher, item.frame.region, *since_ms))
        for resolved in effects.resolve:
            assert resolved.error is None, resolved.error
        assert not effects.mark_again, "nothing is lost here, and yet a marker is"
        for node in sorted(effects.publish):
            world.engine.give(self._to_publish[node])
        if effects.reads_changed:
            for read in self.session.reads().values():
                world.engine.give(self._to_read[read.node])


def _ends(machine: Node, streams: Sequence[tuple[int, str]]) -> list[StampedFrame | None]:
    return [machine.egress[key][-1] if machine.egress.get(key) else None for key in streams]


def _finished(machine: Node, after: Mapping[tuple[int, str], int]) -> list[StampedFrame] | None:
    return _all_finished(machine, after) or None


def _all_finished(machine: Node, after: Mapping[tuple[int, str], int]) -> list[StampedFrame]:
    found: list[StampedFrame] = []
    for key, last in after.items():
        stream = machine.egress.get(key, [])
        start = bisect_right(stream, last, key=lambda frame: frame.last)
        found += stream[start : start + FRAMES_MAX]
    return found


def _linked(machine: Node, target: str, after: int, frames_max: int) -> list[LinkedFrame] | None:
    return [linked for linked in machine.links.get(target, []) if linked.sequence > after][:frames_max] or None


def _trim(machine: Node, target: str, accepted: int) -> bool:
    machine.acknowledge(target, accepted)
    return True
