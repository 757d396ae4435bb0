"""One connection's reader of the streams of a node, which a process reads for all of its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from adapters.network import Found, Hidden
from adapters.places import Places, Position
from adapters.redis.egressstream import EgressStream, StreamKey
from sequencing.cut import ReadResult, Streams, without_cut_short
from sequencing.errors import NotConnected, Unreachable
from sequencing.frames import StampedFrame
from sequencing.keyed import Snapshot
from sequencing.plan import Plan

if TYPE_CHECKING:
    from adapters.redis.egress import Egress

FRAMES_MAX = 128
"""The frames of a stream that are handed on at once while a `read` waits."""


class EgressReader:
    """One subscriber's access to the reading at a node. Implements `adapters.network.Reader`."""

    def __init__(self, node: Egress, plan: Plan) -> None:
        """``node``: the one whose streams it reads."""
        self._node = node
        self._run = plan.runs.get(node.name, "")
        self._streams: dict[str, EgressStream] = {}
        self._after: Mapping[str, Position] = {}
        """What was to be read at the last call."""
        self._is_of_all = False
        """Whether that is all that is wanted, in `Places`: who takes a part of it moves other positions."""
        self._epochs = Streams({})
        """The epochs of these streams. Another object whenever it changes."""
        self._ends: dict[str, Position] = {}
        """Region → the end that was found of it: there is nothing behind it to be read directly."""
        self._suspects: dict[str, None] = {}
        """Regions of which frames may be missing that are not kept."""
        self._since = 0
        """The latest of the first reads that included each stream."""
        self._fresh: set[EgressStream] = set()
        self._nothing_before: dict[str, int] = {}
        """Region → where the kept frames begin, if there is nothing between the reader's position and that."""
        self._receiver: Found | None = None
        """Takes what comes while a `read` waits."""
        self._arrived: asyncio.Future[None] | None = None
        self._interrupted = False
        self._had_trouble = False
        """Whether the last `read` could not read."""
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

    def notice(self, stream: EgressStream) -> None:
        """Note that a stream has new frames; `look_again` follows."""
        self._fresh.add(stream)

    def take_next(self, stream: EgressStream, frame: StampedFrame) -> None:
        """Take the next frame of all that are read, which is kept already."""
        receiver = self._receiver
        if (
            self._arrived is not None
            and receiver is not None
            and self._whole is self._epochs
            and self._is_of_all
            and not (self._fresh or self._suspects or self._interrupted or self._hidden or self._failure)
            and self._after.get(frame.region) == (frame.epoch, frame.last - 1)
            and self._run == self._node.run
            and receiver.take_next(frame, self._epochs)
        ):
            return
        self._fresh.add(stream)
        self.look_again()

    def fail(self, error: Exception) -> None:
        """Note that reading failed for good."""
        self._failure = error
        self.wake()

    def hide(self, place: Hidden) -> None:
        """Note that forged events were read in the place of true ones."""
        self._hidden.append(place)
        self.wake()

    def look_again(self) -> None:
        """Hand on what there is while a `read` waits for it, or have it look."""
        if self._arrived is not None and not self._has_handed_on():
            self.wake()

    async def read(self, after: Mapping[str, Position], *, frames_max: int, block_ms: int | None) -> ReadResult:
        """See `Reader.read`."""
        has_waited = False
        while True:
            if self._closed:
                raise NotConnected
            self._node.require_open()
            if self._run != self._node.run:
                raise Unreachable(
                    f"node {self._node.name!r} has restarted, and this connection has not received the new plan yet"
                )
            if block_ms is None:
                # Not the kept frames: they may lag behind, and history takes silence for the end.
                return await self._node.read_now(after, frames_max)
            if (trouble := self._node.trouble) is not None:
                self._had_trouble = True
                raise type(trouble)(*trouble.args) from trouble
            self._node.readers.add(self)
            if (missed := await self._read_missed(after, frames_max)) is not None:
                self._whole, self._need = None, self._node.next_look
                return missed
            frames, before = self._taken(after, frames_max), self._whole
            self._whole = self._whole_now(after, frames, frames_max)
            if frames or has_waited or self._interrupted or self._had_trouble or self._whole is not before:
                self._interrupted = self._had_trouble = False
                return ReadResult(frames, self._whole or {})
            await self._wait(block_ms)
            has_waited = True

    async def interrupt(self) -> None:
        """See `Reader.interrupt`."""
        self._interrupted = True
        self.wake()

    def tell(self, receiver: Found | None) -> None:
        """See `Reader.tell`."""
        self._receiver = receiver

    def _has_handed_on(self) -> bool:
        """Do what the `read` that waits would do, if that takes no waiting; return whether it may wait on."""
        receiver = self._receiver
        if receiver is None or self._interrupted or self._closed or self._failure is not None or self._hidden:
            return False
        if not self._is_of_all:
            return False
        if self._run != self._node.run or not receiver.has_room() or self._behind(self._after):
            return False
        frames = self._taken(self._after, FRAMES_MAX)
        self._whole = self._whole_now(self._after, frames, FRAMES_MAX)
        return receiver.take(ReadResult(frames, self._whole or {})) and not self._fresh

    def hidden(self) -> Sequence[Hidden]:
        """See `Reader.hidden`."""
        hidden, self._hidden = self._hidden, []
        return hidden

    async def newest(self, streams: Sequence[StreamKey]) -> list[StampedFrame | None]:
        """See `Reader.newest`."""
        frames = await self._node.newest(streams)
        for (region, epoch), frame in zip(streams, frames, strict=True):
            self._ends[region] = epoch, frame.last if frame is not None else 0
        return frames

    async def snapshots(self, regions: Sequence[StreamKey]) -> dict[str, Snapshot] | None:
        """See `Reader.snapshots`."""
        return await self._node.snapshots(regions)

    async def close(self) -> None:
        """See `Reader.close`."""
        self._closed = True
        self._attend({})
        self._node.readers.discard(self)
        self.wake()

    def _whole_now(
        self, after: Mapping[str, Position], frames: Sequence[StampedFrame], frames_max: int
    ) -> Mapping[str, int] | None:
        """Return the streams if they are complete as of one read that is no older than anything found before."""
        looks = self._node.looks
        if looks < self._need:
            self._node.look_anew()
        if looks < max(self._need, self._since):
            self._node.awaiting.add(self)
            return None
        whole = without_cut_short(self._epochs, frames, frames_max)
        return self._whole if whole is not self._whole and whole == self._whole else whole

    async def _read_missed(self, after: Mapping[str, Position], frames_max: int) -> ReadResult | None:
        """Read directly if a frame may be missing that is not kept; None if all frames are kept.

        Read all streams, because only then it is known up to where the result is complete.
        """
        while behind := self._behind(after):
            starts = {region: stream.start for region, stream in self._streams.items() if region in behind}
            result = await self._node.read_now(after, frames_max)
            if self._closed:
                return result
            for region in behind.keys() - {frame.region for frame in result.frames}:
                if region in starts:
                    self._nothing_before[region] = starts[region]
                else:
                    self._hear(region, *behind[region])
            if result.frames:
                return result
        return None

    def _behind(self, after: Mapping[str, Position]) -> dict[str, Position]:
        """Attend to these streams only; return those that may lack frames before the kept ones."""
        suspects = self._suspects
        suspects.update(dict.fromkeys(self._attend(after)))
        suspects.update((stream.key[0], None) for stream in self._fresh)
        behind: dict[str, Position] = {}
        for region in suspects:
            if region not in after:
                continue
            epoch, sequence = after[region]
            stream = self._streams.get(region)
            if stream is None and (
                self._node.may_begin((region, epoch)) or self._ends.get(region) == (epoch, sequence)
            ):
                stream = self._hear(region, epoch, sequence)
            self._ends.pop(region, None)
            if stream is None or sequence < stream.start != self._nothing_before.get(region):
                behind[region] = epoch, sequence
        self._suspects = dict.fromkeys(behind)
        return behind

    def _hear(self, region: str, epoch: int, sequence: int) -> EgressStream:
        stream = self._streams[region] = self._node.begin(self, (region, epoch), sequence)
        self._since = max(self._since, stream.since)
        self._fresh.add(stream)  # it may have been read before, for other readers
        return stream

    def _attend(self, after: Mapping[str, Position]) -> Collection[str]:
        """Stop attending to all streams but these; return those that are not as at the last call."""
        changed: Collection[str] = after.take_changes() if isinstance(after, Places) else after
        if after is not self._after:
            changed = after.keys() | self._streams.keys()
            self._is_of_all = isinstance(after, Places)
        self._after = after
        for region in changed:
            stream = self._streams.get(region)
            if stream is not None and (region not in after or stream.key[1] != after[region][0]):
                self._leave(region)
        if changed:
            now = {region: after[region][0] if region in after else None for region in changed}
            self._epochs = self._epochs.with_changes(now)
        return changed

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
            kept = stream.after(after[stream.key[0]][1], frames_max)
            frames += kept
            if len(kept) < frames_max:
                self._fresh.discard(stream)
        return frames

    async def _wait(self, block_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._arrived = arrived = loop.create_future()
        timer = loop.call_later(block_ms / 1000, self.wake)
        self._node.wait(self)
        try:
            await arrived
        finally:
            timer.cancel()
            self._arrived = None
            self._node.waiting.discard(self)

    def wake(self) -> None:
        """Have a `read` that waits look again."""
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
