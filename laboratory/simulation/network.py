"""The network's own processes: sequencing nodes, relays, the control store, and managers that take turns to lead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from laboratory.simulation.engine import Call, Engine, Lost, Process, Sleep, Task, Wait
from laboratory.simulation.leading import Leading
from laboratory.simulation.lines import plan_along
from placement.planner import make_plan
from sequencing.errands import Seen
from sequencing.everywhere import everywhere
from sequencing.expected import observers
from sequencing.frames import CARRIES_EVENTS, LinkedFrame, PublishedFrame, decode_body
from sequencing.joint import regions_in
from sequencing.keyed import NO_EXTRAS, Extras
from sequencing.manager import components
from sequencing.membership import Membership
from sequencing.node import Answer, Node, TransferAnswer, Verdict
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Pair, Record, Request
from sequencing.relay import Relay

Steps = Generator[Wait, Any, Any]
T = TypeVar("T")

LEASE_MS = 120.0
RELAY_FRAMES_MAX = 4


Fence = tuple[int, int]
"""What a leader writes with: its token, and how often the state was written, as it knows."""


@dataclass(slots=True)
class Store:
    """The control store: durable, and atomic in each call."""

    record: Record
    announced: list[Record] = field(default_factory=list)
    interests: dict[str, Interest] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    is_sole: bool = False
    """Whether joins are granted in place, because one node has all regions."""
    token: int = 0
    written: int = 0
    """How often the record was saved or announced."""
    lease_until: float = 0.0
    incarnation: int = 0
    proposed: tuple[str, Plan] | None = None
    """What an operator proposes, by its id, and no leader has answered."""
    gone_over: int = 0
    """How often the leader went over to a proposed plan."""
    asked: int = 0
    """How often something was asked for."""
    runs: dict[str, str] = field(default_factory=dict)
    """The run of each node that may be given up, as it was told last."""

    def next_incarnation(self) -> int:
        """Give a new connection, or an old one that asks for it, the next incarnation."""
        self.incarnation += 1
        return self.incarnation

    def join(self, name: str, request: Request) -> bool:
        """Note what a connection wants; return whether it is granted, because that takes no plan."""
        if (interest := request.after(self.interests.get(name))) is not None:
            self.interests[name] = interest
            self.asked += 1
        return self.is_sole

    def place(self, regions: frozenset[str]) -> bool:
        """Note the regions that events are to be published to."""
        self.asked += not regions <= self.published
        self.published |= regions
        return True

    def begin_to_plan(self, token: int) -> dict[str, Interest] | None:
        """Grant nothing in place from now on, if the leader with this token leads still; return what is wanted."""
        if token != self.token:
            return None
        self.is_sole = False
        return dict(self.interests)

    def grant(self, fence: Fence, record: Record) -> bool:
        """Save and announce in one step; its transition goes on."""
        return self._write(fence) and self._save(record) and self._announce(record)

    def settle(self, fence: Fence, record: Record) -> bool:
        """Save and announce in one step."""
        return self.grant(fence, record)

    def save(self, fence: Fence, record: Record) -> bool:
        """Keep a record."""
        return self._write(fence) and self._save(record)

    def announce(self, fence: Fence, record: Record) -> bool:
        """Announce a plan that all nodes know; once."""
        return self._write(fence) and self._announce(record)

    def _write(self, fence: Fence) -> bool:
        """Write, if the leader leads still, and nothing was written since it looked: an earlier call may be late."""
        if fence != (self.token, self.written):
            return False
        self.written += 1
        return True

    def _save(self, record: Record) -> bool:
        """Keep a record; of what was heard, the regions are not kept."""
        heard = {name: replace(each, since={}) for name, each in record.heard.items()}
        self.record = replace(record, heard=heard)
        return True

    def _announce(self, record: Record) -> bool:
        if not self.announced or _number(self.announced[-1].plan) < _number(record.plan):
            self.announced.append(record)
        return True

    def acquire(self, now: float) -> int | None:
        """Give the free lease to the first candidate that asks; the token fences earlier leaders."""
        if now < self.lease_until:
            return None
        self.token += 1
        self.lease_until = now + LEASE_MS
        return self.token

    def renew(self, token: int, now: float) -> bool:
        """Prolong the lease of the leader with this token."""
        if token != self.token:
            return False
        self.lease_until = now + LEASE_MS
        return True

    def look(self, token: int, now: float, network: Network) -> tuple[Seen, int] | None:
        """Tell the leader with this token all that it decides by, and how often the state was written; prolong its
        lease."""
        is_late = now >= self.lease_until
        if not self.renew(token, now):
            return None
        told = _number(self.announced[-1].plan) if self.announced else (1, 1)
        alone = self.record.plan.sole if now < network.alone_ms else ""
        seen = Seen(
            self.record,
            dict(self.interests),
            frozenset(self.record.plan.without_place(self.published)),
            told,
            str(self.asked),
            dict.fromkeys([alone] if alone else network.machines, ""),
            may_lose=frozenset() if alone else frozenset(network.first_plan.runs),
            expected=len(network.expected),
            taken=is_late,
            is_sole=self.is_sole and bool(alone),
            connections=1,
            proposed=self.proposed[0] if self.proposed is not None else "",
        )
        return seen, self.written

    def answer(self, token: int, proposal: str, answer: str) -> bool:
        """Take a leader's answer to a proposal; empty: it went over to it, or has that plan."""
        if token != self.token:
            return False
        if self.proposed is not None and self.proposed[0] == proposal:
            self.proposed = None
            self.gone_over += not answer
        return True

    def note_runs(self, token: int, runs: Mapping[str, str]) -> bool:
        """Keep the runs of some nodes for the next leader."""
        if token == self.token:
            self.runs |= runs
        return token == self.token

    def news(self, seen: int) -> list[Record] | None:
        """Return the plans announced after the first ``seen``, None when there are none."""
        return self.announced[seen:] or None


class KeyedFrame(NamedTuple):
    """An accepted frame that says something of keys; ``first``: the number of its first event."""

    region: str
    epoch: int
    first: int
    extras: Extras


class Network:
    """A running network."""

    def __init__(
        self,
        engine: Engine,
        node_names: list[str],
        ordering: Ordering,
        *,
        managers: int,
        relays: int,
        scattered: bool,
        forgetful: bool,
        expected: frozenset[Pair] = frozenset(),
        alone_ms: float = 0.0,
        is_copied: bool = False,
        give_up_ms: float = 0.0,
    ) -> None:
        """``scattered``: whether plans are sound but bad, with long paths; ``forgetful``: whether nodes may come back
        from a crash with an older state; ``alone_ms``: until when the first node is the only one, and plans list no
        region; ``is_copied``: whether that is the state of a replica, which all that was answered is in;
        ``give_up_ms``: after how long without an answer a node is given up, 0: never."""
        self.engine = engine
        self.ordering = ordering
        self.scattered = scattered
        self.expected = expected
        self.machines = {name: Node(name) for name in node_names}
        self.nodes = {name: Process(name, list) for name in node_names}
        self.drawn: dict[tuple[str, int], dict[int, tuple[str, ...]]] = {}
        self.keyed: list[KeyedFrame] = []
        """The accepted frames with keys or conditions."""
        """(region, epoch) → last number of each frame of events that an ingress accepted → the events."""
        self.forgot: set[str] = set()
        """The nodes that may have forgotten something."""
        self.given_up: set[str] = set()
        """The nodes that were given up at some time."""
        runs = dict.fromkeys(node_names, "1") if forgetful else {}
        for name in runs:
            self.machines[name].admit("1")
        self.first_plan = Plan(1, 1, ordering, dict.fromkeys(node_names, ""), {}, (), runs=runs)
        self.alone_ms = alone_ms
        self.is_copied = is_copied
        self.give_up_ms = give_up_ms
        self.lagging: set[str] = set()
        """Nodes whose replicas lack what is written there from now on: it is not answered."""
        if alone_ms:
            only = node_names[0]
            self.first_plan = replace(self.first_plan, nodes={only: ""}, paths=everywhere(only), sole=only)
            self.machines[only].begin_any(1, 1)
        self.store = Store(Record(self.first_plan), is_sole=alone_ms > 0)
        if alone_ms:
            self.store.announced.append(self.store.record)
        self.control = Process("control", list)
        self.past: dict[str, frozenset[str]] = {}
        """Event → what happened before it, as its publisher knew."""
        self.managers = [Process(f"manager{n}", list) for n in range(managers)]
        for manager in self.managers:
            manager.start = partial(self._manage, manager)
        self.relays = [Process(f"relays{n}", self._carry) for n in range(relays)]
        for process in self.processes:
            engine.launch(process)

    @property
    def processes(self) -> list[Process]:
        """All of them."""
        return [*self.nodes.values(), self.control, *self.managers, *self.relays]

    def plan(self, membership: Membership, epoch: int, first_atom: int, nodes: Mapping[str, str] | None = None) -> Plan:
        """Plan over nodes, all if None, in an order that changes with the epoch, so that paths move."""
        names = sorted(self.machines if nodes is None else nodes)
        if self.scattered:
            return self._scattered(membership, names, epoch, first_atom)
        turn = epoch % len(names)
        turned = dict.fromkeys(names[turn:] + names[:turn], "")
        return make_plan(membership, turned, epoch=epoch, first_atom=first_atom, ordering=self.ordering)

    def _scattered(
        self, membership: Membership, names: list[str], epoch: int, first_atom: int, random: Random | None = None
    ) -> Plan:
        random, last = random or self.engine.random, len(names) - 1
        meeting = random.choice((0, 0, last))
        return plan_along(
            random.sample(names, len(names)),
            membership,
            self.ordering,
            epoch=epoch,
            first_atom=first_atom,
            place=lambda _: random.randint(0, meeting),
            others=lambda: [random.randint(0, last)] * (random.random() < 0.9),
            keeps_needless=lambda: random.random() < 0.2,
        )

    def at(self, node: str, runs: Mapping[str, str], do: Callable[[], Any], wait_ms: float = 0.0) -> Call:
        """Have a node do something, if it is in the run that is meant; nothing speaks to another one."""
        process = self.nodes[node]
        if node not in runs:
            # Who knows of no run notices that a node was reset, by what it has no more.
            return Call(process, lambda: do() if not self.machines[node].run else None, wait_ms)
        return Call(process, lambda: do() if str(process.life) == runs[node] else None, wait_ms)

    def publish(self, node: str, frames: Sequence[PublishedFrame]) -> list[Answer] | None:
        """Publish at a node, and note the numbers that it draws: events that applications have to get, or gaps for
        them. None: it does not answer, because its replicas lack that."""
        answers = self.machines[node].publish(frames)
        for frame, answer in zip(frames, answers, strict=True):
            if answer.verdict is Verdict.OK and frame.kind in CARRIES_EVENTS:
                epoch, *lasts = answer.numbers
                for part, ((region, _), last) in enumerate(zip(frame.parts, lasts, strict=True)):
                    self.drawn.setdefault((region, epoch), {})[last] = tuple(events_in(frame.body))
                    if frame.extras is not NO_EXTRAS:
                        conditions = tuple(each for each in frame.extras.conditions if each.part == part)
                        extras = replace(frame.extras, conditions=conditions)
                        self.keyed.append(KeyedFrame(region, epoch, last - frame.count + 1, extras))
        return self._answered(node, answers)

    def transfer(self, node: str, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer | None:
        """Hand frames of a link to a node; None: see `publish`."""
        return self._answered(node, self.machines[node].transfer(source, frames))

    def _answered(self, node: str, answer: T) -> T | None:
        if node not in self.lagging:
            return answer
        self.engine.changed(self.nodes[node])  # who waits for something there is woken all the same
        return None

    def crash(self, process: Process) -> None:
        """Kill -9. A node keeps all that it has said, but clients cannot be sure of that where nodes may forget."""
        if process.alive and (process.name in self.first_plan.runs or process.name in self.store.record.plan.runs):
            self.forgot.add(process.name)
        self.engine.crash(process)

    def will_forget(self, node: str, at: float) -> None:
        """Have a node crash at a time and lose all that it learns from now on."""
        process, machine, kept = self.nodes[node], self.machines[node], deepcopy(self.machines[node])
        life = process.life
        if self.is_copied:
            self.lagging.add(node)

        def forget() -> None:
            self.lagging.discard(node)
            self.crash(process)
            if process.life == life:
                for each in fields(machine):
                    setattr(machine, each.name, getattr(kept, each.name))

        self.engine.at(at, forget)

    def forget_publishers(self, node: str, random: Random) -> None:
        """Have a node forget some publishers, including connected ones."""
        if self.nodes[node].alive:
            known = [each for each in self.machines[node].accepted_of if random.random() < 0.7]
            self.machines[node].forget_publishers(known, self.store.incarnation)

    def _manage(self, process: Process) -> list[Task]:
        return [Leading(self, process).run()]

    def note_given_up(self, plan: Plan) -> None:
        """Note which nodes a plan that was to be written gives up."""
        self.given_up |= plan.given_up
        self.forgot |= plan.given_up

    def runs(self, nodes: Iterable[str]) -> Steps:
        """Ask nodes which run they are in; those that do not answer are left out."""
        if not (self.give_up_ms or self.first_plan.runs):  # nothing depends on it but where new regions go
            return {node: _run(self.nodes[node]) for node in nodes if self.nodes[node].alive}
        found = {}
        for node in nodes:
            process = self.nodes[node]
            try:
                found[node] = yield Call(process, partial(_run, process))
            except Lost:
                continue
        return found

    def propose(self, random: Random, late_ms: float) -> None:
        """Have an operator propose what could be instead of what there is now, for one component or all; it is late."""
        plan, record = self.store.record.plan, self.store.record
        if plan.sole or not plan.paths:
            return
        sets = [regions_in(name) for name in plan.joint]
        seen = observers(record.members, [*record.expected, *sets], plan.ordering)
        membership = Membership.of(seen, plan.paths, plan.joint)
        names = random.sample(sorted(plan.nodes), len(plan.nodes))
        if self.scattered:
            found = self._scattered(membership, names, plan.epoch, 1, random)
        else:
            made = dict.fromkeys(names, "")
            found = make_plan(membership, made, epoch=plan.epoch, first_atom=1, ordering=self.ordering)
        if random.random() < 0.5:
            found = found.only(random.choice(sorted(components(plan, membership), key=sorted)))
        proposal = f"{random.random():.9f}", found
        self.engine.at(self.engine.now + late_ms, lambda: setattr(self.store, "proposed", proposal))

    def _carry(self) -> list[Task]:
        names = sorted(self.machines)
        return [self._relay(source, target) for source in names for target in names if source != target]

    def _relay(self, source: str, target: str) -> Task:
        read_from = self.machines[source]
        relay, plan = Relay(RELAY_FRAMES_MAX), self.first_plan
        while True:
            here, there = plan.link_end(source), plan.link_end(target)
            try:
                read = partial(_read_link, read_from, there, relay.after, relay.frames_max)
                frames = relay.read((yield self.at(source, plan.runs, read, 200)))
                if self.is_copied:
                    yield self.at(source, plan.runs, lambda: None if source in self.lagging else True)
                answer = yield self.at(target, plan.runs, partial(self.transfer, target, here, frames))
                accepted = relay.answered(answer)
                if accepted is not None:
                    yield self.at(source, plan.runs, partial(_acknowledge, read_from, there, accepted))
                    relay.trimmed(accepted)
                if relay.refused:
                    yield Sleep(2)
            except Lost:
                yield Sleep(self.engine.random.random() * 2)
                news = yield from self._newest_plan()
                if news is not None and news.runs != plan.runs:
                    relay, plan = Relay(RELAY_FRAMES_MAX), news

    def _newest_plan(self) -> Steps:
        """Return the plan that was announced last, None when that cannot be known now."""
        store = self.store
        try:
            return (yield Call(self.control, lambda: store.announced[-1].plan if store.announced else None))
        except Lost:
            return None


def events_in(body: bytes) -> list[str]:
    """The events of a frame: their payloads are their names."""
    return [payload.decode() for payload in decode_body(body)[1]]


def _read_link(machine: Node, target: str, after: int, frames_max: int) -> list[LinkedFrame] | None:
    link = machine.links.get(target, [])
    return [linked for linked in link if linked.sequence > after][:frames_max] or None


def _acknowledge(machine: Node, target: str, accepted: int) -> bool:
    machine.acknowledge(target, accepted)
    return True


def _run(process: Process) -> str:
    return str(process.life)


def _number(plan: Plan) -> tuple[int, int]:
    return plan.epoch, plan.version
