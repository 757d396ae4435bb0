"""The items that a connection has received and its application has not taken yet, in delivery order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from adapters.places import Position
from gamecast.client.states import Contained, Standing, region_of
from gamecast.event import Gap
from sequencing.frames import FrameKind
from sequencing.ready import Missing, Ready

InboxItem = Ready | Missing | Gap | Standing

MARKERS = int(FrameKind.JOIN), int(FrameKind.TICK), int(FrameKind.VOID)
"""Kinds of frames that carry nothing for the application. Frames of unknown kinds are reported to it."""
SKIPPED = "the application was too far behind, and asked to skip"


class Arrivals:
    """Wakes those who wait for something to arrive.

    As `asyncio.Event`, which asks the system for the process's number in each wait on Python 3.11.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all who wait now."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def next(self) -> None:
        """Wait for the next `set`."""
        future = self._loop.create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            raise


class Inbox:
    """A queue that counts its contents. Frames are kept as they are: bytes burden the garbage collector less."""

    def __init__(self) -> None:
        self.items: deque[InboxItem] = deque()
        """To look at: `put` and `take` change them, and count."""
        self.markers: dict[str, Position] = {}
        """Region → its last marker. All that came before is taken where nothing is left; for the taker to clear."""
        self.events = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self.items)

    def put(self, items: Iterable[InboxItem]) -> None:
        """Add delivered items; markers are not passed to the application."""
        events = size = 0
        for item in items:
            if isinstance(item, Ready):
                frame, (kind, count, _) = item
                if kind in MARKERS:
                    self.markers[frame.region] = frame.epoch, frame.last
                    continue
                events += count
                size += len(frame.body)
            self.items.append(item)
        self.events += events
        self.bytes += size

    def put_lone(self, ready: Ready) -> None:
        """Add one frame with one event."""
        self.items.append(ready)
        self.events += 1
        self.bytes += len(ready.frame.body)

    def take(self) -> InboxItem:
        """Remove and return the next item."""
        item = self.items.popleft()
        if isinstance(item, Ready):
            self.events -= item.meta.events
            self.bytes -= len(item.frame.body)
        return item

    def move_to(self, other: Inbox) -> None:
        """Put all items behind those of another inbox."""
        other.put(self.items)
        other.markers |= self.markers
        self.items.clear()
        self.markers.clear()
        self.events = self.bytes = 0

    def drop(self, regions: AbstractSet[str]) -> None:
        """Remove all items of some regions."""
        whole = (item.without(regions) if isinstance(item, Standing) else item for item in self.items)
        kept = [item for item in whole if item is not None and region_of(item) not in regions]
        self.items.clear()
        self.markers = {region: at for region, at in self.markers.items() if region not in regions}
        self.events = self.bytes = 0
        self.put(kept)

    def skip(self) -> None:
        """Drop all events, and leave a gap for the events of each region and epoch."""
        gaps: dict[tuple[str, int], Gap] = {}
        states = [item for item in self.items if isinstance(item, Standing)]
        for item in self.items:
            if isinstance(item, Standing | Contained):
                continue  # nothing of a state's regions was before it
            gap = _gap(item)
            before = gaps.get((gap.region, gap.epoch), gap)
            last = gap.last_sequence and max(gap.last_sequence, before.last_sequence)
            gaps[gap.region, gap.epoch] = before._replace(last_sequence=last)
        self.items, self.events, self.bytes = deque([*states, *gaps.values()]), 0, 0


def _gap(item: Ready | Missing | Gap) -> Gap:
    """Return the gap that replaces a skipped item."""
    if isinstance(item, Gap):
        return item
    if isinstance(item, Missing):
        return Gap(item.region, item.epoch, item.first, item.last, SKIPPED)
    frame, meta = item
    return Gap(frame.region, frame.epoch, frame.last - meta.events + 1, frame.last, SKIPPED)
