"""Delivery: decide from a received frame's stamp alone whether it can be delivered.

A subscriber reads the egress streams of its regions. What it reads at one node is a *lane*: it comes in the node's own
order, as far as that is known (`sequencing.cut`), and is delivered in that order, so only the heads of lanes can wait.
A head is delivered when

- its region sequence is the next of its region, and
- each *relevant* atom on its stamp, one whose regions the subscriber has all, shows the next number of that atom.

A frame that its node did not number (an end that was set from outside) waits for its region only. There is no deadlock:
the orders of all nodes, and so those of lanes and atoms, are parts of one acyclic order (`sequencing.conditions`). The
first undelivered frame in that order waits for nothing.

No timeout takes part (Lumezanu 2006, §3.1: destinations decide immediately whether to deliver or to buffer).

After a loss the decision stays immediate. A jump of the region sequence is delivered as `Missing`, in place. A jump of
an atom's numbers is settled by the first waiting frame of each region, wherever in its lane that frame is. Streams are
in order. So when every region of the atom shows a number and none shows the awaited one, that number will never come,
and the smallest number shown is next. A quiet region shows none, and may never show one: behind a gap, quiet regions
are marked.

The epoch of a region ends with a TICK, after which the region need not show any more numbers. A region may also be
joined while the epoch runs; `sequencing.joins` explains from where on it is delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import itemgetter
from typing import NamedTuple

from sequencing.cut import Numbered, let_through
from sequencing.errors import InvalidInput
from sequencing.frames import NODE, UNKNOWN_END, FrameKind, Meta, StampedFrame, node_number, parse_meta, parse_stamp
from sequencing.joins import Joins, View
from sequencing.plan import Atom, atoms_by_region


class Ready(NamedTuple):
    """A frame to deliver now."""

    frame: StampedFrame
    meta: Meta


class Missing(NamedTuple):
    """Events of a region that will never come: region sequences ``first`` … ``last``, both included.

    ``last`` is 0 if it is unknown how many there were, if any: the ingress lost the end of its epoch.
    """

    region: str
    epoch: int
    first: int
    last: int


Numbers = dict[int, int]
"""The relevant part of a stamp: atom → number."""

_NO_NUMBERS: Numbers = {}


class _Arrived(NamedTuple):
    """A received frame, with its stamp as `parse_stamp` reads it."""

    region: str
    ready: Ready
    stamp: list[int]


class _Entry(NamedTuple):
    """A waiting frame; ``numbers``: of atoms; ``is_numbered``: by its egress node."""

    ready: Ready
    numbers: Numbers
    is_numbered: bool


@dataclass(slots=True)
class _Stream:
    region: str
    lane: str
    next: int = 1
    received: int = 0
    number: int = 0
    """The node number of the last frame received."""
    is_placed: bool = True
    """Whether the place from which it is read is known."""
    ended: bool = False
    queue: deque[_Entry] = field(default_factory=deque)
    is_due: bool = False
    """Whether the head is about to be examined."""


@dataclass(slots=True)
class _Lane:
    regions: set[str] = field(default_factory=set)
    ahead: list[Numbered[_Arrived]] = field(default_factory=list)
    """The frames received above the last number that is known to be complete."""
    order: deque[str] = field(default_factory=deque)
    """The regions of the numbered frames that wait, in the order of their numbers."""
    seen_whole: Mapping[str, int] | None = None
    """The last ``whole`` that included all regions."""
    latest: Mapping[str, int] | None = None
    """The ``whole`` of the last complete read that brought frames that are ahead, if it was whole of any region
    here."""


class Delivery:
    """The delivery order of one subscriber within one epoch."""

    def __init__(
        self, epoch: int, regions: Iterable[str], atoms: Iterable[Atom], lanes: Mapping[str, str] | None = None
    ) -> None:
        """``regions``: the subscriber's since the epoch began; ``atoms``: the plan's (irrelevant ones are ignored).

        ``lanes``: region → the node where it is read; regions that are missing from it have a lane of their own.
        """
        self.epoch = epoch
        self.silent: list[Ready] = []
        """Frames of regions that are being joined, which arrived and were not delivered; for the caller to clear."""
        self._queued = self._ahead = 0
        self._is_taking = False
        """Whether frames that precede those ahead are about to be examined."""
        self._streams: dict[str, _Stream] = {}
        self._lanes: dict[str, _Lane] = {}
        self._begin(regions, lanes or {}, is_placed=True)
        self._atoms_of = atoms_by_region(tuple(atoms))
        self._joins = Joins()
        self._regions_of = self._relevant()
        self._next = dict.fromkeys(self._regions_of, 1)
        self._waiting: dict[int, list[_Stream]] = {}
        self._behind_gap: set[str] = set()
        """Regions whose head waits, and has a gap before it."""
        self._asked: set[str] = set()
        """Regions that were marked because of a gap, and have shown nothing since then."""

    def receive(self, frames: Iterable[StampedFrame], whole: Mapping[str, int] | None = None) -> list[Ready | Missing]:
        """Take frames, each region's in its stream's order; return what may be delivered now, in order.

        ``whole``: see `sequencing.cut.ReadResult`; None if nothing was left out. Frames of regions that are not the
        subscriber's, and repeated ones, are ignored; unreadable ones count as lost.
        """
        out: list[Ready | Missing] = []
        self._take(self._let_through(self._arriving(frames), whole), out)
        self._go_through(out)
        if self._ahead and (self._joins.regions or self._joins.views or self._waiting):
            self._look_ahead(out)
        return out

    def _take(self, through: Iterable[Numbered[_Arrived]], out: list[Ready | Missing]) -> None:
        """Take the next frames of each lane."""
        joins = self._joins
        self._is_taking = True
        for _, (region, ready, stamp) in through:
            stream = self._streams[region]
            numbers = self._relevant_numbers(stamp) if self._next else _NO_NUMBERS
            if joins.regions and joins.marker(region) is not None:
                if not self._marked(stream, ready, numbers, out):
                    continue
                numbers = {atom: number for atom, number in numbers.items() if atom in self._next}
            if not (self._queued or joins.views or (numbers and self._is_ahead(numbers))):
                self._deliver(stream, ready, out)  # as nearly always: nothing waits or has to wait
                if numbers:
                    self._advance(stream, numbers)
                continue
            is_numbered = bool(stamp) and stamp[0] == NODE
            stream.queue.append(_Entry(ready, numbers, is_numbered))
            self._queued += 1
            if is_numbered:
                self._lanes[stream.lane].order.append(region)
            if len(stream.queue) == 1:
                self._drain([stream], out)
        self._is_taking = False

    def _go_through(self, out: list[Ready | Missing]) -> None:
        """Take the frames that waited for a read of regions that have since been left, or have ended."""
        while self._ahead:
            through: list[Numbered[_Arrived]] = []
            for lane in self._lanes.values():
                if lane.ahead and lane.latest is not None:
                    through += let_through(lane.ahead, self._cut(lane, lane.latest))
            if not through:
                return
            self._ahead -= len(through)
            self._take(through, out)

    def found_end(self, region: str, newest: StampedFrame | None = None, *, is_direct: bool = False) -> None:
        """Note that the start of a joined region's stream is known; its lane continues once all starts are.

        ``newest``: the frame after which the region is read, no older than what was read at the node before.
        ``is_direct``:
        whether its path visits no other node, and nothing else requires a marker; then the region may be joined at
        once.
        """
        stream = self._streams[region]
        stream.is_placed = True
        self._lanes[stream.lane].seen_whole = None
        if newest is None or not is_direct:
            return
        number = abs(node_number(newest.stamp))
        if number and self._joins.do_without_marker(region, newest.last):
            stream.received, stream.next, stream.number = newest.last, newest.last + 1, number

    def join(self, markers: Mapping[str, bytes], lanes: Mapping[str, str] | None = None) -> None:
        """Add regions, each from its marker on: region → the body of the JOIN that this subscriber publishes there.

        ``lanes``: as at the beginning. See `found_end`.
        """
        self._begin(markers, lanes or {}, is_placed=False)
        before, self._regions_of = self._regions_of, self._relevant()
        for atom in self._joins.begin(markers, before, self._regions_of):
            self._next[atom] = 1
        self._number_anew()

    def leave(self, region: str) -> list[Ready | Missing]:
        """Take a region out, so that nothing waits for it any more; return the frames that can be delivered now."""
        self._forget(region)
        self._joins.leave(region, self.ended)
        before, self._regions_of = self._regions_of, self._relevant()
        for atom in before.keys() - self._regions_of.keys():
            del self._next[atom]
        self._waiting.clear()
        self._number_anew()
        out: list[Ready | Missing] = []
        self._drain(list(self._streams.values()), out)
        self._go_through(out)
        return out

    def miss(self, region: str) -> list[Ready | Missing]:
        """Treat a region as ended before its marker came; return the frames that can be delivered now.

        It is not taken out: its atoms may be the only order between two other regions.
        """
        out: list[Ready | Missing] = []
        work: list[_Stream] = []
        stream = self._streams[region]
        stream.ended = True
        self._take_up(self._joins.miss(region, self.ended), work)
        self._end(stream, work)
        self._drain(work, out)
        self._go_through(out)
        return out

    def join_probes(self, body: Callable[[], bytes], marked: AbstractSet[str], quiet: set[str]) -> dict[str, bytes]:
        """Return further markers to publish, region → body, because views wait for them; each region is named once.

        ``body``: makes one; ``marked``: the regions whose awaited markers were published, or are about to be;
        ``quiet``: regions that are not expected to show anything soon.
        """
        return self._joins.join_probes(
            body, marked=marked, quiet=quiet, ended=self.ended, last_number=self._last_number
        )

    def gap_probes(self, body: Callable[[], bytes]) -> dict[str, bytes]:
        """Return markers to publish, region → body, because frames behind a gap wait for them; each region is named
        once.

        The numbers that an atom lacks may be in the gap, or in flight in a region that shows nothing.
        """
        bodies: dict[str, bytes] = {}
        for region in self._behind_gap:
            for atom, number in self._streams[region].queue[0].numbers.items():
                if atom in self._joins.views or self._next[atom] >= number:
                    continue
                for other in self._regions_of[atom]:
                    stream = self._streams[other]
                    if not (stream.queue or stream.ended or other in self._asked):
                        self._asked.add(other)
                        bodies[other] = body()
        return bodies

    @property
    def is_behind_gap(self) -> bool:
        """Return whether a frame behind a gap waits."""
        return bool(self._behind_gap)

    @property
    def is_joining(self) -> bool:
        """Return whether there are views that have not begun."""
        return bool(self._joins.views)

    @property
    def binding(self) -> AbstractSet[int]:
        """The atoms whose numbers bind."""
        return self._regions_of.keys() - self._joins.views.keys()

    @property
    def holding(self) -> AbstractSet[int]:
        """The atoms for which frames may be held: those that bind, and those whose views wait for no marker."""
        return self.binding | {atom for atom, view in self._joins.views.items() if not view.waiting}

    @property
    def regions(self) -> AbstractSet[str]:
        """The regions whose frames are accepted."""
        return self._streams.keys()

    def begin(self, region: str) -> int:
        """Return the region sequence after which a joined region is delivered."""
        return self._joins.begins(region)

    def marker(self, region: str) -> bytes | None:
        """Return the body of the marker that is awaited in a region, None if there is none."""
        return self._joins.marker(region)

    def delivered(self, region: str) -> int:
        """Return the region sequence up to which a region is delivered."""
        return self._streams[region].next - 1

    def joined(self, region: str) -> bool:
        """Return whether events of a region are delivered."""
        return region in self._streams and self._joins.joined(region)

    def ended(self, region: str) -> bool:
        """Return whether all of a region's epoch is delivered, or it ended before its marker came."""
        return region in self._streams and self._streams[region].ended

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._queued + self._ahead

    @property
    def is_ahead(self) -> bool:
        """Return whether a frame waits for a read of all streams of its lane."""
        return self._ahead > 0

    def held(self, region: str) -> int:
        """Return how many frames of a region are received and not delivered."""
        stream = self._streams[region]
        ahead = sum(other.region == region for _, other in self._lanes[stream.lane].ahead) if self._ahead else 0
        return len(stream.queue) + ahead

    def _begin(self, regions: Iterable[str], lanes: Mapping[str, str], *, is_placed: bool) -> None:
        for region in regions:
            if region in self._streams:
                self._forget(region)
            name = lanes.get(region, region)
            self._streams[region] = _Stream(region, name, is_placed=is_placed)
            lane = self._lanes.setdefault(name, _Lane())
            lane.regions.add(region)
            lane.seen_whole = None

    def _forget(self, region: str) -> None:
        """Forget a stream, and all frames received of it."""
        stream = self._streams.pop(region)
        lane = self._lanes[stream.lane]
        ahead = [entry for entry in lane.ahead if entry[1].region != region]
        self._ahead -= len(lane.ahead) - len(ahead)
        self._queued -= len(stream.queue)
        lane.ahead, lane.order = ahead, deque(other for other in lane.order if other != region)
        lane.regions.discard(region)
        lane.seen_whole = None
        self._behind_gap.discard(region)
        self._asked.discard(region)

    def _arriving(self, frames: Iterable[StampedFrame]) -> list[Numbered[_Arrived]]:
        """Return the frames that are new and readable."""
        arrived: list[Numbered[_Arrived]] = []
        for frame in frames:
            stream = self._streams.get(frame.region)
            if stream is None or frame.epoch != self.epoch or frame.last <= stream.received:
                continue
            stream.received = frame.last
            if self._asked:
                self._asked.discard(frame.region)
            try:
                meta, stamp = parse_meta(frame.meta), parse_stamp(frame.stamp)
            except InvalidInput:
                continue  # as good as lost: the region's next frame shows that it is missing
            if stamp and stamp[0] == NODE:
                stream.number = abs(stamp[1])
            arrived.append((stream.number, _Arrived(frame.region, Ready(frame, meta), stamp)))
        return arrived

    def _let_through(
        self, arrived: list[Numbered[_Arrived]], whole: Mapping[str, int] | None
    ) -> list[Numbered[_Arrived]]:
        """Take the arrived frames; return those that are known to be next, in the order of each lane."""
        through: list[Numbered[_Arrived]] = []
        for entry in arrived:
            lane = self._lanes[self._streams[entry[1].region].lane]
            if not entry[0] and not lane.ahead:
                through.append(entry)  # its node does not number it, so it has no place among others
            else:
                lane.ahead.append(entry)
                lane.latest = None
                self._ahead += 1
        for lane in self._lanes.values() if self._ahead else ():
            if lane.ahead:
                before = len(through)
                through += let_through(lane.ahead, self._cut(lane, whole))
                self._ahead -= len(through) - before
        return through

    def _look_ahead(self, out: list[Ready | Missing]) -> None:
        """Take the information in frames that wait for a read of all streams: markers, and each stream's first numbers.

        A read of all streams may depend on it: other streams may not be read until something else is delivered.
        """
        work: list[_Stream] = []
        for lane in self._lanes.values():
            shown: set[str] = set()
            for entry in sorted(lane.ahead, key=itemgetter(0)):
                region, ready, stamp = entry[1]
                stream, numbers = self._streams[region], self._relevant_numbers(stamp)
                if entry not in lane.ahead:
                    continue  # a region that has ended before its marker came held it back
                if (marker := self._joins.marker(region)) is not None:
                    if not _is_marker(ready, marker):  # it shows nothing to waiting views
                        lane.ahead.remove(entry)
                        self._ahead -= 1
                    self._marked(stream, ready, numbers, out)
                elif region not in shown and not stream.queue:
                    shown.add(region)
                    self._settle_views(stream, numbers, work)
                    self._wake_waiting(numbers, work)
        self._drain(work, out)

    def _first(self, stream: _Stream) -> tuple[Meta, Numbers] | None:
        """Return the meta and numbers of a stream's first undelivered frame, None if there is none."""
        if stream.queue:
            return stream.queue[0].ready.meta, stream.queue[0].numbers
        for _, (region, ready, stamp) in self._lanes[stream.lane].ahead if not self._is_taking else ():
            if region == stream.region:
                return ready.meta, self._relevant_numbers(stamp)
        return None

    def _cut(self, lane: _Lane, whole: Mapping[str, int] | None) -> float:
        """Return up to which number all frames that a lane is to bring have arrived."""
        if whole is None or whole is lane.seen_whole:
            return inf
        behind = [region for region in lane.regions if whole.get(region) != self.epoch]
        if not behind:
            lane.seen_whole = whole
        if len(behind) < len(lane.regions):
            lane.latest = whole
        streams = (self._streams[region] for region in behind)
        return min((stream.number for stream in streams if stream.is_placed and not stream.ended), default=inf)

    def _relevant_numbers(self, stamp: list[int]) -> Numbers:
        pairs = iter(stamp)
        return {atom: number for atom, number in zip(pairs, pairs, strict=True) if atom in self._next}

    def _is_first(self, stream: _Stream) -> bool:
        """Return whether the head of a stream is also that of its lane, or is in no lane."""
        return not stream.queue[0].is_numbered or self._lanes[stream.lane].order[0] == stream.region

    def _relevant(self) -> dict[int, tuple[str, ...]]:
        mine = self._streams.keys()
        stamping = chain.from_iterable(self._atoms_of.get(region, ()) for region in mine)
        return self._joins.left | {int(atom.id): atom.regions for atom in stamping if mine >= set(atom.regions)}

    def _drain(self, work: list[_Stream], out: list[Ready | Missing]) -> None:
        joins = self._joins
        while work:
            stream = work.pop()
            stream.is_due = False
            while stream.queue:
                if joins.views:
                    self._settle_views(stream, stream.queue[0].numbers, work)
                ready, numbers, is_numbered = stream.queue[0]
                if ready.frame.last - ready.meta.events >= stream.next:
                    self._behind_gap.add(stream.region)
                if not self._is_first(stream):
                    self._wake_waiting(numbers, work)  # what it shows may settle a jump
                    break
                blocking = self._blocking(stream, numbers)
                if any(self._settle_jump(atom, work) for atom in blocking):
                    continue
                if blocking:
                    self._waiting.setdefault(blocking[0], []).append(stream)
                    break
                stream.queue.popleft()
                if self._behind_gap:
                    self._behind_gap.discard(stream.region)
                self._queued -= 1
                if is_numbered:
                    order = self._lanes[stream.lane].order
                    order.popleft()
                    if order:
                        _wake([self._streams[order[0]]], work)
                self._deliver(stream, ready, out)
                if joins.views and ready.meta.kind == FrameKind.JOIN:
                    joins.came_along(stream.region, ready.frame.body)
                self._advance(stream, numbers)
                self._wake_waiting(numbers, work)
                if stream.ended:
                    self._end(stream, work)

    def _blocking(self, stream: _Stream, numbers: Numbers) -> list[int]:
        if self._joins.views:
            return [atom for atom, number in numbers.items() if self._blocks(stream, atom, number)]
        return [atom for atom, number in numbers.items() if self._next[atom] < number]

    def _wake_waiting(self, atoms: Iterable[int], work: list[_Stream]) -> None:
        """Have the frames that wait for atoms examined again."""
        if self._waiting:
            for atom in atoms:
                _wake(self._waiting.pop(atom, ()), work)

    def _is_ahead(self, numbers: Numbers) -> bool:
        """Return whether a frame has to wait for another one; correct only while there are no views."""
        following = self._next
        for atom, number in numbers.items():  # noqa: SIM110 - `any` of a generator takes twice as long
            if following[atom] < number:
                return True
        return False

    def _advance(self, stream: _Stream, numbers: Numbers) -> None:
        """Note the numbers that a frame that is delivered now has shown."""
        views = self._joins.views
        for atom, number in numbers.items():
            if atom not in views:
                if number >= self._next[atom]:  # a marker below where its view began goes behind it
                    self._next[atom] = number + 1
            elif views[atom].waiting:
                views[atom].show(stream.region, number)

    def _blocks(self, stream: _Stream, atom: int, number: int) -> bool:
        if atom not in self._joins.views:
            return self._next[atom] < number
        return self._joins.blocks(stream.region, atom, number)

    def _marked(self, stream: _Stream, ready: Ready, numbers: Numbers, out: list[Ready | Missing]) -> bool:
        """Check for the awaited marker; return whether this frame is it."""
        frame, meta = ready
        if meta.kind == FrameKind.TICK:
            self.silent.append(ready)
            out += self.miss(stream.region)
            return False
        if not _is_marker(ready, self._joins.marker(stream.region)):
            self.silent.append(ready)
            return False
        stream.next = frame.last
        work: list[_Stream] = []
        self._take_up(self._joins.marked(stream.region, frame.last, numbers, self.ended), work)
        self._drain(work, out)
        return True

    def _take_up(self, atoms: Iterable[int], work: list[_Stream]) -> None:
        """Continue with atoms whose views no longer wait for a marker."""
        for atom in atoms:
            _wake((self._streams[region] for region in self._regions_of[atom]), work)
            self._wake_waiting([atom], work)
            self._settle_if_due(atom, self._joins.views[atom], work)

    def _settle_views(self, stream: _Stream, numbers: Numbers, work: list[_Stream]) -> None:
        """Note the numbers that a head shows to the views that have not begun."""
        for atom, number in numbers.items():
            view = self._joins.views.get(atom)
            if view is not None and not view.waiting and number >= view.begin:
                self._settle_view(atom, view, stream.region, work)

    def _settle_view(self, atom: int, view: View, region: str, work: list[_Stream]) -> None:
        view.unsettled.discard(region)
        self._settle_if_due(atom, view, work)

    def _settle_if_due(self, atom: int, view: View, work: list[_Stream]) -> None:
        if not view.unsettled:
            self._joins.end(atom)
            self._next[atom] = view.begin + 1
            self._wake_waiting([atom], work)
            if view.is_left:
                del self._next[atom], self._regions_of[atom]
                self._number_anew()

    def _settle_jump(self, atom: int, work: list[_Stream]) -> bool:
        """If no region of the atom can still bring the awaited number, continue with the smallest one shown."""
        if atom in self._joins.views:
            return False
        shown: list[int] = []
        for region in self._regions_of[atom]:
            stream = self._streams[region]
            first = self._first(stream)
            if first is None:
                if stream.ended:
                    continue
                return False
            meta, numbers = first
            if atom in numbers:
                shown.append(numbers[atom])
            elif meta.kind != FrameKind.TICK:
                return False
        if not shown:
            return False
        smallest = min(shown)
        if smallest <= self._next[atom]:
            return False
        self._next[atom] = smallest
        self._wake_waiting([atom], work)
        return True

    def _deliver(self, stream: _Stream, ready: Ready, out: list[Ready | Missing]) -> None:
        first, expected = ready.frame.last - ready.meta.events + 1, stream.next
        stream.next = ready.frame.last + 1
        stream.ended = ready.meta.kind == FrameKind.TICK
        if first > expected:
            self._joins.came_along(stream.region, None)
        if self._joins.regions and stream.region in self._joins.regions:
            self.silent.append(ready)
            self._joins.skip(stream.region, ready.frame.last)
            return
        if first > expected:
            out.append(Missing(stream.region, self.epoch, expected, first - 1 if first < UNKNOWN_END else 0))
        out.append(ready)

    def _end(self, stream: _Stream, work: list[_Stream]) -> None:
        """Stop waiting for what an ended region might show."""
        for atom in [atom for atom, regions in self._regions_of.items() if stream.region in regions]:
            view = self._joins.views.get(atom)
            if view is not None and not view.waiting:
                self._settle_view(atom, view, stream.region, work)
            self._wake_waiting([atom], work)

    def _number_anew(self) -> None:
        """Read the stamps of held frames again, because other atoms are relevant now."""
        for stream in self._streams.values():
            for place, entry in enumerate(stream.queue):
                numbers = self._relevant_numbers(parse_stamp(entry.ready.frame.stamp))
                stream.queue[place] = entry._replace(numbers=numbers)

    def _last_number(self, region: str, atom: int) -> int:
        """Return the last number of an atom that a region is known to bring, 0 if none is held."""
        stream = self._streams[region]
        return stream.queue[-1].numbers.get(atom, 0) if stream.queue else 0


def _is_marker(ready: Ready, body: bytes | None) -> bool:
    return ready.meta.kind == FrameKind.JOIN and ready.frame.body == body


def _wake(streams: Iterable[_Stream], work: list[_Stream]) -> None:
    for stream in streams:
        if not stream.is_due:
            stream.is_due = True
            work.append(stream)
