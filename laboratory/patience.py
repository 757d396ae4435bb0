"""How long to wait on a machine that does other things too: deadlines that count what it had time for.

Who waits for other processes needs an end, and how long that is depends on the machine: where ten others want to run,
everything takes several times longer, and nothing is wrong. So ten seconds of a `Deadline` are ten seconds of a machine
that is idle and has a core of today. While more wants to run than there are cores, its time passes as much slower.

What the product promises in seconds stays in seconds; this is for those who judge it, and for tests.
"""

from __future__ import annotations

import os
import time
from functools import cache, lru_cache
from pathlib import Path

SLOWNESS_MAX = 40.0
"""So that what hangs ends, however busy the machine is."""
LOOK_EVERY_S = 0.25
SPINS = 200_000
SPINS_S = 0.015
"""What so many turns of an empty loop take where a deadline's second is a second."""


def slowness() -> float:
    """Return how many times longer than alone on a fast core everything takes just now, 1 at least."""
    return min(SLOWNESS_MAX, max(1.0, _wanting(int(time.monotonic() / LOOK_EVERY_S)) / cores()) * _core_slowness())


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


@lru_cache(maxsize=1)
def _wanting(_when: int) -> float:
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
