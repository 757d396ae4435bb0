"""Frames that a node pushes to readers that read one frame at a time, so that they need not ask for each.

A read that waits on forty streams costs the server more than the event that ends it: the server registers it at each
stream, and removes it again. So the scripts also publish what they append, on a channel with the name of the stream.
The streams remain authoritative: readers that were away, or are behind, read them.

Redis is single-threaded, so pushes over one connection arrive in the node's order. Listening begins before a read of
all the streams, and a push is taken only if it is the next of its stream. So nothing is missed in between, and pushes
continue where the read ended, completely and in one order (`sequencing.cut`). For a frame that is too large, only its
existence is pushed; then the streams are read again.

A script that may not push is refused before it appends anything. So either everything that ends at a node is pushed, or
nothing is. Nothing is pushed in a cluster, where Redis sends each push to every server, and in databases other than 0,
because channels belong to all databases. The server and the database decide that, not the caller; but readers of
movable servers (Sentinel) do not listen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import hiredis
from redis import exceptions

from adapters.redis.deadline import Deadline
from adapters.redis.forgery import PushedFrames
from adapters.redis.listening import HAS_READ_UNDER_WAY, IS_ON, LIVES, Life, Turn, Worth
from adapters.redis.places import connection_to
from adapters.redis.wire import Wire
from sequencing.errors import Unreachable
from sequencing.frames import CARRIES_EVENTS, FrameKind, StampedFrame
from sequencing.states import after

ANSWER_S_MAX = 10.0
"""How long to wait until listening has begun."""

EVENTS = frozenset(map(int, CARRIES_EVENTS))
_PLAIN = int(FrameKind.EVENTS)
_LONE = b"%d 1 " % _PLAIN
"""How the meta of most pushed frames begins."""

MESSAGES_MAX = 1_024
COME_BYTES_MAX = 4 * 1024 * 1024
"""When so much waits to be taken, nothing more is read."""
PAUSE_S = 1.0
"""A reader that does not read for this long stops listening: pushes would fill the server's memory."""

BROKEN_OFF = "the read was broken off"

Pushed = tuple[bytes, bytes]
"""A channel, and the message."""


class Pushes:
    """One reader's listening at one node. It begins and ends by itself, as reads find little or much."""

    def __init__(self, url: str) -> None:
        """``url``: of a fixed server."""
        self._url = url
        self.worth = Worth()
        self._life = Life.OFF
        self._connection: Any = None
        self._wire: Wire | None = None
        self._arrival: asyncio.Future[None] | None = None
        """Done when something has come, or nothing comes any more."""
        self._unconfirmed = 0
        """Channels whose beginning or end the server has not confirmed."""
        self._lost: Exception | None = None
        self._channels: set[bytes] = set()
        self._come: list[Pushed] = []
        self._come_bytes = 0
        self._is_paused = self._is_returning = False
        self._has_come = False
        """Whether anything was taken since a wait began."""
        self.on_come: Callable[[], bool] | None = None
        """Called while `next` waits, when something has come: returns whether it took it all, by `take_come`."""
        self._ending: set[asyncio.Task[None]] = set()
        self._deadline = Deadline()
        self._has_read = False
        self._pause: asyncio.TimerHandle | None = None
        self.has_asked = False
        """Whether the last `listens` asked the server for anything: its answer comes behind all that was pushed."""

    @property
    def is_on(self) -> bool:
        """Whether it is listening."""
        return self._life in IS_ON

    @property
    def is_waiting(self) -> bool:
        """Whether `listens`, `look` or `next` is in progress."""
        return self._life in HAS_READ_UNDER_WAY

    @property
    def was_quiet(self) -> bool:
        """Whether it is listening, and nothing was pushed in the last wait."""
        return self.is_on and self.worth.quiet > 0

    def note_read(self, frames: int, *, waited: bool) -> None:
        """Note how much a read has found."""
        self._has_read = True
        if not self.is_on:
            self.worth.note_read(frames, waited=waited)
        elif self.worth.pushed(frames):
            self.end()

    async def listens(self, channels: Collection[bytes], turned: Collection[bytes] | None) -> bool | None:
        """Listen on channels, if it is time for that; return None if it is not, True if it was listening on all before.

        After any other result than True, only a read of the new streams shows what is there. ``turned``: the channels
        that are new, or gone, since the last call; None if any may be. Raises `Unreachable` when `interrupt` ends it.
        """
        if not self.is_on and (self._life is Life.REFUSED or not self.worth.is_due(len(channels))):
            return None
        self.has_asked = False
        if self.is_on and turned is not None and not turned:
            return True
        if not self.is_on or turned is None:
            turned = self._channels.union(channels)
        new = [channel for channel in turned if channel in channels and channel not in self._channels]
        old = [channel for channel in turned if channel not in channels and channel in self._channels]
        try:
            self.has_asked = bool(new or old)
            with self._asks():
                await self._listen(new, old)
                self._channels.update(new)
                self._channels.difference_update(old)
        except exceptions.ResponseError:  # may not listen
            self.refuse()
            return None
        except Unreachable:
            raise
        except (exceptions.RedisError, OSError, TimeoutError):  # the next read finds out what is wrong
            self.end()
            return None
        except BaseException:
            self.end()
            raise
        return not new

    def turned(self) -> None:
        """Note that the streams to read have changed."""
        if not self.is_on:
            self.worth.turns += 1

    async def look(self) -> list[Pushed] | None:
        """Return what was pushed until now, or until `listens` ended, the oldest first; None if listening has ended.

        Raises as `next`.
        """
        try:
            if not self.has_asked:
                with self._asks():
                    await self._listen([*self._channels][:1], ())  # its answer comes behind all that was pushed
        except Unreachable:
            raise
        except (exceptions.RedisError, OSError, TimeoutError):
            self.end()
            return None
        except BaseException:
            self.end()
            raise
        return self.take_come()

    async def next(self, wait_s: float) -> list[Pushed] | None:
        """Return pushes, the oldest first, waiting for them; None if none came, or listening has ended.

        Raises `Unreachable` when `interrupt` ends it.
        """
        if not self.is_on:
            return None
        self._has_come = False
        try:
            with self._waits(wait_s):
                while not self._come and not self._is_returning:
                    await self._arrive()
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
        self._is_returning = False
        if self.worth.waited(len(self._channels), in_vain=not self._come and not self._has_come):
            self.end()
        return self.take_come() or None

    def return_now(self) -> None:
        """Have `next` return, although nothing more has come."""
        self._is_returning = True
        self._wake()

    def take_come(self) -> list[Pushed]:
        """Return what has come and was not taken."""
        come, self._come, self._come_bytes = self._come, [], 0
        if self._is_paused:
            self._resume()
        if come:
            self._has_come = self._has_read = True
        return come

    def _resume(self) -> None:
        if self._is_paused and self._wire is not None:
            self._is_paused = False
            self._wire.resume()

    def take(self, message: Any) -> None:
        """Take a message of the server: see `adapters.redis.wire.Pushed`."""
        if isinstance(message, Exception):
            self._unconfirmed -= 1
            self._lost = message
            self._wake()
            return
        kind, channel, said = message
        if kind == b"message":
            self._come.append((channel, said))
            self._come_bytes += len(said)
        else:
            self._unconfirmed -= 1

    def all_taken(self) -> None:
        """Have what has come handed on."""
        is_wanted = self._life is Life.WAITING and self._arrival is not None and not self._unconfirmed
        if self._come and is_wanted and self.on_come is not None and self.on_come():
            return
        self._wake()
        is_much = len(self._come) > MESSAGES_MAX or self._come_bytes > COME_BYTES_MAX
        if is_much and not self._is_paused and self._unconfirmed <= 0:  # else what is awaited comes behind it
            self._is_paused = True
            if self._wire is not None:
                self._wire.pause()

    def lost(self, error: Exception) -> None:
        """Hear that nothing more comes."""
        self._lost = error
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def _arrive(self) -> None:
        """Wait until something has come; raises what is wrong with the connection."""
        if self._lost is None and self._wire is not None:
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None
        if self._wire is None or self._lost is not None:
            raise self._lost or exceptions.ConnectionError("listening has ended")

    def interrupt(self) -> None:
        """End a waiting `next`, or `listens` once it is done."""
        if self.is_waiting:
            self._turn(Turn.BREAK_OFF)
            if self._life is Life.BROKEN_OFF:
                self._deadline.expire()

    def refuse(self) -> None:
        """Stop listening, for good."""
        self._turn(Turn.REFUSE)
        self._let_go()

    def end(self) -> None:
        """Stop listening, until it is time again."""
        self._turn(Turn.END)
        self._let_go()

    def _let_go(self) -> None:
        self.worth.begin()
        self._channels = set()
        self._come = []
        if self._wire is not None:
            self._wire.let_go()
        self._come_bytes, self._unconfirmed, self._is_paused, self._wire, self._lost = 0, 0, False, None, None
        self._wake()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ending.add(ending := asyncio.create_task(connection.disconnect(nowait=True)))
            ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop listening; a waiting `next` ends."""
        self.interrupt()
        self._deadline.close()
        self.end()
        await asyncio.gather(*self._ending)

    def _turn(self, turn: Turn) -> None:
        """Go over to the state that follows in the table `LIVES`: called wherever the life of a listening turns."""
        self._life = after(LIVES, self._life, turn)

    @contextmanager
    def _asks(self) -> Iterator[None]:
        """Ask the server. That is not broken off, for it answers at once, and listening would have to begin again."""
        self._turn(Turn.ASK)
        try:
            with self._deadline.within(ANSWER_S_MAX):
                yield
            if self._life is Life.ASKING_IN_VAIN:
                raise Unreachable(BROKEN_OFF)
        finally:
            self._has_read = True
            if self.is_on:
                self._turn(Turn.ANSWERED)

    @contextmanager
    def _waits(self, wait_s: float) -> Iterator[None]:
        self._turn(Turn.WAIT)
        try:
            with self._deadline.within(wait_s):
                yield
        except TimeoutError:
            if self._life is not Life.WAITING:
                raise Unreachable(BROKEN_OFF) from None
            raise
        finally:
            self._has_read = True
            if self.is_on:
                self._turn(Turn.OVER)

    async def _listen(self, new: Collection[bytes], old: Collection[bytes]) -> None:
        if self._connection is None:
            self._connection = connection_to(self._url)
            self._watch_for_pauses()
            await self._connection.connect()
            self._wire = Wire(self._connection, self)
        assert self._wire is not None
        packed: list[bytes] = []
        for command, channels in ((b"SUBSCRIBE", new), (b"UNSUBSCRIBE", old)):
            words: tuple[Any, ...] = (command, *channels)
            packed += [hiredis.pack_command(words)] if channels else []
        self._unconfirmed += len(new) + len(old)
        self._resume()
        self._wire.write(packed)
        while self._unconfirmed > 0:
            await self._arrive()

    def _watch_for_pauses(self) -> None:
        self._has_read = False
        self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._look_for_pause)

    def _look_for_pause(self) -> None:
        if self._has_read or self.is_waiting:
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
    """Return the pushed frames, in order, and whether they are complete; otherwise only a read shows the rest.

    ``streams``: channel → (region, epoch). ``last_of``: channel → the last known event; it is updated.
    ``pushed_before``: the pushes are noted there.
    """
    frames: list[StampedFrame] = []
    for channel, said in come:
        if channel not in streams or channel not in last_of:
            continue  # it is not read any more
        head, pushed, parts = said.partition(b"\n")
        try:
            last, meta_size, stamp_size = map(int, head.split()) if pushed else (int(head), 0, 0)
            meta, stamp, body = (
                parts[:meta_size],
                parts[meta_size : meta_size + stamp_size],
                parts[meta_size + stamp_size :],
            )
            if meta.startswith(_LONE):
                kind, count = _PLAIN, 1
            else:
                kind, count = map(int, meta.split(b" ", 2)[:2]) if pushed else (0, 0)
        except (ValueError, IndexError):  # no script sends that
            return frames, False
        if not pushed and last <= last_of[channel]:
            continue
        # Markers are read from the streams: a forged one would hide as many events as it claims.
        if last > last_of[channel] and (last - count != last_of[channel] or kind not in EVENTS or count > len(body)):
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
