"""The simulated host of the product's own leader: carries out its errands at simulated nodes and the control store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from laboratory.simulation.engine import Call, Engine, Lost, Process, Signal, Sleep, Task, Wait
from sequencing import errands
from sequencing.changes import Changes
from sequencing.errands import Errand, Handle, Runs, Seen, Steps
from sequencing.errors import PlanError
from sequencing.leader import Leader, Pace
from sequencing.manager import following_record, proposed_record
from sequencing.membership import Membership
from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Members, Record
from sequencing.store import ControlStore, Fence, Known

Waits = Generator[Wait, Any, Any]

LEASE_MS = 120.0
PACE = Pace(look_every_s=0.02, gather_first_s=0.001, gather_s=0.001, again_s=0.002)
PLANNING_MS_MAX = (2.0, 30.0, 120.0)
"""Some leaders plan slowly: so much is asked for meanwhile."""


class Network(Protocol):
    """What a leader needs of the network; implemented by `laboratory.simulation.network`."""

    engine: Engine
    control: Process
    store: ControlStore
    ordering: Ordering
    machines: dict[str, Node]
    give_up_ms: float

    def plan(self, membership: Membership, epoch: int, first_atom: int, nodes: Mapping[str, str] | None = None) -> Plan:
        """Plan over nodes."""

    def runs(self, nodes: Iterable[str]) -> Waits:
        """Ask nodes which run they are in."""

    def at(self, node: str, runs: Mapping[str, str], do: Callable[[], Any], wait_ms: float = 0.0) -> Call:
        """Have a node do something, if it is in the run that is meant."""

    def note_given_up(self, plan: Plan) -> None:
        """Note which nodes a plan that was to be written gives up."""


class _Work:
    """Work that was begun. Implements `sequencing.errands.Handle`."""

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.waiters: list[Signal] = []
        self.task: Task | None = None

    def result(self) -> Any:
        """See `Handle.result`."""
        if self.error is not None:
            raise self.error
        return self.value


class _Planning:
    """The planner of a simulated network. Implements `sequencing.errands.Planning`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def following(
        self,
        record: Record,
        changes: Changes,
        interests: Mapping[str, Interest],
        *,
        nodes: Mapping[str, str],
        announced: bool,
        away: Members,
    ) -> Record:
        """See `Planning.following`."""
        planner = partial(self._network.plan, nodes=nodes)
        return following_record(record, changes, interests, planner, nodes=nodes, announced=announced, away=away)

    proposed_record = staticmethod(proposed_record)


class Leading:
    """A candidate that leads now and then, in one life of its process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network, self._process = network, process
        self._engine, self._store = network.engine, network.store
        self._token = f"{process.name}.{process.life}"
        self._known = Known()
        self._fence = 0
        self._begun: list[_Work] = []
        self._machine = self._new_machine()
        self._planning_ms_max = self._engine.random.choice(PLANNING_MS_MAX)

    def run(self) -> Task:
        """Ask for the lease, and lead while it lasts."""
        while True:
            yield Sleep(5 + 10 * self._engine.random.random())
            try:
                seen = yield from self._look()
            except Lost:
                continue
            if seen is not None:
                yield from self._lead(seen)

    def _new_machine(self) -> Leader:
        network = self._network
        return Leader(
            network.ordering,
            0.0,
            planning=lambda: _Planning(network),
            give_up_s_of=lambda _: network.give_up_ms / 1000,
            is_stopping=lambda: False,
            now_s=lambda: self._engine.now / 1000,
            wall_ms=lambda: int(self._engine.now),
            pace=PACE,
        )

    def _lead(self, seen: Seen | None) -> Waits:
        while seen is not None:
            if seen.taken or self._machine.is_over:
                self._machine = self._new_machine()
            try:
                yield from self._carry_out(self._machine.turn(seen))
            except Lost:
                yield Sleep(5)
            self._end_begun()
            seen = yield from self._looked_again()

    def _looked_again(self) -> Waits:
        while True:
            try:
                return (yield from self._look())
            except Lost:
                yield Sleep(5)

    def _end_begun(self) -> None:
        """End what a turn that failed has left."""
        for work in self._begun:
            if work.task is not None and not work.is_done:
                work.task.close()
        self._begun.clear()

    def _carry_out(self, steps: Steps[Any]) -> Waits:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                errand = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = yield from self._do(errand)
            except (Lost, PlanError) as failed:
                error = failed

    def _do(self, errand: Errand) -> Waits:
        network, store = self._network, self._store
        match errand:
            case errands.Look():
                return (yield from self._look(begins=False))
            case errands.Keep():
                return (yield self._call(lambda: store.keep(self._token, LEASE_MS, self._engine.now)))
            case errands.Write(how, record):
                network.note_given_up(record.plan)
                return (yield from self._fenced(getattr(store, how), record))
            case errands.Until(works, seconds, asked):
                return (yield from self._until(works, seconds, asked))
            case errands.AskRuns(nodes):
                return Runs((yield from network.runs(nodes)))
            case errands.Perform(tasks, plan):
                answers = []
                for task in tasks:
                    perform: Callable[[], Any] = partial(task.perform, network.machines[task.node])
                    try:
                        answers.append((yield network.at(task.node, plan.runs, perform)))
                    except Lost:
                        answers.append(False)
                return answers
            case errands.Begin(work):
                return self._begin(work)
            case errands.BreakOff(_Work() as work):
                if work.task is not None:
                    work.task.close()
                self._ended(work)
            case errands.Compute(function):
                yield Sleep(self._engine.random.random() * self._planning_ms_max)
                return function()
            case errands.BeginToPlan():
                return (yield from self._fenced(store.begin_to_plan))
            case errands.ReadExpected():
                return (yield self._call(lambda: store.expected))
            case errands.ReadProposal():
                [proposed] = yield self._call(lambda: (store.proposed,))
                return proposed
            case errands.AnswerProposal(proposal, answer):
                return (yield self._call(lambda: store.answer(self._token, proposal, answer, self._engine.now)))
            case errands.ReadRuns():
                return (yield self._call(lambda: dict(store.runs)))
            case errands.NoteRuns(runs):
                return (yield from self._fenced(store.note_runs, runs))
            case errands.ReadIncarnations():
                return (yield self._call(lambda: (store.incarnation, frozenset(store.connections))))
            case _:  # what is told is for operators; publishers are forgotten by a fault of its own
                pass
        return None

    def _call(self, do: Callable[[], Any]) -> Call:
        return Call(self._network.control, do)

    def _look(self, *, begins: bool = True) -> Waits:
        known = self._known

        def look() -> tuple[Seen | None, Known]:
            seen = self._store.look(self._token, LEASE_MS, self._engine.now, known)
            return seen, self._store.known

        seen, known = yield self._call(look)
        if seen is not None:
            self._known = known
            if begins:
                self._fence = known.number
        return seen

    def _fenced(self, write: Callable[..., Any], *what: Any) -> Waits:
        """Write, unless others have written since the turn began."""
        fence = Fence(self._token, self._fence)

        def do() -> tuple[Any, int]:
            return write(fence, *what, self._engine.now), self._store.known.number

        done, number = yield self._call(do)
        if done is not None and done is not False:
            self._known, self._fence = self._known._replace(number=number), number
        return done

    def _begin(self, inner: Errand | Steps[Any]) -> Handle:
        work = _Work()
        doing = self._carry_out(inner) if isinstance(inner, Generator) else self._do(inner)
        work.task = self._work(work, doing)
        self._begun.append(work)
        self._engine.spawn(self._process, work.task)
        return work

    def _work(self, work: _Work, doing: Waits) -> Task:
        try:
            work.value = yield from doing
        except (Lost, PlanError) as error:
            work.error = error
        self._ended(work)

    def _ended(self, work: _Work) -> None:
        work.is_done = True
        for signal in work.waiters:
            self._engine.give(signal)
        work.waiters.clear()

    def _until(self, works: tuple[Handle, ...], seconds: float | None, asked: str | None) -> Waits:
        mine = [work for work in works if isinstance(work, _Work)]
        if any(work.is_done for work in mine):
            return False
        signal, wait_ms = Signal(), None if seconds is None else 1_000 * seconds
        if asked is not None and wait_ms is not None:  # it hears of requests at some time, and looks without any, too
            wait_ms *= self._engine.random.random() * self._engine.random.choice((0.2, 1.0))
        for work in mine:
            work.waiters.append(signal)
        if wait_ms is not None:
            self._engine.at(self._engine.now + wait_ms, partial(self._engine.give, signal))
        yield signal
        return not any(work.is_done for work in mine)
