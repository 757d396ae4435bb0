"""Small worlds to place: a topology, and a workload on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laboratory.placing.transit_stub import TransitStub, transit_stub
from placement.stretch import Distances
from placement.topology import Network, network
from placement.workloads import Workload, paper, zipf_groups


def plane(hosts: int, random: np.random.Generator) -> Network:
    """Hosts in a square of 100 ms, all joined by straight links."""
    places = random.uniform(0, 100, (hosts, 2))
    ends = np.array(np.triu_indices(hosts, k=1)).T
    lengths = np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T)
    return network([f"h{host}" for host in range(hosts)], ends, lengths)


def on_plane(seed: int, *, hosts: int = 40, subscribers: int = 12, groups: int = 6) -> Distances:
    random = np.random.default_rng(seed)
    topology = plane(hosts, random)
    standing = random.choice(hosts, subscribers, replace=False)
    return Distances.of(Workload.of(standing, zipf_groups(subscribers, groups, random)), topology)


def papers(seed: int, *, nodes: int, groups: int, subscribers: int = 128) -> Distances:
    random = np.random.default_rng(seed)
    internetwork = transit_stub(TransitStub().resized(nodes), random)
    work = paper(internetwork.network, internetwork.stub_nodes, random, groups=groups, subscribers=subscribers)
    return Distances.of(work, internetwork.network)


def a_matrix(directory: Path) -> Path:
    """Write a matrix of delays between eight cities, each with room for several nodes; return its file."""
    random = np.random.default_rng(0)
    places = random.uniform(0, 100, (8, 2))
    ms = np.hypot(*(places[:, None] - places[None, :]).transpose(2, 0, 1)) + 1
    names = [f"city{number}" for number in range(8)]
    lines = [",".join(["from", *names])] + [
        ",".join([name, *map(str, row)]) for name, row in zip(names, ms.tolist(), strict=True)
    ]
    (directory / "cities.csv").write_text("\n".join(lines))
    return directory / "cities.csv"
