"""What a node pushes to those who read there one thing at a time, so that they need not ask for each.

A read that waits on forty streams costs the server more than the event that ends it: it is entered at each of them, and
taken out again. So the scripts also publish what they append, on a channel that is named as the stream. The streams
stay what counts: they hold what is read by who was away, or is behind.

What is pushed over one connection comes in the order of the node, which is single-threaded. Listening begins before a
look at all the streams, and what was pushed is taken only if it is the next of its stream; so nothing is missed between
them, and what is pushed goes on where the look ended, with everything, in one order (`sequencing.cut`). What is too
large is not pushed, only that it is there; then there is another look.

A script that may not push is refused before it appends anything, so either all that ends at a node is pushed, or
nothing is: in a cluster, where Redis tells every server of it, and in another database than 0, for channels are of all.
That is by the server and the database, not by who asks; but readers at places that move (Sentinel) do not listen.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import hiredis
from redis import exceptions

from adapters.redis.deadline import Deadline
from adapters.redis.forgery import PushedFrames
from adapters.redis.places import connection_to
from sequencing.errors import Unreachable
from sequencing.frames import FrameKind, StampedFrame

ANSWER_S_MAX = 10.0
"""For how long to wait until listening has begun."""

EVENTS = int(FrameKind.EVENTS)

LONE_READS = 8
"""After so many reads in a row that waited, and found little, it is better to be told."""

LITTLE_FRAMES = 4
MUCH_FRAMES = 32
BUSY_READS = 8
"""After so many in a row that found much, it is better to ask: many frames are less work in one answer."""

QUIET_WAITS = 5
"""After so many in a row that ended with nothing, the connection is not worth its place."""

MESSAGES_MAX = 128
PAUSE_S = 1.0
"""Who does not read for so long does not listen: what is pushed meanwhile would fill the server's memory."""

Pushed = tuple[bytes, bytes]
"""A channel, and what came."""


class Pushes:
    """One reader's listening at one node. Begins by itself, and ends, as reads find little or much."""

    def __init__(self, url: str) -> None:
        """``url``: of a server that stays where it is."""
        self._url = url
        self._connection: Any = None
        self._ending: set[asyncio.Task[None]] = set()
        self._asked: Collection[bytes] = ()
        self._channels: frozenset[bytes] = frozenset()
        self._come: deque[Pushed] = deque()
        self._deadline = Deadline()
        self._lone = self._busy = self._quiet = 0
        self._refused = False
        self._waiting = self._interrupted = False
        self._has_read = False
        self._pause: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is listening."""
        return self._connection is not None

    @property
    def is_waiting(self) -> bool:
        """Whether `listens` or `next` is under way."""
        return self._waiting

    def found(self, frames: int, *, waited: bool) -> None:
        """Hear what a read has found."""
        self._has_read = True
        if self.is_on:
            self._busy = self._busy + 1 if frames >= MUCH_FRAMES else 0
            if self._busy >= BUSY_READS:
                self.end()
        elif waited:
            self._lone = self._lone + 1 if 0 < frames <= LITTLE_FRAMES else 0

    async def listens(self, channels: Collection[bytes]) -> bool | None:
        """Listen on channels, if it is time for that; return None where it is not, True if it did so before.

        After anything but True, only a look at the streams tells what there is. ``channels``: the very object of the
        last time has not changed. Raises `Unreachable` when `interrupt` ends it.
        """
        if not self.is_on and (self._lone < LONE_READS or self._refused):
            return None
        if self.is_on and channels is self._asked:
            return True
        try:
            with self._waits(ANSWER_S_MAX):
                await self._listen(frozenset(channels))
            self._asked = channels
        except exceptions.ResponseError:  # may not listen
            self.refuse()
            return None
        except (exceptions.RedisError, OSError, TimeoutError):  # a look finds out what is wrong
            self.end()
            return None
        except BaseException:
            self.end()
            raise
        return False

    async def next(self, wait_s: float) -> list[Pushed] | None:
        """Return what comes, the oldest first, waiting for it; None when it did not, or there is listening no more.

        Raises `Unreachable` when `interrupt` ends it.
        """
        connection = self._connection
        try:
            with self._waits(wait_s):
                while not self._come:
                    await self._receive(connection)
                while len(self._come) < MESSAGES_MAX and await connection.can_read():
                    await self._receive(connection)
        except TimeoutError:
            pass
        except (exceptions.RedisError, OSError):
            self.end()
            return None
        except Unreachable:
            raise
        except BaseException:
            self.end()
            raise
        come, self._come = list(self._come), deque()
        self._quiet = 0 if come else self._quiet + 1
        if self._quiet >= QUIET_WAITS:
            self.end()
        return come or None

    def interrupt(self) -> None:
        """End a `listens` or a `next` that waits."""
        if self._waiting:
            self._interrupted = True
            self._deadline.expire()

    def refuse(self) -> None:
        """Listen no more, for good."""
        self._refused = True
        self.end()

    def end(self) -> None:
        """Listen no more, until it is time again."""
        self._lone = self._busy = self._quiet = 0
        self._asked, self._channels = (), frozenset()
        self._come.clear()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ending.add(ending := asyncio.create_task(connection.disconnect(nowait=True)))
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Listen no more; a `next` that waits ends."""
        self.interrupt()
        self._deadline.close()
        self.end()
        await asyncio.gather(*self._ending)

    @contextmanager
    def _waits(self, wait_s: float) -> Iterator[None]:
        self._waiting = True
        try:
            with self._deadline.within(wait_s):
                yield
        except TimeoutError:
            if self._interrupted:
                raise Unreachable("the read was broken off") from None
            raise
        finally:
            self._waiting = self._interrupted = False
            self._has_read = True

    async def _listen(self, wanted: frozenset[bytes]) -> None:
        if self._connection is None:
            self._connection = connection_to(self._url)
            self._watch_for_pauses()
            await self._connection.connect()
        connection = self._connection
        new, old = wanted - self._channels, self._channels - wanted
        packed: list[bytes] = []
        for command, channels in ((b"SUBSCRIBE", new), (b"UNSUBSCRIBE", old)):
            words: tuple[Any, ...] = (command, *channels)
            packed += [hiredis.pack_command(words)] if channels else []
        await connection.send_packed_command(packed, check_health=False)
        awaited = len(new) + len(old)
        while awaited:
            awaited -= not await self._receive(connection)
        self._channels = wanted

    async def _receive(self, connection: Any) -> bool:
        """Take one message; return whether something was pushed."""
        kind, channel, said = await connection.read_response(
            disable_decoding=True, timeout=math.inf, disconnect_on_error=False
        )
        if kind == b"message":
            self._come.append((channel, said))
            return True
        return False

    def _watch_for_pauses(self) -> None:
        self._has_read = False
        self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._look_for_pause)

    def _look_for_pause(self) -> None:
        if self._has_read or self._waiting:
            self._watch_for_pauses()
        else:
            self._pause = None
            self.end()


def next_of(
    come: Iterable[Pushed],
    streams: Mapping[bytes, tuple[str, int]],
    last_of: dict[bytes, int],
    pushed_before: PushedFrames,
) -> tuple[list[StampedFrame], bool]:
    """Return the frames that were pushed, in order, and whether that is all that came, for only a look tells the rest.

    ``streams``: channel → (region, epoch). ``last_of``: channel → the last event that is known; moved on.
    ``pushed_before``: what was pushed is noted there.
    """
    frames: list[StampedFrame] = []
    for channel, said in come:
        if channel not in streams:
            continue
        head, pushed, parts = said.partition(b"\n")
        try:
            last, meta_size, stamp_size = map(int, head.split()) if pushed else (int(head), 0, 0)
            meta, stamp, body = (
                parts[:meta_size],
                parts[meta_size : meta_size + stamp_size],
                parts[meta_size + stamp_size :],
            )
            kind, count = map(int, meta.split(b" ", 2)[:2]) if pushed else (0, 0)
        except (ValueError, IndexError):  # no script says that
            return frames, False
        if not pushed and last <= last_of[channel]:
            continue
        # Markers are read: who forges one would hide as many events as it says.
        if last > last_of[channel] and (last - count != last_of[channel] or kind != EVENTS or count > len(body)):
            return frames, False
        region, epoch = streams[channel]
        frame = StampedFrame(region, epoch, last, meta, stamp, body)
        if last <= last_of[channel]:
            pushed_before.again(channel, frame)
            continue
        last_of[channel] = last
        pushed_before.add(channel, frame)
        frames.append(frame)
    return frames, not pushed_before.is_doubtful
