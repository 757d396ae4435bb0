"""A search for the capacity on a stand, bounded in time, and what ``gamecast capacity --json`` prints of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from laboratory.bench.campaign import versions
from laboratory.bench.cpu import usable_cores
from laboratory.bench.workload import FAN_OUT, PUBLISHERS
from laboratory.capacity.search import Search
from laboratory.capacity.stand import Stand

FIGURES = ("deliveries_per_s", "p50_ms", "p99_ms", "hold_p99_ms", "hold_longest_ms", "late_ms")
BUSY_CORES = 0.85
"""A process of one thread that uses more of a core than this has little left."""


@dataclass(slots=True)
class Capacity:
    """The result. ``finished``: whether the bracket became as narrow as requested before time ran out."""

    search: Search
    nodes: int | None
    size: int
    seconds: float
    finished: bool = False
    took_s: float = 0.0
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def rate_per_s(self) -> float | None:
        """Events/s that are carried within the bounds; None where even the lowest rate was too much."""
        return self.search.passed_per_s

    @property
    def broken(self) -> int:
        """How often a promise was broken, in all runs."""
        return sum(run.broken for run in self.search.runs)

    @property
    def limit(self) -> str | None:
        """The part without reserves where it failed, as far as its CPU shows; None if none can be named."""
        failed = self.search.failed_per_s
        if failed is None:
            return None
        cores: dict[str, float] = {}
        for run in self.search.at(failed):
            for part, used in run.cores.items():
                cores[part] = max(cores.get(part, 0.0), used)
        part = max(cores, key=cores.__getitem__)
        if cores[part] >= BUSY_CORES:
            return part
        return "the machine" if sum(cores.values()) >= BUSY_CORES * usable_cores() else None

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can carry."""
        search, rate = self.search, self.rate_per_s
        found = None
        if rate is not None:
            spreads = {name: search.spread(name, rate) for name in FIGURES}
            found = {"rate_per_s": rate, "runs": len(search.at(rate)), **spreads}
        return {
            "capacity": found,
            "fails_at_per_s": search.failed_per_s,
            "finished": self.finished,
            "limit": self.limit,
            "bounds": asdict(search.bounds),
            "runs": [asdict(run) | {"passes": run.passes(search.bounds)} for run in search.runs],
            "promises_broken": self.broken,
            "took_s": self.took_s,
            "machine": {"cores": usable_cores(), "load_before": self.load_before, "load_after": os.getloadavg()[0]},
            "versions": versions(),
            "workload": {
                "nodes": self.nodes,
                "subscribers": self.size,
                "regions": self.size,
                "publishers": PUBLISHERS,
                "fan_out": FAN_OUT,
                "seconds": self.seconds,
                "repeats": search.repeats,
            },
        }


def find_capacity(
    url: str | None,
    search: Search,
    *,
    nodes: int,
    size: int,
    seconds: float,
    seconds_max: float,
    begin: Callable[[float, Mapping[str, Any]], None] = lambda rate, known: None,
) -> Capacity:
    """Search on a network, None for one of ``nodes`` nodes that is started for it.

    Blocks; once everything is set up, it starts no run after ``seconds_max``. ``begin`` is called with the rate of each
    run and the findings so far. Raises `GamecastError` and its kinds.
    """
    capacity = Capacity(search, nodes if url is None else None, size, seconds)
    began_s = time.monotonic()
    with Stand(url, nodes=nodes, size=size) as stand:
        stand.measure(min(200.0, search.start_per_s), seconds=1.0, seed=1)  # imports, plans, scripts
        seed, searched_s = 2, time.monotonic()
        while (rate := search.next_rate()) is not None:
            if time.monotonic() - searched_s > seconds_max:
                break
            begin(rate, {"passed": search.passed_per_s, "failed": search.failed_per_s})
            search.add(stand.measure(rate, seconds=seconds, seed=seed))
            seed += 1
        else:
            capacity.finished = True
    capacity.took_s = round(time.monotonic() - began_s, 1)
    return capacity
