"""Several runs of several peers, interleaved, and their results."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gamecast
from adapters.embedded.binary import find_redis_server
from laboratory.bench.cpu import PARTS, ceiling_per_s, usable_cores
from laboratory.bench.figures import median, ratios
from laboratory.bench.peers.peer import Peer
from laboratory.bench.trial import Trial, run_trial
from laboratory.bench.workload import Phases, World, ring

MEASURES = ("deliveries_per_s", "p50_ms", "p95_ms", "p99_ms")
COST = "cpu_us_per_delivery"
PACED_COST = "cpu_us_per_paced_event"
CEILING = "ceiling_deliveries_per_s"
CPU = tuple(f"{part}_cpu_cores" for part in PARTS)

Trials = Mapping[str, Mapping[int, Sequence[Trial]]]


@dataclass(frozen=True, slots=True)
class Campaign:
    """Each run takes every peer once, the next run from the next peer on: what else the machine does hits them all."""

    peers: tuple[Peer, ...]
    sizes: tuple[int, ...]
    runs: int
    phases: Phases
    world: Callable[[int], World] = ring

    def run(self, begin: Callable[[str, int, int], None] = lambda peer, size, run: None) -> Trials:
        """Blocks for minutes; calls `begin` with peer, size and number of each trial. Raises as `run_trial` does."""
        trials: dict[str, dict[int, list[Trial]]] = {
            peer.name: {size: [] for size in self.sizes} for peer in self.peers
        }
        for run in range(self.runs):
            first = run % len(self.peers)
            for size in self.sizes:
                for peer in self.peers[first:] + self.peers[:first]:
                    begin(peer.name, size, run)
                    trials[peer.name][size].append(run_trial(peer, self.world(size), self.phases))
        return trials


def document(trials: Trials, campaign: Campaign, ours: str) -> dict[str, Any]:
    """Return the document of `gamecast bench --json`: medians over the runs, and ratios of our medians to the
    others'."""
    peers = {name: {str(size): _figures(runs) for size, runs in of_sizes.items()} for name, of_sizes in trials.items()}
    return {
        "peers": peers,
        "ratios": {
            measure: {
                name: ratios(values_of(peers[ours], measure), values_of(of_sizes, measure))
                for name, of_sizes in peers.items()
                if name != ours
            }
            for measure in (*MEASURES, COST, PACED_COST, CEILING)
            if ours in peers
        },
        "cores": usable_cores(),
        "versions": versions(),
        "workload": {
            "sizes": list(campaign.sizes),
            "worlds": {str(size): campaign.world(size).title for size in campaign.sizes},
            "runs": campaign.runs,
            **asdict(campaign.phases),
        },
    }


def violations(figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the promises that one peer broke: each event once, and in one order for all that share regions."""
    return [
        f"{size} subscribers: {of_size[kind]} {kind.replace('_', ' ')}"
        for size, of_size in figures.items()
        for kind in ("lost", "duplicated", "pairs_out_of_order")
        if of_size[kind]
    ]


def versions() -> dict[str, Any]:
    reported = subprocess.run(
        [find_redis_server(), "--version"], capture_output=True, text=True, check=False
    ).stdout.split()
    return {
        "python": platform.python_version(),
        "gamecast": gamecast.__version__,
        **{name: importlib.metadata.version(name) for name in ("redis", "hiredis", "orjson")},
        "redis-server": next((word[2:] for word in reported if word.startswith("v=")), None),
        "machine": {"system": platform.platform(), "cpus": os.cpu_count()},
    }


def _figures(runs: Sequence[Trial]) -> dict[str, Any]:
    values = {name: [float(getattr(run, name)) for run in runs] for name in MEASURES + CPU}
    cost_us = {part: median([run.cpu_us_per_delivery[part] for run in runs]) for part in PARTS}
    paced_us = {part: median([run.paced_us[part] for run in runs]) for part in PARTS}
    return {
        **{name: median(values[name]) for name in MEASURES},
        "expected": sum(run.expected for run in runs),
        "lost": sum(run.lost for run in runs),
        "duplicated": sum(run.duplicated for run in runs),
        "sharing_pairs": runs[0].sharing_pairs,
        "pairs_out_of_order": max(run.pairs_out_of_order for run in runs),
        **{name: median(values[name]) for name in CPU},
        COST: {**cost_us, "all": math.fsum(cost_us.values())},
        PACED_COST: {**paced_us, "all": math.fsum(paced_us.values())},
        CEILING: ceiling_per_s(cost_us, usable_cores()),
        "spread": {name: {"min": min(values[name]), "max": max(values[name])} for name in MEASURES},
        "runs": [asdict(run) for run in runs],
    }


def values_of(figures: Mapping[str, Mapping[str, Any]], measure: str) -> dict[str, float]:
    """Return one measure of all figures; that of a cost is what all parts cost."""
    is_cost = measure in (COST, PACED_COST)
    return {key: each[measure]["all"] if is_cost else each[measure] for key, each in figures.items()}
