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
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from adapters.backoff import Backoff
from adapters.network import Hidden, Position
from adapters.redis.node import RedisNode
from sequencing.cut import Numbered, ReadResult, let_through, without_cut_short
from sequencing.errors import GamecastError, NotConnected, Unreachable, is_passing
from sequencing.frames import StampedFrame, node_number
from sequencing.plan import Plan

StreamKey = tuple[str, int]
"""(region, epoch)."""

FRAMES_MAX = 128
BLOCK_MS = 2_000

KEPT_S = 1.0
KEPT_FRAMES_MAX = 512
"""The maximum for each stream. A reader that is further behind reads directly."""

UNBLOCK_TRIES = 3
UNBLOCK_AGAIN_S = 0.001
"""How soon to repeat the request to break off a read: that read may not have reached the server yet."""


@dataclass(slots=True, eq=False)
class _Stream:
    """``kept``: the frames after ``start``, each with its monotonic arrival time.

    ``tail``: the last sequence that was read; ``since``: the first read that included the stream.
    """

    key: StreamKey
    start: int
    tail: int
    since: int
    number: int = 0
    """The node number of the last frame that was read."""
    kept: deque[tuple[float, StampedFrame]] = field(default_factory=deque)
    readers: set[SharedReader] = field(default_factory=set)

    def take(self, frame: StampedFrame, now_s: float) -> None:
        """Keep a frame that arrived, and drop old ones."""
        kept = self.kept
        kept.append((now_s, frame))
        while kept[0][0] < now_s - KEPT_S or len(kept) > KEPT_FRAMES_MAX:
            self.start = kept.popleft()[1].last

    def after(self, sequence: int, frames_max: int) -> list[StampedFrame]:
        """Return the frames after a sequence, the oldest first."""
        found: list[StampedFrame] = []
        for _, frame in reversed(self.kept):
            if frame.last <= sequence:
                break
            found.append(frame)
        found.reverse()
        return found[:frames_max]


class SharedNode:
    """The shared reading at one node: one task reads for all."""

    def __init__(self, make_node: Callable[[], RedisNode], name: str, plan: Plan) -> None:
        """``make_node``: returns a new access to the node, for one task."""
        self.name = name
        self._plan = plan
        self._streams: dict[StreamKey, _Stream] = {}
        self._ahead: list[Numbered[StampedFrame]] = []
        """Frames that were read, above the cut."""
        self.looks = 0
        """How many reads of all streams have ended."""
        self.awaiting: set[SharedReader] = set()
        """Readers that wait for the next read, whatever it returns."""
        self._begun = 0
        self._direct, self._node = make_node(), make_node()
        for node in (self._direct, self._node):
            node.follow(plan)
        self._direct_turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._is_waiting = False
        self._looks_anew = False
        """Whether the next read must not wait."""
        self._interrupt: asyncio.Task[None] | None = None
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"gamecast shared read {name}")

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

    def reader(self, plan: Plan) -> SharedReader:
        """Return the access of one subscriber."""
        self.follow(plan)
        return SharedReader(self, plan)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        self._changed.set()
        await self._node.interrupt()
        await asyncio.gather(self._task, *([self._interrupt] if self._interrupt is not None else []))
        await self._direct.close()

    def begin(self, reader: SharedReader, key: StreamKey, after: int) -> _Stream:
        """Read a stream for a reader, which has everything up to ``after`` unless another one reads the stream."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream(key, after, after, self.next_look)
            self.look_anew()
        stream.readers.add(reader)
        return stream

    def end(self, reader: SharedReader, key: StreamKey) -> None:
        """Stop reading a stream for a reader."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.readers.discard(reader)
            if not stream.readers:
                del self._streams[key]

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
        self._require_open()
        async with self._direct_turn:
            # An access of its own: the shared one moves the positions of the other readers, too.
            return await self._direct.read(dict(after), frames_max=frames_max, block_ms=None)

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        self._require_open()
        async with self._direct_turn:
            return await self._direct.newest(streams)

    def _require_open(self) -> None:
        if self._closing:
            raise NotConnected("the shared network access of this process was closed before this connection")

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._closing:
            self._changed.clear()
            if not self._streams:
                self._ahead.clear()
                await self._changed.wait()
                continue
            asked = dict(self._streams)
            after = {key: stream.tail for key, stream in asked.items()}
            self._begun += 1
            block_ms = None if self._looks_anew else BLOCK_MS
            self._is_waiting, self._looks_anew = block_ms is not None, False
            try:
                frames = await self._node.read_streams(after, frames_max=FRAMES_MAX, block_ms=block_ms)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, who reads must hear of it
                self._looks_anew = True
                if self._closing:
                    break
                if self._interrupt is not None and not self._interrupt.done():
                    continue
                if not (isinstance(error, GamecastError) and is_passing(error)):
                    self._fail(error)
                await backoff.wait()
                continue
            finally:
                self._is_waiting = False
            self._hand_out(frames, asked)
            for place in self._node.hidden():
                if (stream := self._streams.get((place.region, place.epoch))) is not None:
                    for reader in stream.readers:
                        reader.hide(place)
            # The readers first.
            await asyncio.sleep(0)
        await self._node.close()

    def _hand_out(self, frames: Sequence[StampedFrame], asked: Mapping[StreamKey, _Stream]) -> None:
        self.looks, now_s = self._begun, time.monotonic()
        for frame in self._known_to_be_next(frames, asked):
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None:
                stream.take(frame, now_s)
                for reader in stream.readers:
                    reader.notice(stream)
        self._looks_anew = self._looks_anew or bool(self._ahead)
        waiting, self.awaiting = self.awaiting, set()
        for waiting_reader in waiting:
            waiting_reader.look_again()

    def _known_to_be_next(
        self, frames: Sequence[StampedFrame], asked: Mapping[StreamKey, _Stream]
    ) -> Sequence[StampedFrame]:
        """Take the frames of a read; return those that nothing can precede any more, in the node's order.

        ``asked``: the streams of the read. A stream that was restarted meanwhile may have begun further back.
        """
        count: dict[_Stream, int] = {}
        for frame in frames:
            stream = self._streams.get((frame.region, frame.epoch))
            if stream is not None and stream is asked.get(stream.key) and frame.last > stream.tail:
                stream.tail, stream.number = frame.last, abs(node_number(frame.stamp)) or stream.number
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


class SharedReader:
    """One subscriber's access to the shared reading at a node. Implements `adapters.network.Reader`."""

    def __init__(self, node: SharedNode, plan: Plan) -> None:
        """Use `SharedNode.reader`."""
        self._node = node
        self._run = plan.runs.get(node.name, "")
        self._streams: dict[str, _Stream] = {}
        self._fresh: set[_Stream] = set()
        self._nothing_before: dict[str, int] = {}
        """Region → where the kept frames begin, if there is nothing between the reader's position and that."""
        self._arrived: asyncio.Future[None] | None = None
        self._interrupted = False
        self._closed = False
        self._failure: Exception | None = None
        self._hidden: list[Hidden] = []
        self._need = 0
        """The read from which the kept frames must come, to be as late as everything that was read directly."""
        self._whole: Mapping[str, int] | None = None
        """The streams for which the last result was complete, if it was."""

    def follow(self, plan: Plan) -> None:
        """See `Reader.follow`."""
        self._run = plan.runs.get(self._node.name, "")
        self._node.follow(plan)

    def notice(self, stream: _Stream) -> None:
        """Note that a stream has new frames."""
        self._fresh.add(stream)
        self._wake()

    def fail(self, error: Exception) -> None:
        """Note that reading failed for good."""
        self._failure = error
        self._wake()

    def hide(self, place: Hidden) -> None:
        """Note that forged events were read in the place of true ones."""
        self._hidden.append(place)
        self._wake()

    def look_again(self) -> None:
        """Note that another read has ended."""
        self._wake()

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """See `Reader.read`."""
        has_waited = False
        while True:
            if self._closed:
                raise NotConnected
            if self._run != self._node.run:
                raise Unreachable(
                    f"node {self._node.name!r} has restarted, and this connection has not received the new plan yet"
                )
            if block_ms is None:
                # Not the kept frames: they may lag behind, and history takes silence for the end.
                return await self._node.read_now(after, frames_max)
            if (missed := await self._read_missed(after, frames_max)) is not None:
                self._whole, self._need = None, self._node.next_look
                return missed
            frames, before = self._taken(after, frames_max), self._whole
            self._whole = self._whole_now(after, frames, frames_max)
            if frames or has_waited or self._interrupted or self._whole is not before:
                self._interrupted = False
                return ReadResult(frames, self._whole or {})
            await self._wait(block_ms)
            has_waited = True

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._interrupted = True
        self._wake()

    def hidden(self) -> Sequence[Hidden]:
        """See `Reader.hidden`."""
        hidden, self._hidden = self._hidden, []
        return hidden

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        return await self._node.newest(streams)

    async def close(self) -> None:
        """See `Reader.close`."""
        self._closed = True
        self._attend({})
        self._wake()

    def _whole_now(
        self, after: Mapping[str, Position], frames: Sequence[StampedFrame], frames_max: int
    ) -> Mapping[str, int] | None:
        """Return the streams if they are complete as of one read that is no older than anything found before."""
        looks = self._node.looks
        if looks < self._need:
            self._node.look_anew()
        if looks < self._need or any(stream.since > looks for stream in self._streams.values()):
            self._node.awaiting.add(self)
            return None
        streams = {region: epoch for region, (epoch, _) in after.items()}
        whole = without_cut_short(streams, frames, frames_max)
        return self._whole if whole == self._whole else whole

    async def _read_missed(self, after: Mapping[str, Position], frames_max: int) -> ReadResult | None:
        """Read directly if a frame may be missing that is not kept; None if all frames are kept.

        Read all streams, because only then it is known up to where the result is complete.
        """
        while behind := self._behind(after):
            starts = {region: stream.start for region, stream in self._streams.items() if region in behind}
            found = await self._node.read_now(after, frames_max)
            if self._closed:
                return found
            for region in behind.keys() - {frame.region for frame in found.frames}:
                if region in starts:
                    self._nothing_before[region] = starts[region]
                else:
                    self._hear(region, *behind[region])
            if found.frames:
                return found
        return None

    def _behind(self, after: Mapping[str, Position]) -> dict[str, Position]:
        """Attend to these streams only; return those that may lack frames before the kept ones."""
        self._attend(after)
        behind: dict[str, Position] = {}
        for region, (epoch, sequence) in after.items():
            stream = self._streams.get(region)
            if stream is None and self._node.is_read((region, epoch)):
                stream = self._hear(region, epoch, sequence)
            if stream is None or sequence < stream.start != self._nothing_before.get(region):
                behind[region] = epoch, sequence
        return behind

    def _hear(self, region: str, epoch: int, sequence: int) -> _Stream:
        stream = self._streams[region] = self._node.begin(self, (region, epoch), sequence)
        self._fresh.add(stream)  # it may have been read before, for other readers
        return stream

    def _attend(self, after: Mapping[str, Position]) -> None:
        """Stop attending to all streams but these."""
        for region, stream in tuple(self._streams.items()):
            if region not in after or stream.key[1] != after[region][0]:
                self._leave(region)

    def _leave(self, region: str) -> None:
        stream = self._streams.pop(region)
        self._nothing_before.pop(region, None)
        self._fresh.discard(stream)
        self._node.end(self, stream.key)

    def _taken(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        """Return the kept frames after some positions."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        frames: list[StampedFrame] = []
        for stream in tuple(self._fresh):
            found = stream.after(after[stream.key[0]][1], frames_max)
            frames += found
            if len(found) < frames_max:
                self._fresh.discard(stream)
        return frames

    async def _wait(self, block_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._arrived = arrived = loop.create_future()
        timer = loop.call_later(block_ms / 1000, self._wake)
        try:
            await arrived
        finally:
            timer.cancel()
            self._arrived = None

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
