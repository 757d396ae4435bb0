"""The CPU of a trial by process, and the rate that it allows: steadier than measured rates on a busy machine.

And the memory of processes.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

PARTS = ("publishers", "servers", "relays", "subscribers")
"""Publishers and subscribers are a process each, and so is every relay; servers may use several cores."""


def process_cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds of CPU that processes of this machine have used, all their threads; NaN if one has ended."""
    return math.fsum(map(_cpu_s, pids))


def ceiling_per_s(us_per_delivery: Mapping[str, float], cores: int) -> float:
    """Return how many deliveries/s these costs allow on ``cores`` cores that have nothing else to do.

    Each part has one core at most. That is so for publishers and subscribers; several servers, or one with threads,
    would have more, which matters once they cost most.
    """
    busiest_us, all_us = max(us_per_delivery.values()), math.fsum(us_per_delivery.values())
    limit_us = max(busiest_us, all_us / cores)
    return 1e6 / limit_us if limit_us > 0 else math.nan


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_in_words(cores: int) -> str:
    """Return ``one core``, or the plural."""
    return "one core" if cores == 1 else f"{cores} cores"


def memory_of_this_process() -> dict[str, int]:
    """Return the bytes of this process: all that it has, and the rest after the C library returns its free memory.

    The former on Linux only, otherwise the maximum so far; the latter with glibc only, otherwise the same.
    """
    gc.collect()
    resident = resident_bytes()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return {"resident_bytes": resident, "process_bytes": resident_bytes()}


def resident_bytes(pid: int | None = None) -> int:
    """Return the resident memory of a process, this one by default; its maximum so far elsewhere than on Linux.

    Raises `OSError` for another process there.
    """
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        if pid is not None:
            raise
        return maximum_bytes()
    return pages * resource.getpagesize()


def maximum_bytes() -> int:
    """Return the most memory that this process has ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _cpu_s(pid: int) -> float:
    stat_file = Path(f"/proc/{pid}/stat")
    try:
        after_name = stat_file.read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between opening and reading
        ps = None if Path("/proc/self/stat").exists() else shutil.which("ps")
        if ps is None:
            return math.nan
        said = subprocess.run([ps, "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return parse_ps_time(said.stdout)


def parse_ps_time(text: str) -> float:
    """Return the seconds that ``ps -o time=`` wrote as ``[[days-]hours:]minutes:seconds``; NaN where it wrote none."""
    days, _, clock = text.strip().rpartition("-")
    if not clock:
        return math.nan
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return int(days or 0) * 86_400 + seconds
