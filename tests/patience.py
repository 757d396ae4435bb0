"""How long to wait on a machine that does other things too: deadlines that count what it had time for.

A test that waits for a condition needs an end, and how long that is depends on the machine: side by side with others,
or at a load of ten, everything takes several times longer, and nothing is wrong. So a deadline of ten seconds here is
ten seconds of a machine that is idle and about as fast as the one these tests were written on. While more wants to run
than there are cores, its time passes as much slower; and where the event loop comes late to its own timers, late time
does not count.

What the product promises in seconds stays in seconds; this is for the patience of tests.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

SLOWNESS_MAX = 40.0
"""So that what hangs ends, however busy the machine is."""
LOOK_S = 0.25
SPINS = 200_000
SPINS_S = 0.015
"""What so many turns of an empty loop take where a deadline's second is a second."""


def slowness() -> float:
    """Return how many times longer than alone on a fast core everything takes just now, 1 at least."""
    return min(SLOWNESS_MAX, max(1.0, _wanting() / cores()) * _core_slowness())


def scaled(seconds: float) -> float:
    """Return what ``seconds`` come to, for what takes a limit once and for all, like `subprocess.run`.

    As busy as the machine may become before the limit is reached: with all tests that run side by side, at least.
    """
    side_by_side = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return seconds * max(slowness(), side_by_side / cores())


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Deadline:
    """It passes after so many seconds of an idle machine. It is to be looked at often: that is when it counts."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self._looked_at = time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self.look() <= 0

    def look(self, counting_s_max: float = float("inf")) -> float:
        """Count what has passed since the last look, no more than ``counting_s_max`` of it; return what is left."""
        now = time.monotonic()
        self.left_s -= min(now - self._looked_at, counting_s_max) / slowness()
        self._looked_at = now
        return self.left_s


@asynccontextmanager
async def patience(seconds: float) -> AsyncIterator[None]:
    """As `asyncio.timeout`, by a `Deadline`."""
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


def wait_until(condition: Callable[[], object], seconds: float = 20, *, every_s: float = 0.01) -> None:
    """Wait, without an event loop, until it holds."""
    deadline = Deadline(seconds)
    while not condition():
        assert not deadline.passed, f"it did not come true in {seconds} s of an idle machine"
        time.sleep(every_s)


def _wanting() -> float:
    """Return how many threads of the whole machine run or want to: just now, or as a mean of the last minute."""
    try:
        words = Path("/proc/loadavg").read_text(encoding="ascii").split()
        return max(float(words[0]), float(words[3].partition("/")[0]))
    except (OSError, IndexError, ValueError):
        return os.getloadavg()[0]


@cache
def _core_slowness() -> float:
    begun_s = time.process_time()
    for _ in range(SPINS):
        pass
    return max(1.0, (time.process_time() - begun_s) / SPINS_S)
