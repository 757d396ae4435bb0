"""The workload on which protocols are compared: places of processes, members of groups, and times of publishing.

Topologies and groups are those of placement (`laboratory.placing.transit_stub`, `placement.workloads`,
`placement.topologies`).
All protocols have the same machines: sequencing nodes of ours stand on processes' machines, too, placed by distance,
and the first process, which is the coordinator, the root and the first holder of tokens, is the 1-median of all. So
every protocol has its centre where it is best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, isqrt
from typing import Literal, get_args

import numpy as np

from classic.protocols.setup import Setup
from laboratory.placing.transit_stub import Internetwork, TransitStub, transit_stub
from placement import workloads
from placement.placing import place
from placement.stretch import Distances
from placement.topology import FloatArray, IntArray, Matrix, Topology, matrix
from sequencing.errors import UsageError
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Plan

Kind = Literal["correlated", "uncorrelated", "zipf", "wandering"]
"""Kinds of groups: of neighbours; of any processes; the paper's, sizes by Zipf's law; the cells that avatars see."""
KINDS: tuple[Kind, ...] = get_args(Kind)
PAYLOAD = "x" * 100
CLUSTER, CLUSTERS_MIN = 8, 4
"""Processes of a cluster, as the paper's 128 in 16; not fewer clusters, or all processes are close to each other."""
AVATARS, STEPS = 2, 20


@dataclass(frozen=True)
class Workload:
    """``delay_ms``: one-way, of each ordered pair; ``publications``: time, process, group, in the order of time.

    ``between``: processes × processes, the same delays; ``members`` and ``rates``: processes × groups, events/s.
    """

    setup: Setup
    delay_ms: Mapping[tuple[str, str], float]
    publications: tuple[tuple[float, str, str], ...]
    between: Matrix
    members: workloads.BoolArray
    rates: FloatArray
    seed: int

    @cached_property
    def placed(self) -> tuple[Plan, Mapping[str, str]]:
        """Our sequencing network: its plan, and the process on whose machine each node stands."""
        names = self.setup.processes
        work = workloads.Workload(
            np.arange(len(names)), self.members, self.rates, tuple(names), tuple(self.setup.groups)
        )
        network = place(Distances.of(work, self.between), np.random.default_rng(self.seed), ordering="acyclic")
        plan = network.plan(work, ordering="acyclic")
        return plan, {f"n{number}": names[host] for number, host in enumerate(network.hosts, start=1)}

    @property
    def overlaps(self) -> int:
        """Pairs of groups with two or more common members."""
        work = workloads.Workload.of(np.arange(len(self.members)), self.members)
        return count_double_overlaps(work.membership)


def draw_workload(
    *,
    processes: int,
    groups: int,
    group_size: int,
    rate: float,
    seconds: float,
    seed: int,
    kind: Kind = "correlated",
    topology: Topology | None = None,
) -> Workload:
    """Draw places, groups, and publishing at random times.

    ``groups`` of 1 is one group of all; of wandering avatars the nearest square number of cells, without those that no
    avatar sees. ``group_size``: of (un)correlated groups. ``rate``: events/s of each process. ``topology``: a
    transit-stub internetwork of 10,000 hosts, drawn by the seed, if None. Places do not depend on groups and rates, nor
    groups on rates. Raises `UsageError` where there is no room for so many.
    """
    between = _places(processes, seed, topology)
    members, shares = _groups(between, groups, group_size, kind, np.random.default_rng([seed, processes, groups, 1]))
    kept = np.flatnonzero(members.any(axis=0))
    members, shares = members[:, kept], shares[:, kept]
    rates = rate * shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
    names = between.names
    width = len(str(len(kept) - 1))
    called = ["all"] if groups == 1 else [f"g{number:0{width}}" for number in range(len(kept))]
    who = {
        group: tuple(names[member] for member in np.flatnonzero(column).tolist())
        for group, column in zip(called, members.T, strict=True)
    }
    delay = {(a, b): float(between.ms[i, j]) for i, a in enumerate(names) for j, b in enumerate(names) if i != j}
    random = np.random.default_rng([seed, processes, round(1000 * rate), 2])
    publications: list[tuple[float, str, str]] = []
    for process, own in zip(names, rates, strict=True):
        total, at_ms = float(own.sum()), 0.0
        while total:
            at_ms += 1000 * random.exponential(1 / total)
            if at_ms >= 1000 * seconds:
                break
            publications.append((at_ms, process, called[int(random.choice(len(called), p=own / total))]))
    setup = Setup(names, who, tree=_spanning_tree(names, delay))
    return Workload(setup, delay, tuple(sorted(publications)), between, members, rates, seed)


@lru_cache(maxsize=2)
def _drawn(seed: int) -> Internetwork:
    return transit_stub(TransitStub(), np.random.default_rng(seed))


def _places(processes: int, seed: int, topology: Topology | None) -> Matrix:
    """Return delays between processes on hosts drawn from a topology, the 1-median first."""
    random = np.random.default_rng([seed, processes, 0])
    hosts: IntArray
    if topology is None:
        internetwork = _drawn(seed)
        topology, clusters = internetwork.network, max(CLUSTERS_MIN, ceil(processes / CLUSTER))
        hosts = workloads.clustered_hosts(topology, internetwork.stub_nodes, processes, random, clusters=clusters)
    else:
        if processes > len(topology.names) and not topology.roomy:
            raise UsageError(f"{processes} processes cannot stand on {len(topology.names)} hosts, each on its own")
        hosts = random.choice(len(topology.names), processes, replace=topology.roomy)
    ms = topology.ms_from(hosts)[:, hosts].copy()
    np.fill_diagonal(ms, 0.0)
    median = int(np.argmin(ms.sum(axis=0) + ms.sum(axis=1)))
    order = np.array([median, *(process for process in range(processes) if process != median)])
    width = len(str(processes - 1))
    return matrix([f"p{number:0{width}}" for number in range(processes)], ms[np.ix_(order, order)])


def _groups(
    between: Matrix, groups: int, size: int, kind: Kind, random: np.random.Generator
) -> tuple[workloads.BoolArray, FloatArray]:
    """Return members, and how much each publishes to which of its groups, processes × groups both."""
    count = len(between.names)
    if groups == 1:
        members = np.ones((count, 1), bool)
    elif kind == "zipf":
        members = workloads.zipf_groups(count, groups, random)
    elif kind == "wandering":
        side = max(2, isqrt(groups))
        return workloads.grid_world(count, random, side=side, avatars=AVATARS, steps=STEPS)
    else:
        stray = 1.0 if kind == "uncorrelated" else 0.0
        members = workloads.correlated_groups(
            between, np.arange(count), groups, random, size=min(size, count), stray=stray
        )
    return members, members.astype(float)


def _spanning_tree(names: tuple[str, ...], delay: Mapping[tuple[str, str], float]) -> tuple[tuple[str, str], ...]:
    """The tree of least total delay (Prim), from the first process on."""
    tree: list[tuple[str, str]] = []
    nearest = dict.fromkeys(names[1:], names[0])
    while nearest:
        new = min(nearest, key=lambda name: (delay[nearest[name], name], name))
        tree.append((nearest.pop(new), new))
        for name, other in nearest.items():
            if delay[new, name] < delay[other, name]:
                nearest[name] = new
    return tuple(tree)
