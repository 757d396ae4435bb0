"""Polishing: better networks, which keep what they promise, and the same ones for the same chance."""

from __future__ import annotations

import numpy as np
import pytest

from placement.placed import Placed
from placement.placing import EFFORTS, Effort, LoadRule, place
from placement.polish import _make_root, _without
from placement.stretch import Distances, figures
from placement.workloads import Workload, correlated_groups
from sequencing.conditions import violations
from tests.placed_worlds import plane

POLISHED = Effort(polish_looks=3_000_000)
FREE = LoadRule(np.inf)


def neighbours(seed: int, *, hosts: int = 120, groups: int = 16) -> Distances:
    random = np.random.default_rng(seed)
    topology = plane(hosts, random)
    standing = random.choice(hosts, 60, replace=False)
    return Distances.of(
        Workload.of(standing, correlated_groups(topology, standing, groups, random, size=5, stray=0.1)), topology
    )


def mean_ms(distances: Distances, network: Placed) -> float:
    return figures(distances, network.routes(distances.topology)).mean_ms


@pytest.mark.parametrize("nodes", [None, 6])
def test_a_polished_network_is_never_slower_and_mostly_faster(nodes: int | None) -> None:
    gains = []
    for seed in range(4):
        distances = neighbours(seed)
        work = distances.workload
        plain, polished = (
            place(distances, np.random.default_rng(0), rule=FREE, nodes=nodes, effort=effort)
            for effort in (Effort(), POLISHED)
        )
        assert violations(polished.plan(work, ordering="overlap"), work.membership) == {}
        assert len(set(polished.hosts)) == len(polished.hosts)
        assert nodes is None or len(polished.hosts) <= nodes
        gains.append(1 - mean_ms(distances, polished) / mean_ms(distances, plain))
    assert min(gains) >= -0.005  # parts that are polished choose other nodes to join
    assert max(gains) > (0.0 if nodes is None else 0.01)


def test_polishing_keeps_a_capacity_that_the_search_has_kept() -> None:
    distances = neighbours(7)
    rates = distances.workload.region_rates
    capacity = float(rates.sum()) / 3
    for effort in (Effort(), POLISHED):
        network = place(distances, np.random.default_rng(0), rule=LoadRule(capacity), nodes=6, effort=effort)
        assert network.handled(rates).max() <= capacity * (1 + 1e-9)


def test_the_same_chance_polishes_to_the_same_network() -> None:
    distances = neighbours(1)
    one, same = (place(distances, np.random.default_rng(4), effort=POLISHED) for _ in range(2))
    assert one == same


def test_other_hosts_than_those_of_the_shortlist_are_found() -> None:
    distances = neighbours(2, hosts=200, groups=12)
    few = Effort(shortlist=2, anchors=1, neighbours=1)
    wide = Effort(shortlist=2, anchors=1, neighbours=1, polish_looks=3_000_000)
    narrow, polished = (
        mean_ms(distances, place(distances, np.random.default_rng(0), rule=FREE, nodes=3, effort=effort))
        for effort in (few, wide)
    )
    assert polished < narrow * 0.99


@pytest.mark.parametrize("vertex", range(5))
def test_a_vertex_that_is_taken_away_leaves_a_tree_with_all_items(vertex: int) -> None:
    parents, hosts, ingress = _without(vertex, [-1, 0, 0, 1, 1], [10, 11, 12, 13, 14], np.arange(5))
    assert min(parents) == -1
    assert parents.count(-1) == 1
    assert hosts == [host for host in (10, 11, 12, 13, 14) if host != 10 + vertex]
    assert [hosts[at] for item, at in enumerate(ingress.tolist()) if item != vertex] == hosts
    for start in range(4):
        steps = 0
        while (start := parents[start]) >= 0:
            steps += 1
            assert steps < 4


def test_another_vertex_becomes_the_root() -> None:
    parents = [-1, 0, 0, 1, 3]
    _make_root(3, parents)
    assert parents == [1, 3, 0, -1, 3]


def test_efforts_differ_in_what_they_may_look_at() -> None:
    looks = [EFFORTS[name].polish_looks for name in ("quick", "normal", "thorough")]
    assert looks[0] == 0
    assert looks == sorted(set(looks))
