"""Delivery: whether a received frame may be handed to the application, from its stamp alone.

A subscriber reads the egress stream of each of its regions; each stream is in region order, so only the heads can wait.
A head is delivered when

- its region sequence is the next of its region, and
- each *relevant* atom on its stamp, one whose regions the subscriber has all, shows the next number of that atom.

No timeout takes part (seed 002 §3.1: destinations decide immediately whether to deliver or to buffer).

After a loss the decision stays immediate. A jump of the region sequence is handed out as `Missing`, in place. A jump of
an atom's numbers is settled by the heads: streams are in order, so when every region of the atom shows a head and none
of them has the awaited number, that number will never come, and the smallest one shown is next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sequencing.errors import InvalidInput
from sequencing.frames import Meta, StampedFrame, parse_meta, parse_stamp
from sequencing.plan import Atom


class Ready(NamedTuple):
    """A frame to deliver now."""

    frame: StampedFrame
    meta: Meta


class Missing(NamedTuple):
    """Events of a region that will never come: region sequences ``first`` … ``last``, both included."""

    region: str
    epoch: int
    first: int
    last: int


Numbers = list[tuple[int, int]]
"""The relevant part of a stamp: (atom, number)."""


@dataclass(slots=True)
class _Stream:
    region: str
    next: int = 1
    received: int = 0
    muted: bool = False
    queue: deque[tuple[Ready, Numbers]] = field(default_factory=deque)


class Delivery:
    """The delivery order of one subscriber within one epoch."""

    def __init__(self, epoch: int, regions: Iterable[str], atoms: Iterable[Atom]) -> None:
        """``regions``: the subscriber's; ``atoms``: the plan's (irrelevant ones are ignored)."""
        self.epoch = epoch
        self._streams = {region: _Stream(region) for region in regions}
        mine = self._streams.keys()
        self._regions_of = {int(atom.id): atom.regions for atom in atoms if mine >= set(atom.regions)}
        self._next = dict.fromkeys(self._regions_of, 1)
        self._waiting: dict[int, list[_Stream]] = {}
        self.held_frames = 0

    def receive(self, frames: Iterable[StampedFrame]) -> list[Ready | Missing]:
        """Take frames, each region's in its stream's order; return what may be delivered now, in order.

        Frames of regions that are not the subscriber's, and repeated ones, are ignored; unreadable ones count as lost.
        """
        out: list[Ready | Missing] = []
        for frame in frames:
            stream = self._streams.get(frame.region)
            if stream is None or frame.epoch != self.epoch or frame.last <= stream.received:
                continue
            stream.received = frame.last
            try:
                meta, stamp = parse_meta(frame.meta), iter(parse_stamp(frame.stamp))
            except InvalidInput:
                continue  # as good as lost: the region's next frame tells that it is missing
            numbers = [pair for pair in zip(stamp, stamp, strict=True) if pair[0] in self._next]
            stream.queue.append((Ready(frame, meta), numbers))
            self.held_frames += 1
            if len(stream.queue) == 1:
                self._drain(stream, out)
        return out

    def held(self, region: str) -> int:
        """Return how many frames of a region are received and not delivered."""
        return len(self._streams[region].queue)

    def mute(self, region: str) -> None:
        """Hand out nothing of a region any more. It is still to be received: its numbers order the others."""
        self._streams[region].muted = True

    def _drain(self, stream: _Stream, out: list[Ready | Missing]) -> None:
        work = [stream]
        while work:
            stream = work.pop()
            while stream.queue:
                ready, numbers = stream.queue[0]
                blocking = [atom for atom, number in numbers if self._next[atom] < number]
                if blocking and any(self._settle_jump(atom, work) for atom in blocking):
                    continue
                if blocking:
                    self._waiting.setdefault(blocking[0], []).append(stream)
                    break
                stream.queue.popleft()
                self.held_frames -= 1
                self._deliver(stream, ready, out)
                for atom, number in numbers:
                    self._next[atom] = number + 1
                    if self._waiting:
                        work += self._waiting.pop(atom, ())

    def _settle_jump(self, atom: int, work: list[_Stream]) -> bool:
        """If no region of the atom can still bring the awaited number, go on to the smallest that is there."""
        shown: list[int] = []
        for region in self._regions_of[atom]:
            queue = self._streams[region].queue
            if not queue:
                return False
            number = next((number for stamped, number in queue[0][1] if stamped == atom), None)
            if number is None:
                return False
            shown.append(number)
        smallest = min(shown)
        if smallest <= self._next[atom]:
            return False
        self._next[atom] = smallest
        work += self._waiting.pop(atom, ())
        return True

    def _deliver(self, stream: _Stream, ready: Ready, out: list[Ready | Missing]) -> None:
        first, expected = ready.frame.last - ready.meta.events + 1, stream.next
        stream.next = ready.frame.last + 1
        if stream.muted:
            return
        if first > expected:
            out.append(Missing(stream.region, self.epoch, expected, first - 1))
        out.append(ready)
