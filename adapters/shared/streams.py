"""One process's reading at one node, for all of its connections that share it.

Without sharing, each subscriber needs a socket, a blocking read, and its own parsing of the same frames. Here one read
covers all wanted streams, and each frame goes to the readers of its stream. Recent frames are kept, so that all readers
find them, each in its own time. A reader that is further behind, or begins somewhere in the past, reads directly until
it has caught up.

The kept frames are a cut of the node's order (`sequencing.cut`): frames of a read above the cut wait for the next read.
Frames from a direct read are later than the kept ones. So after a direct read, the kept frames are complete only when
all streams were read again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.places import Places, Position
from adapters.redis.node import RedisNode
from adapters.shared.closed import closed_error
from adapters.shared.stream import SharedStream, StreamKey, StreamListener
from sequencing.cut import Numbered, ReadResult, let_through
from sequencing.errors import GamecastError, is_passing
from sequencing.frames import StampedFrame, node_number
from sequencing.keyed import Snapshot
from sequencing.plan import Plan

FRAMES_MAX = 128
BLOCK_MS = 2_000


UNBLOCK_TRIES = 3
UNBLOCK_AGAIN_S = 0.001
"""How soon to repeat the request to break off a read: that read may not have reached the server yet."""


class SharedNode:
    """The shared reading at one node: one task reads for all."""

    def __init__(self, make_node: Callable[[], RedisNode], name: str, plan: Plan) -> None:
        """``make_node``: returns a new access to the node, for one task."""
        self.name = name
        self._plan = plan
        self._streams: dict[StreamKey, SharedStream] = {}
        self._after: Places[StreamKey] = Places()
        """Stream → the position after which it is read next."""
        self._ahead: list[Numbered[StampedFrame]] = []
        """Frames that were read, above the cut."""
        self.looks = 0
        """How many reads of all streams have ended."""
        self.awaiting: set[StreamListener] = set()
        """Readers that wait for the next read, whatever it returns."""
        self._begun = 0
        self._direct, self._node = make_node(), make_node()
        for node in (self._direct, self._node):
            node.follow(plan)
        self._direct_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._is_waiting = False
        self._was_broken_off = False
        self._looks_anew = False
        """Whether the next read must not wait."""
        self._interrupt: asyncio.Task[None] | None = None
        self._closing = False
        self._task = keep_running(self._run, name=f"gamecast shared read {name}", on_failure=self._fail)

    @property
    def run(self) -> str:
        """The run that the newest plan names."""
        return self._plan.runs.get(self.name, "")

    @property
    def next_look(self) -> int:
        """The number of the next read that begins."""
        return self._begun + 1

    def follow(self, plan: Plan) -> None:
        """Talk to the node in the run that the newest plan names."""
        if (plan.epoch, plan.version) <= (self._plan.epoch, self._plan.version):
            return
        self._plan = plan
        self._direct.follow(plan)
        self._node.follow(plan)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        self._changed.set()
        self._fail(closed_error())
        await self._node.interrupt()
        await asyncio.gather(self._task, *([self._interrupt] if self._interrupt is not None else []))
        await self._direct.close()

    def begin(self, reader: StreamListener, key: StreamKey, after: int) -> SharedStream:
        """Read a stream for a reader, which has everything up to ``after`` unless another one reads the stream."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = SharedStream(key, after, after, self.next_look)
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
                self._after.drop(key)

    def is_read(self, key: StreamKey) -> bool:
        """Return whether any reader reads a stream."""
        return key in self._streams

    def look_anew(self) -> None:
        """Read all streams soon, without waiting for new frames."""
        self._looks_anew = True
        self._changed.set()
        if self._is_waiting and (self._interrupt is None or self._interrupt.done()):
            self._interrupt = asyncio.create_task(self._break_off(), name=f"gamecast look at {self.name}")

    async def read_now(self, after: Mapping[str, Position], frames_max: int) -> ReadResult:
        """Read streams directly, without waiting."""
        self.require_open()
        async with self._direct_turn:
            # An access of its own: the shared one moves the positions of the other readers, too.
            return await self._direct.read(dict(after), frames_max=frames_max, block_ms=None)

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        self.require_open()
        async with self._direct_turn:
            return await self._direct.newest(streams)

    async def snapshots(self, regions: Sequence[StreamKey]) -> dict[str, Snapshot] | None:
        """See `Reader.snapshots`."""
        self.require_open()
        async with self._direct_turn:
            return await self._direct.snapshots(regions)

    def require_open(self) -> None:
        """Raise `NotConnected` once the shared reading closes."""
        if self._closing:
            raise closed_error()

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._closing:
            self._changed.clear()
            if not self._streams:
                self._ahead.clear()
                await self._changed.wait()
                continue
            self._begun += 1
            block_ms = None if self._looks_anew else BLOCK_MS
            self._is_waiting, self._looks_anew = block_ms is not None, False
            try:
                frames = await self._node.read_streams(self._after, frames_max=FRAMES_MAX, block_ms=block_ms)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, who reads must hear of it
                self._looks_anew = True
                if self._closing:
                    break
                was_broken_off, self._was_broken_off = self._was_broken_off, False
                if was_broken_off or (self._interrupt is not None and not self._interrupt.done()):
                    await asyncio.sleep(0)  # a read may fail without a wait, and what breaks it off must get its turn
                    continue
                if not (isinstance(error, GamecastError) and is_passing(error)):
                    self._fail(error)
                await backoff.wait()
                continue
            finally:
                self._is_waiting = False
            self._hand_out(frames)
            for place in self._node.hidden():
                if (stream := self._streams.get((place.region, place.epoch))) is not None:
                    for reader in stream.readers:
                        reader.hide(place)
            # The readers first.
            await asyncio.sleep(0)
        await self._node.close()

    def _hand_out(self, frames: Sequence[StampedFrame]) -> None:
        self.looks, now_s = self._begun, time.monotonic()
        looking: dict[StreamListener, None] = {}
        for frame in self._known_to_be_next(frames):
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None:
                stream.take(frame, now_s)
                for reader in stream.readers:
                    reader.notice(stream)
                    looking[reader] = None
        self._looks_anew = self._looks_anew or bool(self._ahead)
        waiting, self.awaiting = self.awaiting, set()
        looking.update(dict.fromkeys(waiting))
        for each in looking:
            each.look_again()

    def _known_to_be_next(self, frames: Sequence[StampedFrame]) -> Sequence[StampedFrame]:
        """Take the frames of a read; return those that nothing can precede any more, in the node's order.

        A stream that was restarted meanwhile may have begun further back.
        """
        count: dict[SharedStream, int] = {}
        for frame in frames:
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None and stream.since <= self._begun and frame.last > stream.tail:
                stream.tail, stream.number = frame.last, abs(node_number(frame.stamp)) or stream.number
                self._after.moved(stream.key, frame.epoch, frame.last)
                self._ahead.append((stream.number, frame))
                count[stream] = count.get(stream, 0) + 1
        cut = min((stream.number for stream, found in count.items() if found >= FRAMES_MAX), default=inf)
        return [frame for _, frame in let_through(self._ahead, cut)]

    def _fail(self, error: Exception) -> None:
        for stream in self._streams.values():
            for reader in stream.readers:
                reader.fail(error)

    async def _break_off(self) -> None:
        """End the read in progress, because another one is needed."""
        if self._is_waiting and self._node.break_off_pushes():
            self._was_broken_off = True
            return
        with suppress(GamecastError):
            for _ in range(UNBLOCK_TRIES):
                if not self._is_waiting or self._node.client is None:
                    break
                async with self._direct_turn:
                    if await self._direct.unblock(self._node.client):
                        return
                await asyncio.sleep(UNBLOCK_AGAIN_S)
        if self._is_waiting:
            await self._node.interrupt()
