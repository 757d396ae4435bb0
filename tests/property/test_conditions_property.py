"""C4 as it is decided at scale, beside its definition word for word."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import get_args

import networkx as nx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sequencing.conditions import can_follow_all, violations
from sequencing.expected import observers
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Ordering, Plan

REGIONS = "abcdef"

memberships = st.builds(
    Membership.of,
    st.dictionaries(st.sampled_from(["s1", "s2", "s3", "s4", "s5"]), st.frozensets(st.sampled_from(REGIONS))),
    st.frozensets(st.sampled_from(REGIONS)),
)
atom_lists = st.lists(st.frozensets(st.sampled_from(REGIONS + "z"), min_size=1), max_size=12)
pathless = st.frozensets(st.sampled_from(REGIONS), max_size=1)
orderings = st.sampled_from(get_args(Ordering))


def on_one_node(atoms: Iterable[Iterable[str]], ordering: Ordering, paths: Iterable[str]) -> Plan:
    numbered = enumerate(map(sorted, atoms), start=1)
    made = tuple(Atom(AtomId(number), tuple(regions), "n") for number, regions in numbered)
    return Plan(1, 1, ordering, {"n": ""}, dict.fromkeys(sorted(paths), ("n",)), made)


def is_met(plan: Plan, membership: Membership) -> bool:
    """For each pair to be ordered and each subscriber with both: an atom of both, on both paths, that it can follow."""
    for atom in plan.atoms:
        if not all(atom.node in plan.paths.get(region, ()) for region in atom.regions):
            return False
    for pair in combinations(membership.regions, 2):
        who = [s for s, regions in membership.regions_of.items() if regions.issuperset(pair)]
        if plan.ordering == "overlap" and len(who) < 2:
            continue
        if plan.ordering != "overlap" and not any(in_ring(membership, s, *pair) for s in who):
            continue
        for s in who:
            atoms = [set(atom.regions) for atom in plan.atoms if membership.regions_of[s].issuperset(atom.regions)]
            if not any(atom.issuperset(pair) for atom in atoms):
                return False
    return True


def in_ring(membership: Membership, subscriber: str, one: str, other: str) -> bool:
    """Whether a chain of regions and other subscribers leads from one region to the other."""
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    graph.add_nodes_from(("region", region) for region in membership.regions)
    for s, regions in membership.regions_of.items():
        if s != subscriber:
            graph.add_edges_from((("subscriber", s), ("region", region)) for region in regions)
    return bool(nx.has_path(graph, ("region", one), ("region", other)))


@given(memberships, atom_lists, orderings, pathless)
@example(Membership.of({"s": "abc", "t": "abc", "u": "ab"}), [frozenset("abc")], "overlap", frozenset())
@example(Membership.of({"s": "abc", "t": "abc"}), [frozenset("ab"), frozenset("abc")], "acyclic", frozenset())
@settings(max_examples=500, deadline=None)
def test_c4_is_violated_exactly_when_its_definition_says_so(
    membership: Membership, atoms: list[frozenset[str]], ordering: Ordering, pathless: frozenset[str]
) -> None:
    plan = on_one_node(atoms, ordering, set(REGIONS + "z") - pathless)
    assert ("C4" not in violations(plan, membership)) == is_met(plan, membership)


@given(st.frozensets(st.sampled_from(REGIONS)), atom_lists, orderings)
@settings(max_examples=300, deadline=None)
def test_one_subscriber_of_whom_there_are_two_meets_c4_exactly_when_its_own_atoms_say_so(
    regions: frozenset[str], atoms: list[frozenset[str]], ordering: Ordering
) -> None:
    plan = on_one_node(atoms, ordering, REGIONS + "z")
    twice = Membership.of(observers({"s": regions}), plan.paths)
    assert can_follow_all(plan, regions) == ("C4" not in violations(plan, twice))


@given(memberships, orderings, st.data())
@settings(max_examples=200, deadline=None)
def test_a_plan_of_all_pairs_meets_c4_until_one_that_is_needed_goes(
    membership: Membership, ordering: Ordering, data: st.DataObject
) -> None:
    pairs = [frozenset(pair) for pair in combinations(REGIONS, 2)]
    assert violations(on_one_node(pairs, ordering, REGIONS), membership) == {}
    pairs.remove(data.draw(st.sampled_from(pairs)))
    plan = on_one_node(pairs, ordering, REGIONS)
    assert ("C4" not in violations(plan, membership)) == is_met(plan, membership)
