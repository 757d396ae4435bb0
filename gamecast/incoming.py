"""The subscribing half of a connection: a thin shell around `sequencing.delivery`.

One task a node reads the egress streams there; all feed one `Delivery`, which says what the application gets and when.
Reading pauses while the application is behind (``inbox_events_max``) or while a region runs too far ahead of the others
(``held_frames_max``), so memory is bounded; the streams keep what is not read yet.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import repeat

from adapters.backoff import Backoff
from adapters.network import Network, Position, Reader
from gamecast.configuration import Configuration
from gamecast.event import Event, Gap
from sequencing.delivery import Delivery, Missing, Ready
from sequencing.errors import InvalidInput, NetworkError, PlanError
from sequencing.frames import FrameKind, decode_body
from sequencing.names import check_region
from sequencing.plan import Plan

FRAMES_MAX = 128
READ_BYTES = 8 * 1024 * 1024
"""Frames a region and read: enough to keep up, and not more than about so many bytes in one reply."""

READ_PAUSE_FRAMES = 4
READ_PAUSE_ROUNDS = 4
"""After a read of several frames, publishers are busy: the others of this event loop go first for some rounds, and what
comes meanwhile is read at once, which costs less. Rounds, not a time: a loop with nothing else to do does not wait."""

BATCH_EVENTS = 32
"""A batch is handed out when it has so many events. With `FRAME_EVENTS_MAX` it keeps what is alive at a time, the
batch before included, below the 700 objects at which Python's garbage collector starts: batches of 256 events took
twice the CPU."""

BLOCK_MS = 200
"""How long a read waits for frames: also the longest that closing takes."""

_new_event = partial(tuple.__new__, Event)


class Incoming:
    """Delivers for one connection, once it is open."""

    def __init__(self, network: Network, configuration: Configuration) -> None:
        self._network = network
        self._configuration = configuration
        self._limits = configuration.limits
        self.regions: set[str] = set()
        self._muted: set[str] = set()
        self._epoch = 0
        self._delivery: Delivery | None = None
        self._watching: asyncio.Task[None] | None = None
        self._readers: dict[asyncio.Task[None], Reader] = {}
        self._inbox: deque[Ready | Missing] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._stopping = False
        self._draining = False
        self._failure: Exception | None = None
        self.inbox_events = 0
        self.inbox_bytes = 0
        self.received_frames = 0
        self.delivered_events = 0
        self.gaps = 0
        self.reconnects = 0

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._delivery.held_frames if self._delivery is not None else 0

    async def subscribe(self, regions: Iterable[str]) -> None:
        """See `Cast.subscribe`."""
        wanted = set(map(check_region, regions)) - self.regions
        if not wanted:
            return
        self._epoch = await self._network.subscribe(wanted)
        self.regions |= wanted
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="gamecast plan watch")
            self._watching.add_done_callback(self._wake_application)

    async def unsubscribe(self, regions: Iterable[str]) -> None:
        """See `Cast.unsubscribe`."""
        leaving = set(map(check_region, regions)) & self.regions
        if not leaving:
            return
        if await self._network.unsubscribe(leaving):
            self.regions -= leaving
            return
        self._muted |= leaving
        if self._delivery is not None:
            for region in leaving:
                self._delivery.mute(region)

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
                self._deliver(self._inbox.popleft(), batch)
            self._taken.set()
            if batch:
                return batch

    def drain(self) -> None:
        """Let reading end when nothing more comes; iteration ends after what has been read."""
        self._draining = True
        self._arrived.set()

    async def close(self) -> None:
        """Stop reading; iteration ends. Reads that wait are broken off: nothing more is asked on their connections."""
        self._stopping = True
        self._arrived.set()
        self._taken.set()
        if self._watching is not None:
            await self._network.stop_watching()
            await self._watching
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        await asyncio.gather(*self._readers)

    @property
    def _drained(self) -> bool:
        watched = self._watching is None or self._watching.done()
        return self._draining and watched and all(reader.done() for reader in self._readers)

    async def _watch(self) -> None:
        """Wait for the plan of our epoch, then read by it."""
        backoff = Backoff()
        try:
            while not self._stopping:
                try:
                    plan = await self._network.plan_since(self._epoch, block_ms=BLOCK_MS)
                    if plan is not None:
                        self._follow(plan, await self._network.subscribed())
                        return
                    backoff.reset()
                except NetworkError:
                    if not self._stopping:
                        self.reconnects += 1
                        await backoff.wait()
                if self._draining:
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, the application's iterator raises it
            self._fail(error)

    def _follow(self, plan: Plan, recorded: frozenset[str]) -> None:
        if plan.epoch != self._epoch or not self.regions <= plan.paths.keys() & recorded:
            raise PlanError(
                f"{self._configuration.name!r} subscribed in epoch {self._epoch}, but the network went on without it "
                f"(plan {plan.epoch}.{plan.version}): it was taken for gone; open a new connection"
            )
        self._delivery = Delivery(plan.epoch, self.regions, plan.atoms)
        for region in self._muted:
            self._delivery.mute(region)
        egresses: dict[str, dict[str, Position]] = {}
        for region in self.regions:
            egresses.setdefault(plan.paths[region][-1], {})[region] = (plan.epoch, 0)
        for node, after in egresses.items():
            reader = self._network.reader(node, plan)
            task = asyncio.create_task(self._read(reader, self._delivery, after), name=f"gamecast read {node}")
            task.add_done_callback(self._wake_application)
            self._readers[task] = reader

    async def _read(self, reader: Reader, delivery: Delivery, after: dict[str, Position]) -> None:
        backoff = Backoff()
        frame_bytes = 1
        try:
            while not self._stopping:
                wanted = await self._wanted(delivery, after)
                if not wanted:
                    continue
                try:
                    frames_max = max(1, min(FRAMES_MAX, READ_BYTES // (frame_bytes * len(wanted))))
                    frames = await reader.read(wanted, frames_max=frames_max, block_ms=BLOCK_MS)
                    backoff.reset()
                except NetworkError:
                    if self._stopping:
                        return
                    self.reconnects += 1
                    await backoff.wait()
                    continue
                if not frames and self._draining:
                    return
                self.received_frames += len(frames)
                for frame in frames:
                    after[frame.region] = (frame.epoch, frame.last)
                    frame_bytes = max(len(frame.body), frame_bytes - frame_bytes // 64, 1)
                self._hand_over(delivery.receive(frames))
                # The application first, then the next request; and when much comes, not for every little of it.
                for _ in range(READ_PAUSE_ROUNDS if len(frames) >= READ_PAUSE_FRAMES else 1):
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)
        finally:
            await reader.close()

    async def _wanted(self, delivery: Delivery, after: Mapping[str, Position]) -> dict[str, Position]:
        """Return what to read next, waiting (not for long) while the application is behind."""
        if self.inbox_events >= self._limits.inbox_events_max or self.inbox_bytes >= self._limits.inbox_bytes_max:
            self._taken.clear()
            await self._taken.wait()
            return {}
        wanted = {
            region: position
            for region, position in after.items()
            if delivery.held(region) < self._limits.held_frames_max
        }
        if not wanted:
            await asyncio.sleep(BLOCK_MS / 1000)
        return wanted

    def _hand_over(self, items: Iterable[Ready | Missing]) -> None:
        for item in items:
            self._inbox.append(item)
            if isinstance(item, Ready):
                self.inbox_events += item.meta.events
                self.inbox_bytes += len(item.frame.body)
        if self._inbox:
            self._arrived.set()

    def _deliver(self, item: Ready | Missing, batch: list[Event | Gap]) -> None:
        """Make of a frame what the application gets. Not earlier: bytes burden the garbage collector less."""
        if isinstance(item, Missing):
            self.gaps += 1
            batch.append(Gap(item.region, item.epoch, item.first, item.last, "the node no longer has them"))
            return
        frame, meta = item
        self.inbox_events -= meta.events
        self.inbox_bytes -= len(frame.body)
        if meta.kind != FrameKind.EVENTS:
            return
        first = frame.last - meta.events + 1
        try:
            sent_at_ns, payloads = decode_body(frame.body)
            if len(payloads) != meta.events:
                raise InvalidInput(f"a frame of {meta.events} events has {len(payloads)}")
        except InvalidInput as error:
            self.gaps += 1
            batch.append(Gap(frame.region, frame.epoch, first, frame.last, f"the frame cannot be read: {error}"))
            return
        same = repeat(frame.region), repeat(meta.publisher), payloads, repeat(frame.epoch)
        numbers = range(first, frame.last + 1)
        batch += map(_new_event, zip(*same, numbers, sent_at_ns, repeat(time.time_ns()), strict=False))
        self.delivered_events += meta.events

    def _wake_application(self, _: asyncio.Task[None]) -> None:
        self._arrived.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._arrived.set()
