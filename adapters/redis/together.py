"""Requests of one process's connections to the control Redis, over one socket: together where they can be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, Literal, TypeVar

from adapters.background import keep_running
from sequencing.errors import NotConnected

WISHES_MAX = 256
"""Redis does nothing else while it processes a request."""


class Turn(asyncio.Lock):
    """Taken for each request to the control Redis, which would open the connection again that was closed."""

    _is_over = False

    async def close(self) -> None:
        """Let the request under way end, and make those that wait, and all later ones, fail with `NotConnected`."""
        if not self._is_over:
            async with self:
                self._is_over = True

    async def acquire(self) -> Literal[True]:
        """Take it."""
        if not self._is_over:
            await super().acquire()
            if not self._is_over:
                return True
            self.release()
        raise closed_error()


Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """Sends the same requests of this process's connections together: while one is in progress, others gather.

    If requests were sent one by one, those of a joining crowd would reach the leader one by one, and it would make a
    plan for every few of them.
    """

    def __init__(
        self, send: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer | Exception]]], turn: asyncio.Lock, what: str
    ) -> None:
        """``send``: returns the answer to each, in order, or its error; ``turn``: taken for each request."""
        self._send, self._turn, self._what = send, turn, what
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._at_once = asyncio.Event()
        self._closing = False

    async def ask(self, what: Asked, *, within_s: float = 0.0) -> Answer:
        """Return the answer; the request is sent within some seconds, with others."""
        if self._closing:
            raise closed_error()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((what, answer))
        if not within_s:
            self._at_once.set()
        if self._sending is None or self._sending.done():
            self._sending = keep_running(partial(self._run, within_s), name=f"gamecast {self._what}")
        return await answer

    async def close(self) -> None:
        """Close; the requests in progress still get their answers."""
        self._closing = True
        self._at_once.set()
        if self._sending is not None:
            await self._sending

    async def _run(self, within_s: float) -> None:
        if within_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._at_once.wait()
        while self._waiting:
            async with self._turn:
                self._at_once.clear()
                together, self._waiting = self._waiting[:WISHES_MAX], self._waiting[WISHES_MAX:]
                answers: Sequence[Answer | Exception]
                try:
                    answers = await self._send([asked for asked, _ in together])
                except Exception as error:  # noqa: BLE001 - whatever it is, who asks must hear of it
                    answers = [error] * len(together)
            for (_, heard), answer in zip(together, answers, strict=True):
                if heard.done():
                    continue
                if isinstance(answer, Exception):
                    heard.set_exception(answer)
                else:
                    heard.set_result(answer)


def closed_error() -> NotConnected:
    """Return what a connection fails with that is open when what it shares with others closes."""
    return NotConnected("the shared network access of this process was closed before this connection")
