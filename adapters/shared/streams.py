"""One process's reading at one node, for all of its connections that share it.

A connection of its own costs each subscriber a socket, a read that waits, and the parsing of what everybody beside it
parses, too. Here the streams that anybody reads are read once, some `SHARD_STREAMS` a read, and each frame goes to
whoever reads its stream. What a stream brought lately is kept, so that all find it, each in its own time; who is
further behind, or begins somewhere in the past, reads that directly until it has caught up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from adapters.backoff import Backoff
from adapters.network import Position
from adapters.redis.node import RedisNode
from sequencing.errors import GamecastError, NotConnected, Unreachable, is_passing
from sequencing.frames import StampedFrame
from sequencing.plan import Plan

StreamKey = tuple[str, int]
"""(region, epoch)."""

SHARD_STREAMS = 128
"""Redis looks at each stream of a read, when it begins to wait and when something comes."""

FRAMES_MAX = 128
BLOCK_MS = 2_000

KEPT_S = 1.0
KEPT_FRAMES_MAX = 512
"""Of each stream. Who is further behind reads for itself."""

UNBLOCK_TRIES = 3
UNBLOCK_AGAIN_S = 0.001
"""The read that is to be broken off may not have come to the server yet."""


@dataclass(slots=True, eq=False)
class _Stream:
    """``kept``: the frames after ``start``, each with when it came, by a monotonic clock; ``tail``: read up to here."""

    key: StreamKey
    shard: _Shard
    start: int
    tail: int
    kept: deque[tuple[float, StampedFrame]] = field(default_factory=deque)
    readers: set[SharedReader] = field(default_factory=set)

    def take(self, frame: StampedFrame, now_s: float) -> None:
        """Keep a frame that came, and let go of old ones."""
        self.tail = frame.last
        kept = self.kept
        kept.append((now_s, frame))
        while kept[0][0] < now_s - KEPT_S or len(kept) > KEPT_FRAMES_MAX:
            self.start = kept.popleft()[1].last

    def after(self, sequence: int, frames_max: int) -> list[StampedFrame]:
        """Return what came after a sequence, the oldest first."""
        found: list[StampedFrame] = []
        for _, frame in reversed(self.kept):
            if frame.last <= sequence:
                break
            found.append(frame)
        found.reverse()
        return found[:frames_max]


class SharedNode:
    """What is read at one node for everybody in this process."""

    def __init__(self, make_node: Callable[[], RedisNode], name: str, plan: Plan) -> None:
        """``make_node``: a new way to the node, for one task."""
        self.name = name
        self._make_node = make_node
        self._plan = plan
        self._streams: dict[StreamKey, _Stream] = {}
        self._shards: list[_Shard] = []
        self._direct = make_node()
        self._direct.follow(plan)
        self._direct_turn = asyncio.Lock()
        self._closing = False

    @property
    def run(self) -> str:
        """The run that the newest plan means."""
        return self._plan.runs.get(self.name, "")

    def follow(self, plan: Plan) -> None:
        """Speak to the node as the newest plan knows it."""
        if (plan.epoch, plan.version) <= (self._plan.epoch, self._plan.version):
            return
        self._plan = plan
        self._direct.follow(plan)
        for shard in self._shards:
            shard.node.follow(plan)

    def reader(self, plan: Plan) -> SharedReader:
        """Return one subscriber's way."""
        self.follow(plan)
        return SharedReader(self, plan)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        await asyncio.gather(*(shard.close() for shard in self._shards))
        await self._direct.close()

    def begin(self, reader: SharedReader, key: StreamKey, after: int) -> _Stream:
        """Have a stream read for a reader, which has everything up to ``after`` if nobody else reads it."""
        stream = self._streams.get(key)
        if stream is None:
            shard = next((shard for shard in self._shards if len(shard.streams) < SHARD_STREAMS), None)
            if shard is None:
                shard = _Shard(self._new_node(), self._unblock)
                self._shards.append(shard)
            stream = self._streams[key] = _Stream(key, shard, after, after)
            shard.add(stream)
        stream.readers.add(reader)
        return stream

    def end(self, reader: SharedReader, key: StreamKey) -> None:
        """Read a stream for a reader no more."""
        stream = self._streams.get(key)
        if stream is not None:
            stream.readers.discard(reader)
            if not stream.readers:
                del self._streams[key]
                stream.shard.streams.pop(key, None)

    def is_read(self, key: StreamKey) -> bool:
        """Return whether somebody reads a stream."""
        return key in self._streams

    async def read_now(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        """Read streams directly, without waiting."""
        self._require_open()
        async with self._direct_turn:
            return await self._direct.read(after, frames_max=frames_max, block_ms=None)

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        self._require_open()
        async with self._direct_turn:
            return await self._direct.newest(streams)

    async def _unblock(self, client: int) -> bool:
        async with self._direct_turn:
            return await self._direct.unblock(client)

    def _new_node(self) -> RedisNode:
        node = self._make_node()
        node.follow(self._plan)
        return node

    def _require_open(self) -> None:
        if self._closing:
            raise NotConnected("what the connections of this process share was closed before them")


class _Shard:
    """One task that reads some streams."""

    def __init__(self, node: RedisNode, unblock: Callable[[int], Awaitable[bool]]) -> None:
        self.node = node
        self.streams: dict[StreamKey, _Stream] = {}
        self._unblock = unblock
        self._changed = asyncio.Event()
        self._waits_for: frozenset[StreamKey] | None = None
        self._interrupt: asyncio.Task[None] | None = None
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=f"gamecast shared read {node.name}")

    def add(self, stream: _Stream) -> None:
        """Read a stream, too, from now on."""
        self.streams[stream.key] = stream
        self._changed.set()
        if self._waits_for is not None and (self._interrupt is None or self._interrupt.done()):
            self._interrupt = asyncio.create_task(self._break_off(), name=f"gamecast look at {self.node.name}")

    async def close(self) -> None:
        """Stop."""
        self._closing = True
        self._changed.set()
        await self.node.interrupt()
        await asyncio.gather(self._task, *([self._interrupt] if self._interrupt is not None else []))

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._closing:
            self._changed.clear()
            if not self.streams:
                await self._changed.wait()
                continue
            after = {key: stream.tail for key, stream in self.streams.items()}
            self._waits_for = frozenset(after)
            try:
                frames = await self.node.read_streams(after, frames_max=FRAMES_MAX, block_ms=BLOCK_MS)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, who reads must hear of it
                if self._closing:
                    break
                if self._interrupt is not None and not self._interrupt.done():
                    continue
                if not (isinstance(error, GamecastError) and is_passing(error)):
                    self._fail(error)
                await backoff.wait()
                continue
            finally:
                self._waits_for = None
            self._hand_out(frames)
            # The readers first.
            await asyncio.sleep(0)
        await self.node.close()

    def _hand_out(self, frames: Iterable[StampedFrame]) -> None:
        now_s = time.monotonic()
        for frame in frames:
            stream = self.streams.get((frame.region, frame.epoch))
            if stream is not None and frame.last > stream.tail:
                stream.take(frame, now_s)
                for reader in stream.readers:
                    reader.notice(stream)

    def _fail(self, error: Exception) -> None:
        for stream in self.streams.values():
            for reader in stream.readers:
                reader.fail(error)

    async def _break_off(self) -> None:
        """Have the read under way end, because there are streams that it does not wait for."""
        with suppress(GamecastError):
            for _ in range(UNBLOCK_TRIES):
                if self._waits_for_all or self.node.client is None:
                    break
                if await self._unblock(self.node.client):
                    return
                await asyncio.sleep(UNBLOCK_AGAIN_S)
        if not self._waits_for_all:
            await self.node.interrupt()

    @property
    def _waits_for_all(self) -> bool:
        return self._waits_for is None or self._waits_for.issuperset(self.streams)


class SharedReader:
    """One subscriber's way to what its process reads at a node. Implements `adapters.network.Reader`."""

    def __init__(self, node: SharedNode, plan: Plan) -> None:
        """Use `SharedNode.reader`."""
        self._node = node
        self._run = plan.runs.get(node.name, "")
        self._streams: dict[str, _Stream] = {}
        self._fresh: set[_Stream] = set()
        self._arrived: asyncio.Future[None] | None = None
        self._interrupted = False
        self._closed = False
        self._failure: Exception | None = None

    def follow(self, plan: Plan) -> None:
        """See `Reader.follow`."""
        self._run = plan.runs.get(self._node.name, "")
        self._node.follow(plan)

    def notice(self, stream: _Stream) -> None:
        """Hear that a stream has brought something."""
        self._fresh.add(stream)
        self._wake()

    def fail(self, error: Exception) -> None:
        """Hear that reading failed for good."""
        self._failure = error
        self._wake()

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> list[StampedFrame]:
        """See `Reader.read`."""
        has_waited = False
        while True:
            if self._closed:
                raise NotConnected
            if self._run != self._node.run:
                raise Unreachable(f"node {self._node.name!r} has begun anew, which this connection has not heard of")
            if block_ms is None:
                # Not what is kept: that may lag behind, and history takes silence for the end.
                return await self._node.read_now(after, frames_max)
            frames = await self._read_missed(after, frames_max) or self._taken(after, frames_max)
            if frames or has_waited or self._interrupted:
                self._interrupted = False
                return frames
            await self._wait(block_ms)
            has_waited = True

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._interrupted = True
        self._wake()

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        return await self._node.newest(streams)

    async def close(self) -> None:
        """See `Reader.close`."""
        self._closed = True
        self._attend({})
        self._wake()

    async def _read_missed(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        """Read directly what nobody kept. When nothing is returned, all there is after the positions is kept."""
        nothing_before: dict[str, int] = {}
        while behind := self._behind(after, nothing_before):
            starts = {region: stream.start for region, stream in self._streams.items() if region in behind}
            frames = await self._node.read_now(behind, frames_max)
            if frames or self._closed:
                return frames
            nothing_before |= starts
            for region in behind.keys() - starts.keys():
                self._hear(region, *behind[region])
        return []

    def _behind(self, after: Mapping[str, Position], nothing_before: Mapping[str, int]) -> dict[str, Position]:
        """Hear of these streams and no others; return those of which something may be missing before what is kept."""
        self._attend(after)
        behind: dict[str, Position] = {}
        for region, (epoch, sequence) in after.items():
            stream = self._streams.get(region)
            if stream is None and self._node.is_read((region, epoch)):
                stream = self._hear(region, epoch, sequence)
            if stream is None or sequence < stream.start != nothing_before.get(region):
                behind[region] = epoch, sequence
        return behind

    def _hear(self, region: str, epoch: int, sequence: int) -> _Stream:
        stream = self._streams[region] = self._node.begin(self, (region, epoch), sequence)
        self._fresh.add(stream)  # for others it may have been read before
        return stream

    def _attend(self, after: Mapping[str, Position]) -> None:
        """Hear no more of other streams than these."""
        for region, stream in tuple(self._streams.items()):
            if region not in after or stream.key[1] != after[region][0]:
                self._leave(region)

    def _leave(self, region: str) -> None:
        stream = self._streams.pop(region)
        self._fresh.discard(stream)
        self._node.end(self, stream.key)

    def _taken(self, after: Mapping[str, Position], frames_max: int) -> list[StampedFrame]:
        """Return what has come after some positions."""
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
