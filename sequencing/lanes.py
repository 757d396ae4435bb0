"""Lanes: admit the frames read at one node in that node's own order.

Everything that a subscriber reads at one node is a *lane*. A node numbers the frames that end there. Frames are
admitted in the order of these numbers, as far as the reads show that order to be complete (`sequencing.cut`). A frame
above the last complete number is *ahead*: it stays here until a read of all streams of the lane includes it.

A frame that its node did not number has no place among others, and is admitted at once unless others are ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import NamedTuple

from sequencing.cut import Numbered, Streams, let_through
from sequencing.errors import InvalidInput
from sequencing.frames import NODE, StampedFrame, node_number, parse_meta, parse_stamp
from sequencing.ready import Ready


class Arrived(NamedTuple):
    """A received frame, with its stamp as `parse_stamp` reads it."""

    region: str
    ready: Ready
    stamp: list[int]


Entry = Numbered[Arrived]


@dataclass(slots=True)
class Received:
    """What was received of a region."""

    lane: str
    received: int = 0
    """The region sequence of the last frame received."""
    number: int = 0
    """The node number of the last frame received."""
    is_placed: bool = True
    """Whether the place from which it is read is known."""


@dataclass(slots=True)
class _Lane:
    regions: set[str] = field(default_factory=set)
    ahead: list[Entry] = field(default_factory=list)
    """The frames received above the last number that is known to be complete."""
    whole: Mapping[str, int] | None = None
    """The last one that included all regions, but for those in ``fresh``."""
    fresh: set[str] = field(default_factory=set)
    """Regions that no ``whole`` has included yet."""
    latest: Mapping[str, int] | None = None
    """The ``whole`` of the last complete read that brought frames that are ahead, if it was whole of any region
    here."""


class Lanes:
    """The lanes of one subscriber within one epoch."""

    def __init__(self, epoch: int, ended: AbstractSet[str]) -> None:
        """``ended``: the caller's own set of the regions that have ended; no lane waits for them."""
        self._epoch = epoch
        self._ended = ended
        self._ahead = 0
        self._streams: dict[str, Received] = {}
        self._lanes: dict[str, _Lane] = {}

    def begin(self, region: str, name: str, *, is_placed: bool) -> None:
        """Begin a region in the lane of a name; ``is_placed``: whether the start of its stream is known."""
        self._streams[region] = Received(name, is_placed=is_placed)
        lane = self._lanes.setdefault(name, _Lane())
        lane.regions.add(region)
        lane.fresh.add(region)

    def forget(self, region: str) -> None:
        """Forget a region, and its frames that are ahead."""
        lane = self._lanes[self._streams.pop(region).lane]
        ahead = [entry for entry in lane.ahead if entry[1].region != region]
        self._ahead -= len(lane.ahead) - len(ahead)
        lane.ahead = ahead
        lane.regions.discard(region)
        lane.fresh.discard(region)

    def place(self, region: str) -> None:
        """Note that the start of a region's stream is known."""
        self._streams[region].is_placed = True

    def skip(self, region: str, newest: StampedFrame) -> None:
        """Count everything up to a frame as received."""
        stream = self._streams[region]
        stream.received, stream.number = newest.last, abs(node_number(newest.stamp))

    def cursor(self, region: str, whole: Mapping[str, int] | None) -> Received | None:
        """Return where a region stands that the next read is complete for; None if frames of its lane may wait.

        ``whole``: see `sequencing.cut.ReadResult`.
        """
        stream = self._streams[region]
        lane = self._lanes[stream.lane]
        is_next = not lane.ahead and not lane.fresh and whole is lane.whole and whole is not None
        return stream if is_next and stream.is_placed else None

    def admit(self, frames: Sequence[StampedFrame], whole: Mapping[str, int] | None) -> list[Entry]:
        """Take the frames of a read; return those that are known to be next, in the order of each lane.

        ``whole``: see `sequencing.cut.ReadResult`; None if nothing was left out. Frames of other regions and epochs
        and repeated ones are ignored. An unreadable frame counts as lost: the region's next frame shows that.
        """
        through: list[Entry] = []
        for frame in frames:
            stream = self._streams.get(frame.region)
            if stream is None or frame.epoch != self._epoch or frame.last <= stream.received:
                continue
            stream.received = frame.last
            try:
                meta, stamp = parse_meta(frame.meta), parse_stamp(frame.stamp)
            except InvalidInput:
                continue
            if stamp and stamp[0] == NODE:
                stream.number = abs(stamp[1])
            entry = (stream.number, Arrived(frame.region, Ready(frame, meta), stamp))
            lane = self._lanes[stream.lane]
            is_next = not stream.number or (len(frames) == 1 and self._cut(lane, whole) == inf)
            if is_next and not lane.ahead:
                through.append(entry)
            else:
                lane.ahead.append(entry)
                lane.latest = None
                self._ahead += 1
        if not self._ahead:
            return through
        for lane in self._lanes.values():
            if lane.ahead:
                through += self._let_through(lane, self._cut(lane, whole))
        return through

    def admit_again(self) -> list[Entry]:
        """Return the frames that waited for a read of regions that have since been left, or have ended."""
        through: list[Entry] = []
        for lane in self._lanes.values() if self._ahead else ():
            if lane.ahead and lane.latest is not None:
                through += self._let_through(lane, self._cut(lane, lane.latest))
        return through

    @property
    def frames_ahead(self) -> int:
        """The frames that are ahead."""
        return self._ahead

    def ahead(self) -> Iterator[Entry]:
        """Yield the frames that are ahead, each lane's in order; `drop` and `admit_again` may be called meanwhile."""
        for lane in self._lanes.values():
            for entry in sorted(lane.ahead, key=itemgetter(0)):
                if entry in lane.ahead:
                    yield entry

    def drop(self, entry: Entry) -> None:
        """Drop a frame that is ahead."""
        self._lanes[self._streams[entry[1].region].lane].ahead.remove(entry)
        self._ahead -= 1

    def first(self, region: str) -> Arrived | None:
        """Return a region's first frame that is ahead."""
        for _, arrived in self._lanes[self._streams[region].lane].ahead:
            if arrived.region == region:
                return arrived
        return None

    def received(self, region: str) -> int:
        """Return the region sequence of the last frame received."""
        return self._streams[region].received

    def held(self, region: str) -> int:
        """Return how many frames of a region are ahead."""
        if not self._ahead:
            return 0
        return sum(arrived.region == region for _, arrived in self._lanes[self._streams[region].lane].ahead)

    def _let_through(self, lane: _Lane, cut: float) -> list[Entry]:
        through = let_through(lane.ahead, cut)
        self._ahead -= len(through)
        return through

    def _cut(self, lane: _Lane, whole: Mapping[str, int] | None) -> float:
        """Return up to which number all frames that a lane is to bring have arrived."""
        if whole is None or (whole is lane.whole and not lane.fresh):
            return inf
        behind = [region for region in self._unsure(lane, whole) if whole.get(region) != self._epoch]
        late = [region for region in behind if region not in self._ended]
        if not late:
            lane.whole = whole
            lane.fresh.clear()
        if len(behind) < len(lane.regions):
            lane.latest = whole
        streams = map(self._streams.__getitem__, late)
        return min((stream.number for stream in streams if stream.is_placed), default=inf)

    @staticmethod
    def _unsure(lane: _Lane, whole: Mapping[str, int]) -> AbstractSet[str]:
        """Return the regions of a lane that ``whole`` may not include."""
        if whole is lane.whole:
            return lane.fresh
        if isinstance(whole, Streams) and isinstance(lane.whole, Streams) and whole.before == lane.whole.number:
            return lane.fresh | (whole.changed & lane.regions)
        return lane.regions
