"""Replay: recover the order of the frames in the streams of an epoch from their stamps.

A subscriber that joins late may want earlier events. The streams of its regions are finite up to where it joined, so
there is nothing to wait for. The next frame is a head that has the smallest number of each of its atoms among the heads
that show that atom, and the smallest of its node among those that ended there. Streams are in order, and so are the
numbers in each of them; so frames behind a head have larger numbers still. The result is the order in which every
subscriber delivered the frames: all that ended at one node, and elsewhere the pairs that the plan of the epoch had
atoms for.

That is, all pairs that a subscriber had in that epoch (`sequencing.overlaps`). Other pairs have no order, and must not
be given one: with s1 on a and b, and s2 on b and c, a replay of a and c alone cannot show what came first by way of b.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from sequencing.errors import InvalidInput
from sequencing.frames import NODE, UNKNOWN_END, FrameKind, StampedFrame, parse_meta, parse_stamp
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready

_Numbers = dict[int | str, int]
"""Atom or node → number."""


def unordered(places: Mapping[str, Plan]) -> list[tuple[str, str]]:
    """Return the pairs of regions, each sorted, that neither a node nor an atom has ordered.

    ``places``: region → a plan that has it in the epoch in question.
    """
    ends = {region: plan.paths[region][-1] for region, plan in places.items()}
    bound = {
        region: {other for atom in plan.atoms_of.get(region, ()) for other in atom.regions}
        for region, plan in places.items()
    }
    return [
        (one, other)
        for one, other in combinations(sorted(places), 2)
        if ends[one] != ends[other] and other not in bound[one]
    ]


@dataclass(slots=True)
class _Stream:
    node: str
    next: int
    last: int | None
    received: int
    finished: bool
    queue: deque[tuple[Ready, _Numbers]] = field(default_factory=deque)


class Replay:
    """The events of one epoch in some regions, in order."""

    def __init__(
        self, epoch: int, regions: Mapping[str, tuple[int, int | None]], nodes: Mapping[str, str] | None = None
    ) -> None:
        """``regions``: region → (after, last): the region sequences to begin after and to end with (None: its TICK).

        ``nodes``: region → where it ended.
        """
        self.epoch = epoch
        self._streams = {
            region: _Stream(
                (nodes or {}).get(region, region), after + 1, last, after, last is not None and last <= after
            )
            for region, (after, last) in regions.items()
        }

    @property
    def finished(self) -> bool:
        """Whether everything was returned. Streams that are read to their ends wait for nothing."""
        return all(stream.finished for stream in self._streams.values())

    def ranges(self, regions: Iterable[str]) -> dict[str, tuple[tuple[int, int], int | None]]:
        """Return the ranges to read of some regions: region → (epoch, region sequence) to read after, and the last."""
        return {
            region: ((self.epoch, stream.received), stream.last)
            for region in regions
            if not (stream := self._streams[region]).finished
        }

    def wanted(self) -> dict[str, tuple[int, int]]:
        """Return what to read next: region → (epoch, region sequence) to read after."""
        return {
            region: (self.epoch, stream.received)
            for region, stream in self._streams.items()
            if not stream.finished and not stream.queue
        }

    def receive(self, asked: Iterable[str], frames: Iterable[StampedFrame]) -> list[Ready | Missing]:
        """Take the frames found of the requested regions; return the next items, in order.

        A region without frames has no more. The frames that it should have had are `Missing`.
        """
        arrived: set[str] = set()
        for frame in frames:
            arrived.add(frame.region)
            self._take(self._streams[frame.region], frame)
        out: list[Ready | Missing] = []
        for region in asked:
            stream = self._streams[region]
            if region not in arrived and not stream.finished:
                stream.finished = True
                if stream.last is None:
                    out.append(Missing(region, self.epoch, stream.next, 0))
            out += self._missing_at_the_end(region)
        while (head := self._first()) is not None:
            region, stream = head, self._streams[head]
            ready, _ = stream.queue.popleft()
            first = ready.frame.last - ready.meta.events + 1
            if first > stream.next:
                out.append(Missing(region, self.epoch, stream.next, first - 1 if first < UNKNOWN_END else 0))
            stream.next = ready.frame.last + 1
            out.append(ready)
            out += self._missing_at_the_end(region)
        return out

    def _missing_at_the_end(self, region: str) -> list[Ready | Missing]:
        """Return what a region lacks up to its end, once all frames found of it are returned."""
        stream = self._streams[region]
        if not stream.finished or stream.queue or stream.last is None or stream.next > stream.last:
            return []
        missing = Missing(region, self.epoch, stream.next, stream.last)
        stream.next = stream.last + 1
        return [missing]

    def _take(self, stream: _Stream, frame: StampedFrame) -> None:
        if stream.finished or frame.last <= stream.received:
            return
        stream.received = frame.last
        stream.finished = stream.last is not None and frame.last >= stream.last
        if stream.last is not None and frame.last > stream.last:
            return
        try:
            meta, stamp = parse_meta(frame.meta), parse_stamp(frame.stamp)
        except InvalidInput:
            return  # as good as lost: the next frame shows that it is missing
        numbers: _Numbers = dict(zip(stamp[::2], stamp[1::2], strict=True))
        if NODE in numbers:
            numbers[stream.node] = abs(numbers.pop(NODE))
        stream.queue.append((Ready(frame, meta), numbers))
        stream.finished = stream.finished or meta.kind == FrameKind.TICK

    def _first(self) -> str | None:
        """Return the region whose head comes next; None if a head that may come before it is unknown."""
        heads: dict[str, _Numbers] = {}
        for region, stream in self._streams.items():
            if stream.queue:
                heads[region] = stream.queue[0][1]
            elif not stream.finished:
                return None
        smallest: _Numbers = {}
        for numbers in heads.values():
            for atom, number in numbers.items():
                smallest[atom] = min(number, smallest.get(atom, number))
        for region, numbers in heads.items():
            if all(number == smallest[atom] for atom, number in numbers.items()):
                return region
        return next(iter(heads), None)  # no sound plan leads here; better some order than none
