"""The actors of a world whose plan changes: nodes, connections with all that the product has, and the manager."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Any, NamedTuple

from laboratory.exploration.actors import events_of
from laboratory.exploration.explorer import frozen
from laboratory.simulation.lines import plan_along
from laboratory.simulation.network import events_in
from placement.planner import make_plan
from sequencing.cut import ReadResult
from sequencing.frames import CARRIES_EVENTS, LinkedFrame, StampedFrame, own_number, parse_meta
from sequencing.joint import set_name
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.ready import Missing
from sequencing.record import Interest, Pair, Record
from sequencing.session import Effects, Session
from sequencing.transition import Closed, Task, Transition

Said = tuple[int, int, tuple[tuple[str, int], ...], int]
"""A wish, as something hashable."""


class Archive:
    """The records and tasks of a world by number, so that orders are small; and the planner."""

    def __init__(
        self,
        ordering: Ordering,
        nodes: list[str],
        *,
        expected: frozenset[Pair] = frozenset(),
        apart: bool = False,
        crossing: bool = False,
    ) -> None:
        """See `laboratory.exploration.worlds_changing.Change`."""
        self.ordering = ordering
        self.nodes = nodes
        self.expected = expected
        self.apart = apart
        self.crossing = crossing
        self.records: list[Record] = []
        self.tasks: list[Task] = []
        self._numbers: dict[str, int] = {}

    def record(self, record: Record) -> int:
        """Return the number of a record."""
        return self._number(self.records, record)

    def task(self, task: Task) -> int:
        """Return the number of a task."""
        return self._number(self.tasks, task)

    def plan(self, membership: Membership, epoch: int, first_atom: int) -> Plan:
        """Plan over the nodes in an order that changes with the epoch, so that paths move."""
        last = len(self.nodes) - 1
        if self.crossing:
            sides = cycle((0, last))
            return plan_along(
                self.nodes,
                membership,
                self.ordering,
                epoch=epoch,
                first_atom=first_atom,
                place=lambda _: last // 2,
                others=lambda: [next(sides)],
            )
        if self.expected or self.apart:
            ends = count()
            return plan_along(
                self.nodes,
                membership,
                self.ordering,
                epoch=epoch,
                first_atom=first_atom,
                place=lambda number: 0 if self.apart else min(number, last),
                others=lambda: [min(next(ends), last)] if self.apart else (),
            )
        turn = epoch % len(self.nodes)
        nodes = dict.fromkeys(self.nodes[turn:] + self.nodes[:turn], "")
        return make_plan(membership, nodes, epoch=epoch, first_atom=first_atom, ordering=self.ordering)

    def _number(self, replay_cache: list[Any], what: Record | Task) -> int:
        number = self._numbers.setdefault(repr(what), len(replay_cache))
        if number == len(replay_cache):
            replay_cache.append(what)
        return number


class PlannedNodeView(NamedTuple):
    """What others see of a node."""

    heads: Mapping[str, LinkedFrame]
    egress: Mapping[tuple[int, str], tuple[StampedFrame, ...]]
    events: Mapping[tuple[int, str], tuple[str, ...]]


class PlannedNode:
    """A node that does what managers ask for."""

    def __init__(self, archive: Archive, name: str) -> None:
        self.node = Node(name)
        self._archive = archive

    def take(self, order: tuple[Any, ...]) -> Any:
        """Carry out ``publish``, ``transfer``, ``acknowledge`` or a task."""
        match order:
            case ("publish", frames):
                return tuple(self.node.publish(frames))
            case ("transfer", source, linked):
                return self.node.transfer(source, [linked])
            case ("acknowledge", target, accepted):
                return self.node.acknowledge(target, accepted)
            case ("perform", task):
                return _packed(self._archive.tasks[task].perform(self.node))
        raise ValueError(order)

    def key(self) -> Hashable:
        """Return the machine's state."""
        return frozen(self.node)

    def view(self) -> PlannedNodeView:
        """Return what is ready to be moved or read here."""
        streams = self.node.egress.items()
        return PlannedNodeView(
            {target: link[0] for target, link in self.node.links.items() if link},
            {stream: tuple(frames) for stream, frames in streams},
            {
                stream: tuple(
                    e
                    for frame in frames
                    if parse_meta(frame.meta).kind in CARRIES_EVENTS
                    for e in events_in(frame.body)
                )
                for stream, frames in streams
            },
        )


class ManagerView(NamedTuple):
    """What others see of the manager."""

    settled: bool
    tasks: tuple[int, ...]
    to_announce: bool
    announced: tuple[int, ...]


class ManagerActor:
    """The record, the transition under way, and what was announced."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        empty = Plan(1, 1, archive.ordering, dict.fromkeys(archive.nodes, ""), {}, ())
        self.record = Record(empty)
        self.transition: Transition | None = None
        self.announced: list[int] = []

    def take(self, order: tuple[Any, ...]) -> None:
        """Carry out ``decide interests``, ``done task answer``, ``announce`` or ``anew``."""
        match order:
            case ("decide", told):
                interests = {
                    name: Interest(interest[0], interest[1], dict(interest[2]), interest[3])
                    for name, interest, _ in told
                    if interest[1]
                }
                published = frozenset[str]().union(*(unplaced for _, _, unplaced in told))
                following = next_record(
                    self.record, interests, published, self._archive.plan, expected=self._archive.expected
                )
                if following is not None:
                    self.record = following
                    self._begin()
            case ("done", task, answer):
                assert self.transition is not None
                self.transition.done(self._archive.tasks[task], _unpacked(answer))
                self._end()
            case ("announce",):
                self.announced.append(self._archive.record(self.record))
                self._end()
            case ("anew",):
                self._begin()
            case _:
                raise ValueError(order)

    def key(self) -> Hashable:
        """Return what is decided, done and announced."""
        moving = self.transition
        done = (len(moving._phases), frozen(moving._closed), frozen(moving._tails)) if moving is not None else None
        return self._archive.record(self.record), self._tasks(), done, tuple(self.announced)

    def view(self) -> ManagerView:
        """Return what there is to do."""
        prepared = self.transition is not None and self.transition.prepared
        return ManagerView(
            self.transition is None, self._tasks(), prepared and not self._is_announced, tuple(self.announced)
        )

    @property
    def _is_announced(self) -> bool:
        return self._archive.record(replace(self.record)) in self.announced

    def _begin(self) -> None:
        self.transition = Transition(self.record)

    def _end(self) -> None:
        if self.transition is not None and self.transition.finished and self._is_announced:
            self.transition = None
            self.record = self.record.settled()

    def _tasks(self) -> tuple[int, ...]:
        """What is to be done; nothing before the plan is announced, once all nodes know it."""
        if self.transition is None or (self.transition.prepared and not self._is_announced):
            return ()
        return tuple(self._archive.task(task) for task in self.transition.tasks())


class RoamerView(NamedTuple):
    """What others see of a connection."""

    may_act: bool
    next_act: str
    acts_left: int
    offers: tuple[str, ...]
    reads: tuple[tuple[str, str, int, int | None], ...]
    heard: int
    interest: Said
    unplaced: frozenset[str]
    held: int
    buffered: int
    wanted: frozenset[str]
    joined: frozenset[str]
    delivered: tuple[tuple[str, str, str, float, Missing | None, bool], ...]
    published: tuple[tuple[str, str], ...]
    sessions: tuple[tuple[str, int, int | None], ...]
    past: Mapping[str, frozenset[str]]


@dataclass(slots=True)
class _Diary:
    acted: int = 0
    heard: int = 0
    delivered: list[tuple[str, str, str, float, Missing | None, bool]] = field(default_factory=list)
    published: list[tuple[str, str]] = field(default_factory=list)
    sessions: list[tuple[str, int, int | None]] = field(default_factory=list)
    past: dict[str, frozenset[str]] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)
    unplaced: set[str] = field(default_factory=set)


class Roamer:
    """A connection: its session, and what it is to do."""

    def __init__(self, archive: Archive, name: str, acts: tuple[tuple[str, str], ...], causal: bool) -> None:
        self.name, self.acts, self.causal = name, acts, causal
        self._archive = archive
        self.session: Session[str] = Session(name, 1, causal=causal)
        self.diary = _Diary()

    def take(self, order: tuple[Any, ...]) -> Any:
        """Carry out an order."""
        match order:
            case ("want", region):
                self._carry_out(self.session.subscribe([region]))
            case ("act",):
                self._act(*self.acts[self.diary.acted])
            case ("offer", node):
                self.diary.unanswered.add(node)
                self.session.ask_again(node)
                return tuple(self.session.take(node))
            case ("answered", node, answers):
                self.diary.unanswered.discard(node)
                self._carry_out(self.session.answered(node, answers))
            case ("hear", number):
                record = self._archive.records[number]
                self.diary.heard += 1
                self._carry_out(self.session.changed(record))
            case ("found_end", region, epoch, newest):
                self._carry_out(self.session.found_ends([(region, epoch, newest)]))
            case ("read", frames, streams):
                self._carry_out(self.session.read(ReadResult(frames, dict(streams))))
            case _:
                raise ValueError(order)
        return None

    def key(self) -> Hashable:
        """Return the machines' states and what is recorded."""
        return frozen(self.session), frozen(self.diary)

    def view(self) -> RoamerView:
        """Return what this connection can do now, and what it has delivered."""
        diary, session = self.diary, self.session
        left = self.acts[diary.acted :]
        interest = session.interest()
        reads = session.reads().items()
        return RoamerView(
            bool(left) and (left[0][0] != "answer" or left[0][1] in {event for event, *_ in diary.delivered}),
            " ".join(left[0]) if left else "",
            len(left),
            self._offers(),
            tuple((region, read.node, read.epoch, read.after) for region, read in reads),
            diary.heard,
            (interest.incarnation, interest.said, tuple(sorted(interest.since.items())), interest.floor),
            frozenset(diary.unplaced),
            session.held_frames,
            session.buffered.events,
            frozenset(session.wanted),
            frozenset(session.joined),
            tuple(diary.delivered),
            tuple(diary.published),
            tuple(diary.sessions),
            dict(diary.past),
        )

    def _offers(self) -> tuple[str, ...]:
        nodes, session = self._archive.nodes, self.session
        return tuple(n for n in nodes if n in self.diary.unanswered or session.waiting_events(n) or session.landing(n))

    def _act(self, what: str, region: str) -> None:
        self.diary.acted += 1
        if what == "say":
            event = f"{region}.{self.name}.{len(self.diary.published) + 1}"
            if self.causal:
                delivered = (entry[0] for entry in self.diary.delivered)
                self.diary.past[event] = frozenset(delivered).union(entry[0] for entry in self.diary.published)
            regions = tuple(region.split("+"))
            self.diary.published.append((event, regions[0]))
            if self._publish(regions, event) is None:
                self.diary.unplaced |= {*regions, set_name(regions)}
        elif what == "join":
            self._carry_out(self.session.subscribe([region]))
        elif what == "leave":
            was = region in self.session.joined
            effects = self.session.unsubscribe([region])
            if was:
                self._left(region)
            self._carry_out(effects)

    def _publish(self, regions: tuple[str, ...], event: str) -> str | None:
        if len(regions) > 1:
            return self.session.publish_joint(regions, event.encode(), True, 0, event)
        return self.session.publish(regions[0], event.encode(), True, 0, event)

    def _carry_out(self, effects: Effects[str]) -> None:
        diary = self.diary
        for resolved in effects.resolve:
            assert resolved.error is None, resolved.error
        for item in effects.deliver:
            if isinstance(item, Missing):
                diary.delivered.append(("", item.region, "", 0.0, item, False))
            else:
                had = {event for event, *_ in diary.delivered}
                diary.delivered += [
                    (event, item.frame.region, event.split(".")[1], 0.0, None, event in had)
                    for event in events_of(item)
                ]
                assert item.meta.publisher != self.name or own_number(item.frame.meta, 1, item.frame.region)
        current = {name for name, _, until in diary.sessions if until is None}
        for region in sorted(self.session.joined - current):
            diary.sessions.append((region, len(diary.delivered), None))
        for region in sorted(current - self.session.joined):
            self._left(region)

    def _left(self, region: str) -> None:
        sessions = self.diary.sessions
        for place, (name, since, until) in enumerate(sessions):
            if name == region and until is None:
                sessions[place] = region, since, len(self.diary.delivered)


Answered = bool | Mapping[tuple[str, int], Closed] | Mapping[str, int]


def _packed(answer: Answered) -> Hashable:
    if isinstance(answer, bool):
        return answer
    return tuple(
        (key, (each.tick, tuple(sorted(each.accepted.items()))) if isinstance(each, Closed) else each)
        for key, each in answer.items()
    )


def _unpacked(answer: Any) -> Answered:
    if isinstance(answer, bool):
        return answer
    unpacked: dict[Any, Any] = {
        key: each if isinstance(each, int) else Closed(each[0], dict(each[1])) for key, each in answer
    }
    return unpacked
