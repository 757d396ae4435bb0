"""Placements compared on a topology from a file: ours, one central sequencer, random hosts, and the lower bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from demo.match.hosting import build_workload
from demo.match.trace import read_match
from laboratory.placing import baselines
from placement.bound import lower_bound
from placement.placed import Placed
from placement.placing import place
from placement.stretch import Distances, figures
from placement.topology import FloatArray, IntArray, Topology
from placement.workloads import BoolArray, Workload, correlated_groups, grid_world, zipf_groups

SUBSCRIBERS, GROUPS, GROUP_SIZE = 128, 32, 8
GRID_SIDE, AVATARS, STEPS = 8, 4, 20
TRACE_SERVERS = 32
RANDOM_PLACEMENTS = 5
STRAY = 0.1

Groups = Callable[[Topology, IntArray, np.random.Generator], Workload]


def _correlated(stray: float) -> Groups:
    def drawn(topology: Topology, hosts: IntArray, random: np.random.Generator) -> Workload:
        return Workload.of(hosts, correlated_groups(topology, hosts, GROUPS, random, size=GROUP_SIZE, stray=stray))

    return drawn


def _zipf(topology: Topology, hosts: IntArray, random: np.random.Generator) -> Workload:
    return Workload.of(hosts, zipf_groups(len(hosts), GROUPS, random))


def _wandering(_: Topology, hosts: IntArray, random: np.random.Generator) -> Workload:
    members, rates = grid_world(len(hosts), random, side=GRID_SIDE, avatars=AVATARS, steps=STEPS)
    return Workload.of(hosts, members, rates)


WORKLOADS: Mapping[str, Groups] = {
    "correlated": _correlated(0.0),
    f"correlated, {STRAY:.0%} strays": _correlated(STRAY),
    "uncorrelated": _correlated(1.0),
    "Zipf": _zipf,
    "wandering avatars": _wandering,
}
"""32 groups: of the 8 subscribers nearest to one of them; the same with strays; of any 8; and the paper's. And a grid
of cells on which each subscriber, a server, has some avatars, wherever it stands itself."""


@lru_cache(maxsize=2)
def _trace(prefix: str) -> tuple[BoolArray, FloatArray]:
    """Return members and rates of the servers of a match in the demo's format."""
    match = build_workload(read_match(prefix), servers=TRACE_SERVERS)
    regions = {region: number for number, region in enumerate(sorted(match.regions))}
    number_of = {server: number for number, server in enumerate(match.servers)}
    members = np.zeros((len(number_of), len(regions)), np.bool_)
    for server, own in match.membership.items():
        members[number_of[server], [regions[region] for region in own]] = True
    rates = np.zeros(members.shape)
    for publication in match.publications:
        rates[number_of[publication.server], regions[publication.region]] += 1
    return members, rates / max(1.0, match.publications[-1].t_s - match.publications[0].t_s)


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
        """The factor by which it is shorter than through a central sequencer."""
        return self.central_ms / self.ours_ms

    @property
    def against_random(self) -> float:
        """The factor by which it is shorter than on random hosts."""
        return self.random_ms / self.ours_ms


def compare(topology: Topology, name: str, seed: int) -> Compared:
    """Return what the schemes come to for one workload and seed.

    ``name``: one of `WORKLOADS`, or the prefix of a match in the demo's format, which 32 servers host. Subscribers
    stand on hosts drawn uniformly: each on its own, unless a place has room for several.
    """
    known = sorted(WORKLOADS)
    random = np.random.default_rng([seed, known.index(name) if name in WORKLOADS else len(known)])
    count = len(topology.names)
    wanted = SUBSCRIBERS if name in WORKLOADS else TRACE_SERVERS
    subscribers = wanted if topology.roomy else min(wanted, count)
    hosts = random.choice(count, subscribers, replace=topology.roomy)
    if name in WORKLOADS:
        work = WORKLOADS[name](topology, hosts, random)
    else:
        members, rates = _trace(name)
        work = Workload.of(hosts, members[: len(hosts)], rates[: len(hosts)])
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
        figures(distances, lower_bound(distances)).mean_ms,
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
