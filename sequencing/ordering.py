"""Ordering: deliver the frames of all lanes so that the numbers of each relevant atom grow.

Frames come from `sequencing.lanes`, and each lane is delivered in its order: only the heads of lanes can wait. See
`sequencing.delivery` for the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from sequencing.frames import NODE, UNKNOWN_END, FrameKind, Meta, parse_stamp
from sequencing.joins import Joins, View
from sequencing.lanes import Entry, Lanes
from sequencing.plan import Atom, atoms_by_region
from sequencing.ready import Missing, Ready, is_marker

Numbers = dict[int, int]
"""The relevant part of a stamp: atom → number."""

_NO_NUMBERS: Numbers = {}


class _Waiting(NamedTuple):
    """A waiting frame; ``numbers``: of atoms; ``is_numbered``: by its egress node."""

    ready: Ready
    numbers: Numbers
    is_numbered: bool


@dataclass(slots=True)
class Expected:
    """What is to be delivered next of a region."""

    region: str
    order: deque[str]
    """Shared by the streams of a lane: the regions of its numbered frames that wait, in the order of their numbers."""
    next: int = 1
    queue: list[_Waiting] = field(default_factory=list)
    """A list: it is short, and an empty deque takes ten times as much memory."""
    is_due: bool = False
    """Whether the head is about to be examined."""


class Ordering:
    """The order by atoms of one subscriber within one epoch."""

    def __init__(self, epoch: int, atoms: Iterable[Atom], lanes: Lanes, ended: set[str]) -> None:
        """``lanes``: to see what is ahead; ``ended``: a set that is kept here, of the regions that have ended."""
        self.joins = Joins()
        self.silent: list[Ready] = []
        """Frames of regions that are being joined, which arrived and were not delivered; for the caller to clear."""
        self.queued = 0
        """The frames that wait here."""
        self._waiting: dict[int, list[Expected]] = {}
        """Atom → the streams whose heads wait for a number of it."""
        self.behind_gap: set[str] = set()
        """Regions whose head waits, and has a gap before it."""
        self.ended_now: list[str] = []
        """Regions that have ended; for the caller to clear."""
        self._epoch, self._lanes, self._ended = epoch, lanes, ended
        self._is_taking = False
        """Whether frames that precede those ahead are about to be examined."""
        self._streams: dict[str, Expected] = {}
        self._orders: dict[str, deque[str]] = {}
        self._busy: dict[str, Expected] = {}
        """The streams of which frames wait."""
        self._atoms_of = atoms_by_region(tuple(atoms))
        self._lacks: dict[int, int] = {}
        """Atom of some region here → how many of its regions are not here."""
        self._regions_of: dict[int, tuple[str, ...]] = {}
        """Relevant atom → its regions; if one of them was left, those of them that are being joined."""
        self._next: dict[int, int] = {}
        self._asked: dict[str, int] = {}
        """Region that was marked because of a gap → the last region sequence received of it then."""

    def start(self, regions: Iterable[str], lanes: Mapping[str, str]) -> None:
        """Begin with a subscriber's regions when an epoch begins; ``lanes``: region → the name of its lane."""
        self._regions_of = {int(atom.id): atom.regions for atom in self._begin(regions, lanes)}
        self._next = dict.fromkeys(self._regions_of, 1)

    def take(self, through: Iterable[Entry], out: list[Ready | Missing]) -> None:
        """Take the next frames of each lane."""
        joins = self.joins
        self._is_taking = True
        for _, (region, ready, stamp) in through:
            stream = self._streams[region]
            numbers = self._relevant_numbers(stamp) if self._next else _NO_NUMBERS
            if joins.regions and joins.marker(region) is not None:
                if not self._marked(stream, ready, numbers, out):
                    continue
                numbers = {atom: number for atom, number in numbers.items() if atom in self._next}
            if not (self.queued or joins.views or (numbers and self._is_ahead(numbers))):
                self._deliver(stream, ready, out)  # as nearly always: nothing waits or has to wait
                if numbers:
                    self._advance(stream, numbers)
                continue
            is_numbered = bool(stamp) and stamp[0] == NODE
            stream.queue.append(_Waiting(ready, numbers, is_numbered))
            self._busy[region] = stream
            self.queued += 1
            if is_numbered:
                stream.order.append(region)
            if len(stream.queue) == 1:
                self._drain([stream], out)
        self._is_taking = False

    def cursor(self, region: str) -> Expected | None:
        """Return what is expected of a region whose next frame is delivered at once; None if it may have to wait."""
        joins = self.joins
        waits = self.queued or self._next or joins.regions or joins.views
        return None if waits or region in self._ended else self._streams[region]

    def join(self, markers: Mapping[str, bytes], lanes: Mapping[str, str]) -> None:
        """Add regions, each from its marker on; see `Delivery.join`."""
        relevant = {int(atom.id): atom.regions for atom in self._begin(markers, lanes)}
        fresh = self.joins.begin(markers, self._regions_of.keys(), relevant)
        self._regions_of |= relevant
        for atom in fresh:
            self._next[atom] = 1
        if relevant:
            self._renumber()

    def skip(self, region: str, last: int) -> None:
        """Deliver a region after a region sequence."""
        self._streams[region].next = last + 1

    def forget(self, region: str) -> None:
        """Forget a region, and its frames that wait."""
        stream = self._streams.pop(region)
        for atom in self._atoms_of.get(region, ()):
            self._lacks[atom.id] += 1
        self._busy.pop(region, None)
        self.queued -= len(stream.queue)
        others = [other for other in stream.order if other != region]
        stream.order.clear()
        stream.order.extend(others)
        self.behind_gap.discard(region)
        self._ended.discard(region)
        self._asked.pop(region, None)

    def leave(self, region: str, out: list[Ready | Missing]) -> None:
        """Take a region out, so that nothing waits for it any more."""
        self.forget(region)
        atoms = [int(atom.id) for atom in self._atoms_of.get(region, ()) if atom.id in self._regions_of]
        self.joins.leave(region, atoms, self.ended)
        for atom in atoms:
            if (members := self.joins.left(atom)) is not None:
                self._regions_of[atom] = members
            else:
                del self._regions_of[atom], self._next[atom]
        self._waiting.clear()
        if atoms:
            self._renumber()
        self._drain(list(self._busy.values()), out)

    def miss(self, region: str, out: list[Ready | Missing]) -> None:
        """Treat a region as ended before its marker came; see `Delivery.miss`."""
        work: list[Expected] = []
        stream = self._streams[region]
        self._note_end(region)
        self._take_up(self.joins.miss(region, self.ended), work)
        self._end(stream, work)
        self._drain(work, out)

    def _marked(self, stream: Expected, ready: Ready, numbers: Numbers, out: list[Ready | Missing]) -> bool:
        """Check for the awaited marker; return whether this frame is it."""
        frame, meta = ready
        if meta.kind == FrameKind.TICK:
            self.silent.append(ready)
            self.miss(stream.region, out)
            return False
        if not is_marker(ready, self.joins.marker(stream.region)):
            self.silent.append(ready)
            return False
        stream.next = frame.last
        work: list[Expected] = []
        self._take_up(self.joins.marked(stream.region, frame.last, numbers, self.ended), work)
        self._drain(work, out)
        return True

    def look_ahead(self, out: list[Ready | Missing]) -> None:
        """Take the information in the frames that are ahead: markers, and each stream's first numbers.

        A read of all streams may depend on it: other streams may not be read until something else is delivered.
        """
        if not (self.joins.regions or self.joins.views or self._waiting):
            return
        work: list[Expected] = []
        shown: set[str] = set()
        for entry in self._lanes.ahead():
            region, ready, stamp = entry[1]
            stream, numbers = self._streams[region], self._relevant_numbers(stamp)
            if (marker := self.joins.marker(region)) is not None:
                if not is_marker(ready, marker):  # it shows nothing to waiting views
                    self._lanes.drop(entry)
                self._marked(stream, ready, numbers, out)
            elif region not in shown and not stream.queue:
                shown.add(region)
                self._settle_views(stream, numbers, work)
                self._wake_waiting(numbers, work)
        self._drain(work, out)

    def gap_probes(self, body: Callable[[], bytes]) -> dict[str, bytes]:
        """Return markers to publish, because frames behind a gap wait for them; see `Delivery.gap_probes`."""
        bodies: dict[str, bytes] = {}
        for region in self.behind_gap:
            for atom, number in self._streams[region].queue[0].numbers.items():
                if atom in self.joins.views or self._next[atom] >= number:
                    continue
                for other in self._regions_of[atom]:
                    received = self._lanes.received(other)
                    if self._streams[other].queue or other in self._ended or self._asked.get(other) == received:
                        continue
                    self._asked[other] = received
                    bodies[other] = body()
        return bodies

    def is_relevant(self, atom: int) -> bool:
        """Return whether an atom orders anything here, or will."""
        return atom in self._regions_of

    @property
    def regions(self) -> AbstractSet[str]:
        """The regions whose frames are accepted."""
        return self._streams.keys()

    def delivered(self, region: str) -> int:
        """Return the region sequence up to which a region is delivered."""
        return self._streams[region].next - 1

    def ended(self, region: str) -> bool:
        """Return whether all of a region's epoch is delivered, or it ended before its marker came."""
        return region in self._ended

    def held(self, region: str) -> int:
        """Return how many frames of a region wait here."""
        return len(self._streams[region].queue)

    def _begin(self, regions: Iterable[str], lanes: Mapping[str, str]) -> list[Atom]:
        """Begin streams; return the atoms all of whose regions are here now."""
        complete: list[Atom] = []
        for region in regions:
            if region in self._streams:
                self.forget(region)
            order = self._orders.setdefault(lanes.get(region, region), deque())
            self._streams[region] = Expected(region, order)
            for atom in self._atoms_of.get(region, ()):
                left = self._lacks[atom.id] = self._lacks.get(atom.id, len(atom.regions)) - 1
                if not left:
                    complete.append(atom)
        return complete

    def _first(self, stream: Expected) -> tuple[Meta, Numbers] | None:
        """Return the meta and numbers of a stream's first undelivered frame, None if there is none."""
        if stream.queue:
            return stream.queue[0].ready.meta, stream.queue[0].numbers
        ahead = None if self._is_taking else self._lanes.first(stream.region)
        return (ahead.ready.meta, self._relevant_numbers(ahead.stamp)) if ahead is not None else None

    def _relevant_numbers(self, stamp: list[int]) -> Numbers:
        pairs = iter(stamp)
        return {atom: number for atom, number in zip(pairs, pairs, strict=True) if atom in self._next}

    def _drain(self, work: list[Expected], out: list[Ready | Missing]) -> None:
        joins = self.joins
        while work:
            stream = work.pop()
            stream.is_due = False
            while stream.queue:
                if joins.views:
                    self._settle_views(stream, stream.queue[0].numbers, work)
                ready, numbers, is_numbered = stream.queue[0]
                if ready.frame.last - ready.meta.events >= stream.next:
                    self.behind_gap.add(stream.region)
                if is_numbered and stream.order[0] != stream.region:
                    self._wake_waiting(numbers, work)  # what it shows may settle a jump
                    break
                blocking = self._blocking(stream, numbers)
                if any(self._settle_jump(atom, work) for atom in blocking):
                    continue
                if blocking:
                    self._waiting.setdefault(blocking[0], []).append(stream)
                    break
                stream.queue.pop(0)
                if not stream.queue:
                    self._busy.pop(stream.region, None)
                if self.behind_gap:
                    self.behind_gap.discard(stream.region)
                self.queued -= 1
                if is_numbered:
                    stream.order.popleft()
                    if stream.order:
                        _wake([self._streams[stream.order[0]]], work)
                self._deliver(stream, ready, out)
                if joins.views and ready.meta.kind == FrameKind.JOIN:
                    joins.came_along(stream.region, ready.frame.body)
                self._advance(stream, numbers)
                self._wake_waiting(numbers, work)
                if self._ended and stream.region in self._ended:
                    self._end(stream, work)

    def _blocking(self, stream: Expected, numbers: Numbers) -> list[int]:
        """Return the atoms that a head waits for."""
        if not self.joins.views:
            return [atom for atom, number in numbers.items() if self._next[atom] < number]
        views, blocks, region = self.joins.views, self.joins.blocks, stream.region
        return [a for a, n in numbers.items() if (blocks(region, a, n) if a in views else self._next[a] < n)]

    def _wake_waiting(self, atoms: Iterable[int], work: list[Expected]) -> None:
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

    def _advance(self, stream: Expected, numbers: Numbers) -> None:
        """Note the numbers that a frame that is delivered now has shown."""
        views = self.joins.views
        for atom, number in numbers.items():
            if atom not in views:
                if number >= self._next[atom]:  # a marker below where its view began goes behind it
                    self._next[atom] = number + 1
            elif views[atom].waiting:
                views[atom].show(stream.region, number)

    def _take_up(self, atoms: Iterable[int], work: list[Expected]) -> None:
        """Continue with atoms whose views no longer wait for a marker."""
        for atom in atoms:
            _wake((self._streams[region] for region in self._regions_of[atom]), work)
            self._wake_waiting([atom], work)
            self._settle_if_due(atom, self.joins.views[atom], work)

    def _settle_views(self, stream: Expected, numbers: Numbers, work: list[Expected]) -> None:
        """Note the numbers that a head shows to the views that have not begun."""
        for atom, number in numbers.items():
            view = self.joins.views.get(atom)
            if view is not None and not view.waiting and number >= view.begin:
                view.unsettled.discard(stream.region)
                self._settle_if_due(atom, view, work)

    def _settle_if_due(self, atom: int, view: View, work: list[Expected]) -> None:
        if not view.unsettled:
            self.joins.end(atom)
            self._next[atom] = view.begin + 1
            self._wake_waiting([atom], work)
            if view.is_left:
                del self._next[atom], self._regions_of[atom]
                self._renumber()

    def _settle_jump(self, atom: int, work: list[Expected]) -> bool:
        """If no region of the atom can still bring the awaited number, continue with the smallest one shown."""
        if atom in self.joins.views:
            return False
        shown: list[int] = []
        for region in self._regions_of[atom]:
            first = self._first(self._streams[region])
            if first is None:
                if region in self._ended:
                    continue
                return False
            meta, numbers = first
            if atom in numbers:
                shown.append(numbers[atom])
            elif meta.kind != FrameKind.TICK:
                return False
        smallest = min(shown, default=0)
        if smallest <= self._next[atom]:
            return False
        self._next[atom] = smallest
        self._wake_waiting([atom], work)
        return True

    def _deliver(self, stream: Expected, ready: Ready, out: list[Ready | Missing]) -> None:
        first, expected = ready.frame.last - ready.meta.events + 1, stream.next
        stream.next = ready.frame.last + 1
        if ready.meta.kind == FrameKind.TICK:
            self._note_end(stream.region)
        if first > expected:
            self.joins.came_along(stream.region, None)
        if self.joins.regions and stream.region in self.joins.regions:
            self.silent.append(ready)
            self.joins.skip(stream.region, ready.frame.last)
            return
        if first > expected:
            out.append(Missing(stream.region, self._epoch, expected, first - 1 if first < UNKNOWN_END else 0))
        out.append(ready)

    def _end(self, stream: Expected, work: list[Expected]) -> None:
        """Stop waiting for what an ended region might show."""
        for atom in [int(atom.id) for atom in self._atoms_of.get(stream.region, ()) if atom.id in self._regions_of]:
            view = self.joins.views.get(atom)
            if view is not None and view.is_left and stream.region not in view.members:
                continue
            if view is not None and not view.waiting:
                view.unsettled.discard(stream.region)
                self._settle_if_due(atom, view, work)
            self._wake_waiting([atom], work)

    def _renumber(self) -> None:
        """Read the stamps of held frames again, because other atoms are relevant now."""
        for stream in self._busy.values():
            for place, entry in enumerate(stream.queue):
                numbers = self._relevant_numbers(parse_stamp(entry.ready.frame.stamp))
                stream.queue[place] = entry._replace(numbers=numbers)

    def _note_end(self, region: str) -> None:
        self._ended.add(region)
        self.ended_now.append(region)

    def last_number(self, region: str, atom: int) -> int:
        """Return the last number of an atom that a region is known to bring, 0 if none is held."""
        stream = self._streams[region]
        return stream.queue[-1].numbers.get(atom, 0) if stream.queue else 0


def _wake(streams: Iterable[Expected], work: list[Expected]) -> None:
    for stream in streams:
        if not stream.is_due:
            stream.is_due = True
            work.append(stream)
