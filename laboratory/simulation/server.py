"""A game server in the simulation: the session of one connection, and what the server does with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

from gamecast.client.incoming import STATE_MARKER
from gamecast.client.states import Contained, Standing, States, cuts_in
from gamecast.positions import parse_position
from laboratory.simulation.engine import Call, Lost, Process, Signal, Sleep, Task
from laboratory.simulation.network import Network, events_in
from sequencing.cut import NodeReads, Streams
from sequencing.errors import Conflict, NotTogether, PublishUncertain
from sequencing.followed import Read
from sequencing.frames import CARRIES_EVENTS, UNKNOWN_END, PublishedFrame, StampedFrame, joint_parts, node_number
from sequencing.had import Had
from sequencing.joint import set_name
from sequencing.keyed import Condition, Position
from sequencing.node import Node
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Record
from sequencing.resolved import Resolved
from sequencing.session import Effects, Session
from sequencing.store import ControlStore, Heard, number_of

READ_FRAMES_MAX = 4
LAG_MS = 40.0
"""How long a reader may take until it looks again at a node that it is slow with: others are ahead of that."""


@dataclass(slots=True)
class Delivered:
    """One delivery, as the application saw it; ``missing``: that of a gap, without ``event``."""

    event: str
    region: str
    sender: str
    at_ms: float
    missing: Missing | None = None
    is_again: bool = False
    """Whether the application had this event of several regions by another one."""


JOINT = 0.15
"""So many of the events go to several regions, where these are together."""

KEYS = "xyz"
KEYED = 0.3
"""So many of the events say something of keys."""


class State(NamedTuple):
    """The keys of a region, as the application was given them; ``place``: after how many deliveries."""

    place: int
    region: str
    position: Position
    heads: Mapping[str, Position]
    is_incomplete: bool


STATE = 0.4
"""So many of the regions are subscribed to with their state."""

RETURNS = 0.2
"""So often somebody who leaves a region leaves all, and wants them again a moment later."""


@dataclass(slots=True)
class Diary:
    """What one life of a server did: what the checkers judge."""

    name: str
    deliveries: list[Delivered] = field(default_factory=list)
    published: list[tuple[str, str]] = field(default_factory=list)
    """(event, region), in the order of the calls."""
    past: dict[str, frozenset[str]] = field(default_factory=dict)
    """Event → the events that its publisher had delivered or published before, and what is in their pasts."""
    joined: list[tuple[str, int, int | None]] = field(default_factory=list)
    """(region, deliveries so far when it was joined, and when it was left; None for never)."""
    joined_ms: list[float] = field(default_factory=list)
    receipts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """Event → its regions → (epoch, number)."""
    refused: set[str] = field(default_factory=set)
    """Events that were certainly not published, because of their conditions, or because their regions have parted."""
    uncertain: set[str] = field(default_factory=set)
    """Events of which the publisher was told that nobody knows what became of them."""
    states: list[State] = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)
    """(region, deliveries so far when its state was asked for)."""
    left: list[tuple[str, int]] = field(default_factory=list)
    """(region, deliveries so far when it was left, whether it was joined or not)."""
    ended: bool = False

    def note_joined(self, joined: AbstractSet[str], now_ms: float) -> None:
        """Note which regions are joined now, after the deliveries so far."""
        current = {name for name, _, until in self.joined if until is None}
        for region in sorted(joined - current):
            self.joined.append((region, len(self.deliveries), None))
            self.joined_ms.append(now_ms)
        for region in sorted(current - joined):
            self.note_left(region)

    def note_left(self, region: str) -> None:
        """Note that a region is left, after the deliveries so far."""
        for place, (name, since, until) in enumerate(self.joined):
            if name == region and until is None:
                self.joined[place] = region, since, len(self.deliveries)


class Server:
    """One game server, through all its lives."""

    def __init__(
        self, network: Network, name: str, regions: str, *, causal: bool, restless: float, reach: int = 0
    ) -> None:
        self.network = network
        self.name = name
        self.regions = regions
        self.causal = causal
        self.restless = restless
        self.reach = reach
        self.roaming = True
        self.busy = True
        self.sessions: list[Diary] = []
        self.process = Process(name, self._start)
        self.published = 0
        self.published_ms: dict[str, float] = {}
        self.heads: dict[tuple[str, str], Position | None] = {}
        """(region, key) → where it was set last, as far as this server was told."""

    def _start(self) -> list[Task]:
        if self.sessions:
            self.sessions[-1].ended = True
        life = _Life(self, self.network.store.introduce(self.name, self.network.engine.now))
        self.life = life
        return [
            life.play(),
            life.follow(),
            life.tell(),
            life.renew(),
            life.ask(),
            *(life.lane(n) for n in self.network.nodes),
            *(life.read(n) for n in self.network.nodes),
        ]

    @property
    def settled(self) -> bool:
        """Whether nothing of this server is under way."""
        life = self.life
        return (
            self.process.alive
            and not life.session.buffered.events
            and life.session.joined == life.session.wanted
            and not life.states.asked
            and not life.session.held_frames
        )


class _Life:
    def __init__(self, server: Server, incarnation: int) -> None:
        self.server = server
        self.network = server.network
        self.engine = server.network.engine
        self.diary = Diary(f"{server.name}#{len(server.sessions) + 1}")
        server.sessions.append(self.diary)
        self.session: Session[str] = Session(server.name, incarnation, causal=server.causal)
        self.incarnation = incarnation
        self.unplaced: set[str] = set()
        self.is_planned = not self.network.alone_ms
        self.known: set[str] = set()
        self.passed: dict[str, Position] = {}
        self.had = Had(self.passed)
        self.states = States()
        self.contained: set[tuple[str, str]] = set()
        """Event, and the region as one of which it was delivered: the state of another one has it."""
        self.begins: dict[str, Position] = {}
        self.plan: Plan | None = None
        self.naming: dict[str, tuple[tuple[str, str], bool] | None] = {}
        """Event without a fate that says something of keys → the (region, key) that it names, and whether it deletes
        it."""
        self.undelivered: dict[str, set[str]] = {}
        """Region → the own events that are under way."""
        self.over: dict[str, int] = {}
        """Region → the last epoch that was delivered to its end."""
        self.runs: Mapping[str, str] = {}
        self.to_publish = {node: Signal() for node in self.network.nodes}
        self.lone: dict[str, list[PublishedFrame]] = {}
        """Node → the frame that was taken when its event was published."""
        self.parked: set[str] = set()
        """The nodes to which nothing is under way."""
        self.to_read = {node: Signal() for node in self.network.nodes}
        self.to_tell = Signal()
        self.to_renew = Signal()
        self.to_ask = Signal()

    def play(self) -> Task:
        """Publish, join and leave, as the dice say."""
        server, random = self.server, self.engine.random
        yield Sleep(random.random() * 5)
        few = min(1 if server.reach else 3, random.randint(1, len(server.regions)))
        self._subscribe(random.sample(server.regions, few))
        while True:
            yield Sleep(random.random() * 25)
            if not server.busy:
                continue
            dice = random.random()
            if dice >= server.restless:
                mine = sorted(self.session.joined) if server.causal else list(server.regions)
                for _ in range(random.choice((1, 2, 4, 8)) if mine else 0):
                    self._publish(random.choice(mine))
            elif server.roaming and server.reach and dice < server.restless * 0.95:
                self._walk()
            elif server.roaming and dice < server.restless * 0.6:
                self._subscribe(random.choice(server.regions))
            elif server.roaming:
                leaving = [r for r in sorted(self.session.wanted) if not self.undelivered.get(r)]
                if leaving and Random(f"{self.diary.name} {len(self.diary.left)} returns").random() < RETURNS:
                    yield from self._leave_for_a_moment(leaving)
                elif leaving:
                    self._leave(random.choice(leaving))

    def _leave_for_a_moment(self, regions: Iterable[str]) -> Task:
        for region in regions:
            self._leave(region)
        yield Sleep(self.engine.random.random() * 30)
        if self.server.life is self and self.server.process.alive:
            self._subscribe(regions)

    def _walk(self) -> None:
        """Go on along the line, with a view of so many regions as are expected to overlap, or fewer."""
        server, random, wanted = self.server, self.engine.random, self.session.wanted
        start = min((server.regions.index(region) for region in wanted), default=0) + random.choice((-1, 0, 1))
        start = max(0, min(start, len(server.regions) - 1))
        view = server.regions[start : start + random.randint(1, server.reach + 1)]
        leaving = wanted - set(view)
        if not any(self.undelivered.get(region) for region in leaving):
            for region in sorted(leaving):
                self._leave(region)
            self._subscribe(view)

    def _subscribe(self, regions: Iterable[str]) -> None:
        """Subscribe to regions, to some with their state."""
        for region in sorted(set(regions) - self.session.wanted):
            if Random(f"{self.diary.name} {region} {len(self.diary.deliveries)}").random() < STATE:
                self.states.begin([region])
                self.diary.asked.append((region, len(self.diary.deliveries)))
        self._carry_out(self.session.subscribe(regions))

    def ask(self) -> Task:
        """Ask the ingresses of regions that are joined for their keys."""
        while True:
            left, plan = sorted(self.states.asked & self.session.joined), self.plan
            if plan is None or not left:
                yield self.to_ask
                continue
            node = plan.paths[left[0]][0]
            there = [(region, plan.epoch_of(region)) for region in left if plan.paths[region][0] == node]
            try:
                found = yield self.network.at(node, self.runs, partial(self.network.machines[node].snapshots, there))
            except Lost:
                continue
            told = {region: ((epoch, found[region].last), found[region]) for region, epoch in there}
            known = {region: told[region] for region in told.keys() & self.session.joined}
            for cut in cuts_in(plan, known):
                part = {region: known[region] for region in cut}
                items, marked = self.states.told(part, self.begins, self.session.wanted)
                for region, (position, _) in part.items():
                    self.begins[region] = max(position, self.begins.get(region, position))
                self._deliver(items)
                if marked is not None:
                    self._carry_out(self.session.mark(marked, STATE_MARKER))

    def tell(self) -> Task:
        """Keep the control store informed of what this connection wants."""
        store, name, placing = self.network.store, self.server.name, frozenset[str]()
        is_whole = False
        while True:
            is_ready = self.is_planned or self.plan is not None
            request = self.session.request(whole=is_whole) if is_ready else None
            unplaced = frozenset(self.unplaced) if self.is_planned else frozenset[str]()
            if request is None and unplaced <= placing:
                yield self.to_tell
                continue
            try:
                if not unplaced <= placing:
                    now = self.engine.now
                    yield Call(self.network.control, partial(store.place, name, self.incarnation, unplaced, now))
                    placing = unplaced
                if request is None:
                    continue
                answer = yield Call(self.network.control, partial(store.join, name, request, self.engine.now))
            except Lost:
                placing = frozenset()
                continue
            is_whole = answer is Heard.BACK
            if answer is Heard.OK:
                self._carry_out(self.session.granted(request))
            elif answer is Heard.PLAN:
                self.is_planned = True
                self.session.noted(request)

    def renew(self) -> Task:
        """Go on as another incarnation where that is needed."""
        while True:
            doubtful = self.session.doubtful()
            if not doubtful:
                yield self.to_renew
                continue
            try:
                ask = partial(self.network.store.renew, self.server.name, self.incarnation)
                incarnation = yield Call(self.network.control, ask)
            except Lost:
                continue
            self._carry_out(self.session.renew(doubtful, incarnation))

    def follow(self) -> Task:
        """Follow the plans, each in its turn; the first is the newest."""
        store = self.network.store
        while True:
            after = number_of(self.plan) if self.plan is not None else None
            try:
                news = yield Call(self.network.control, partial(_news, store, after), wait_ms=200)
            except Lost:
                continue
            for record in news:
                self.runs, self.plan = record.plan.runs, record.plan
                self._carry_out(self.session.changed(record))
                self.is_planned = self.is_planned or not record.plan.sole
                self.unplaced |= set(self.session.unassigned())
                self.engine.give(self.to_tell)

    def lane(self, node: str) -> Task:
        """Publish at one node."""
        while True:
            frames = self.lone.pop(node, None) or self.session.take(node)
            if not frames:
                self.parked.add(node)
                yield self.to_publish[node]
                self.parked.discard(node)
                continue
            try:
                answers = yield self.network.at(node, self.runs, partial(self.network.publish, node, frames))
            except Lost:
                continue
            lone = self.session.answered_lone(node, answers[0]) if len(answers) == 1 else None
            self._carry_out(Effects(resolve=[lone]) if lone is not None else self.session.answered(node, answers))
            if any(answer.verdict in ("wait", "landing", "pending") for answer in answers):
                yield Sleep(2)
            self.session.ask_again(node)

    def read(self, node: str) -> Task:
        """Read the egress streams of one node."""
        machine, random = self.network.machines[node], self.engine.random
        looks, lag_ms = NodeReads(), random.choice((0.0, 0.0, LAG_MS))
        streams = Streams({})
        while True:
            if lag_ms and self.server.busy:
                yield Sleep(random.random() * lag_ms)
            reads = self.session.reads(node)
            if not reads:
                yield self.to_read[node]
                continue
            try:
                unknown = [(read.epoch, region) for region, read in reads.items() if read.after is None]
                if unknown:
                    ends = yield self.network.at(node, self.runs, partial(_ends, machine, unknown))
                    found = ((region, epoch, newest) for (epoch, region), newest in zip(unknown, ends, strict=True))
                    self._carry_out(self.session.found_ends(found))
                    continue
                look = _Look(machine, {(read.epoch, region): read.after or 0 for region, read in reads.items()})
                streams = streams_after(streams, reads)
                if not looks.may_wait(streams):
                    frames = yield self.network.at(node, self.runs, look.all)
                else:
                    frames = yield self.network.at(node, self.runs, look.something, 25)
                    if len({frame.region for frame in frames}) == 1 and not looks.are_next(frames):
                        frames = yield self.network.at(node, self.runs, look.all)
            except Lost:
                continue
            seen = looks.result(streams, frames, READ_FRAMES_MAX)
            ready = self.session.read_next(frames[0], seen.whole) if len(frames) == 1 else None
            self._carry_out(Effects([ready]) if ready is not None else self.session.read(seen))

    def _publish(self, region: str) -> None:
        server = self.server
        server.published += 1
        others = self._others(region, f"{region}.{server.name}.{server.published}")
        event = f"{'+'.join((region, *others))}.{server.name}.{server.published}"
        self.diary.past[event] = self.network.past[event] = frozenset(self.known)
        self.known.add(event)
        server.published_ms[event] = self.engine.now
        self.diary.published.append((event, region))
        for each in (region, *others):
            self.undelivered.setdefault(each, set()).add(event)
        node = self._add((region, *others), event)
        if node is not None:
            self.engine.give(self.to_publish[node])
        else:
            self.unplaced |= {region, *others, *([set_name((region, *others))] if others else ())}
            self.engine.give(self.to_tell)

    def _others(self, region: str, event: str) -> tuple[str, ...]:
        """Return the further regions of an event: most have none."""
        server, random = self.server, Random(f"{event} together")
        if random.random() >= JOINT or server.causal:
            return ()
        others = tuple(random.sample(server.regions, min(len(server.regions), random.choice((1, 1, 2)))))
        others = tuple(other for other in others if other != region)
        return others if self.session.can_be_together((region, *others)) else ()

    def _add(self, regions: tuple[str, ...], event: str) -> str | None:
        """Buffer an event, some with a key, a condition, or both; return the node that it waits for, if it has one."""
        # Of its own, so that a seed's other events stay as they are.
        random, region = Random(event), regions[0]
        key = region, random.choice(KEYS)
        if random.random() >= KEYED:
            if len(regions) > 1:
                return self.session.publish_joint(regions, event.encode(), True, 0, event)
            lone = self.session.publish_lone(region, event.encode(), True, 0, event, self.parked.__contains__)
            if lone is not None:
                self.lone[lone[0]] = [lone[1]]
                return lone[0]
            return self.session.publish(region, event.encode(), True, 0, event)
        deletes, head = random.random() < 0.15, self.server.heads.get(key)
        conditions = (Condition(key[1], head),) if random.random() < 0.7 else ()
        if conditions and len(regions) > 1:
            part = random.randrange(len(regions))
            conditions = (Condition(key[1], self.server.heads.get((regions[part], key[1])), part),)
        names = random.random() < 0.9 or not conditions
        self.naming[event] = (key, deletes) if names else None
        about: Any = {"key": key[1] if names else None, "deletes": deletes, "conditions": conditions}
        if len(regions) > 1:
            return self.session.publish_joint(regions, event.encode(), True, 0, event, **about)
        return self.session.publish_keyed(region, event.encode(), True, 0, event, **about)

    def _resolve(self, resolved: Resolved[str]) -> None:
        error, events = resolved.error, resolved.tokens
        assert error is None or isinstance(error, (PublishUncertain, Conflict, NotTogether)), error
        if isinstance(error, NotTogether):
            assert all(map(regions_of, events))
            self.diary.refused.update(events)
        if isinstance(error, Conflict):
            self.diary.refused.update(events)
            self.server.heads[error.region, error.key] = parse_position(error.position)
        elif error is not None:
            self.diary.uncertain.update([] if error.definite else events)
        else:
            for region, first in ((resolved.region, resolved.first_sequence), *resolved.also):
                for number, event in enumerate(events, first):
                    self.diary.receipts.setdefault(event, {})[region] = resolved.epoch, number
        for event in events:
            if (named := self.naming.pop(event, None)) is not None and error is None:
                for region, place in self.diary.receipts[event].items():
                    self.server.heads[region, named[0][1]] = None if named[1] else place
        for region in {resolved.region, *(region for event in events for region in regions_of(event))}:
            if resolved.error is not None or resolved.epoch <= self.over.get(region, 0):
                self.undelivered.get(region, set()).difference_update(events)

    def _leave(self, region: str) -> None:
        was = region in self.session.joined
        effects = self.session.unsubscribe([region])
        if was:
            self.diary.note_left(region)
        self._deliver(self.states.leave({region}))
        self.diary.left.append((region, len(self.diary.deliveries)))
        self.had.leave(region)
        self.passed.pop(region, None)
        self.begins.pop(region, None)
        self._carry_out(effects)

    def _mark_again(self, region: str, body: bytes) -> None:
        if self.server.life is self and self.server.process.alive:
            self._carry_out(self.session.mark(region, body))

    def _carry_out(self, effects: Effects[str]) -> None:
        for region, epoch in effects.ended.items():
            self.over[region] = epoch
            mine = self.undelivered.get(region, set())
            receipts = self.diary.receipts
            mine -= {event for event in mine if receipts.get(event, {}).get(region, (epoch + 1, 0))[0] <= epoch}
        for region in effects.joined:
            begin = self.begins[region] = self.session.begin(region)
            before = self.passed.get(region, begin)
            assert region not in self.passed or before > begin, f"{region} came up to {before}, and began at {begin}"
            self.engine.give(self.to_ask)
        self._deliver(self.states.keep(effects.deliver))
        for resolved in effects.resolve:
            self._resolve(resolved)
        self.engine.give(self.to_renew)
        for marker in effects.mark_again:
            self.engine.at(self.engine.now + 5, partial(self._mark_again, *marker))
        for node in sorted(effects.publish):
            self.engine.give(self.to_publish[node])
        if effects.reads_changed:
            for node in dict.fromkeys(read.node for read in self.session.reads().values()):
                self.engine.give(self.to_read[node])
        if effects.interest_changed:
            self.engine.give(self.to_tell)

    def _deliver(self, items: Sequence[Ready | Missing | Standing]) -> None:
        diary, now = self.diary, self.engine.now
        for item in items:
            if isinstance(item, Standing):
                for region, (position, snapshot) in item.snapshots.items():
                    heads = {key: value.position for key, value in snapshot.values.items()}
                    diary.states.append(
                        State(
                            len(diary.deliveries), region, position, heads, bool(snapshot.lost or snapshot.lacks_some)
                        )
                    )
                    self.had.miss(region, position)
                    self.passed[region] = position
            elif isinstance(item, Missing):
                diary.deliveries.append(Delivered("", item.region, "", now, item))
                upto = item.epoch, item.last or UNKNOWN_END
                self.had.miss(item.region, upto)
                self.passed[item.region] = upto
            elif isinstance(item, Contained):
                self._deliver_contained(item)
            elif item.meta.kind in CARRIES_EVENTS:
                events, frame = events_in(item.frame.body), item.frame
                parts = joint_parts(frame.meta)
                self.had.begin(frame.region, (frame.epoch, frame.last - len(events)))
                for behind, event in zip(range(len(events) - 1, -1, -1), events, strict=True):
                    is_again = self.had.has(parts, frame.epoch, behind, by=frame.region)
                    sender = event.split(".")[1]
                    if (event, frame.region) not in self.contained:
                        diary.deliveries.append(Delivered(event, frame.region, sender, now, is_again=is_again))
                    self.known.add(event)
                    self.known |= self.network.past.get(event, frozenset())
                self.passed[frame.region] = frame.epoch, frame.last
                if item.meta.publisher == self.server.name:
                    self.undelivered.get(item.frame.region, set()).difference_update(events)
        diary.note_joined(self.session.joined - self.states.asked - self.states.known, now)

    def _deliver_contained(self, item: Contained) -> None:
        """Deliver events of several regions that the state of one of them has, as those of the others."""
        events, frame = events_in(item.frame.body), item.frame
        parts = joint_parts(frame.meta)
        for behind, event in zip(range(len(events) - 1, -1, -1), events, strict=True):
            others = [
                part.region
                for part in parts
                if part.region != frame.region and self._is_live(part.region, (frame.epoch, part.last - behind))
            ]
            if others and not self.had.has(parts, frame.epoch, behind, by=frame.region):
                self.had.keep(frame.region, (frame.epoch, frame.last - behind))
                self.contained.add((event, others[0]))
                sender = event.split(".")[1]
                self.diary.deliveries.append(Delivered(event, others[0], sender, self.engine.now))
                self.known |= {event, *self.network.past.get(event, frozenset())}

    def _is_live(self, region: str, position: Position) -> bool:
        """Whether a region comes live from before a position on, and has not passed it."""
        if region in self.states.asked:
            return False
        begin = self.begins[region] if region in self.session.joined else self.session.delivers_after(region)
        return begin is not None and position > max(begin, self.passed.get(region, begin))


def regions_of(event: str) -> list[str]:
    """Return the regions that an event was published to if these are several; none otherwise."""
    regions = event.partition(".")[0].split("+")
    return regions if len(regions) > 1 else []


def streams_after(before: Streams, reads: Mapping[str, Read]) -> Streams:
    """Return the streams of some reads, as they differ from those of a read before."""
    now = {region: read.epoch for region, read in reads.items()}
    changes = {
        region: now.get(region) for region in now.keys() | before.keys() if now.get(region) != before.get(region)
    }
    return before.with_changes(changes) if changes else before


def _news(store: ControlStore, after: tuple[int, int] | None) -> list[Record] | None:
    return store.news(after) or None


def _ends(machine: Node, streams: list[tuple[int, str]]) -> list[StampedFrame | None]:
    """The newest frame of each stream, None of an empty one."""
    return [machine.egress[key][-1] if machine.egress.get(key) else None for key in streams]


class _Look:
    """A look at egress streams of a node, (epoch, region) → after; as a Redis before 7.2 answers a read that waits."""

    def __init__(self, machine: Node, after: dict[tuple[int, str], int]) -> None:
        self._machine, self._after = machine, after
        self.has_waited = False

    def all(self) -> list[StampedFrame]:
        """Return what is there."""
        return [frame for key in self._after for frame in self._new(key)]

    def something(self) -> list[StampedFrame] | None:
        """Return what is there; if that was nothing, what is there later of the stream that was appended to first."""
        if not self.has_waited:
            self.has_waited = True
            return self.all() or None
        new = [found for key in self._after if (found := self._new(key))]
        return min(new, key=lambda found: abs(node_number(found[0].stamp)), default=None)

    def _new(self, key: tuple[int, str]) -> list[StampedFrame]:
        stream = self._machine.egress.get(key, [])
        start = bisect_right(stream, self._after[key], key=lambda frame: frame.last)
        return stream[start : start + READ_FRAMES_MAX]
