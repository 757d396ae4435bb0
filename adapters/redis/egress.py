"""One process's reading at one node, for all of its connections.

One read covers all wanted streams, and each frame goes to the readers of its stream. Recent frames are kept, so that
all readers find them, each in its own time. A reader that is further behind, or begins somewhere in the past, reads
directly until it has caught up. While no reader waits for more, nothing is read.

The kept frames are a cut of the node's order (`sequencing.cut`): frames of a read above the cut wait for the next read.
Frames from a direct read are later than the kept ones. So after a direct read, the kept frames are complete only when
all streams were read again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.framesizes import FrameSizes
from adapters.places import Places, Position
from adapters.redis.deadline import Overdue
from adapters.redis.egressstream import EgressStream, Kept, StreamKey, StreamListener
from adapters.redis.node import RedisNode
from adapters.redis.nodestreams import NodeStreams
from adapters.redis.together import closed_error
from sequencing.cut import Numbered, ReadResult, let_through
from sequencing.errors import GamecastError, Unreachable, is_passing
from sequencing.frames import StampedFrame
from sequencing.keyed import Snapshot
from sequencing.plan import Plan

FRAMES_MAX = 128
READ_BYTES = 8 * 1024 * 1024
"""Frames a stream and read: enough to keep up, and not more than about so many bytes in one reply."""

BLOCK_MS = 2_000
"""How long a read waits for frames; it is broken off when something else is to be read, too."""

LATE_S = 1.5
"""How long after it is due an answer may come; later, the node counts as a way that is lost."""

PAUSE_FRAMES = 4
PAUSE_ROUNDS = 4
"""After a read of several frames, publishers are busy: the others of this event loop go first for some rounds, and what
comes meanwhile is read at once, which costs less. Rounds, not a time: a loop with nothing else to do does not wait."""

ROUNDS = 2
"""After a read of few frames: the readers first."""

UNBLOCK_TRIES = 3
UNBLOCK_AGAIN_S = 0.001
"""How soon to repeat the request to break off a read: that read may not have reached the server yet."""


class Egress:
    """The reading at one node: one task reads for all."""

    def __init__(self, make_node: Callable[[], RedisNode], name: str, plan: Plan) -> None:
        """``make_node``: returns a new access to the node, for one task."""
        self.name = name
        self._plan = plan
        self.run = plan.runs.get(name, "")
        """The run that the newest plan names."""
        self._streams: dict[StreamKey, EgressStream] = {}
        self._after: Places[StreamKey] = Places()
        """Stream → the position after which it is read next."""
        self._kept = Kept()
        self._ahead: list[Numbered[StampedFrame]] = []
        """Frames that were read, above the cut."""
        self.looks = 0
        """How many reads of all streams have ended."""
        self.readers: set[StreamListener] = set()
        """All that have read, and are open."""
        self.waiting: set[StreamListener] = set()
        """Readers that wait for frames."""
        self.awaiting: set[StreamListener] = set()
        """Readers that wait for the next read, whatever it returns."""
        self.trouble: GamecastError | None = None
        """Why nothing can be read at the moment."""
        self._begun = 0
        self._sizes = FrameSizes()
        self._direct, self._node = make_node(), make_node()
        for node in (self._direct, self._node):
            node.follow(plan)
        self._reading = NodeStreams(self._node, self)
        self._direct_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._is_waiting = False
        self._was_broken_off = False
        self._looks_anew = False
        """Whether the next read must not wait."""
        self._interrupt: asyncio.Task[None] | None = None
        self._closing = False
        self._late = Overdue(LATE_S, self._is_late)
        self._task = keep_running(self._run, name=f"gamecast read {name}", on_failure=self._fail)

    @property
    def next_look(self) -> int:
        """The number of the next read that begins."""
        return self._begun + 1

    def follow(self, plan: Plan) -> None:
        """Talk to the node in the run that the newest plan names."""
        if (plan.epoch, plan.version) <= (self._plan.epoch, self._plan.version):
            return
        self._plan, self.run = plan, plan.runs.get(self.name, "")
        self._direct.follow(plan)
        self._node.follow(plan)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        self._changed.set()
        self._fail(closed_error())
        await self._reading.interrupt()
        await self._direct.close()  # its answers are not waited for: the server may hang
        await asyncio.gather(self._task, *([self._interrupt] if self._interrupt is not None else []))
        self._late.close()
        async with self._direct_turn:
            await self._direct.close()  # it may have been opened again

    def begin(self, reader: StreamListener, key: StreamKey, after: int) -> EgressStream:
        """Read a stream for a reader, which has everything up to ``after`` unless another one reads the stream."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = EgressStream(key, after, after, self.next_look)
            self._after.put(key, (key[1], after))
            self.look_anew()
        stream.readers.add(reader)
        return stream

    def end(self, reader: StreamListener, key: StreamKey) -> None:
        """Stop reading a stream for a reader."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.readers.discard(reader)
            if not stream.readers:
                del self._streams[key]
                self._kept.forget(stream)
                self._after.drop(key)

    def may_begin(self, key: StreamKey) -> bool:
        """Return whether a stream is read already, or no other reader has to wait until a new one is caught up with."""
        return key in self._streams or len(self.readers) < 2

    def look_anew(self) -> None:
        """Read all streams soon, without waiting for new frames."""
        self._looks_anew = True
        self._changed.set()
        if self._is_waiting and (self._interrupt is None or self._interrupt.done()):
            self._interrupt = asyncio.create_task(self._break_off(), name=f"gamecast look at {self.name}")

    def wait(self, reader: StreamListener) -> None:
        """Note that a reader waits for frames."""
        self.waiting.add(reader)
        self._changed.set()

    async def read_now(self, after: Mapping[str, Position], frames_max: int) -> ReadResult:
        """Read streams directly, without waiting."""
        async with self._turn():
            # An access of its own: the other one waits.
            return await self._direct.read(dict(after), frames_max=frames_max, block_ms=None)

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        async with self._turn():
            return await self._direct.newest(streams)

    async def snapshots(self, regions: Sequence[StreamKey]) -> dict[str, Snapshot] | None:
        """See `Reader.snapshots`."""
        async with self._turn():
            return await self._direct.snapshots(regions)

    def require_open(self) -> None:
        """Raise `NotConnected` once this closes."""
        if self._closing:
            raise closed_error()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Have the direct access to oneself, which would open its connection again that was closed."""
        self.require_open()
        async with self._direct_turn:
            self.require_open()
            yield

    def take(self, frames: Sequence[StampedFrame]) -> bool:
        """See `nodestreams.Taker`."""
        self._hand_out(frames)
        return bool(self.waiting) and not self._looks_anew

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._closing:
            self._changed.clear()
            if not self._streams or not (self.waiting or self._looks_anew):
                if not self._streams:
                    self._ahead.clear()
                    self.trouble = None  # nothing is known of the node any more
                await self._changed.wait()
                continue
            self._begun += 1
            block_ms = None if self._looks_anew else BLOCK_MS
            self._is_waiting, self._looks_anew = block_ms is not None, False
            frames_max = self._sizes.fit_in(READ_BYTES // len(self._streams), FRAMES_MAX)
            self._late.begin(LATE_S + (block_ms or 0) / 1000)
            try:
                frames = await self._reading.read(self._after, frames_max=frames_max, block_ms=block_ms)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, who reads must hear of it
                self._looks_anew = True
                if self._closing:
                    break
                was_broken_off, self._was_broken_off = self._was_broken_off, False
                if was_broken_off or (self._interrupt is not None and not self._interrupt.done()):
                    await asyncio.sleep(0)  # a read may fail without a wait, and what breaks it off must get its turn
                    continue
                if isinstance(error, GamecastError) and is_passing(error):
                    self._tell_trouble(error)
                else:
                    self._fail(error)
                await backoff.wait()
                continue
            finally:
                self._late.end()
                self._is_waiting = False
            if self.trouble is not None:
                self._tell_trouble(None)
            if block_ms is not None and not frames and not self._looks_anew:
                self._looks_anew = self._reading.was_quiet
            self._hand_out(frames, frames_max)
            self._hide()
            for _ in range(PAUSE_ROUNDS if len(frames) >= PAUSE_FRAMES else ROUNDS):
                await asyncio.sleep(0)
        await self._reading.close()

    def _hand_out(self, frames: Sequence[StampedFrame], frames_max: int = 0) -> None:
        """Give frames to those who read their streams; ``frames_max``: of a read, 0 for what was pushed."""
        self.looks, now_s = self._begun, time.monotonic()
        if not self._ahead and not self.awaiting and (not frames_max or 1 == len(frames) < frames_max):
            for frame in frames:  # each is the next of all
                self._hand_out_one(frame, now_s)
        else:
            self._hand_out_all(frames, frames_max or inf, now_s)
        self._kept.drop_old(now_s)

    def _hand_out_all(self, frames: Sequence[StampedFrame], frames_max: float, now_s: float) -> None:
        """Give those that nothing can precede any more to who reads their streams, and have all look who wait."""
        self._sizes.note(frames)
        looking: dict[StreamListener, None] = {}
        for frame in self._known_to_be_next(frames, frames_max):
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None:
                self._kept.take(stream, frame, now_s)
                for reader in stream.readers:
                    reader.notice(stream)
                    looking[reader] = None
        self._looks_anew = self._looks_anew or bool(self._ahead)
        waiting, self.awaiting = self.awaiting, set()
        looking.update(dict.fromkeys(waiting))
        for each in looking:
            each.look_again()

    def _hand_out_one(self, frame: StampedFrame, now_s: float) -> None:
        """Give the next frame to those who read its stream: nothing can precede it."""
        key = frame.region, frame.epoch
        stream = self._streams.get(key)
        if stream is None or stream.since > self._begun or frame.last <= stream.tail:
            return
        stream.tail, stream.stamp = frame.last, frame.stamp or stream.stamp
        self._after[key] = frame.epoch, frame.last  # which is no news for who reads: it has returned the frame
        if len(frame.body) > self._sizes.bytes:
            self._sizes.note((frame,))
        self._kept.take(stream, frame, now_s)
        for reader in tuple(stream.readers):
            reader.take_next(stream, frame)

    def _known_to_be_next(self, frames: Sequence[StampedFrame], frames_max: float) -> Sequence[StampedFrame]:
        """Take the frames of a read; return those that nothing can precede any more, in the node's order.

        A stream that was restarted meanwhile may have begun further back.
        """
        count: dict[EgressStream, int] = {}
        for frame in frames:
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None and stream.since <= self._begun and frame.last > stream.tail:
                stream.tail, stream.stamp = frame.last, frame.stamp or stream.stamp
                self._after.moved(stream.key, frame.epoch, frame.last)
                self._ahead.append((stream.number(), frame))
                count[stream] = count.get(stream, 0) + 1
        cut = min((stream.number() for stream, taken in count.items() if taken >= frames_max), default=inf)
        return [frame for _, frame in let_through(self._ahead, cut)]

    def _hide(self) -> None:
        for place in self._reading.hidden():
            if (stream := self._streams.get((place.region, place.epoch))) is not None:
                for reader in stream.readers:
                    reader.hide(place)

    def _is_late(self) -> None:
        said = "the server has not answered in time: it hangs, is stopped, or has too much to do"
        self._tell_trouble(Unreachable(f"node {self.name!r}: {said}"))

    def _tell_trouble(self, error: GamecastError | None) -> None:
        """Have all readers hear that nothing can be read, or that it can again: once for each outage."""
        self.trouble = error
        for reader in tuple(self.readers):
            reader.wake()

    def _fail(self, error: Exception) -> None:
        for reader in tuple(self.readers):
            reader.fail(error)

    async def _break_off(self) -> None:
        """End the read in progress, because another one is needed."""
        if self._is_waiting and self._reading.break_off_pushes():
            self._was_broken_off = True
            return
        with suppress(GamecastError):
            for _ in range(UNBLOCK_TRIES):
                if not self._is_waiting or self._reading.client is None:
                    break
                async with self._direct_turn:
                    if await self._direct.unblock(self._reading.client):
                        return
                await asyncio.sleep(UNBLOCK_AGAIN_S)
        if self._is_waiting:
            await self._reading.interrupt()
