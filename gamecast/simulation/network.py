"""The network's own processes: sequencing nodes, relays, the control store, and managers that take turns to lead."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gamecast.simulation.engine import Call, Engine, Lost, Process, Sleep, Task, Wait
from placement.planner import make_plan
from sequencing.manager import Transition, next_record
from sequencing.membership import Membership
from sequencing.node import LinkedFrame, Node, TransferVerdict
from sequencing.plan import Ordering, Plan
from sequencing.record import Record, Wish

Steps = Generator[Wait, Any, Any]

LEASE_MS = 120.0
RELAY_FRAMES_MAX = 4


@dataclass(slots=True)
class Store:
    """The control store: durable, and atomic in each call."""

    record: Record
    announced: list[Record] = field(default_factory=list)
    wishes: dict[str, Wish] = field(default_factory=dict)
    published: set[str] = field(default_factory=set)
    token: int = 0
    lease_until: float = 0.0

    def want(self, name: str, wish: Wish, published: frozenset[str]) -> bool:
        """Note what a connection wants, unless it or a later one of its name has said something later."""
        before = self.wishes.get(name)
        if before is None or (before.incarnation, before.said) < (wish.incarnation, wish.said):
            self.wishes[name] = wish
        self.published |= published
        return True

    def acquire(self, now: float) -> int | None:
        """Give the lease to whoever asks first when it is free; the token fences earlier leaders."""
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

    def save(self, token: int, record: Record) -> bool:
        """Keep a record, if the leader with this token leads still."""
        if token != self.token:
            return False
        self.record = record
        return True

    def announce(self, token: int, record: Record) -> bool:
        """Tell everybody of a plan that all nodes know; once."""
        if token != self.token:
            return False
        if not self.announced or _number(self.announced[-1].plan) < _number(record.plan):
            self.announced.append(record)
        return True

    def news(self, seen: int) -> list[Record] | None:
        """Return the plans announced after the first ``seen``, None when there are none."""
        return self.announced[seen:] or None


class Network:
    """A running network."""

    def __init__(
        self, engine: Engine, node_names: list[str], ordering: Ordering, *, managers: int, relays: int
    ) -> None:
        self.engine = engine
        self.ordering = ordering
        self.machines = {name: Node(name) for name in node_names}
        self.nodes = {name: Process(name, list) for name in node_names}
        empty = Plan(1, 1, ordering, dict.fromkeys(node_names, ""), {}, ())
        self.store = Store(Record(empty))
        self.control = Process("control", list)
        self.past: dict[str, frozenset[str]] = {}
        """Event → what happened before it, as its publisher knew."""
        self.managers = [Process(f"manager{n}", lambda: [self._manage()]) for n in range(managers)]
        self.relays = [Process(f"relays{n}", self._carry) for n in range(relays)]
        for process in self.processes:
            engine.launch(process)

    @property
    def processes(self) -> list[Process]:
        """All of them."""
        return [*self.nodes.values(), self.control, *self.managers, *self.relays]

    def plan(self, membership: Membership, epoch: int, first_atom: int) -> Plan:
        """Plan over the nodes in an order that changes with the epoch, so that paths move."""
        names = sorted(self.machines)
        turn = epoch % len(names)
        nodes = dict.fromkeys(names[turn:] + names[:turn], "")
        return make_plan(membership, nodes, epoch=epoch, first_atom=first_atom, ordering=self.ordering)

    def _manage(self) -> Task:
        """Ask for the lease, and lead while it lasts."""
        store, engine = self.store, self.engine
        while True:
            yield Sleep(5 + 10 * engine.random.random())
            try:
                token = yield Call(self.control, lambda: store.acquire(engine.now))
                if token is not None:
                    yield from self._lead(token)
            except Lost:
                continue

    def _lead(self, token: int) -> Steps:
        store = self.store
        while (yield from self._leads(token)):
            record = yield Call(self.control, lambda: store.record)
            if record.before is not None:
                yield from self._move(record, token)
                continue
            wishes, published = yield Call(self.control, lambda: (dict(store.wishes), set(store.published)))
            following = next_record(record, wishes, published, self.plan)
            if following is None:
                yield Sleep(5)
            else:
                yield Call(self.control, partial(store.save, token, following))

    def _leads(self, token: int) -> Steps:
        store, engine = self.store, self.engine
        return (yield Call(self.control, lambda: store.renew(token, engine.now)))

    def _move(self, record: Record, token: int) -> Steps:
        """Bring a transition to its end."""
        store = self.store
        assert record.before is not None
        transition = Transition(record.before, record.plan)
        announced = False
        while not transition.finished:
            if transition.prepared and not announced:
                announced = yield Call(self.control, partial(store.announce, token, record))
                if not announced:
                    return
            for task in transition.tasks():
                try:
                    answer = yield Call(self.nodes[task.node], partial(task.perform, self.machines[task.node]))
                except Lost:
                    answer = False
                transition.done(task, answer)
            if transition.tasks() and not (yield from self._leads(token)):
                return
        if announced or (yield Call(self.control, partial(store.announce, token, record))):
            yield Call(self.control, partial(store.save, token, replace(record, before=None)))

    def _carry(self) -> list[Task]:
        names = sorted(self.machines)
        return [self._relay(source, target) for source in names for target in names if source != target]

    def _relay(self, source: str, target: str) -> Task:
        read_from, write_to = self.machines[source], self.machines[target]
        after = 0
        while True:
            try:
                frames = yield Call(self.nodes[source], partial(_read_link, read_from, target, after), wait_ms=200)
                answer = yield Call(self.nodes[target], partial(write_to.transfer, source, frames))
                yield Call(self.nodes[source], partial(_acknowledge, read_from, target, answer.accepted))
                after = answer.accepted
                if answer.verdict is not TransferVerdict.OK:
                    yield Sleep(2)
            except Lost:
                yield Sleep(self.engine.random.random() * 2)


def _read_link(machine: Node, target: str, after: int) -> list[LinkedFrame] | None:
    link = machine.links.get(target, [])
    return [linked for linked in link if linked.sequence > after][:RELAY_FRAMES_MAX] or None


def _acknowledge(machine: Node, target: str, accepted: int) -> bool:
    machine.acknowledge(target, accepted)
    return True


def _number(plan: Plan) -> tuple[int, int]:
    return plan.epoch, plan.version
