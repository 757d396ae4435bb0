"""A reusable time limit: what `asyncio.timeout` does, for a tenth of its cost.

A subscriber sends its nodes some hundred requests a second, and nearly all are answered at once. Setting and cancelling
a timer for each request took a tenth of the time per event. Here one timer stays, and checks when it fires whether it
still applies.

Where the event loop itself was late, by what else it had to do, an answer may be there and not be read yet: then the
limit is put off a little, a few times at most.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

LATE_S = 0.5
"""A timer that fires so much too late says that the loop was busy."""
PUT_OFF_S = 0.25
PUT_OFF_MAX = 4


class _Due:
    """When a time limit is over: put off a little, a few times, where the event loop was late."""

    def __init__(self) -> None:
        self.at = math.inf
        self._put_off = 0

    def set(self, at: float) -> None:
        """Begin."""
        self.at, self._put_off = at, 0

    def is_over(self, now: float) -> bool:
        """Return whether it is, as its timer fires."""
        if now > self.at + LATE_S and self._put_off < PUT_OFF_MAX:
            self._put_off += 1
            self.at = now + PUT_OFF_S
        return now >= self.at


class Deadline:
    """A time limit that one task at a time can use again and again."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._due = _Due()
        """When the time limit of the context that is open now is over."""
        self._cancelling = 0
        self._is_over = False

    def within(self, timeout_s: float) -> Self:
        """Return a context manager that raises `TimeoutError` in the entering task when the time is over."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a deadline must be used within a task")
        self._cancelling = self._task.cancelling()
        self._is_over = False
        self._due.set(loop.time() + timeout_s)
        if self._timer is None or self._due.at < self._timer.when():
            self._set(loop)
        return self

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task, self._due.at = self._task, None, math.inf
        if self._is_over and task is not None:
            self._is_over = False
            if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def expire(self) -> None:
        """Let the current use, if any, time out at once."""
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()

    def close(self) -> None:
        """Cancel the timer if the deadline is not in use."""
        if self._task is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due.at, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._due.is_over(loop.time()):
            self.expire()
        else:
            self._set(loop)


class Overdue:
    """Says when a request is not answered in time.

    One timer serves one request after the other: setting one up for each takes longer than all else here.
    """

    def __init__(self, after_s: float, on_due: Callable[[], None]) -> None:
        self._after_s, self._on_due = after_s, on_due
        self._loop = asyncio.get_running_loop()
        self._due = _Due()
        """When the answer that is waited for is late."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, after_s: float | None = None) -> None:
        """Note that a request is sent; ``after_s``: until when its answer has to come, if not as said."""
        self._due.set(self._loop.time() + (self._after_s if after_s is None else after_s))
        if self._timer is None or self._due.at < self._timer.when():
            self._set()

    def end(self) -> None:
        """Note that the request was answered, or given up."""
        self._due.at = math.inf

    def close(self) -> None:
        """Cancel the timer."""
        self._due.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._due.at == math.inf:
            return
        if self._due.is_over(self._loop.time()):
            self._on_due()
        else:
            self._set()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due.at, self._look)
