"""How long a test waits: by deadlines that count what the machine had time for, as `demo.patience` has them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from demo.patience import Deadline, cores, slowness

__all__ = ["Deadline", "besides_waiting", "cores", "patience", "scaled", "slowness", "until", "wait_until"]

LOOK_S = 0.25
AGAIN_S = 0.01


def scaled(seconds: float) -> float:
    """Return what ``seconds`` come to, for what takes a limit once and for all, like `subprocess.run`.

    As busy as the machine may become before the limit is reached: with all tests that run side by side, at least.
    """
    side_by_side = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return seconds * max(slowness(), side_by_side / cores())


@asynccontextmanager
async def patience(seconds: float) -> AsyncIterator[None]:
    """As `asyncio.timeout`, by a `Deadline`. What the event loop comes late to its own timers does not count."""
    deadline, loop = Deadline(seconds), asyncio.get_running_loop()
    async with asyncio.timeout(None) as timeout:
        timer: asyncio.TimerHandle

        def look_again(left_s: float) -> None:
            nonlocal timer
            if left_s <= 0:
                timeout.reschedule(loop.time())
            pause_s = max(0.001, min(LOOK_S, left_s))
            timer = loop.call_later(pause_s, lambda: look_again(deadline.look(2 * pause_s)))

        look_again(seconds)
        try:
            yield
        finally:
            timer.cancel()


async def until(holds: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Wait until something holds that sets no event, and return what was found; ``holds`` may be asynchronous."""
    async with patience(seconds):
        while True:
            found = holds()
            if isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(AGAIN_S)


def wait_until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """As `until`, without an event loop."""
    deadline = Deadline(seconds)
    while not holds():
        assert not deadline.passed, "it did not come true in time"
        time.sleep(AGAIN_S)


def besides_waiting(stderr: str) -> str:
    """Return what was said but for servers that took longer than the product waits for them, and then were there."""
    lines = stderr.splitlines(keepends=True)
    late = "accepted the connection but did not answer"
    return "".join(
        line for line in lines if late not in line and ("nothing answers at" not in line or "TimeoutError" not in line)
    )
