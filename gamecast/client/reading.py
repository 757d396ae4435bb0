"""Reading at the nodes: one task each reads the egress streams there that a subscriber wants, and shows it what comes.

Reading pauses while the application is behind (``inbox_events_max``) or while a region runs too far ahead of the others
(``held_frames_max``), so memory is bounded; the streams keep what is not read yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from adapters.backoff import Backoff
from adapters.framesizes import FrameSizes
from adapters.network import Network, Reader
from adapters.places import Places, Position
from gamecast.client.configuration import Limits
from gamecast.client.watching import Health
from gamecast.event import Gap
from sequencing.cut import ReadResult
from sequencing.errors import GamecastError, is_passing
from sequencing.frames import StampedFrame
from sequencing.plan import Plan
from sequencing.session import Effects, Session

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

HELD_S = 0.005
"""How soon to look again whether regions that run too far ahead still do."""

BLOCK_MS = 20_000
"""How long a read waits for frames; it is broken off when something else is to be read, too, nothing any more, or when
the node cannot be read. Many quiet connections of one process would otherwise keep it busy."""

DRAIN_BLOCK_MS = 200
"""For how long nothing must come until a connection that is drained has everything."""


@dataclass(slots=True, eq=False)
class _NodeReader:
    """What one task reads at one node."""

    reader: Reader
    way: str
    turn: int = -1
    """The session's generation up to which changes are in ``after`` and ``unknown``."""
    after: Places[str] = field(default_factory=Places)
    """Region → the position after which it is read."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Region → epoch, of the streams whose end is to be found first."""
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_waiting: bool = False
    """Whether a read is under way."""
    interrupt: asyncio.Task[None] | None = None
    sizes: FrameSizes = field(default_factory=FrameSizes)
    """How large frames are, those that came last above all."""
    failed: Exception | None = None
    """What went wrong with what came without the task."""


OnRead = Callable[[str, str, bool], None]
"""Called with a node, a region, and whether its events are read there."""


class Taker(Protocol):
    """Takes what is read."""

    def has_room_now(self) -> bool:
        """Return whether it takes anything now."""

    async def has_room(self) -> bool:
        """Return whether to read on now, perhaps after a wait."""

    def take(self, result: ReadResult) -> None:
        """Take what was read."""

    def take_next(self, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        """Take one frame if the session has predicted it, and nothing is in its way; else return False."""

    def carry_out(self, effects: Effects[Any]) -> None:
        """Carry out effects of the session."""

    def announce(self, gap: Gap) -> None:
        """Take a gap that the subscriber does not know of."""

    def fail(self, error: Exception) -> None:
        """Hear that there is no reading any more."""

    def wake_application(self) -> None:
        """Hear that one of the tasks has ended."""


class NodeReaders:
    """The reading of one connection, at all nodes where it reads anything."""

    def __init__(self, network: Network, session: Session[Any], limits: Limits, taker: Taker, health: Health) -> None:
        self._network, self._session, self._limits, self._taker = network, session, limits, taker
        self._health = health
        self._readings: dict[str, _NodeReader] = {}
        self._stopping = False
        self._draining = False
        self._on_read: OnRead | None = None
        self.reconnects = 0

    @property
    def drained(self) -> bool:
        """Whether there was a `drain`, and nothing more comes."""
        tasks = (reading.task for reading in self._readings.values())
        return self._draining and all(task is None or task.done() for task in tasks)

    def tell_reads(self, on_read: OnRead) -> None:
        """Report what is read now, and each change of that."""
        self._on_read = on_read
        for node, reading in self._readings.items():
            for region in (*reading.after, *reading.unknown):
                on_read(node, region, True)

    def follow(self, plan: Plan) -> None:
        """Go on by a newer plan."""
        for reading in self._readings.values():
            reading.reader.follow(plan)

    def turn_to(self, plan: Plan) -> None:
        """Have the streams read at once that were not read before."""
        for node in self._session.turned():
            reading = self._readings.get(node)
            if reading is None:
                way = f"reading at {node}"
                reading = self._readings[node] = _NodeReader(self._network.reader(node, plan), way)
                reading.reader.tell(_AtOnce(self, node, reading))
                reading.task = asyncio.create_task(self._read(node, reading), name=f"gamecast read {node}")
                reading.task.add_done_callback(self._ended)
            reading.changed.set()
            if reading.is_waiting:
                self._interrupt(node, reading)

    def drain(self) -> None:
        """Let reading end when nothing more comes."""
        self._draining = True
        for node, reading in self._readings.items():
            reading.changed.set()
            if reading.is_waiting:
                self._interrupt(node, reading)

    async def close(self) -> None:
        """Stop reading. Reads that wait are broken off: nothing more is asked on their connections."""
        self._stopping = True
        readings = list(self._readings.values())
        for reading in readings:
            reading.changed.set()
            await reading.reader.close()
        tasks = (task for reading in readings for task in (reading.task, reading.interrupt) if task is not None)
        await asyncio.gather(*tasks)

    async def _read(self, node: str, reading: _NodeReader) -> None:
        backoff, way = Backoff(), reading.way
        try:
            while not self._stopping:
                if reading.failed is not None:
                    raise reading.failed
                was_draining = self._draining  # what comes during a look that began before may be missing in it
                try:
                    result = await self._look(node, reading)
                    backoff.reset()
                    self._health.mark_up(way)
                except GamecastError as error:
                    if self._stopping:
                        return
                    if reading.interrupt is not None:
                        continue
                    if not is_passing(error):
                        raise
                    self.reconnects += 1
                    self._health.mark_down(way, error)
                    await backoff.wait()
                    continue
                if result is None:
                    continue
                self._take(reading, result)
                if not result.frames and was_draining:
                    return
                # The application first, then the next request; and when much comes, not for every little of it.
                for _ in range(READ_PAUSE_ROUNDS if len(result.frames) >= READ_PAUSE_FRAMES else READ_ROUNDS):
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application's iterator raises it
            self._taker.fail(error)
        finally:
            await reading.reader.close()

    def _take(self, reading: _NodeReader, result: ReadResult) -> None:
        after = reading.after
        reading.sizes.note(result.frames)
        for frame in result.frames:
            after.moved(frame.region, frame.epoch, frame.last)
        self._taker.take(result)
        for place in reading.reader.hidden():
            self._taker.announce(Gap(*place))

    def has_room_at_once(self, reading: _NodeReader) -> bool:
        """Return whether what comes while a read waits can be taken without the task."""
        session = self._session
        return (
            reading.is_waiting
            and not (self._stopping or self._draining or reading.interrupt or reading.failed)
            and reading.turn == session.generation
            and (not (held := session.held_frames) or held < self._held_max(reading))
            and self._taker.has_room_now()
        )

    def _held_max(self, reading: _NodeReader) -> int:
        """Return how many frames of a region may wait for others."""
        return reading.sizes.fit_in(self._limits.held_bytes_max, self._limits.held_frames_max)

    def take_at_once(self, node: str, reading: _NodeReader, result: ReadResult) -> bool:
        """Take what has come while a read waits; return whether there is room for more."""
        self._health.mark_up(reading.way)
        try:
            self._take(reading, result)
        except Exception as error:  # noqa: BLE001 - the task ends with it
            reading.failed = error
            self._interrupt(node, reading)
        return self._taker.has_room_now()

    def take_next(self, node: str, reading: _NodeReader, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        """Take a frame while a read waits, if there is room and it is predicted: then nothing is held, and what is to
        be read is as it was when the read began."""
        if not reading.is_waiting or reading.interrupt is not None or reading.failed is not None:
            return False
        if self._stopping or self._draining:
            return False
        try:
            if not self._taker.take_next(frame, whole):
                return False
        except Exception as error:  # noqa: BLE001 - the task ends with it
            reading.failed = error
            self._interrupt(node, reading)
            return True
        if len(frame.body) > reading.sizes.bytes:
            reading.sizes.note((frame,))
        reading.after[frame.region] = frame.epoch, frame.last  # no change: the read has returned it
        return True

    async def _look(self, node: str, reading: _NodeReader) -> ReadResult | None:
        """Read what is to be read at a node; None when that was nothing."""
        if not await self._taker.has_room():
            return None
        reader = reading.reader
        if reading.interrupt is not None:
            try:
                await reading.interrupt
            finally:
                reading.interrupt = None  # also if it raises: `_read` goes on without a wait while there is one
        session = self._session
        if reading.turn != session.generation:
            self._turn(node, reading)
        if reading.unknown:
            unknown = list(reading.unknown.items())
            newest = await reader.newest(unknown)
            ends = ((region, epoch, frame) for (region, epoch), frame in zip(unknown, newest, strict=True))
            self._taker.carry_out(session.found_ends(ends))
            return None
        after: Mapping[str, Position] = reading.after
        if session.held_frames >= (held_max := self._held_max(reading)):
            there = reading.after.items()
            after = {region: place for region, place in there if session.held(region) < held_max}
        if after:
            return await self._read_on(reading, after)
        if not reading.after:
            self._health.mark_up(reading.way)  # nothing is needed of it: its node may have been given up
        if self._draining:
            return ReadResult((), {})
        reading.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_S if reading.after else None):
                await reading.changed.wait()
        return None

    def _turn(self, node: str, reading: _NodeReader) -> None:
        """Take over which streams to read, and from where on."""
        reading.turn = self._session.generation
        for region, read in self._session.changed_reads(node).items():
            reading.unknown.pop(region, None)
            if self._on_read is not None:
                self._on_read(node, region, read is not None)
            if read is not None and read.after is not None:
                reading.after.put(region, (read.epoch, read.after))
                continue
            reading.after.drop(region)
            if read is not None:
                reading.unknown[region] = read.epoch

    async def _read_on(self, reading: _NodeReader, after: Mapping[str, Position]) -> ReadResult:
        frames_max = reading.sizes.fit_in(READ_BYTES // len(after), FRAMES_MAX)
        reading.is_waiting = True
        try:
            block_ms = DRAIN_BLOCK_MS if self._draining else BLOCK_MS
            return await reading.reader.read(after, frames_max=frames_max, block_ms=block_ms)
        finally:
            reading.is_waiting = False

    @staticmethod
    def _interrupt(node: str, reading: _NodeReader) -> None:
        if reading.interrupt is None:
            reading.interrupt = asyncio.create_task(reading.reader.interrupt(), name=f"gamecast look at {node}")

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._taker.wake_application()


class _AtOnce:
    """Takes what comes at a node while a read waits. Implements `adapters.network.Found`."""

    def __init__(self, readers: NodeReaders, node: str, reading: _NodeReader) -> None:
        self._readers, self._node, self._reading = readers, node, reading

    def has_room(self) -> bool:
        """See `Found.has_room`."""
        return self._readers.has_room_at_once(self._reading)

    def take(self, result: ReadResult) -> bool:
        """See `Found.take`."""
        return self._readers.take_at_once(self._node, self._reading, result)

    def take_next(self, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        """See `Found.take_next`."""
        return self._readers.take_next(self._node, self._reading, frame, whole)
