"""How planning grows: seconds and peak memory of each stage, for grid worlds of growing size.

Every size has a process of its own, so that none inherits another's memory. A stage's peak is that of the whole process
while the stage ran, with what earlier stages have left behind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from laboratory.bench.cpu import maximum_bytes

SIZES = (1_000, 10_000, 100_000, 1_000_000)
SUBSCRIBERS_A_REGION = 10
NODES = 8
CHANGES_MAX = 20_000
"""Joins and as many leaves: enough to average over regions with many and with few neighbours."""
MIB = 1 << 20

STAGES: Mapping[str, str] = {
    "incidence": "membership from arrays and names",
    "overlaps": "double overlaps counted",
    "observable": "observable pairs",
    "index": "index for joins and leaves built",
    "arrangement": "paths, cuts and atoms",
    "plan": "whole plan, from membership",
    "conditions": "C1 to C4 checked",
}


@dataclass(slots=True)
class PlanningCost:
    """The cost of planning for one size: seconds and MiB by stage, microseconds a join and a leave."""

    subscribers: int
    regions: int
    subscriptions: int = 0
    overlaps: int = 0
    atoms: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)
    join_us: float = 0.0
    leave_us: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        figures = asdict(self)
        seconds, peak_mib = figures.pop("seconds"), figures.pop("peak_mib")
        return figures | {
            "stages": {stage: {"seconds": seconds[stage], "peak_mib": peak_mib[stage]} for stage in seconds}
        }


def measure_planning(
    subscribers_max: int, *, seed: int = 1, begin: Callable[[str], None] = lambda _: None
) -> list[PlanningCost]:
    """Measure every size up to the largest; blocks, for about a minute at 1,000,000 subscribers."""
    found = []
    # Spawned, because a fork would begin with this process's memory.
    with get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        for subscribers in SIZES:
            if subscribers <= subscribers_max:
                begin(f"{subscribers:,} subscribers")
                found.append(processes.apply(measure_size, (subscribers, seed)))
    return found


def measure_size(subscribers: int, seed: int) -> PlanningCost:
    """Measure one size in this process."""
    from placement.planner import make_plan
    from placement.planning.grid import grid_incidence
    from sequencing.conditions import require_sound
    from sequencing.membership import Membership
    from sequencing.overlap_index import OverlapIndex
    from sequencing.overlaps import class_pairs_to_order, count_double_overlaps, twin_classes

    cost = PlanningCost(subscribers, subscribers // SUBSCRIBERS_A_REGION)
    incidence = grid_incidence(cost.subscribers, cost.regions, seed=seed)
    names = [f"s{number:09}" for number in range(cost.subscribers)], [f"r{number:09}" for number in range(cost.regions)]
    with _stage(cost, "incidence"):
        membership = Membership.from_incidence(*names, incidence)
    with _stage(cost, "overlaps"):
        cost.overlaps = count_double_overlaps(membership)
    with _stage(cost, "observable"):
        class_pairs_to_order(membership, twin_classes(membership), "acyclic")
    with _stage(cost, "index"):
        index = OverlapIndex(membership)
    cost.subscriptions = int(membership.incidence.nnz)
    cost.leave_us, cost.join_us = _changes(index, membership, random.Random(seed))
    del index
    with _stage(cost, "plan"):
        plan = make_plan(membership, {f"n{number}": "" for number in range(1, NODES + 1)})
    cost.atoms = len(plan.atoms)
    cost.seconds["arrangement"] = max(0.0, cost.seconds["plan"] - cost.seconds["observable"])
    cost.peak_mib["arrangement"] = cost.peak_mib["plan"]
    with _stage(cost, "conditions"):
        require_sound(plan, membership)
    cost.seconds = {stage: cost.seconds[stage] for stage in STAGES}
    return cost


def _changes(index: Any, membership: Any, chance: random.Random) -> tuple[float, float]:
    """Let subscribers leave a region and join it again; return microseconds a leave and a join."""
    who = chance.choices(membership.subscribers, k=min(CHANGES_MAX, len(membership.subscribers)))
    changes = [(subscriber, min(membership.regions_of[subscriber])) for subscriber in dict.fromkeys(who)]
    begun = time.perf_counter()
    for subscriber, region in changes:
        index.leave(subscriber, region)
    left = time.perf_counter()
    for subscriber, region in changes:
        index.join(subscriber, region)
    joined = time.perf_counter()
    return (left - begun) * 1e6 / len(changes), (joined - left) * 1e6 / len(changes)


@contextmanager
def _stage(cost: PlanningCost, stage: str) -> Iterator[None]:
    _forget_peak()
    begun = time.perf_counter()
    yield
    cost.seconds[stage] = time.perf_counter() - begun
    cost.peak_mib[stage] = _peak_bytes() / MIB


def _forget_peak() -> None:
    """Reset the process's peak memory, where the system can (Linux); elsewhere peaks only rise."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return maximum_bytes()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
