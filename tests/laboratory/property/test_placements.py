"""Every placement is a sound plan, whatever the world, the topology, the ordering, the rule and the number of nodes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laboratory.placing import baselines
from placement.placing import Effort, LoadRule, place
from placement.stretch import Distances, figures
from placement.topology import matrix
from placement.workloads import Workload
from sequencing.conditions import violations
from sequencing.plan import Ordering
from tests.placed_worlds import plane

EFFORT = Effort(kicks=0)

worlds = st.lists(st.sets(st.integers(0, 6), max_size=7), min_size=1, max_size=6)


@given(
    worlds,
    st.integers(0, 5),
    st.sampled_from(["overlap", "acyclic", "causal"]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([LoadRule(), LoadRule(np.inf), LoadRule(6.0)]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_placement_satisfies_the_conditions(
    groups: list[set[int]], seed: int, ordering: Ordering, nodes: int | None, rule: LoadRule, asymmetric: bool
) -> None:
    random = np.random.default_rng(seed)
    members = np.array([[s in group for group in groups] for s in range(7)])
    topology = matrix("abcd", random.uniform(1, 9, (4, 4))) if asymmetric else plane(12, random)
    work = Workload.of(random.integers(len(topology.names), size=7), members)
    distances = Distances.of(work, topology)
    found = place(distances, random, ordering=ordering, nodes=nodes, rule=rule, effort=EFFORT)
    assert violations(found.plan(work, ordering=ordering), work.membership) == {}
    assert nodes is None or len(found.hosts) <= nodes
    if not topology.roomy:
        assert len(set(found.hosts)) == len(found.hosts)
    if ordering == "overlap" and nodes is None and rule == LoadRule():
        twins = {group.tobytes() for group in members.T}
        # Twins share a number space, which may be more than anybody receives of others; else the rule is kept.
        if len(twins) == len(groups):
            assert found.ordered(work.region_rates).max(initial=0) <= work.received.max() * (1 + 1e-9)
    reached = figures(distances, found.routes(topology))
    assert np.isfinite(reached.mean_ms)


@given(
    worlds,
    st.integers(0, 5),
    st.sampled_from(["overlap", "acyclic", "causal"]),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_without_a_limit_no_placement_is_slower_than_a_central_sequencer(
    groups: list[set[int]], seed: int, ordering: Ordering, nodes: int | None, asymmetric: bool
) -> None:
    random = np.random.default_rng(seed)
    members = np.array([[s in group for group in groups] for s in range(7)])
    topology = matrix("abcd", random.uniform(1, 9, (4, 4))) if asymmetric else plane(12, random)
    distances = Distances.of(Workload.of(random.integers(len(topology.names), size=7), members), topology)
    found = place(distances, random, ordering=ordering, nodes=nodes, rule=LoadRule(np.inf), effort=EFFORT)
    ours, central = (figures(distances, network.routes(topology)) for network in (found, baselines.central(distances)))
    assert ours.mean_ms <= central.mean_ms + 1e-9
    assert ours.p95_ms <= central.p95_ms + 1e-9
    assert ours.known.max(initial=0) <= central.known.max(initial=0) + 1e-9


@given(worlds, st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_the_papers_heuristic_satisfies_its_conditions_too(groups: list[set[int]], seed: int) -> None:
    random = np.random.default_rng(seed)
    members = np.array([[s in group for group in groups] for s in range(7)])
    work = Workload.of(random.choice(40, 7, replace=False), members)
    distances = Distances.of(work, plane(40, random))
    found = baselines.paper(distances, random)
    assert violations(found.plan(work, ordering="overlap"), work.membership) == {}
    assert found.ordered(work.region_rates).max(initial=0) <= work.received.max() * (1 + 1e-9)
