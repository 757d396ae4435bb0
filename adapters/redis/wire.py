"""The bytes of one connection to Redis: requests out, replies in.

redis-py opens a connection: it knows addresses, sockets, TLS and users. Then its transport is taken over here. What it
does for each reply (a stream reader, a task that is woken to parse, a coroutine for each layer) takes longer than Redis
takes for a lone event. Here replies are parsed where they arrive, and those who wait are told at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import hiredis
from redis import exceptions

Told = Callable[[list[Any], Exception | None], None]
"""Takes the replies of a request, or what went wrong instead."""

Answer = TypeVar("Answer")

_NOTHING = object()


def telling(future: asyncio.Future[Answer]) -> Callable[[Answer, Exception | None], None]:
    """Return what takes an answer, or an error instead, for a future; too late where the future is done already."""

    def told(answer: Answer, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(answer)
        else:
            future.set_exception(error)

    return told


class Pushed(Protocol):
    """Takes what a server sends without being asked."""

    def take(self, message: Any) -> None:
        """Take a message, or an error that is one."""

    def all_taken(self) -> None:
        """Hear that nothing more has come for now."""

    def lost(self, error: Exception) -> None:
        """Hear that nothing more comes."""


class Wire(asyncio.Protocol):
    """Takes over an open connection of redis-py."""

    def __init__(self, connection: Any, pushed: Pushed | None = None) -> None:
        """``connection``: of redis-py; all of its replies are read. ``pushed``: takes what comes without a request;
        where there is none, such a message ends the connection."""
        self.is_open = True
        self._reader = hiredis.Reader(
            protocolError=exceptions.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_NOTHING,
        )
        self._pushed = pushed
        self._awaited: deque[tuple[int, Told]] = deque()
        self._replies: list[Any] = []
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)

    def send(self, packed: Iterable[bytes], replies: int, told: Told) -> None:
        """Send a request that has so many replies; ``told`` is called once, perhaps at once where nothing is sent."""
        if not self.is_open:
            told([], exceptions.ConnectionError("the connection is closed"))
            return
        assert replies > 0
        self._awaited.append((replies, told))
        self._transport.writelines(packed)

    async def ask(self, packed: Iterable[bytes], replies: int) -> list[Any]:
        """Send a request, and return its replies, errors among them; raises what is wrong with the connection."""
        answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.send(packed, replies, telling(answered))
        return await answered

    def close(self, why: Exception | None = None) -> None:
        """Close the connection; ``why``: what those are told who wait for replies."""
        self._end(why or exceptions.ConnectionError("the connection was closed here, without an answer"))

    def write(self, packed: Iterable[bytes]) -> None:
        """Send requests whose replies are pushed."""
        if self.is_open:
            self._transport.writelines(packed)

    def let_go(self) -> None:
        """Close the connection, and tell nothing more of it."""
        self._pushed = None
        self.close()

    def pause(self) -> None:
        """Read nothing more before `resume`."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self.is_open:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        reader, awaited = self._reader, self._awaited
        try:
            reader.feed(data)
            while self.is_open and (reply := reader.gets(False)) is not _NOTHING:
                if not awaited:
                    if self._pushed is None:
                        raise exceptions.InvalidResponse(f"nothing was asked, and this was answered: {reply!r}")
                    self._pushed.take(reply)
                    continue
                self._replies.append(reply)
                if len(self._replies) >= awaited[0][0]:
                    replies, self._replies = self._replies, []
                    awaited.popleft()[1](replies, None)
        except exceptions.RedisError as error:  # these are no replies
            self._end(error)
        if self._pushed is not None:
            self._pushed.all_taken()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the connection is closed."""
        self._end(exc or exceptions.ConnectionError("the server has closed the connection"))

    def _end(self, error: Exception) -> None:
        self.is_open = False
        self._transport.close()
        awaited = [*self._awaited]
        self._awaited.clear()
        for _, told in awaited:
            told([], error)
        if self._pushed is not None:
            self._pushed.lost(error)
