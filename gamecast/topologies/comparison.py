"""Placements compared on a topology from a file: ours, one central sequencer, random hosts, and the lower bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from placement import baselines
from placement.placed import Placed
from placement.placing import place
from placement.stretch import Distances, figures
from placement.topology import IntArray, Topology
from placement.workloads import Workload, correlated_groups, zipf_groups

SUBSCRIBERS, GROUPS, GROUP_SIZE = 128, 32, 8
RANDOM_PLACEMENTS = 5
STRAY = 0.1

Groups = Callable[[Topology, IntArray, np.random.Generator], Workload]


def _correlated(stray: float) -> Groups:
    def drawn(topology: Topology, hosts: IntArray, random: np.random.Generator) -> Workload:
        return Workload.of(hosts, correlated_groups(topology, hosts, GROUPS, random, size=GROUP_SIZE, stray=stray))

    return drawn


def _zipf(topology: Topology, hosts: IntArray, random: np.random.Generator) -> Workload:
    return Workload.of(hosts, zipf_groups(len(hosts), GROUPS, random))


WORKLOADS: Mapping[str, Groups] = {
    "correlated": _correlated(0.0),
    f"correlated, {STRAY:.0%} strays": _correlated(STRAY),
    "uncorrelated": _correlated(1.0),
    "Zipf": _zipf,
}
"""32 groups: of the 8 subscribers nearest to one of them; the same with strays; of any 8; and the paper's."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Mean delays of deliveries in ms, over the seeds; ``random`` over several placements a seed.

    ``ordered``, ``handled``: what ours has on its busiest node, in parts of the busiest receiver; ``hosts`` of nodes.
    """

    workload: str
    ours_ms: float
    central_ms: float
    random_ms: float
    bound_ms: float
    direct_ms: float
    ordered: float
    handled: float
    hosts: float

    @property
    def against_central(self) -> float:
        """How many times shorter than by way of a central sequencer."""
        return self.central_ms / self.ours_ms

    @property
    def against_random(self) -> float:
        """How many times shorter than on random hosts."""
        return self.random_ms / self.ours_ms


def compare(topology: Topology, name: str, seed: int) -> Compared:
    """Return what the schemes come to for one workload (a name of `WORKLOADS`) and seed.

    Subscribers stand on hosts drawn uniformly: each on its own, unless a place has room for several.
    """
    random = np.random.default_rng([seed, sorted(WORKLOADS).index(name)])
    count = len(topology.names)
    subscribers = SUBSCRIBERS if topology.roomy else min(SUBSCRIBERS, count)
    hosts = random.choice(count, subscribers, replace=topology.roomy)
    work = WORKLOADS[name](topology, hosts, random)
    distances = Distances.of(work, topology)
    ours = place(distances, random)
    shuffled = [baselines.scattered(ours, count, random) for _ in range(RANDOM_PLACEMENTS)]
    receiver = float(work.received.max())
    rates = work.region_rates

    def mean_ms(network: Placed) -> float:
        return figures(distances, network.routes(topology)).mean_ms

    direct = distances.received_direct_ms.sum() / distances.received_rates.sum()
    return Compared(
        name,
        mean_ms(ours),
        mean_ms(baselines.central(distances)),
        float(np.mean([mean_ms(network) for network in shuffled])),
        figures(distances, baselines.lower_bound(distances)).mean_ms,
        float(direct),
        float(ours.ordered(rates).max()) / receiver,
        float(ours.handled(rates).max()) / receiver,
        float(len(set(ours.hosts))),
    )


def mean_of(found: list[Compared]) -> Compared:
    """Return the means over the seeds; of loads the largest."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in found]))

    return Compared(
        found[0].workload,
        ours_ms=mean("ours_ms"),
        central_ms=mean("central_ms"),
        random_ms=mean("random_ms"),
        bound_ms=mean("bound_ms"),
        direct_ms=mean("direct_ms"),
        ordered=max(one.ordered for one in found),
        handled=max(one.handled for one in found),
        hosts=mean("hosts"),
    )
