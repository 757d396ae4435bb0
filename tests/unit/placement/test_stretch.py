"""Delays and stretch of routes, against sums done by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csgraph

from laboratory.placing import baselines
from placement.bound import lower_bound
from placement.central import region_costs, weighted_sums
from placement.placing import LoadRule, place
from placement.stretch import Distances, Routes, figures
from placement.topology import matrix
from placement.workloads import Workload
from tests.placed_worlds import on_plane, papers

LINE = matrix("abcd", np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))) * 10)
"""a, b, c and d, 10 ms from each to the next."""


def test_stretch_is_the_ratio_of_means_over_what_others_send() -> None:
    work = Workload.of(np.array([0, 1, 3]), np.array([[True], [True], [True]]))
    found = figures(Distances.of(work, LINE), Routes(np.array([1]), np.array([2]), np.array([10.0])))
    # To a: from b 0 + 10 + 20, from d 20 + 10 + 20, directly 10 and 30.
    assert found.stretch[0] == pytest.approx((30 + 50) / (10 + 30))
    assert found.mean_ratio[0] == pytest.approx((30 / 10 + 50 / 30) / 2)
    assert found.max_ms == 50
    assert found.mean_ms == pytest.approx(np.mean([30, 50, 10 + 10 + 10, 20 + 10 + 10, 10 + 10 + 10, 0 + 10 + 10]))


def test_what_is_published_more_often_counts_more() -> None:
    rates = np.array([[9.0], [1.0], [0.0]])
    work = Workload.of(np.array([0, 1, 3]), np.array([[True], [True], [True]]), rates)
    found = figures(Distances.of(work, LINE), Routes.through(np.array([0])))
    assert found.stretch[2] == pytest.approx((9 * 30 + 1 * 40) / (9 * 30 + 1 * 20))
    # Nobody but a and b publish, so b hears of a only.
    assert found.stretch[1] == pytest.approx(1.0)


def test_subscribers_that_are_alike_count_as_if_each_had_a_row() -> None:
    ms = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))) * 10 + np.eye(4)
    line, random = matrix("abcd", ms), np.random.default_rng(3)
    for _ in range(20):
        hosts, members = random.integers(4, size=6), random.random((6, 3)) < 0.6
        counts, each = random.integers(1, 5, size=6), random.random((6, 3)) * members
        rows = np.repeat(np.arange(6), counts)
        single = Workload.of(hosts[rows], members[rows], each[rows])
        names = tuple(f"s{row}" for row in range(6))
        rates = each * counts[:, None]
        grouped = Workload(hosts, members, rates, names, single.regions, counts.astype(float), single.membership)
        routes = Routes(np.array([0, 1, 2]), np.array([1, 1, 3]), np.array([10.0, 0.0, 12.0]))
        one, other = Distances.of(single, line), Distances.of(grouped, line)
        of_each, of_rows = figures(one, routes), figures(other, routes)
        np.testing.assert_allclose(of_rows.stretch[rows], of_each.stretch)
        np.testing.assert_allclose(of_rows.mean_ratio[rows], of_each.mean_ratio)
        for name in ("mean_ms", "p95_ms", "max_ms", "mean_stretch"):
            assert getattr(of_rows, name) == pytest.approx(getattr(of_each, name))
        assert other.deliveries == pytest.approx(one.deliveries)
        assert other.direct_ms == pytest.approx(one.direct_ms)
        worth = random.random(6)
        for mine, alone in zip(weighted_sums(other, worth), weighted_sums(one, worth[rows]), strict=True):
            np.testing.assert_allclose(mine, alone)


def test_who_hears_nothing_of_others_has_no_stretch() -> None:
    work = Workload.of(np.array([0, 1, 3]), np.array([[True, False], [True, False], [False, True]]))
    found = figures(Distances.of(work, LINE), Routes.through(np.array([0, 0])))
    assert np.isnan(found.stretch).tolist() == [False, False, True]
    assert len(found.known) == 2


def test_asymmetric_delays_count_in_their_own_direction() -> None:
    ms = np.array([[1.0, 5.0], [50.0, 1.0]])
    work = Workload.of(np.array([0, 1]), np.array([[True], [True]]))
    found = figures(Distances.of(work, matrix("ab", ms)), Routes.through(np.array([0])))
    # a → b: to the node at a 1, then 5; b → a: 50, then 1.
    assert found.stretch.tolist() == pytest.approx([51 / 50, 6 / 5])


def test_no_placement_on_one_node_has_a_smaller_mean_than_the_lower_bound() -> None:
    for seed in range(5):
        distances = on_plane(seed)
        bound = figures(distances, lower_bound(distances))
        hosts = len(distances.topology.names)
        for host in range(hosts):
            every = figures(distances, Routes.through(np.full(len(distances.workload.regions), host)))
            assert bound.mean_ms <= every.mean_ms + 1e-9
        random = np.random.default_rng(seed)
        mixed = Routes.through(random.integers(hosts, size=len(distances.workload.regions)))
        assert bound.mean_ms <= figures(distances, mixed).mean_ms + 1e-9


@pytest.mark.parametrize("publishers", ["equal", "unequal"])
def test_the_lower_bound_holds_for_measured_delays_with_short_cuts(publishers: str) -> None:
    """With one entrance and one exit for each region, and any way between them: 30 matrices, every pair of hosts."""
    beaten = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        ms = random.uniform(1, 100, (9, 9)) ** 1.5  # many ways are shorter over another host
        np.fill_diagonal(ms, 1.0)
        members = random.random((6, 4)) < 0.6
        members[:2] = True
        rates = members * (random.pareto(1, members.shape) if publishers == "unequal" else np.ones(members.shape))
        distances = Distances.of(Workload.of(random.permutation(9)[:6], members, rates), matrix("abcdefghi", ms))
        bound = figures(distances, lower_bound(distances)).mean_ms
        shortest = csgraph.shortest_path(ms)
        pairs = [
            Routes(np.full(4, enter), np.full(4, leave), np.full(4, shortest[enter, leave]))
            for enter, leave in product(range(9), repeat=2)
        ]
        assert bound <= min(figures(distances, routes).mean_ms for routes in pairs) + 1e-9
        for network in (place(distances, random, rule=LoadRule(np.inf)), place(distances, random)):
            assert bound <= figures(distances, network.routes(distances.topology)).mean_ms + 1e-9
        medians = Routes.through(region_costs(distances).argmin(axis=1))
        beaten += bound < figures(distances, medians).mean_ms - 1e-9
    assert beaten >= 10  # what each region's own 1-median would have claimed


def test_central_is_the_best_single_host() -> None:
    distances = on_plane(3)
    regions = len(distances.workload.regions)
    found = figures(distances, baselines.central(distances).routes(distances.topology)).mean_ms
    every = [figures(distances, Routes.through(np.full(regions, host))).mean_ms for host in range(40)]
    assert found == pytest.approx(min(every))


def test_random_hosts_are_worse_and_stamps_are_counted() -> None:
    distances = papers(0, nodes=1_000, groups=8, subscribers=32)
    network = baselines.paper(distances, np.random.default_rng(0))
    moved = baselines.scattered(network, len(distances.topology.names), np.random.default_rng(0))
    near, far = (figures(distances, one.routes(distances.topology)).mean_ms for one in (network, moved))
    assert far > 1.3 * near
    sizes = baselines.stamp_bytes(network, 8)
    assert sizes.tolist() == (8 + 8 * network.atoms_of(8)).tolist()
    assert baselines.vector_bytes(128) == 516
