"""Delivery: whether a received frame may be handed to the application, from its stamp alone.

A subscriber reads the egress stream of each of its regions; each stream is in region order, so only the heads can wait.
A head is delivered when

- its region sequence is the next of its region, and
- each *relevant* atom on its stamp, one whose regions the subscriber has all, shows the next number of that atom.

No timeout takes part (seed 002 §3.1: destinations decide immediately whether to deliver or to buffer).

After a loss the decision stays immediate. A jump of the region sequence is handed out as `Missing`, in place. A jump of
an atom's numbers is settled by the heads: streams are in order, so when every region of the atom shows a head and none
of them has the awaited number, that number will never come, and the smallest one shown is next. A region that is quiet
shows none, and may never: behind a gap, those are marked.

The epoch of a region ends with a TICK, at which the region needs to show no more numbers. A region may also be
joined while the epoch runs; from where on it is handed out is told in `sequencing.joins`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from sequencing.errors import InvalidInput
from sequencing.frames import UNKNOWN_END, FrameKind, Meta, StampedFrame, parse_meta, parse_stamp
from sequencing.joins import Joins, View
from sequencing.plan import Atom, atoms_by_region


class Ready(NamedTuple):
    """A frame to deliver now."""

    frame: StampedFrame
    meta: Meta


class Missing(NamedTuple):
    """Events of a region that will never come: region sequences ``first`` … ``last``, both included.

    ``last`` is 0 where nobody knows how many there were, if any: the ingress lost the end of its epoch.
    """

    region: str
    epoch: int
    first: int
    last: int


Numbers = dict[int, int]
"""The relevant part of a stamp: atom → number."""


@dataclass(slots=True)
class _Stream:
    region: str
    next: int = 1
    received: int = 0
    ended: bool = False
    queue: deque[tuple[Ready, Numbers]] = field(default_factory=deque)
    is_looked_at: bool = False
    """Whether the jumps that the head shows were looked at, and nothing has changed since that could settle one."""
    is_due: bool = False
    """Whether the head is about to be looked at."""


class Delivery:
    """The delivery order of one subscriber within one epoch."""

    def __init__(self, epoch: int, regions: Iterable[str], atoms: Iterable[Atom]) -> None:
        """``regions``: the subscriber's since the epoch began; ``atoms``: the plan's (irrelevant ones are ignored)."""
        self.epoch = epoch
        self.held_frames = 0
        self.silent: list[Ready] = []
        """Frames of regions that are being joined, which came and were not handed out; for the caller to clear."""
        self._streams = {region: _Stream(region) for region in regions}
        self._atoms_of = atoms_by_region(tuple(atoms))
        self._joins = Joins()
        self._regions_of = self._relevant()
        self._next = dict.fromkeys(self._regions_of, 1)
        self._waiting: dict[int, list[_Stream]] = {}
        self._behind_gap: set[str] = set()
        """Regions whose head waits, and has a gap before it."""
        self._asked: set[str] = set()
        """Regions that were marked because of a gap, and have shown nothing since."""

    def receive(self, frames: Iterable[StampedFrame]) -> list[Ready | Missing]:
        """Take frames, each region's in its stream's order; return what may be delivered now, in order.

        Frames of regions that are not the subscriber's, and repeated ones, are ignored; unreadable ones count as lost.
        """
        out: list[Ready | Missing] = []
        joins = self._joins
        for frame in frames:
            stream = self._streams.get(frame.region)
            if stream is None or frame.epoch != self.epoch or frame.last <= stream.received:
                continue
            stream.received = frame.last
            if self._asked:
                self._asked.discard(frame.region)
            try:
                meta, stamp = parse_meta(frame.meta), iter(parse_stamp(frame.stamp))
            except InvalidInput:
                continue  # as good as lost: the region's next frame tells that it is missing
            numbers = {atom: number for atom, number in zip(stamp, stamp, strict=True) if atom in self._next}
            if joins.regions and joins.marker(frame.region) is not None:
                if not self._marked(stream, frame, meta, numbers, out):
                    continue
                numbers = {atom: number for atom, number in numbers.items() if atom in self._next}
            if not (stream.queue or self._waiting or joins.views) and not self._is_ahead(numbers):
                self._deliver(stream, Ready(frame, meta), out)  # as nearly always: nothing waits, nor has to
                self._advance(stream, numbers)
                continue
            stream.queue.append((Ready(frame, meta), numbers))
            self.held_frames += 1
            if len(stream.queue) == 1:
                self._drain([stream], out)
        return out

    def join(self, markers: Mapping[str, bytes]) -> None:
        """Add regions, each from its marker on: region → the body of the JOIN that this subscriber publishes there."""
        self._streams |= {region: _Stream(region) for region in markers}
        before, self._regions_of = self._regions_of, self._relevant()
        for atom in self._joins.begin(markers, before, self._regions_of):
            self._next[atom] = 1
        self._number_anew()

    def leave(self, region: str) -> list[Ready | Missing]:
        """Take a region out: nothing waits for it any more. Returns what may be delivered now."""
        gone = self._streams.pop(region)
        self._behind_gap.discard(region)
        self.held_frames -= len(gone.queue)
        self._joins.leave(region, self.ended)
        before, self._regions_of = self._regions_of, self._relevant()
        for atom in before.keys() - self._regions_of.keys():
            del self._next[atom]
        self._waiting.clear()
        self._number_anew()
        out: list[Ready | Missing] = []
        self._drain(list(self._streams.values()), out)
        return out

    def miss(self, region: str) -> list[Ready | Missing]:
        """Take a region for ended before its marker came; return what may be delivered now.

        It is not taken out: its atoms may be all that orders two others.
        """
        out: list[Ready | Missing] = []
        work: list[_Stream] = []
        stream = self._streams[region]
        stream.ended = True
        self._take_up(self._joins.miss(region, self.ended), work)
        self._end(stream, work)
        self._drain(work, out)
        return out

    def nudges(self, body: Callable[[], bytes], marked: AbstractSet[str], quiet: set[str]) -> dict[str, bytes]:
        """Return what else to mark, region → body, because views wait for what it shows; each is named once.

        ``body``: makes one; ``marked``: the regions whose awaited markers were published, or are about to be;
        ``quiet``: those that do not look as if they would show something soon.
        """
        return self._joins.nudges(body, marked=marked, quiet=quiet, ended=self.ended, last_number=self._last_number)

    def questions(self, body: Callable[[], bytes]) -> dict[str, bytes]:
        """Return what to mark, region → body, because what follows a gap waits for what it shows; each is named once.

        The numbers that an atom lacks may be in the gap, or under way in a region that shows nothing.
        """
        bodies: dict[str, bytes] = {}
        for region in self._behind_gap:
            _, numbers = self._streams[region].queue[0]
            for atom, number in numbers.items():
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
        """Return whether something waits that follows a gap."""
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
        """The regions whose frames are taken."""
        return self._streams.keys()

    def begin(self, region: str) -> int:
        """Return the region sequence after which a region that is joined is handed out."""
        return self._joins.begins(region)

    def marker(self, region: str) -> bytes | None:
        """Return the body of the marker that is awaited in a region, None when none is."""
        return self._joins.marker(region)

    def delivered(self, region: str) -> int:
        """Return the region sequence up to which a region is delivered."""
        return self._streams[region].next - 1

    def joined(self, region: str) -> bool:
        """Return whether events of a region are handed out."""
        return region in self._streams and self._joins.joined(region)

    def ended(self, region: str) -> bool:
        """Return whether all of a region's epoch is delivered, or it ended before its marker came."""
        return region in self._streams and self._streams[region].ended

    def held(self, region: str) -> int:
        """Return how many frames of a region are received and not delivered."""
        return len(self._streams[region].queue)

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
                ready, numbers = stream.queue[0]
                if joins.views:
                    self._settle_views(stream, numbers, work)
                    ready, numbers = stream.queue[0]
                    blocking = [atom for atom, number in numbers.items() if self._blocks(stream, atom, number)]
                else:
                    blocking = [atom for atom, number in numbers.items() if self._next[atom] < number]
                if blocking and not stream.is_looked_at and any(self._settle_jump(atom, work) for atom in blocking):
                    continue
                if blocking:
                    if ready.frame.last - ready.meta.events >= stream.next:
                        self._behind_gap.add(stream.region)
                    stream.is_looked_at = True
                    self._waiting.setdefault(blocking[0], []).append(stream)
                    break
                stream.queue.popleft()
                stream.is_looked_at = False
                if self._behind_gap:
                    self._behind_gap.discard(stream.region)
                self.held_frames -= 1
                self._deliver(stream, ready, out)
                if joins.views and ready.meta.kind == FrameKind.JOIN:
                    joins.came_along(stream.region, ready.frame.body)
                self._advance(stream, numbers)
                if self._waiting:
                    for atom in numbers:
                        _wake(self._waiting.pop(atom, ()), work)
                if stream.ended:
                    self._end(stream, work)

    def _is_ahead(self, numbers: Numbers) -> bool:
        """Return whether a frame has to wait for another one; only right while no view is there."""
        following = self._next
        for atom, number in numbers.items():  # noqa: SIM110 - `any` of a generator takes twice as long
            if following[atom] < number:
                return True
        return False

    def _advance(self, stream: _Stream, numbers: Numbers) -> None:
        """Note what a frame that is delivered now has shown."""
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

    def _marked(
        self, stream: _Stream, frame: StampedFrame, meta: Meta, numbers: Numbers, out: list[Ready | Missing]
    ) -> bool:
        """Look for the awaited marker; return whether this frame is it."""
        if meta.kind == FrameKind.TICK:
            self.silent.append(Ready(frame, meta))
            out += self.miss(stream.region)
            return False
        if meta.kind != FrameKind.JOIN or frame.body != self._joins.marker(stream.region):
            self.silent.append(Ready(frame, meta))
            return False
        stream.next = frame.last
        work: list[_Stream] = []
        self._take_up(self._joins.marked(stream.region, frame.last, numbers, self.ended), work)
        self._drain(work, out)
        return True

    def _take_up(self, atoms: Iterable[int], work: list[_Stream]) -> None:
        """Go on with atoms whose views wait for no marker any more."""
        for atom in atoms:
            _wake((self._streams[region] for region in self._regions_of[atom]), work)
            self._look_again(atom, work)
            self._settle_if_due(atom, self._joins.views[atom], work)

    def _settle_views(self, stream: _Stream, numbers: Numbers, work: list[_Stream]) -> None:
        """Note what a head shows to the views that have not begun."""
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
            self._look_again(atom, work)
            if view.is_left:
                del self._next[atom], self._regions_of[atom]
                self._number_anew()

    def _look_again(self, atom: int, work: list[_Stream]) -> None:
        """Have the heads of an atom's regions looked at anew, and wake what waits for it."""
        for region in self._regions_of.get(atom, ()):
            self._streams[region].is_looked_at = False
        _wake(self._waiting.pop(atom, ()), work)

    def _settle_jump(self, atom: int, work: list[_Stream]) -> bool:
        """If no region of the atom can still bring the awaited number, go on to the smallest that is there."""
        if atom in self._joins.views:
            return False
        shown: list[int] = []
        for region in self._regions_of[atom]:
            stream = self._streams[region]
            if not stream.queue:
                if stream.ended:
                    continue
                return False
            number = stream.queue[0][1].get(atom)
            if number is None:
                return False
            shown.append(number)
        smallest = min(shown)
        if smallest <= self._next[atom]:
            return False
        self._next[atom] = smallest
        _wake(self._waiting.pop(atom, ()), work)
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
        """Nothing waits any more for what an ended region might show."""
        for atom in [atom for atom, regions in self._regions_of.items() if stream.region in regions]:
            view = self._joins.views.get(atom)
            if view is not None and not view.waiting:
                self._settle_view(atom, view, stream.region, work)
            self._look_again(atom, work)

    def _number_anew(self) -> None:
        """Read the stamps of what is held again, because other atoms are relevant now."""
        for stream in self._streams.values():
            stream.is_looked_at = False
            for place, (ready, _) in enumerate(stream.queue):
                stamp = iter(parse_stamp(ready.frame.stamp))
                numbers = {atom: number for atom, number in zip(stamp, stamp, strict=True) if atom in self._next}
                stream.queue[place] = ready, numbers

    def _last_number(self, region: str, atom: int) -> int:
        """Return the last number of an atom that a region is known to bring, 0 when none is held."""
        stream = self._streams[region]
        return stream.queue[-1][1].get(atom, 0) if stream.queue else 0


def _wake(streams: Iterable[_Stream], work: list[_Stream]) -> None:
    for stream in streams:
        if not stream.is_due:
            stream.is_due = True
            work.append(stream)
