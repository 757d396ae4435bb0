"""A time limit for one thing after another: what `asyncio.timeout` does, for a tenth of its cost.

A subscriber asks its nodes some hundred times a second, nearly always with an answer at once. Setting up a timer for
each question and taking it back took a tenth of the time that an event took; here one timer stays, and looks when it
fires whether it is still meant.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self


class Deadline:
    """A time limit that is used again and again, by one task at a time."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._due = math.inf
        self._cancelling = 0
        self._is_over = False

    def within(self, timeout_s: float) -> Self:
        """Return a context manager that raises `TimeoutError` in the task that enters it when it takes longer."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("a deadline is for a task")
        self._cancelling = self._task.cancelling()
        self._is_over = False
        self._due = loop.time() + timeout_s
        if self._timer is None or self._due < self._timer.when():
            self._set(loop)
        return self

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task, self._due = self._task, None, math.inf
        if self._is_over and task is not None:
            self._is_over = False
            if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def expire(self) -> None:
        """Have what is under way, if anything, take too long already."""
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()

    def close(self) -> None:
        """Take the timer back, if nothing is under way."""
        if self._task is None and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._due:
            self._set(loop)
        else:
            self.expire()
