"""The network's own processes: sequencing nodes, relays, the control store, and managers that take turns to lead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from laboratory.simulation.engine import Call, Engine, Lost, Process, Sleep, Task, Wait
from laboratory.simulation.leading import Leading
from laboratory.simulation.lines import plan_along
from placement.planner import make_plan
from sequencing.everywhere import everywhere
from sequencing.expected import observers
from sequencing.frames import CARRIES_EVENTS, LinkedFrame, PublishedFrame, decode_body
from sequencing.keyed import NO_EXTRAS, Extras
from sequencing.landing import frame_of, which
from sequencing.manager import components
from sequencing.membership import Membership
from sequencing.node import Answer, Node, Outcome, TransferAnswer, Verdict
from sequencing.plan import Ordering, Plan
from sequencing.record import Pair, Record
from sequencing.relay import Relay, told
from sequencing.store import ControlStore

Steps = Generator[Wait, Any, Any]
T = TypeVar("T")

RELAY_FRAMES_MAX = 4


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
        self.store = ControlStore(dict.fromkeys(node_names, ""))
        self.store.lossy |= runs.keys()
        self.store.expect(expected)
        if alone_ms:
            only, *others = node_names
            self.first_plan = replace(self.first_plan, nodes={only: ""}, paths=everywhere(only), sole=only)
            self.machines[only].begin_any(1, 1)
            self.store.announced.append(Record(self.first_plan))
            self.store.is_sole = True
            for name in others:
                del self.store.nodes[name]
                engine.at(alone_ms, partial(self._register, name))
        self.store.record = Record(self.first_plan)
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
    def record(self) -> Record:
        """The record from which leaders go on."""
        assert self.store.record is not None
        return self.store.record

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
            if answer.verdict is Verdict.OK and frame.kind in CARRIES_EVENTS and 0 not in answer.numbers:
                epoch, *lasts = answer.numbers
                self._note(frame, epoch, lasts)
        return self._answered(node, answers)

    def _note(self, frame: PublishedFrame, epoch: int, lasts: Sequence[int]) -> None:
        for part, ((region, _), last) in enumerate(zip(frame.parts, lasts, strict=True)):
            self.drawn.setdefault((region, epoch), {})[last] = tuple(events_in(frame.body))
            if frame.extras is not NO_EXTRAS:
                conditions = tuple(each for each in frame.extras.conditions if each.part == part)
                extras = replace(frame.extras, conditions=conditions)
                self.keyed.append(KeyedFrame(region, epoch, last - frame.count + 1, extras))

    def transfer(self, node: str, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer | None:
        """Hand frames of a link to a node; None: see `publish`.

        It may decide events of several regions: then these have all their numbers.
        """
        machine, decided = self.machines[node], dict[tuple[str, str], Outcome]()
        landing = [
            replace(frame_of(linked.frame), extras=Extras.decode(linked.said))
            if linked.said[:1] == b"["
            else frame_of(linked.frame)
            for linked in frames
            if linked.is_undecided
        ]
        for frame in landing:
            if (known := machine.outcomes.get((frame.region, frame.publisher))) is not None:
                decided[frame.region, frame.publisher] = known
        answer = machine.transfer(source, frames)
        for frame in landing:
            key = frame.region, frame.publisher
            found = machine.outcomes.get(key)
            if found is not None and found != decided.get(key) and found.which == which(frame):
                decided[key] = found
                if found.answer.verdict is Verdict.OK:
                    epoch, *lasts = found.answer.numbers
                    self._note(frame, epoch, lasts)
        return self._answered(node, answer)

    def _answered(self, node: str, answer: T) -> T | None:
        if node not in self.lagging:
            return answer
        self.engine.changed(self.nodes[node])  # who waits for something there is woken all the same
        return None

    def crash(self, process: Process) -> None:
        """Kill -9. A node keeps all that it has said, but clients cannot be sure of that where nodes may forget."""
        if process.alive and (process.name in self.first_plan.runs or process.name in self.record.plan.runs):
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

    def _register(self, node: str) -> None:
        self.store.register(node, "")

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
        plan, record = self.record.plan, self.record
        if plan.sole or not plan.paths:
            return
        seen = observers(record.members, record.expected, plan.ordering)
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
        later = self.engine.now + late_ms

        def propose() -> None:
            self.store.propose(*proposal, self.engine.now)

        self.engine.at(later, propose)

    def _carry(self) -> list[Task]:
        names = sorted(self.machines)
        return [self._relay(source, target) for source in names for target in names if source != target]

    def _relay(self, source: str, target: str) -> Task:
        read_from = self.machines[source]
        relay, plan, is_new = Relay(RELAY_FRAMES_MAX), self.first_plan, True
        while True:
            here, there = plan.link_end(source), plan.link_end(target)
            try:
                relay.awaits_verdicts |= is_new
                if relay.awaits_verdicts:
                    yield from self._judge(source, target, plan, relay)
                    is_new = False
                read = partial(_read_link, read_from, there, relay.after, relay.frames_max)
                if relay.awaits_verdicts:
                    [found] = yield self.at(source, plan.runs, partial(_at_once, read))
                    if not found:
                        yield Sleep(2)
                        continue
                else:
                    found = yield self.at(source, plan.runs, read, 200)
                frames = relay.read(found)
                if self.is_copied:
                    yield self.at(source, plan.runs, lambda: None if source in self.lagging else True)
                relay.awaits_verdicts |= any(linked.names_keys for linked in frames)
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
                    relay, plan, is_new = Relay(RELAY_FRAMES_MAX), news, True

    def _judge(self, source: str, target: str, plan: Plan, relay: Relay) -> Steps:
        """As `RelayTask._judge`."""
        here, there = plan.link_end(source), plan.link_end(target)
        nodes = self.machines[source], self.machines[target]
        [verdicts] = yield self.at(target, plan.runs, lambda: [nodes[1].verdicts(here)])
        [passing] = yield self.at(source, plan.runs, lambda: [nodes[0].undecided()])
        known, awaits_more = told(verdicts, passing, there)
        if known:
            yield self.at(source, plan.runs, partial(_done, nodes[0].resolve, known))
        if verdicts:
            yield self.at(target, plan.runs, partial(_done, nodes[1].settle, verdicts))
        relay.awaits_verdicts = awaits_more

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


def _at_once(read: Callable[[], list[LinkedFrame] | None]) -> list[list[LinkedFrame]]:
    return [read() or []]


def _done(do: Callable[[Any], None], what: Any) -> bool:
    do(what)
    return True


def _acknowledge(machine: Node, target: str, accepted: int) -> bool:
    machine.acknowledge(target, accepted)
    return True


def _run(process: Process) -> str:
    return str(process.life)
