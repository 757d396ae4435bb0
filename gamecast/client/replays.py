"""Replays beside live events: the histories that a connection delivers, each in its turn, while the rest goes on.

A call of ``subscribe`` with ``since`` has one `Replay`. What comes live of its regions meanwhile waits behind their
history. So a replay never holds up live events of other regions, and the events of its own come in the common order,
without a hole or a repeat.

What waits is *late* if an event of another region came after it, or if the state of one has it: the application may
have that already. So it is delivered as the last part of the history. When that is no longer than one batch, it is
delivered at once, and then what is left, which is not late, in its place in the order of all regions. From there on all
is live.

An event of several regions of which one is live and one is replayed has to come once, as one of both, or the position
of one of them would not show that it came. So it waits for the end of that history, with all that comes live behind it:
for `HOLD_S_MAX` at most, as live events wait for no long history. So it does while the regions are being joined whose
history is asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

from adapters.places import Position
from gamecast.client.decoding import EventDecoder
from gamecast.client.history import History
from gamecast.client.inbox import MARKERS, Inbox, InboxItem
from gamecast.client.states import Contained, Standing, region_of
from gamecast.event import Item
from sequencing.errors import InvalidInput
from sequencing.frames import FrameKind, joint_parts
from sequencing.ready import Missing, Ready

HOLD_S_MAX = 1.0
"""So long does an event of several regions, and what comes live behind it, wait for the history of one of them."""
AHEAD_FRAMES = 256
"""How many frames of a history are read ahead of the application, which may take events in ticks; or one look more."""
AHEAD_BYTES = 1024 * 1024
"""The same in bytes."""
TAKE_BYTES = 262_144
"""So many are decoded at a time: what is parsed takes a multiple of that."""


class Replay:
    """One history, and what came live of its regions since it ended."""

    def __init__(self, history: History, on_ready: Callable[[], None]) -> None:
        """``on_ready``: called when there is something to take."""
        self.history = history
        self.regions = set(history.regions)
        self.late = Inbox()
        """What came live, before some event of another region."""
        self.fresh = Inbox()
        """What came live after that."""
        self.contained: dict[str, Position] = {}
        """Region → the last event that the state of another region has: it is late whenever it comes."""
        self.is_slow = False
        """Whether events of several regions have waited too long for its end."""
        self._on_ready = on_ready
        self._found: deque[Ready | Missing] = deque()
        self._found_bytes = 0
        self._finding: asyncio.Task[None] | None = None
        self._is_read = False

    @property
    def is_ready(self) -> bool:
        """Whether `take` has something to do without a wait. Goes on looking for more, if little is there."""
        if self._is_read:
            return True
        if self._finding is None and self._has_room:
            self._finding = asyncio.create_task(self._find(), name="gamecast replay")
            self._finding.add_done_callback(lambda _: self._on_ready())
        return bool(self._found) or (self._finding is not None and self._finding.done())

    def take(self, decoder: EventDecoder, batch: list[Item], events_max: int) -> bool:
        """Decode the next events into a batch; return whether only fresh ones are left. Raises what looking has
        raised."""
        if self._finding is not None and self._finding.done():
            finding, self._finding = self._finding, None
            finding.result()
        size = 0
        while self._found and len(batch) < events_max and size < TAKE_BYTES:
            item = self._found.popleft()
            size += _size(item)
            if isinstance(item, Ready) and item.meta.kind in MARKERS:
                decoder.reach({item.frame.region: (item.frame.epoch, item.frame.last)})
            else:
                decoder.decode(item, batch, together=self._is_replayed, replayed=True)
        self._found_bytes -= size
        if not self._is_read or self._found:
            return False
        is_end = self.late.events <= events_max
        while self.late and (is_end or len(batch) < events_max):
            decoder.decode(self.late.take(), batch, together=self._is_replayed, replayed=True)
        return not self.late

    def keep(self, item: InboxItem) -> None:
        """Keep what came live."""
        self.fresh.put([item])
        if isinstance(item, Ready):
            frame = item.frame
            if frame.region in self.contained and (frame.epoch, frame.last) <= self.contained[frame.region]:
                self.fresh.move_to(self.late)

    def _is_replayed(self, region: str, position: Position) -> bool:
        """Return whether an event at a position of a region belongs to this history."""
        return region in self.regions and position > self.history.since(region)

    def drop(self, regions: AbstractSet[str]) -> None:
        """Deliver nothing more of some regions."""
        self.regions -= regions
        self.history.release(regions)
        self.late.drop(regions)
        self.fresh.drop(regions)
        self._found = deque(item for item in self._found if region_of(item) not in regions)
        self._found_bytes = sum(map(_size, self._found))

    @property
    def _has_room(self) -> bool:
        return len(self._found) < AHEAD_FRAMES and self._found_bytes < AHEAD_BYTES

    async def _find(self) -> None:
        while not self._is_read and self._has_room:
            items = await self.history.next_items()
            self._is_read = not items
            mine = [item for item in items if region_of(item) in self.regions]
            self._found.extend(mine)
            self._found_bytes += sum(map(_size, mine))
            self._on_ready()

    async def close(self) -> None:
        """Look no further."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.wait((self._finding,))


class Replays:
    """All replays of one connection that have not ended."""

    def __init__(self, on_ready: Callable[[], None], is_joined: Callable[[str], bool] = lambda region: False) -> None:
        """``on_ready``: called when there is something to take; ``is_joined``: whether events of a region come."""
        self._on_ready, self._is_joined = on_ready, is_joined
        self.all: deque[Replay] = deque()
        self._of: dict[str, Replay] = {}
        """Region → the replay of its history."""
        self._asked: dict[str, bool] = {}
        """Region that is joined, and replayed then → whether events have waited too long for that."""
        self._held: list[InboxItem] = []
        """An event of regions that are live, and others that are replayed; and all that came live behind it."""
        self._held_events = self._held_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.all)

    def __contains__(self, region: object) -> bool:
        """Return whether the history of a region is asked for, or being delivered."""
        return region in self._of or region in self._asked

    @property
    def events(self) -> int:
        """Events that came live and wait behind a history."""
        return self._held_events + sum(replay.late.events + replay.fresh.events for replay in self.all)

    @property
    def bytes(self) -> int:
        """The bytes of these events."""
        return self._held_bytes + sum(replay.late.bytes + replay.fresh.bytes for replay in self.all)

    @property
    def is_holding(self) -> bool:
        """Whether what comes live waits for the end of a history."""
        return bool(self._held)

    @property
    def is_ready(self) -> bool:
        """Whether `take` has something to do without a wait."""
        ready = [replay for replay in self.all if replay.is_ready]  # each begins to look
        return bool(ready)

    def begin(self, history: History) -> None:
        """Deliver a history."""
        replay = Replay(history, self._on_ready)
        self.all.append(replay)
        self._of.update(dict.fromkeys(replay.regions, replay))
        for region in replay.regions:
            replay.is_slow = self._asked.pop(region, False) or replay.is_slow

    def await_history(self, regions: Iterable[str]) -> None:
        """Note that regions are being joined whose history is delivered then."""
        self._asked.update(dict.fromkeys(regions, False))

    def keep(self, items: Sequence[InboxItem]) -> Iterable[InboxItem]:
        """Keep what has to wait behind a history; return the rest."""
        if not (self.all or self._asked or self._held):
            return items
        others: list[InboxItem] = []
        for item in items:
            if self._held or self._has_to_wait(item):
                self._hold(item)
                continue
            replay = self._of.get(region_of(item))
            if replay is not None:
                replay.keep(item)
                continue
            if isinstance(item, Contained):
                for part in joint_parts(item.frame.meta):
                    if part.region in self._of:
                        self._of[part.region].contained[part.region] = item.frame.epoch, part.last
            others.append(item)
            self._make_late()
        return others

    def _hold(self, item: InboxItem) -> None:
        self._held.append(item)
        if isinstance(item, Ready):
            self._held_events += item.meta.events
            self._held_bytes += len(item.frame.body)

    def _has_to_wait(self, item: InboxItem) -> bool:
        """Return whether an item is an event of regions of which some are live, and others are replayed."""
        if isinstance(item, Contained) or not isinstance(item, Ready) or item.meta.kind != FrameKind.JOINT:
            return False
        try:
            regions = [part.region for part in joint_parts(item.frame.meta)]
        except InvalidInput:  # it becomes a gap
            return False
        slow = [
            self._of[region].is_slow if region in self._of else self._asked[region]
            for region in regions
            if region in self
        ]
        return not all(slow) and any(region not in self and self._is_joined(region) for region in regions)

    def release(self, *, for_good: bool = False) -> Iterable[InboxItem]:
        """Return what was held and has nothing to wait for any more; ``for_good``: nothing waits for these replays."""
        for replay in self.all if for_good else ():
            replay.is_slow = True
        if for_good:
            self._asked = dict.fromkeys(self._asked, True)
        held, self._held = self._held, []
        self._held_events = self._held_bytes = 0
        return self.keep(held)

    def take(self, decoder: EventDecoder, batch: list[Item], events_max: int, inbox: Inbox) -> frozenset[str] | None:
        """Decode the next events of one replay. If that was its end, return its regions, and put what follows into the
        inbox of live events.
        """
        for _ in range(len(self.all)):
            replay = self.all[0]
            self.all.rotate(-1)
            if not replay.is_ready:
                continue
            if not replay.take(decoder, batch, events_max):
                return None
            self.all.remove(replay)
            for region in replay.regions:
                del self._of[region]
            is_fresh = bool(replay.fresh)
            replay.late.move_to(inbox)  # markers only
            replay.fresh.move_to(inbox)
            if is_fresh:
                self._make_late()
            inbox.put(self.release())
            return frozenset(replay.regions)
        return None

    def _make_late(self) -> None:
        """Note that an event of another region comes first."""
        for replay in self.all:
            if replay.fresh:
                replay.fresh.move_to(replay.late)

    def drop(self, regions: AbstractSet[str]) -> None:
        """Deliver nothing more of some regions: they were left. `release` has what need not wait any more."""
        for replay in self.all:
            replay.drop(regions)
        for region in regions:
            self._of.pop(region, None)
            self._asked.pop(region, None)
        whole = (item.without(regions) if isinstance(item, Standing) else item for item in self._held)
        held = [item for item in whole if item is not None and region_of(item) not in regions]
        self._held, self._held_events, self._held_bytes = [], 0, 0
        for item in held:
            self._hold(item)

    def skip(self) -> None:
        """Put gaps in the place of what came live, and is not held."""
        for replay in self.all:
            replay.late.skip()
            replay.fresh.skip()

    async def close(self) -> None:
        """Look no further."""
        for replay in self.all:
            await replay.close()


def _size(item: Ready | Missing) -> int:
    return len(item.frame.body) if isinstance(item, Ready) else 0
