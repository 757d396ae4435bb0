"""The subscribing half of a connection: a thin shell around `sequencing.subscriber`.

One task a node reads the egress streams there; all feed one `Subscriber`, which says what to read, what to mark, and
what the application gets and when. Reading pauses while the application is behind (``inbox_events_max``) or while a
region runs too far ahead of the others (``held_frames_max``), so memory is bounded; the streams keep what is not read
yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

from adapters.backoff import Backoff
from adapters.network import Network, Position, Reader
from gamecast.client.configuration import Configuration
from gamecast.client.history import History, Recall, Since, parse_since
from gamecast.client.holding import Holding
from gamecast.client.inbox import Inbox
from gamecast.client.outgoing import Outgoing
from gamecast.event import Event, Gap
from sequencing.delivery import Missing, Ready
from sequencing.errors import (
    BufferFull,
    GamecastError,
    InvalidInput,
    NotConnected,
    TooSlow,
    Unreachable,
    UsageError,
    is_passing,
)
from sequencing.frames import FrameKind, StampedFrame, decode_body
from sequencing.names import check_region
from sequencing.plan import Plan
from sequencing.record import Record, Wish
from sequencing.subscriber import Subscriber

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

FRAMES_MAX = 128
READ_BYTES = 8 * 1024 * 1024
"""Frames a region and read: enough to keep up, and not more than about so many bytes in one reply."""

READ_PAUSE_FRAMES = 4
READ_PAUSE_ROUNDS = 4
"""After a read of several frames, publishers are busy: the others of this event loop go first for some rounds, and what
comes meanwhile is read at once, which costs less. Rounds, not a time: a loop with nothing else to do does not wait."""

READ_ROUNDS = 2
"""After a read of few frames. In the first round the applications of this event loop are woken one by one; a connection
that asked for more in between would let those of the others wait that long."""

BATCH_EVENTS = 32
"""A batch is handed out when it has so many events. With `FRAME_EVENTS_MAX` it keeps what is alive at a time, the
batch before included, below the 700 objects at which Python's garbage collector starts: batches of 256 events took
twice the CPU."""

HELD_S = 0.005
"""How soon to look again whether regions that run too far ahead still do."""

BLOCK_MS = 2_000
"""How long a read waits for frames; it is broken off when something else is to be read, too, or nothing any more. Many
quiet connections of one process would otherwise keep it busy: at 200 ms, a hundred with three nodes took a third of a
core."""

DRAIN_BLOCK_MS = 200
"""For how long nothing must come until a connection that is drained has everything."""

_new_event = partial(tuple.__new__, Event)


@dataclass(slots=True, eq=False)
class _Reading:
    """What one task reads at one node. ``waits_for``: the streams, (region, epoch) each, of the read under way."""

    reader: Reader
    task: asyncio.Task[None] | None = None
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    waits_for: Collection[tuple[str, int]] | None = None
    interrupt: asyncio.Task[None] | None = None


class Incoming:
    """Delivers for one connection, once it is open."""

    def __init__(
        self,
        network: Network,
        configuration: Configuration,
        incarnation: int,
        outgoing: Outgoing,
        tap: Tap | None = None,
    ) -> None:
        self._network = network
        self._limits = configuration.limits
        self._tap = tap
        self._subscriber = Subscriber(configuration.name, incarnation)
        self._outgoing = outgoing
        self._record: Record | None = None
        """What was announced last."""
        self.on_wish: Callable[[], None] = _nobody
        self._readings: dict[str, _Reading] = {}
        self._turns = 0
        self._was_settled = False
        self._inbox = Inbox(self._limits)
        self.holding = Holding()
        self._when_behind = configuration.when_behind
        self._recalls: list[Recall] = []
        self._begins: dict[str, Position] = {}
        """Region that is joined → after what its events are handed out."""
        self._floors: dict[str, Position] = {}
        """Region → what its history was to begin after: nothing up to there is handed out."""
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopping = False
        self._draining = False
        self._joining = 0
        self._failure: Exception | None = None
        self.received_frames = 0
        self.delivered_events = 0
        self.gaps = 0
        self.reconnects = 0

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._subscriber.held_frames

    @property
    def inbox_events(self) -> int:
        """Events that the application has not taken."""
        return self._inbox.events

    def wish(self) -> Wish:
        """Return what the manager is to know."""
        return self._subscriber.wish()

    async def subscribe(self, regions: Iterable[str], since: Since | None) -> dict[str, Position]:
        """See `Cast.subscribe`."""
        wanted = set(map(check_region, regions))
        if since is not None:
            positions = parse_since(since, wanted)
            if known := wanted & self._subscriber.wanted:
                raise UsageError(f"{min(known)!r} is subscribed to already: what came before it is not replayed")
            self._recalls.append(Recall(positions))
        if self._tap is not None:
            self._tap.asked(wanted - self._subscriber.wanted)
        self._hand_over(self._subscriber.subscribe(wanted))
        self.on_wish()
        self._joining += 1
        self._taken.set()
        try:
            async with asyncio.timeout(self._limits.subscribe_timeout_s):
                await self._joined(wanted)
            if self._tap is not None and self._record is not None:
                plan = self._record.plan
                self._tap.joined({region: plan.epoch_of(region) for region in wanted & self._subscriber.joined})
        except TimeoutError:
            missing = sorted(wanted & self._subscriber.wanted - self._subscriber.joined)
            raise Unreachable(
                f"{len(missing)} region(s), {', '.join(missing[:3])}, are not joined after "
                f"{self._limits.subscribe_timeout_s:g} s: no manager leads, or a node cannot be reached; they stay "
                "asked for, and `gamecast doctor` may tell why"
            ) from None
        finally:
            self._joining -= 1
        return {region: self._begins[region] for region in wanted if region in self._begins}

    async def _joined(self, wanted: AbstractSet[str]) -> None:
        while not wanted & self._subscriber.wanted <= self._subscriber.joined:
            if self._failure is not None:
                raise self._failure
            if self._stopping:
                raise NotConnected("the connection was closed before the regions were joined")
            self._require_room("regions to be joined")
            self._changed.clear()
            await self._changed.wait()

    def _require_room(self, awaited: str) -> None:
        """Raise `BufferFull` if the application waits for what cannot be read before it takes events."""
        if self._when_behind == "wait" and self._inbox.is_full(self._limits.overflow_factor):
            raise BufferFull(
                f"{self._inbox.events:,} events of {self._inbox.bytes:,} bytes wait for the application, which "
                f"waits for {awaited}: take events meanwhile"
            )

    async def unsubscribe(self, regions: Iterable[str]) -> None:
        """See `Cast.unsubscribe`."""
        left = set(map(check_region, regions))
        try:
            async with asyncio.timeout(self._limits.subscribe_timeout_s):
                while self._failure is None and self._outgoing.awaits(left):
                    self._require_room("its own events to come back")
                    await self._outgoing.came_back()
        except TimeoutError:
            raise Unreachable(
                f"what was published in {', '.join(sorted(left)[:3])} has not come back after "
                f"{self._limits.subscribe_timeout_s:g} s, and causal order needs that: they stay subscribed"
            ) from None
        self._hand_over(self._subscriber.unsubscribe(left))
        if self._tap is not None:
            self._tap.left(left, waiting_events=self._inbox.events)
        self.on_wish()

    def follow(self, record: Record) -> None:
        """Go on with what was announced."""
        self._record = record
        if self._tap is not None:
            self._tap.planned(record.plan)
        for reading in self._readings.values():
            reading.reader.follow(record.plan)
        self._hand_over(self._subscriber.update(record))

    async def next_batch(self) -> list[Event | Gap] | None:
        """Return the next events in order, waiting for them; None when there will be none. Cancelling it loses none."""
        while True:
            while not self._inbox:
                if self._failure is not None:
                    raise self._failure
                if self._stopping or self._drained:
                    return None
                self._arrived.clear()
                await self._arrived.wait()
            batch: list[Event | Gap] = []
            while self._inbox and len(batch) < BATCH_EVENTS:
                item = self._inbox.head
                if not isinstance(item, History):
                    self._inbox.take()
                    self._deliver(item, batch)
                elif batch:
                    break
                else:
                    await self._replay(item, batch)
            self._taken.set()
            if batch:
                return batch

    def drain(self) -> None:
        """Let reading end when nothing more comes; iteration ends after what has been read."""
        self._draining = True
        self._arrived.set()
        for node, reading in self._readings.items():
            reading.stirred.set()
            if reading.waits_for is not None:
                self._interrupt(node, reading)

    async def close(self) -> None:
        """Stop reading; iteration ends. Reads that wait are broken off: nothing more is asked on their connections."""
        self._stopping = True
        self._arrived.set()
        self._taken.set()
        self._changed.set()
        readings = list(self._readings.values())
        for reading in readings:
            reading.stirred.set()
            await reading.reader.close()
        tasks = (task for reading in readings for task in (reading.task, reading.interrupt) if task is not None)
        await asyncio.gather(*tasks)

    def fail(self, error: Exception) -> None:
        """Have the application's calls raise an error."""
        if self._failure is None:
            self._failure = error
        self._arrived.set()
        self._changed.set()

    @property
    def _drained(self) -> bool:
        tasks = (reading.task for reading in self._readings.values())
        return self._draining and all(task is None or task.done() for task in tasks)

    async def _read(self, node: str, reading: _Reading) -> None:
        backoff = Backoff()
        frame_bytes = 1
        try:
            while not self._stopping:
                try:
                    frames = await self._frames(node, reading, frame_bytes)
                    backoff.reset()
                except GamecastError as error:
                    if self._stopping:
                        return
                    if reading.interrupt is not None:
                        continue
                    if not is_passing(error):
                        raise
                    self.reconnects += 1
                    await backoff.wait()
                    continue
                if frames is None:
                    continue
                if not frames and self._draining:
                    return
                self.received_frames += len(frames)
                if self._tap is not None and frames:
                    self._tap.received(frames)
                for frame in frames:
                    frame_bytes = max(len(frame.body), frame_bytes - frame_bytes // 64, 1)
                ready = self._subscriber.receive(frames)
                if self._subscriber.held_frames:
                    self.holding.received(frames, ready)
                self._hand_over(ready)
                # The application first, then the next request; and when much comes, not for every little of it.
                for _ in range(READ_PAUSE_ROUNDS if len(frames) >= READ_PAUSE_FRAMES else READ_ROUNDS):
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application's iterator raises it
            self.fail(error)
        finally:
            await reading.reader.close()

    async def _room(self) -> bool:
        """Return whether to read on, as what was received and not taken allows; see `WhenBehind`.

        There may be more of it while the application waits for a join, which only reading brings about.
        """
        if not self._inbox.is_full(self._limits.overflow_factor if self._joining else 1):
            return True
        if self._when_behind == "skip":
            self._inbox.skip()
            return True
        if self._when_behind == "disconnect":
            raise TooSlow(
                f"{self._inbox.events:,} events of {self._inbox.bytes:,} bytes waited for the application, which asked "
                "to be disconnected then"
            )
        self._taken.clear()
        await self._taken.wait()
        return False

    async def _frames(self, node: str, reading: _Reading, frame_bytes: int) -> list[StampedFrame] | None:
        """Read what is to be read at a node; None when that was nothing."""
        if not await self._room():
            return None
        reader = reading.reader
        if reading.interrupt is not None:
            await reading.interrupt
            reading.interrupt = None
        reads = self._subscriber.reads(node)
        if unknown := [(region, read.epoch) for region, read in reads.items() if read.after is None]:
            items: list[Ready | Missing] = []
            for (region, epoch), newest in zip(unknown, await reader.newest(unknown), strict=True):
                items += self._subscriber.found_end(region, epoch, newest)
            self._hand_over(items)
            return None
        held, held_max = self._subscriber.held, self._limits.held_frames_max
        nobody_is_ahead = self._subscriber.held_frames < held_max
        after: dict[str, Position] = {
            region: (epoch, position)
            for region, (_, epoch, position) in reads.items()
            if position is not None and (nobody_is_ahead or held(region) < held_max)
        }
        if not after:
            if self._draining:
                return []
            reading.stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_S if reads else None):
                    await reading.stirred.wait()
            return None
        frames_max = max(1, min(FRAMES_MAX, READ_BYTES // (frame_bytes * len(after))))
        reading.waits_for = {(region, epoch) for region, (epoch, _) in after.items()}
        try:
            block_ms = DRAIN_BLOCK_MS if self._draining else BLOCK_MS
            return await reader.read(after, frames_max=frames_max, block_ms=block_ms)
        finally:
            reading.waits_for = None

    async def _replay(self, history: History, batch: list[Event | Gap]) -> None:
        items = await history.next_items()
        if not items:
            self._inbox.take()
        for item in items:
            if isinstance(item, Missing) or item.meta.kind == FrameKind.EVENTS:
                self._deliver(item, batch)

    def _hand_over(self, items: list[Ready | Missing]) -> None:
        if self.holding:
            self.holding.handed_out(items, still_held=self._subscriber.held_frames)
        if self._recalls:
            items = [item for item in items if not any(recall.takes(item) for recall in self._recalls)]
        for item in items:
            self._inbox.put(item)
        for recall in list(self._recalls):
            if not recall.since.keys() <= self._subscriber.wanted:
                self._recalls.remove(recall)  # one of its regions was left before it was joined
            elif recall.is_joined(self._subscriber):
                self._recalls.remove(recall)
                self._inbox.put(History(self._network, recall, self._newest, self._ending))
                self._floors |= recall.since
                self._begins |= recall.since
        if self._inbox:
            self._arrived.set()
        subscriber, was_settled = self._subscriber, self._was_settled
        self._was_settled = subscriber.is_settled
        if was_settled and subscriber.is_settled and subscriber.joined is self._outgoing.joined:
            self._outgoing.delivered(subscriber.passed(), {}, subscriber.gone(), subscriber.joined)
            return
        for region in subscriber.joined - self._begins.keys():
            self._begins[region] = subscriber.begin(region)
        for region in self._begins.keys() - subscriber.wanted:
            del self._begins[region]
        for region, body in subscriber.marks():
            self._outgoing.mark(region, body)
        self._outgoing.delivered(subscriber.passed(), subscriber.over(), subscriber.gone(), subscriber.joined)
        self._changed.set()
        if self._turns != subscriber.turns and self._record is not None and not self._stopping:
            self._turns = subscriber.turns
            self._turn_to(self._record.plan)

    def _newest(self) -> Plan:
        assert self._record is not None
        return self._record.plan

    def _ending(self) -> frozenset[tuple[str, int]]:
        assert self._record is not None
        return self._record.ending()

    def _turn_to(self, plan: Plan) -> None:
        """See to it that all streams that are to be read are, at once."""
        streams: dict[str, set[tuple[str, int]]] = {}
        for region, read in self._subscriber.reads().items():
            streams.setdefault(read.node, set()).add((region, read.epoch))
        for node, wanted in streams.items():
            reading = self._readings.get(node)
            if reading is None:
                reading = self._readings[node] = _Reading(self._network.reader(node, plan))
                reading.task = asyncio.create_task(self._read(node, reading), name=f"gamecast read {node}")
                reading.task.add_done_callback(self._wake_application)
            reading.stirred.set()
            if reading.waits_for is not None and not wanted <= set(reading.waits_for):
                self._interrupt(node, reading)

    @staticmethod
    def _interrupt(node: str, reading: _Reading) -> None:
        if reading.interrupt is None:
            reading.interrupt = asyncio.create_task(reading.reader.interrupt(), name=f"gamecast look at {node}")

    def _deliver(self, item: Ready | Missing | Gap, batch: list[Event | Gap]) -> None:
        """Make of a frame what the application gets."""
        if isinstance(item, Gap):
            self._announce(item, batch)
            return
        if isinstance(item, Missing):
            gap = Gap(item.region, item.epoch, item.first, item.last, "the node no longer has them")
            self._announce(gap, batch)
            return
        frame, meta = item
        first = frame.last - meta.events + 1
        try:
            sent_at_ns, payloads = decode_body(frame.body)
            if len(payloads) != meta.events:
                raise InvalidInput(f"a frame of {meta.events} events has {len(payloads)}")
        except InvalidInput as error:
            gap = Gap(frame.region, frame.epoch, first, frame.last, f"the frame cannot be read: {error}")
            self._announce(gap, batch)
            return
        if frame.region in self._floors and (known := self._known(frame, meta.events)):
            first, sent_at_ns, payloads = first + known, sent_at_ns[known:], payloads[known:]
        same = repeat(frame.region), repeat(meta.publisher), payloads, repeat(frame.epoch)
        numbers, at_ns = range(first, frame.last + 1), time.time_ns()
        batch += map(_new_event, zip(*same, numbers, sent_at_ns, repeat(at_ns), strict=False))
        self.delivered_events += len(payloads)
        if self._tap is not None:
            self._tap.delivered(frame, meta.publisher, first=first, sent_at_ns=sent_at_ns, at_ns=at_ns)

    def _announce(self, gap: Gap, batch: list[Event | Gap]) -> None:
        self.gaps += 1
        batch.append(gap)
        if self._tap is not None:
            self._tap.announced(gap)

    def _known(self, frame: StampedFrame, events: int) -> int:
        """Return how many of a frame's events, the first ones, the application has had before it subscribed."""
        epoch, sequence = self._floors[frame.region]
        if (frame.epoch, frame.last) > (epoch, sequence):
            del self._floors[frame.region]
        if frame.epoch > epoch:
            return 0
        return min(events, max(0, sequence - frame.last + events)) if frame.epoch == epoch else events

    def _wake_application(self, _: asyncio.Task[None]) -> None:
        self._arrived.set()


def _nobody() -> None:
    pass
