"""Every plan is sound, and has atoms for exactly the pairs that end apart and whose order somebody could tell."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from placement.cutting import cut
from placement.planner import make_plan
from sequencing.conditions import can_follow_all, violations
from sequencing.joint import set_name
from sequencing.membership import Membership
from sequencing.overlaps import count_double_overlaps
from sequencing.plan import Ordering, Plan

Pairs = set[frozenset[str]]

memberships = st.builds(
    Membership.of,
    st.dictionaries(
        st.sampled_from(["s1", "s2", "s3", "s4", "s5", "s6"]), st.frozensets(st.sampled_from("abcdefg")), max_size=6
    ),
    st.frozensets(st.sampled_from("axyz"), max_size=3),
)
networks = st.integers(1, 5).map(lambda count: {f"n{number}": "" for number in range(1, count + 1)})
orderings = st.sampled_from(["acyclic", "overlap"])
rates = st.dictionaries(st.sampled_from("abcdefgx"), st.sampled_from([0.0, 0.5, 3.0, 1e6]))


def double_overlaps(membership: Membership) -> Pairs:
    return {
        frozenset(pair)
        for pair in combinations(membership.regions, 2)
        if sum(regions.issuperset(pair) for regions in membership.regions_of.values()) >= 2
    }


def observable_pairs(membership: Membership) -> Pairs:
    return {frozenset(pair) for regions in membership.regions_of.values() for pair in combinations(regions, 2)}


def pairs_with_atoms(plan: Plan) -> Pairs:
    return {frozenset(pair) for atom in plan.atoms for pair in combinations(atom.regions, 2)}


def ending_apart(plan: Plan, pairs: Pairs) -> Pairs:
    return {pair for pair in pairs if len({plan.egresses[region] for region in pair}) == 2}


def assert_sound(plan: Plan, membership: Membership) -> None:
    """C1–C4, and C4 for every pair that the plan has an atom for: whoever has both regions can follow one of them."""
    assert violations(plan, membership) == {}
    assert plan.paths.keys() >= set(membership.regions)
    for regions in membership.regions_of.values():
        mine = [set(atom.regions) for atom in plan.atoms if regions >= set(atom.regions)]
        for pair in ending_apart(plan, pairs_with_atoms(plan)):
            assert not pair <= regions or any(pair <= atom for atom in mine)


@given(memberships, networks, orderings, rates)
@example(Membership.of({"s1": "ab", "s2": "abcdef"}), {"n1": "", "n2": "", "n3": ""}, "acyclic", {"a": 0.0, "b": 0.0})
@settings(max_examples=300, deadline=None)
def test_every_plan_is_sound_and_comes_back_from_its_json(
    membership: Membership, nodes: dict[str, str], ordering: Ordering, rates: dict[str, float]
) -> None:
    plan = make_plan(membership, nodes, ordering=ordering, rates=rates)
    assert_sound(plan, membership)
    assert plan.paths.keys() == set(membership.regions)
    assert Plan.from_json(plan.to_json()) == plan


@given(memberships, networks, st.lists(st.frozensets(st.sampled_from("abcdefgxy"), min_size=2, max_size=3), max_size=3))
@settings(max_examples=300, deadline=None)
def test_of_regions_that_events_are_in_at_once_one_leads(
    membership: Membership, nodes: dict[str, str], sets: list[frozenset[str]]
) -> None:
    together = Membership.of(membership.regions_of, membership.known_regions, frozenset(map(set_name, sets)))
    for is_urgent in (False, True):
        plan = make_plan(together, nodes, is_urgent=is_urgent, search_work_max=2_000)
        assert violations(plan, together) == {}
        for atom in plan.atoms:
            assert any(regions.issuperset(atom.regions) for regions in together.regions_of.values())


@given(memberships, networks)
@settings(max_examples=200, deadline=None)
def test_atoms_order_exactly_what_each_ordering_is_defined_to_order_and_ends_apart(
    membership: Membership, nodes: dict[str, str]
) -> None:
    doubles, observable = double_overlaps(membership), observable_pairs(membership)
    assert count_double_overlaps(membership) == len(doubles)
    by_overlap = make_plan(membership, nodes, ordering="overlap")
    acyclic = make_plan(membership, nodes, ordering="acyclic")
    assert ending_apart(by_overlap, pairs_with_atoms(by_overlap)) == ending_apart(by_overlap, doubles)
    assert ending_apart(acyclic, pairs_with_atoms(acyclic)) == ending_apart(acyclic, observable)
    assert doubles <= observable
    for plan in (by_overlap, acyclic):
        for atom in plan.atoms:
            assert len({plan.egresses[region] for region in atom.regions}) == 2


@given(memberships, networks, orderings, st.lists(st.sampled_from("abcxyzuvw"), max_size=5))
@settings(max_examples=100, deadline=None)
def test_a_plan_stays_sound_when_regions_without_subscribers_join(
    membership: Membership, nodes: dict[str, str], ordering: Ordering, regions: list[str]
) -> None:
    plan = make_plan(membership, nodes, ordering=ordering)
    grown = plan.with_regions(regions)
    assert_sound(grown, membership)
    assert grown.paths.keys() == plan.paths.keys() | set(regions)
    # In place: to the nodes, the regions that exist are what they were.
    assert plan.paths.items() <= grown.paths.items()
    assert (grown.epoch, grown.version, grown.atoms) == (plan.epoch, plan.version + 1, plan.atoms)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0, 40.0]), st.integers(0, 5)), max_size=30), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_a_line_is_cut_into_consecutive_blocks(slots: list[tuple[float, int]], blocks: int) -> None:
    rate = np.array([rate for rate, _ in slots], float)
    last_slot = np.array([min(at + reach, len(slots) - 1) for at, (_, reach) in enumerate(slots)], np.int64)
    block_of = cut(rate, last_slot, blocks).tolist()
    assert len(block_of) == len(slots)
    assert block_of[:1] == [0][: len(slots)]
    assert {after - before for before, after in pairwise(block_of)} <= {0, 1}
    assert not block_of or block_of[-1] < blocks


@given(memberships, networks, orderings, st.frozensets(st.sampled_from("abcdefgxyz")))
def test_a_subscriber_can_follow_regions_if_each_pair_ends_together_or_has_an_atom_of_theirs(
    membership: Membership, network: dict[str, str], ordering: Ordering, regions: frozenset[str]
) -> None:
    plan = make_plan(membership, network, ordering=ordering)
    mine = regions & plan.paths.keys()
    atoms = [set(atom.regions) for atom in plan.atoms if mine >= set(atom.regions)]
    pairs = {frozenset(pair) for pair in combinations(mine, 2)}
    expected = all(any(pair <= atom for atom in atoms) for pair in ending_apart(plan, pairs))
    assert can_follow_all(plan, mine) == expected
