"""The reading of egress streams at one node, over and over: by reads, or by what the node pushes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from adapters.network import Hidden
from adapters.places import Places
from adapters.redis.forgery import Forged, PushedFrames, range_of
from adapters.redis.node import RedisNode
from adapters.redis.pushes import Pushes, next_of
from adapters.redis.streamsread import StreamsRead
from sequencing.errors import OtherSideError, Unreachable
from sequencing.frames import StampedFrame

StreamKey = tuple[str, int]
"""(region, epoch)."""

FORGED = "a forged event was delivered in their place"
GIVEN_AGAIN = "the node lost these events after they were delivered, and may have given their numbers to others"


ASIDE_STREAMS = 4
"""So many streams are compared after a wait in which something was pushed; after a quiet one, all."""


class Taker(Protocol):
    """Takes what is pushed while a `read` waits for it."""

    @property
    def waiting(self) -> Collection[object]:
        """Those who take anything now."""

    def take(self, frames: Sequence[StampedFrame]) -> bool:
        """Take frames; return whether there is room for more: if not, the `read` is to return."""


class NodeStreams:
    """One task's reading at one node. It begins and ends to listen by itself, see `Pushes`."""

    def __init__(self, node: RedisNode, taker: Taker) -> None:
        """``node``: an access for this alone."""
        self._node, self._taker = node, taker
        self._connection, self._evidence = node.connection, node.evidence
        self.client: int | None = None
        """By what `RedisNode.unblock` knows the connection that `read` waits on."""
        self._client_of = 0
        self._reading: StreamsRead | None = None
        self._pushes = Pushes(self._connection.url)
        self._pushes.on_come = self._hand_over
        self._pushed_frames = PushedFrames(node.name)
        self._pushed_in = ""
        """The run of the server in which they were pushed."""
        self._forged: list[Forged] = []
        self._is_caught_up = False
        """Whether a look, since there is listening, has found all, and what was pushed since is the next."""
        self._last_of: dict[bytes, int] | None = None
        """Channel → the last event that is known there."""
        self._before_the_rest: list[StampedFrame] | None = None
        """What was pushed, where only a look can tell what comes next."""

    async def read(self, after: Places[StreamKey], *, frames_max: int, block_ms: int | None) -> list[StampedFrame]:
        """Return frames after some positions, at most ``frames_max`` a stream, waiting up to ``block_ms`` for any.

        The next that the node has numbered in all of these streams; where there are ``frames_max`` of one, of the
        others perhaps more than that. ``after``: always the same object. Raises `NetworkError` or `OtherSideError`.
        """
        if self._client_of != self._connection.opened or not self._client_of:
            await self._find_client()
        reading = self._reading
        if reading is None:
            reading = self._reading = StreamsRead(self._node.keys, after, self._evidence)
        else:
            reading.turn()
        self._evidence.narrow(reading.streams.keys())
        pushes, listens = self._pushes, None
        if self._connection.may_listen:
            listens = await self._go_on_listening(reading)
            if listens and self._is_caught_up:
                frames = await self._pushed(reading, block_ms)
                if frames or self._goes_on():
                    pushes.note_read(len(frames), waited=block_ms is not None)
                    return frames
                block_ms = None  # it has waited
        self._is_caught_up = False  # also where this fails
        await self._compare_pushed()
        waits = block_ms is not None and not pushes.is_on
        frames = await self._node.read_together(reading, frames_max, block_ms if waits else None)
        pushes.note_read(len(frames), waited=waits)
        is_whole = len(frames) < frames_max or max(Counter(map(_stream_of, frames)).values()) < frames_max
        self._is_caught_up, self._last_of = listens is not None and pushes.is_on and is_whole, None
        return frames

    @property
    def was_quiet(self) -> bool:
        """Whether the last `read` has waited in vain for pushes: then it is not known that the server is there."""
        return self._pushes.was_quiet

    def hidden(self) -> list[Hidden]:
        """See `Reader.hidden`."""
        if not self._forged and not self._evidence.given_again:
            return []
        hidden = [Hidden(*place, FORGED) for place in self._forged]
        hidden += [Hidden(*place, GIVEN_AGAIN) for place in self._evidence.given_again]
        self._forged, self._evidence.given_again = [], []
        return hidden

    def break_off_pushes(self) -> bool:
        """Have a `read` that waits for pushes return; False when none does."""
        is_waiting = self._pushes.is_waiting
        self._pushes.interrupt()
        return is_waiting

    async def interrupt(self) -> None:
        """Break off a `read` (`Unreachable`): its connection is dropped, for a command cannot be taken back."""
        if not self.break_off_pushes():
            await self._connection.close()

    async def close(self) -> None:
        """Release the connections."""
        await self._pushes.close()
        await self._node.close()

    def _goes_on(self) -> bool:
        return self._is_caught_up and self._pushes.is_on

    async def _find_client(self) -> None:
        self.client = None
        with suppress(OtherSideError):  # who may not know it does without
            self.client = int(await self._connection.call("CLIENT", "ID"))
        self._client_of = self._connection.opened

    async def _go_on_listening(self, reading: StreamsRead) -> bool | None:
        """Listen to streams, if it is time for that; see `Pushes.listens` for the result.

        Where nothing is missed of the others, streams that are new are looked at alone.
        """
        pushes = self._pushes
        knew = pushes.is_on and self._is_caught_up
        turned = reading.take_turned()
        if turned:
            pushes.turned()
        try:
            listens = await pushes.listens(reading.places, turned)
        except Unreachable:
            self._is_caught_up = False  # by the streams that turned, but were not looked at
            raise
        if not (knew and turned and listens is not None):
            return listens
        self._is_caught_up = False
        # Meanwhile listening may have ended, as it does after a pause.
        self._is_caught_up = await self._have_nothing_new(reading, turned) and pushes.is_on
        return self._is_caught_up

    async def _have_nothing_new(self, reading: StreamsRead, turned: Iterable[bytes]) -> bool:
        """Return whether nothing has come in the new ones of some streams before their pushes.

        Then pushes go on where they were: a join does not cost a read of all streams.
        """
        new = {key: place for key in turned if (place := reading.position(key)) is not None}
        if not new:
            return True
        ids = (f"{epoch}-{last}" for epoch, last in new.values())
        if await self._connection.call("XREAD", "COUNT", 1, "STREAMS", *new, *ids):
            return False
        if self._last_of is not None:
            for key, (_, last) in new.items():
                self._last_of[key] = last
                self._pushed_frames.begin_also(key, last)
        return True

    async def _compare_pushed(self) -> None:
        """Compare what was pushed with what the streams have: before they are read again."""
        if self._pushed_frames:
            if await self._connection.is_in(self._pushed_in):
                self._forged += await self._pushed_frames.compare(self._connection.pipeline)
                if self._pushed_frames.are_forged:
                    self._pushes.refuse()  # and read from now on
            else:
                self._pushed_frames.forget()

    async def _pushed(self, reading: StreamsRead, block_ms: int | None) -> list[StampedFrame]:
        """Return what is pushed next, waiting for it; nothing if only a look can tell what there is.

        None: return what was pushed until now, without waiting for more.
        """
        if self._last_of is None:
            self._last_of = reading.last_of()
            self._pushed_frames.begin(self._last_of)
        pushes, self._before_the_rest = self._pushes, None  # what a wait that was broken off has left is read again
        while True:
            come = await (pushes.next(block_ms / 1000) if block_ms is not None else pushes.look())
            if self._before_the_rest is not None:
                frames, self._before_the_rest = self._before_the_rest, None
                if come:
                    self._is_caught_up = False  # a read finds these again
                return frames
            if come is None:
                self._pushed_frames.ask_oldest(None if self._pushes.was_quiet else ASIDE_STREAMS)
                self._compare_aside()
                return []
            frames, are_all = next_of(come, reading.places, self._last_of, self._pushed_frames)
            if not are_all:
                self._is_caught_up = False
            if frames or not are_all or block_ms is None:
                self._pushed_in = self._connection.found_run
                reading.moved(frames)
                return frames

    def _hand_over(self) -> bool:
        """Hand on what was pushed while a `read` waits for it; return False if that is the `read`'s own."""
        reading, last_of = self._reading, self._last_of
        if reading is None or last_of is None or self._before_the_rest is not None or not self._taker.waiting:
            return False
        pushed, pushes = self._pushed_frames, self._pushes
        frames, are_all = next_of(pushes.take_come(), reading.places, last_of, pushed)
        self._pushed_in = self._connection.found_run
        reading.moved(frames)
        if are_all and len(frames) == 1 and not pushed.due:  # as nearly always
            pushes.worth.busy = 0
            if not self._taker.take(frames):
                self._before_the_rest = []
                pushes.return_now()
            return True
        if not are_all:
            self._is_caught_up, self._before_the_rest = False, frames
            self._pushes.return_now()
        elif frames:
            self._pushes.note_read(len(frames), waited=True)
            if not self._taker.take(frames):
                self._before_the_rest = []
                self._pushes.return_now()
        if pushed.due:
            self._compare_aside()
        return True

    def _compare_aside(self) -> None:
        """Compare streams of which much was pushed, while a `read` waits for more."""
        connection, pushed = self._connection, self._pushed_frames
        if connection.found_run != self._pushed_in:
            return
        due = pushed.take_due()
        if not due:
            return

        def compared(answers: list[Any]) -> None:
            if not answers:
                pushed.not_compared(key for key, _ in due)
            for (key, frames), entries in zip(due, answers, strict=False):
                if isinstance(entries, Exception) or not pushed.confirm(key, frames, entries):
                    self._before_the_rest = self._before_the_rest or []
                    self._is_caught_up = False
                    self._pushes.return_now()

        connection.ask_at_once([range_of(key, frames) for key, frames in due], compared)


def _stream_of(frame: StampedFrame) -> StreamKey:
    return frame.region, frame.epoch
