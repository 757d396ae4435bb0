"""Workloads: what they promise of hosts and groups, and that one seed gives one of them."""

from __future__ import annotations

import numpy as np
import pytest

from placement.topology import matrix
from placement.workloads import (
    Workload,
    clustered_hosts,
    correlated_groups,
    grid_world,
    occupied,
    zipf_groups,
)
from sequencing.errors import UsageError
from tests.placed_worlds import plane


def test_sizes_of_groups_follow_zipfs_law_and_are_at_least_two() -> None:
    members = zipf_groups(128, 64, np.random.default_rng(0))
    assert members.sum(axis=0)[:5].tolist() == [128, 64, 43, 32, 26]
    assert members.sum(axis=0).min() == 2
    assert zipf_groups(128, 4, np.random.default_rng(0), largest=0.5).sum(axis=0).tolist() == [64, 32, 21, 16]


def test_one_random_state_gives_one_workload() -> None:
    one, same, other = (zipf_groups(32, 8, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert (one == same).all()
    assert (one != other).any()


def test_occupancy_is_the_probability_of_a_membership() -> None:
    members = occupied(128, 32, np.random.default_rng(0), occupancy=0.3)
    assert abs(members.mean() - 0.3) < 0.03
    assert occupied(128, 32, np.random.default_rng(0), occupancy=1.0).all()
    assert not occupied(128, 32, np.random.default_rng(0), occupancy=0.0).any()


def test_hosts_stand_in_clusters_and_each_on_its_own() -> None:
    topology = plane(300, np.random.default_rng(0))
    hosts = clustered_hosts(topology, np.arange(300), 32, np.random.default_rng(1), clusters=4)
    assert len(set(hosts.tolist())) == 32
    ms = topology.ms_from(hosts)[:, hosts]
    near = np.repeat(np.arange(4), 8)[:, None] == np.repeat(np.arange(4), 8)[None, :]
    assert ms[near].mean() < 0.4 * ms[~near].mean()
    with pytest.raises(UsageError, match="32 subscribers cannot stand on 20 hosts"):
        clustered_hosts(topology, np.arange(20), 32, np.random.default_rng(1), clusters=4)


def test_correlated_groups_are_near_and_strays_are_not() -> None:
    topology = plane(100, np.random.default_rng(0))
    hosts = np.arange(60)
    ms = topology.ms_from(hosts)[:, hosts]

    def spread(stray: float) -> float:
        members = correlated_groups(topology, hosts, 20, np.random.default_rng(1), size=6, stray=stray)
        assert (members.sum(axis=0) == 6).all()
        return float(np.mean([ms[np.ix_(group, group)].mean() for group in members.T]))

    assert spread(0.0) < 0.5 * spread(0.3) < spread(1.0)


def test_those_at_one_place_are_chosen_by_chance() -> None:
    topology = matrix("ab", np.array([[1.0, 50.0], [50.0, 1.0]]))
    members = correlated_groups(topology, np.zeros(20, np.int64), 8, np.random.default_rng(0), size=4)
    assert len({group.tobytes() for group in members.T}) > 1


def test_avatars_publish_to_cells_that_their_servers_have_and_wander() -> None:
    members, rates = grid_world(10, np.random.default_rng(0), side=8, avatars=5)
    assert rates.sum() == 50
    assert members[rates > 0].all()
    later, _ = grid_world(10, np.random.default_rng(0), side=8, avatars=5, steps=20)
    assert (later != members).any()
    assert (later.sum(axis=1) >= 1).all()


def test_a_workload_and_its_membership_number_alike() -> None:
    work = Workload.of(np.arange(12), zipf_groups(12, 11, np.random.default_rng(0)))
    assert work.membership.regions == work.regions
    assert work.membership.subscribers == work.names
    assert (work.membership.incidence.toarray() == work.members).all()
    assert work.received.tolist() == (work.members @ work.rates.sum(axis=0)).tolist()
