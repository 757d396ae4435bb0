"""How long to wait on a busy machine: deadlines that count the time that the machine really had.

A wait for other processes needs an end, and how long that is depends on the machine. If ten others want to run,
everything takes several times longer, and nothing is wrong. So ten seconds of a `Deadline` are ten seconds of an idle
machine with a core of today. While more threads want to run than there are cores, its time passes that much slower.

Promises of the product in seconds stay in seconds; this is for code that judges the product, and for tests.
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
"""The time of a fixed number of turns of an empty loop where a deadline's second is a second."""


def slowness() -> float:
    """Return how many times longer than alone on a fast core everything takes just now, 1 at least."""
    return min(SLOWNESS_MAX, max(1.0, _wanting(int(time.monotonic() / LOOK_EVERY_S)) / cores()) * _core_slowness())


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Deadline:
    """It passes after some seconds of an idle machine. Check it often: it counts only then."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds
        self._looked_at = time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return self.look() <= 0

    def look(self, counting_s_max: float = float("inf")) -> float:
        """Count the time since the last check, no more than ``counting_s_max`` of it; return the rest."""
        now = time.monotonic()
        self.left_s -= min(now - self._looked_at, counting_s_max) / self._slowness()
        self._looked_at = now
        return self.left_s

    def _slowness(self) -> float:
        return slowness()


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
