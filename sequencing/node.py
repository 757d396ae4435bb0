"""A sequencing node: the state machine that numbers frames.

Everything that passes through a node is totally ordered by it: each call of `publish` or `transfer` is one atomic step.
A step

1. refuses frames that do not belong: of another epoch, of a superseded publisher, and those accepted before;
2. at a region's ingress, draws the region sequence (one number per event);
3. draws the next number of each atom that stamps the region here (one number per frame);
4. appends the frame to the link towards the next node of the region's path, or, at the last, to the region's egress
   stream, where its subscribers read it, with the node's own number: one for every frame that ends here.

A frame of several regions (`FrameKind.JOINT`) enters all of them, or none: those that begin here in one step, the
others where it passes their ingress, see `sequencing.landing`. Each region has a copy of it with numbers of its own.
The copies follow one another with nothing between them: in a step, and in a link, where those that go the same way are
one entry. So everybody finds them in one place of the order, by whichever of them.

Exactly once comes from two kinds of high-water mark, kept in the same atomic step: the last event accepted of each
publisher in each region, and the last link sequence accepted from each neighbouring node. So publishers and relays may
repeat themselves freely, and a relay that dies between reading and acknowledging loses and repeats nothing.

A node that restarts with an older state than it had is not trusted. No process communicates with another *run* of a
server than the plan names. `admit`, the first call that the manager makes to a new run, drops everything but the egress
streams. The epochs that went through the node are over, and `seal` ends their streams. So no number is drawn twice.

This machine and ``adapters/redis/step.lua`` do the same, byte by byte: `sequencing.keyspace` returns what the script
would store. The in-memory transport, the simulator and the model checks run this machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from sequencing.frames import NODE, UNKNOWN_END, FrameKind, LinkedFrame, PublishedFrame, StampedFrame
from sequencing.keyed import NO_EXTRAS, Extras, Heads, Part, Snapshot
from sequencing.landing import frame_of, lasts_in, name_of, void, which, with_lasts
from sequencing.pending import KEYED, Judgement, Passing, PendingWrites
from sequencing.plan import AtomId, Step
from sequencing.steps import InstalledStep, StepEvent, StepState

TRIM_EVERY_EVENTS = 1024
"""The number of events of a region between trims of its stream: trimming each time would cost more than it frees."""

TICK_META = b"%d 1 0 0 " % FrameKind.TICK


class _Ends:
    """The egress streams that one call has appended to."""

    def __init__(self) -> None:
        self._first: tuple[int, str] | None = None
        self._are_several = False

    def is_later_than_another(self, stream: tuple[int, str]) -> bool:
        """Note a frame that ends in a stream; return whether the call has ended one in another stream before."""
        self._first = self._first or stream
        self._are_several = self._are_several or stream != self._first
        return self._are_several


_NO_HEADS = Heads()


def _is_numbered(copy: StampedFrame) -> bool:
    return copy.last > 0


def _go_one_way(steps: Iterable[InstalledStep]) -> bool:
    """Return whether there is one next node of some steps, and none of them is a last one."""
    following = {step.next for step in steps}
    return len(following) == 1 and None not in following


FORGOTTEN = ""
"""The name of no publisher: its row stands for the forgotten publishers, and goes with the others to the next
ingress."""


class Verdict(StrEnum):
    """The outcome for a published frame."""

    OK = "ok"
    """Accepted now: (epoch, sequence of its last event in each of its regions; 0 where its ingress is ahead)."""
    SEEN = "seen"
    """Accepted before, being this publisher's latest in its regions: the numbers that it got then."""
    PAST = "past"
    """Wholly or partly accepted earlier than this publisher's latest: (last accepted,)."""
    GAP = "gap"
    """An earlier frame of this publisher is missing: (last accepted,)."""
    FENCED = "fenced"
    """A newer incarnation of this publisher exists: (incarnation,)."""
    FORGOTTEN = "forgotten"
    """This publisher is unknown, and some are forgotten: it needs a later incarnation than (this,)."""
    STALE = "stale"
    """This node is not the region's open ingress in that epoch: (the node's epoch,)."""
    CONFLICT = "conflict"
    """A condition does not hold: (its place, and the head of its key: epoch, sequence; 0 and 0 if that is not set)."""
    FULL = "full"
    """The region would have too many keys: (as many as it may have,)."""
    WAIT = "wait"
    """This node will be the region's ingress in that epoch, once the one before is closed: (the node's epoch,)."""
    PENDING = "pending"
    """A key with a condition has a write that is not decided yet: (the condition's place,)."""
    LANDING = "landing"
    """The frame that is asked for has not been decided here: ()."""


_VERDICTS = {verdict.value.encode(): verdict for verdict in Verdict}


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer to one published frame."""

    verdict: Verdict
    numbers: tuple[int, ...]
    drawn: tuple[int, ...] = ()
    """Of a frame that was refused on its way: the number that it has in each of its regions, 0 where it has none."""

    def encode(self) -> bytes:
        """Write the answer as the script does: ``ok 1 42``."""
        answer = " ".join([self.verdict, *map(str, self.numbers)])
        return (f"{answer}\n{' '.join(map(str, self.drawn))}" if self.drawn else answer).encode()

    @classmethod
    def decode(cls, answer: bytes) -> Answer:
        """Read what `encode`, or the script, wrote."""
        drawn: tuple[int, ...] = ()
        if b"\n" in answer:
            answer, _, numbers_drawn = answer.partition(b"\n")
            drawn = tuple(map(int, numbers_drawn.split(b" ")))
        verdict, *numbers = answer.split(b" ")
        known = _VERDICTS.get(verdict)
        if known is None:
            raise ValueError(f"{verdict!r} is no verdict")
        return cls(known, tuple(map(int, numbers)), drawn)


class TransferVerdict(StrEnum):
    """Why a transfer ended where it did."""

    OK = "ok"
    """All frames are accepted, now or before."""
    GAP = "gap"
    """A frame before these is missing: send again from the number after the last accepted."""
    UNKNOWN = "unknown"
    """The frame after the last accepted is of an epoch whose plan is not installed here yet.

    Frames of an epoch that is forgotten here are accepted and dropped: before a node is made to forget, the caller has
    made sure that nothing is in flight, or that frames in flight may be lost."""


@dataclass(frozen=True, slots=True)
class TransferAnswer:
    """A node's answer to a list of linked frames: the last link sequence that it has accepted, and why no more."""

    verdict: TransferVerdict
    accepted: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The last frame accepted of one publisher in one region: its number, and the region's, in which epoch."""

    incarnation: int
    last: int
    epoch: int
    region_last: int

    def age(self) -> tuple[int, int]:
        """The age of an entry: of two of one publisher, the greater is the later."""
        return self.incarnation, self.last


class Outcome(NamedTuple):
    """What became of the last frame of a publisher that was decided here: which one it is, and its answer.

    ``which``: see `sequencing.landing.which`.
    """

    incarnation: int
    which: bytes
    answer: Answer

    def encode(self) -> bytes:
        """Write it as it is stored."""
        return b"%d %d\n%b%b" % (self.incarnation, len(self.which), self.which, self.answer.encode())


class Opening(NamedTuple):
    """An ingress to open: with the last frame accepted of each publisher, and the heads of the region's keys."""

    region: str
    epoch: int
    accepted: tuple[tuple[str, Accepted], ...]
    heads: Heads | None = None


@dataclass(slots=True)
class Node:
    """One sequencing node. ``retention_events``: how many events of each region its egress stream keeps at least."""

    name: str
    retention_events: int = 1_000_000
    epoch: int = 0
    version: int = 0
    run: str = ""
    """The admitted run; empty where restarts lose nothing."""
    any_epoch: int = 0
    network: int = 0
    """The first epoch of the network that it is in, 0 if that is unknown."""
    """In this epoch the node begins any region that is published to; 0: only those of its steps."""
    egress: dict[tuple[int, str], list[StampedFrame]] = field(default_factory=dict)
    """(epoch, region) → the finished frames."""
    links: dict[str, list[LinkedFrame]] = field(default_factory=dict)
    steps: dict[tuple[int, str], InstalledStep] = field(default_factory=dict)
    """(epoch, region) → the step for its frames."""
    region_last: dict[tuple[int, str], int] = field(default_factory=dict)
    atom_last: dict[AtomId, int] = field(default_factory=dict)
    ended_last: int = 0
    """The last number of a frame that ended here."""
    link_last: dict[str, int] = field(default_factory=dict)
    accepted_from: dict[str, int] = field(default_factory=dict)
    """Neighbour → the last link sequence accepted from it."""
    accepted_of: dict[tuple[str, str], Accepted] = field(default_factory=dict)
    """(region, publisher) → the last frame accepted of it; `FORGOTTEN` → up to which incarnation some are forgotten."""
    heads: dict[str, Heads] = field(default_factory=dict)
    """Region → the heads of its keys, where events have named some."""
    pending: PendingWrites = field(default_factory=PendingWrites)
    """What events say of keys that later nodes decide."""
    has_pending: bool = False
    """Whether writes were ever pending here."""
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    """(first region of a frame of several, publisher) → what became of the last that was decided here, and not where it
    entered."""

    def publish(self, frames: Iterable[PublishedFrame]) -> list[Answer]:
        """Accept or refuse each frame, in order."""
        ends = _Ends()
        return [self._publish(frame, ends) for frame in frames]

    def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Accept frames from the link of node ``source``, each once and in order, as far as possible."""
        verdict = TransferVerdict.OK
        accepted, ends = self.accepted_from.get(source, 0), _Ends()
        for linked in frames:
            if linked.sequence <= accepted:
                continue
            if linked.sequence != accepted + 1:
                verdict = TransferVerdict.GAP
                break
            steps = [self.steps.get((copy.epoch, copy.region)) for copy in linked.copies if copy.last]
            if None in steps and linked.frame.epoch > self.epoch:
                verdict = TransferVerdict.UNKNOWN
                break
            passing = [
                (step, copy)
                for step, copy in zip(steps, filter(_is_numbered, linked.copies), strict=True)
                if step is not None and step.state is not StepState.SEALED
            ]
            if linked.is_undecided:
                self._land(source, linked, passing, ends)
            else:
                self._pass_on(passing, ends)
            accepted = linked.sequence
            self.accepted_from[source] = accepted
        return TransferAnswer(verdict, accepted)

    def acknowledge(self, target: str, accepted: int) -> None:
        """Drop from the link to ``target`` the frames that it has accepted."""
        link = self.links.get(target, [])
        link[:] = [linked for linked in link if linked.sequence > accepted]

    def link_tail(self, target: str) -> int:
        """Return the sequence of the newest frame that the link to ``target`` holds, 0 if it holds none."""
        link = self.links.get(target)
        return link[-1].sequence if link else 0

    def is_acknowledged(self, target: str, sequence: int) -> bool:
        """Return whether ``target`` has accepted all of its link up to a sequence."""
        link = self.links.get(target)
        return not link or link[0].sequence > sequence

    def install(self, epoch: int, version: int, steps: Iterable[Step], *, first_epoch: int = 0) -> bool:
        """Install the steps of a plan that starts a new epoch in all regions; False if a later plan is installed
        already.

        A new epoch closes the ingresses of earlier ones. It keeps the steps of the one before for frames in flight, and
        forgets older ones. Use it when no client of the previous epoch is left; otherwise use `prepare`.
        ``first_epoch``: of the network; what is here from an earlier network is forgotten, so for all plans.
        """
        self._begin_in(first_epoch)
        if (epoch, version) < (self.epoch, self.version):
            return False
        if epoch > self.epoch:
            self.forget([key for key in self.steps if key[0] < epoch - 1])
            for step in self.steps.values():
                if step.state is StepState.OPEN:
                    step.move(StepEvent.REPLACE)
        self.epoch, self.version = epoch, version
        for installed in steps:
            state = StepState.OPEN if installed.ingress else StepState.TRANSIT
            key = installed.epoch, installed.region
            self.steps[key] = InstalledStep(state, installed.next, installed.atoms)
        return True

    def prepare(
        self, epoch: int, version: int, steps: Iterable[Step], closing: Mapping[str, int], *, first_epoch: int = 0
    ) -> bool:
        """Install the steps of a plan beside those in use; False if one of a later epoch is installed already.

        A later version of the same epoch only has more regions: it may have been prepared, and never announced.
        ``closing``: the regions whose ingress must wait → the epoch whose ingress is at this node, 0 if it is at
        another.
        Steps that are installed already stay as they are, so that the call can be repeated.
        """
        self._begin_in(first_epoch)
        if epoch < self.epoch:
            return False
        self.epoch, self.version = max((epoch, version), (self.epoch, self.version))
        for step in steps:
            ingress = StepState.WAITING if step.region in closing else StepState.OPEN
            state = ingress if step.ingress else StepState.TRANSIT
            installed = InstalledStep(state, step.next, step.atoms, closing.get(step.region, 0))
            self.steps.setdefault((step.epoch, step.region), installed)
        return True

    def begin_any(self, epoch: int, version: int, *, first_epoch: int = 0) -> bool:
        """From now on, begin any region of an epoch that is published to: as the only node of a network.

        False if a later plan is installed already.
        """
        self._begin_in(first_epoch)
        if (epoch, version) < (self.epoch, self.version):
            return False
        self.epoch, self.version, self.any_epoch = epoch, version, epoch
        return True

    def begin_no_more(self) -> None:
        """Begin only the regions of steps that are installed."""
        self.any_epoch = 0

    def begun(self, epoch: int) -> frozenset[str]:
        """Return the regions that have a step in an epoch."""
        return frozenset(region for begun, region in self.steps if begun == epoch)

    def admit(self, run: str) -> None:
        """Start a run that is not the one before: keep the egress streams, and nothing else."""
        if run != self.run:
            self.run = run
            self._forget_all()

    def _begin_in(self, first_epoch: int) -> None:
        """Forget what is here from another network, such as one that the control store has lost."""
        is_strange = self.network not in (0, first_epoch)
        if first_epoch and self.epoch and (is_strange or self.epoch < first_epoch):
            self._forget_all()
        self.network = first_epoch or self.network

    def _forget_all(self) -> None:
        self.epoch, self.version, self.any_epoch = 0, 0, 0
        self.steps.clear()
        self.region_last.clear()
        self.atom_last.clear()
        self.ended_last = 0
        self.accepted_of.clear()
        self.outcomes.clear()
        self.pending.clear()
        self.has_pending = False
        self.heads.clear()
        self.links.clear()
        self.link_last.clear()
        self.accepted_from.clear()

    def seal(self, region: str, epoch: int, tick: int) -> None:
        """End a region's epoch in the egress stream here, even if frames of it are lost or still in flight.

        ``tick``: the number of its TICK, 0 if the ingress that knew it has lost it.
        """
        step = self.steps.get((epoch, region))
        if step is not None:
            step.move(StepEvent.SEAL)
        stream = self.egress.setdefault((epoch, region), [])
        if not self.ended(region, epoch):
            last = max(tick or UNKNOWN_END, stream[-1].last + 1 if stream else 0)
            stream.append(StampedFrame(region, epoch, last, TICK_META, b"", b""))

    def close(self, regions: Iterable[tuple[str, int, int]]) -> list[Answer]:
        """Take no more events of regions, (region, epoch, following epoch) each: the last frame of each is a TICK.

        Where the ingress of the following epoch is at this node, it opens in the same step. Answers ``ok`` or ``seen``
        with the epoch and the TICK's number; ``stale`` if this node is no ingress of that epoch.
        """
        ends = _Ends()
        return [self._close(*closing, ends) for closing in regions]

    def accepted(self, region: str) -> dict[str, Accepted]:
        """Return the last frame accepted of each publisher of a region, which the next ingress must know."""
        return {publisher: seen for (name, publisher), seen in self.accepted_of.items() if name == region}

    def open(self, region: str, epoch: int, accepted: Mapping[str, Accepted], heads: Heads | None = None) -> None:
        """Open a waiting ingress, with what the one before had: the frames that it had accepted, and the heads of keys.

        Does nothing if it is open.
        """
        step = self.steps.get((epoch, region))
        if step is not None and step.state is StepState.WAITING:
            step.move(StepEvent.OPEN)
            self.heads.pop(region, None)  # of an earlier time
            self.pending.forget(region)
            if heads is not None:
                self.heads[region] = Heads(heads.known, heads.lost, epoch, heads.values)
            if (forgotten := accepted.get(FORGOTTEN)) is not None:
                # Entries that this node knows from an earlier time may have been forgotten at the region's later nodes.
                for key in [key for key in self.accepted_of if key[0] == region and key[1] not in accepted]:
                    if self.accepted_of[key].incarnation <= forgotten.incarnation:
                        del self.accepted_of[key]
            for publisher, seen in accepted.items():
                before = self.accepted_of.get((region, publisher))
                if before is None or before.age() < seen.age():
                    self.accepted_of[region, publisher] = seen

    def snapshots(self, regions: Iterable[tuple[str, int]]) -> dict[str, Snapshot] | None:
        """Return the keys of regions, (region, epoch) each, as of one moment; None unless all have their open ingress
        here, and no key waits to be decided."""
        snapshots: dict[str, Snapshot] = {}
        for region, epoch in regions:
            step = self.steps.get((epoch, region))
            if step is None and not (self.any_epoch and epoch == self.any_epoch):
                return None
            if (step is not None and step.state is not StepState.OPEN) or self.pending.are_pending([region]):
                return None
            heads = self.heads.get(region, _NO_HEADS)
            snapshots[region] = heads.snapshot(self.region_last.get((epoch, region), 0))
        return snapshots

    def undecided(self) -> dict[str, Passing]:
        """Return the frames with keys that have passed here, and whose verdict has not come back."""
        return dict(self.pending.passing)

    def verdicts(self, source: str) -> dict[str, Judgement]:
        """Return what became of frames with keys that came undecided by a link, until `settle`."""
        return {of: said for of, (link, said) in self.pending.verdicts.items() if link == source}

    def resolve(self, judgements: Mapping[str, Judgement | int]) -> None:
        """Decide the writes of frames that have passed here; see `PendingWrites.resolve`."""
        for of, judgement in judgements.items():
            self.pending.resolve(of, judgement, self.heads)

    def settle(self, frames: Iterable[str]) -> None:
        """Forget verdicts that the node before knows."""
        for of in frames:
            self.pending.verdicts.pop(of, None)

    def ended(self, region: str, epoch: int) -> bool:
        """Return whether a region's epoch has ended in the egress stream here."""
        stream = self.egress.get((epoch, region), [])
        return len(stream) > 0 and stream[-1].meta == TICK_META

    def forget_publishers(self, publishers: Iterable[tuple[str, str]], upto: int) -> None:
        """Forget disconnected publishers, (region, name) each, up to an incarnation.

        A late frame of a forgotten publisher must not be taken for a new one. So from then on, an unknown publisher in
        such a region needs a later incarnation. This includes publishers that are still connected, which get a new one.
        """
        for region, publisher in publishers:
            known = [
                table.pop((region, publisher))
                for table in (self.accepted_of, self.outcomes)
                if publisher != FORGOTTEN
                and (entry := table.get((region, publisher))) is not None
                and entry.incarnation <= upto
            ]
            before = self.accepted_of.get((region, FORGOTTEN))
            if known and (before is None or before.incarnation < upto):
                self.accepted_of[region, FORGOTTEN] = Accepted(upto, 0, 0, 0)

    def forget(
        self,
        steps: Iterable[tuple[int, str]],
        link_ends: Iterable[str] = (),
        headless: Iterable[tuple[str, int]] = (),
        plan: tuple[int, int] = (0, 0),
    ) -> None:
        """Forget steps, (epoch, region) each, for which nothing is in flight any more; egress streams stay.

        ``link_ends``: the other ends of links that are dead, because a node there was restarted; ``headless``: the
        regions whose heads of keys another node keeps, and from which epoch on: they may have come back since.
        ``plan``: the one for which this is done, epoch and version. An earlier one that is prepared late is refused:
        it would open forgotten ingresses that know of no frame.
        """
        if self.epoch:
            self.epoch, self.version = max(plan, (self.epoch, self.version))
        for region, epoch in headless:
            if (heads := self.heads.get(region)) is not None and heads.began < epoch:
                del self.heads[region]
                self.pending.forget(region)
        for end in link_ends:
            self.settle(self.verdicts(end))
            for of in [of for of, passing in self.pending.passing.items() if passing.target == end]:
                del self.pending.passing[of]
            self.links.pop(end, None)
            self.link_last.pop(end, None)
            self.accepted_from.pop(end, None)
        for key in steps:
            step = self.steps.pop(key, None)
            self.region_last.pop(key, None)
            for atom in step.atoms if step is not None else ():
                self.atom_last.pop(atom, None)

    def _close(self, region: str, epoch: int, following: int, ends: _Ends) -> Answer:
        step = self.steps.get((epoch, region))
        if step is None or step.state in (StepState.TRANSIT, StepState.SEALED):
            return Answer(Verdict.STALE, (self.epoch,))
        if step.state is StepState.CLOSED:
            return Answer(Verdict.SEEN, (epoch, self.region_last.get((epoch, region), 0)))
        last = self.region_last[epoch, region] = self.region_last.get((epoch, region), 0) + 1
        step.move(StepEvent.CLOSE)
        self._pass_on([(step, StampedFrame(region, epoch, last, TICK_META, b"", b""))], ends)
        waiting = self.steps.get((following, region))
        if waiting is not None and waiting.state is StepState.WAITING and waiting.after == epoch:
            waiting.move(StepEvent.OPEN)
        return Answer(Verdict.OK, (epoch, last))

    def _publish(self, frame: PublishedFrame, ends: _Ends) -> Answer:
        if frame.kind is FrameKind.ASK:
            return self._outcome(frame)
        parts, elsewhere = frame.parts, dict(frame.extras.elsewhere)
        begun = [part for place, part in enumerate(parts) if place not in elsewhere]
        if not begun:
            return Answer(Verdict.STALE, (self.epoch,))
        if frame.extras.also and (known := self._accepted_before(frame, begun)) is not None:
            return known
        looks = [self._look(frame, part, ends) for part in begun]
        for look in looks:
            if isinstance(look, Answer) and look.verdict is not Verdict.SEEN:
                return look
        seen = [look for look in looks if isinstance(look, Answer)]
        if seen:
            lasts = [look.numbers[1] for look in seen]
            if elsewhere or len(seen) < len(looks) or len({look.numbers[0] for look in seen}) > 1:
                return Answer(Verdict.PAST, (lasts[0],))  # accepted before, in some of its regions
            return Answer(Verdict.SEEN, (seen[0].numbers[0], *lasts))
        steps = [look for look in looks if isinstance(look, InstalledStep)]
        if elsewhere and not _go_one_way(steps):
            return Answer(Verdict.STALE, (self.epoch,))
        if frame.extras is not NO_EXTRAS and (refused := self._unmet(frame, begun)) is not None:
            return refused
        drawn = {part: self._accept(frame, part, is_undecided=bool(elsewhere)) for part in begun}
        numbers = [drawn.get(part, 0) for part in parts]
        meta = frame.joint_meta(numbers) if frame.extras.also else frame.meta
        copies = [
            (step, StampedFrame(part.region, frame.epoch, drawn[part], meta, b"", frame.body))
            for step, part in zip(steps, begun, strict=True)
        ]
        late = [
            StampedFrame(parts[place].region, frame.epoch, 0, meta, node.encode(), frame.body)
            for place, node in elsewhere.items()
        ]
        said = b""
        if late and (frame.extras.names or frame.extras.conditions):
            said = frame.extras.encode()
        if late and frame.extras.names:
            self._note_passing(frame, "", steps[0].next, begun)
        self._pass_on(copies, ends, late, said)
        return Answer(Verdict.OK, (frame.epoch, *numbers))

    def _accepted_before(self, frame: PublishedFrame, begun: Sequence[Part]) -> Answer | None:
        """Return what is answered if a frame of several regions has entered here before; None if it has not.

        Also once its epoch is over: its publisher then asks for its outcome where it would have been decided.
        ``begun``: its regions that begin here.
        """
        lasts = dict[Part, int]()
        for part in begun:
            row = self.accepted_of.get((part.region, frame.publisher))
            this = frame.incarnation, part.first + frame.count - 1, frame.epoch
            if row is None or (row.incarnation, row.last, row.epoch) != this:
                return None
            lasts[part] = row.region_last
        return Answer(Verdict.SEEN, (frame.epoch, *(lasts.get(part, 0) for part in frame.parts)))

    def _outcome(self, asked: PublishedFrame) -> Answer:
        outcome = self.outcomes.get((asked.region, asked.publisher))
        if outcome is not None and outcome.incarnation > asked.incarnation:
            return Answer(Verdict.FENCED, (outcome.incarnation,))
        forgotten = self.accepted_of.get((asked.region, FORGOTTEN))
        if outcome is None and forgotten is not None and asked.incarnation <= forgotten.incarnation:
            return Answer(Verdict.FORGOTTEN, (forgotten.incarnation,))
        if outcome is None or (outcome.incarnation, outcome.which) != (asked.incarnation, asked.body):
            return Answer(Verdict.LANDING, ())
        return outcome.answer

    def _note_passing(self, frame: PublishedFrame, source: str, target: str | None, begun: Iterable[Part]) -> None:
        regions = tuple(part.region for part in begun)
        self.has_pending = True
        passing = Passing(source, target or "", frame.epoch, frame.extras.way, regions)
        self.pending.passing[name_of(frame)] = passing

    def _land(
        self, source: str, linked: LinkedFrame, passing: Sequence[tuple[InstalledStep, StampedFrame]], ends: _Ends
    ) -> None:
        """Take an undecided frame on: number it in the regions that begin here, or refuse it.

        ``source``: the end of the link that it came by; ``passing``: its copies that have numbers, as far as they may
        pass.
        """
        ahead = [copy for copy in linked.copies if not copy.last]
        here = [copy for copy in ahead if copy.stamp == self.name.encode()]
        late = [copy for copy in ahead if copy not in here]
        frame, refused = frame_of(ahead[0]), linked.refused
        is_keyed = refused.startswith(KEYED)
        refused = refused.removeprefix(KEYED)
        if linked.said and not refused:
            frame = replace(frame, extras=Extras.decode(linked.said))
            is_keyed = bool(frame.extras.names)
        parts = {part.region: part for part in frame.parts}
        begun = [parts[copy.region] for copy in here]
        looks: list[InstalledStep] = []
        if not refused:
            for part in begun:
                look = self._look(frame, part, ends)
                if isinstance(look, InstalledStep):
                    looks.append(look)
                else:
                    # It cannot have been seen: links pass each frame once, and only its publisher has its numbers.
                    was_seen = look.verdict is Verdict.SEEN
                    answer = Answer(Verdict.PAST, (look.numbers[1],)) if was_seen else look
                    refused = refused or answer.encode()
        if late and not refused and not _go_one_way([*(step for step, _ in passing), *looks]):
            refused = Answer(Verdict.STALE, (self.epoch,)).encode()
        if not refused and linked.said and (unmet := self._unmet(frame, begun)) is not None:
            refused = unmet.encode()
        meta, body = ahead[0].meta, ahead[0].body
        copies = [*passing]
        if refused:
            meta, body = void(meta), b""
        else:
            lasts = {part.region: self._accept(frame, part, is_undecided=bool(late)) for part in begun}
            meta = with_lasts(meta, lasts)
            for step, copy in zip(looks, here, strict=True):
                copies.append((step, copy._replace(last=lasts[copy.region], stamp=b"")))
        if not _go_one_way([step for step, _ in copies]):
            late = []
        if not late:
            drawn = lasts_in(meta)
            answer = Answer.decode(refused) if refused else Answer(Verdict.OK, (frame.epoch, *drawn))
            answer = replace(answer, drawn=drawn if refused else ())
            self.outcomes[frame.region, frame.publisher] = Outcome(frame.incarnation, which(frame), answer)
            if is_keyed:
                self.pending.verdicts[name_of(frame)] = source, Judgement.NO if refused else Judgement.OK
        elif is_keyed:
            self._note_passing(frame, source, copies[0][0].next, () if refused else begun)
        said = ((KEYED if is_keyed else b"") + refused) if refused else linked.said
        copies = [(step, copy._replace(meta=meta, body=body)) for step, copy in copies]
        self._pass_on(copies, ends, [copy._replace(meta=meta, body=body) for copy in late], said)

    def _look(self, frame: PublishedFrame, part: Part, ends: _Ends) -> InstalledStep | Answer:
        """Return the open ingress of a part of a frame, or what it is answered."""
        region, first = part
        step = self.steps.get((frame.epoch, region))
        if step is None and self.any_epoch and frame.epoch == self.any_epoch:
            step = self.steps[frame.epoch, region] = InstalledStep(StepState.OPEN, None, ())
        if step is not None and step.state is StepState.WAITING:
            # A publisher in the new epoch may have seen events of it: what comes before must not come after.
            if not step.after:
                return Answer(Verdict.WAIT, (self.epoch,))
            self._close(region, step.after, frame.epoch, ends)
        if step is None or step.state is not StepState.OPEN:
            return Answer(Verdict.STALE, (self.epoch,))
        before = self.accepted_of.get((region, frame.publisher))
        if before is None:
            forgotten = self.accepted_of.get((region, FORGOTTEN))
            if forgotten is not None and frame.incarnation <= forgotten.incarnation:
                return Answer(Verdict.FORGOTTEN, (forgotten.incarnation,))
        elif frame.incarnation < before.incarnation:
            return Answer(Verdict.FENCED, (before.incarnation,))
        last = before.last if before is not None and before.incarnation == frame.incarnation else 0
        if before is not None and last and first + frame.count - 1 == last:
            return Answer(Verdict.SEEN, (before.epoch, before.region_last))
        if first <= last:
            return Answer(Verdict.PAST, (last,))
        # The first frame in an epoch may follow frames lost with its publisher's row, or events that were given up.
        if last and before is not None and before.epoch == frame.epoch and first > last + 1:
            return Answer(Verdict.GAP, (last,))
        return step

    def _accept(self, frame: PublishedFrame, part: Part, *, is_undecided: bool = False) -> int:
        """Draw the numbers of a frame in one of its regions; return the last of them.

        ``is_undecided``: whether a later node may still refuse it.
        """
        region, first = part
        region_last = self.region_last.get((frame.epoch, region), 0) + frame.count
        if frame.extras.names and is_undecided:
            first_at = frame.epoch, region_last - frame.count + 1
            self.pending.add(region, name_of(frame), frame.extras.names, first_at, frame.publisher, frame.body)
        elif frame.extras.names:
            self.pending.overwritten(region, frame.extras.names)
            heads = self.heads.setdefault(region, Heads(began=frame.epoch))
            first_number = region_last - frame.count + 1
            heads.name(frame.extras.names, frame.epoch, first_number, frame.publisher, frame.body)
        self.region_last[frame.epoch, region] = region_last
        self.accepted_of[region, frame.publisher] = Accepted(
            frame.incarnation, first + frame.count - 1, frame.epoch, region_last
        )
        return region_last

    def _unmet(self, frame: PublishedFrame, begun: Collection[Part]) -> Answer | None:
        """Return what a frame is refused with because of keys, None if nothing is against it.

        ``begun``: its regions that begin here.
        """
        parts = frame.parts
        heads = [self.heads.get(part.region, _NO_HEADS) for part in parts]
        for place, condition in enumerate(frame.extras.conditions):
            if parts[condition.part] not in begun:
                continue
            if self.pending.is_pending(parts[condition.part].region, condition.key):
                return Answer(Verdict.PENDING, (place,))
            if (head := heads[condition.part].head(condition.key)) != condition.position:
                return Answer(Verdict.CONFLICT, (place, *(head or (0, 0))))
        for each in (self.heads.get(part.region, _NO_HEADS) for part in begun):
            if (beyond := each.beyond(frame.extras.names, frame.publisher, frame.body)) is not None:
                return Answer(Verdict.FULL, beyond)
        return None

    def _pass_on(
        self,
        copies: Sequence[tuple[InstalledStep, StampedFrame]],
        ends: _Ends,
        late: Sequence[StampedFrame] = (),
        said: bytes = b"",
    ) -> None:
        """Pass on a frame: its copies, each to its stream, or, with those that go the same way, to a link.

        ``late``: copies of an undecided frame that have no numbers, and go with the others, which go one way;
        ``said``: see `LinkedFrame.said`.
        """
        leaving: dict[str, list[StampedFrame]] = {}
        for step, frame in copies:
            stamp = [frame.stamp] if frame.stamp else []
            if step.next is None:
                self.ended_last += 1
                is_later = ends.is_later_than_another((frame.epoch, frame.region))
                stamp.insert(0, b"%d,%d" % (NODE, -self.ended_last if is_later else self.ended_last))
            for atom in step.atoms:
                number = self.atom_last.get(atom, 0) + 1
                self.atom_last[atom] = number
                stamp.append(b"%d,%d" % (atom, number))
            stamped = frame._replace(stamp=b",".join(stamp))
            if step.next is None:
                self.egress.setdefault((frame.epoch, frame.region), []).append(stamped)
                self._trim(stamped)
            else:
                leaving.setdefault(step.next, []).append(stamped)
        for target, [first, *others] in leaving.items():
            sequence = self.link_last.get(target, 0) + 1
            self.link_last[target] = sequence
            what = said if late else b""
            self.links.setdefault(target, []).append(LinkedFrame(sequence, first, (*others, *late), what))

    def _trim(self, frame: StampedFrame) -> None:
        count = int(frame.meta.split(b" ", 2)[1])
        crossed = frame.last // TRIM_EVERY_EVENTS > (frame.last - count) // TRIM_EVERY_EVENTS
        if crossed and frame.last > self.retention_events:
            stream = self.egress[frame.epoch, frame.region]
            stream[:] = [kept for kept in stream if kept.last > frame.last - self.retention_events]
