"""C4 as it is decided at scale, beside its definition word for word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sequencing.conditions import can_follow_all, violations
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
ends = st.fixed_dictionaries(dict.fromkeys(REGIONS + "z", st.sampled_from("nnopqrst")))
epochs: st.SearchStrategy[dict[str, int]] = st.one_of(
    st.just({}), st.dictionaries(st.sampled_from(REGIONS), st.just(1))
)
APART = {region: f"end {region}" for region in REGIONS + "z"}
"""Atoms alone decide."""
orderings = st.sampled_from(get_args(Ordering))


def over_one_node(
    atoms: Iterable[Iterable[str]],
    ordering: Ordering,
    end_of: Mapping[str, str],
    begun: Mapping[str, int] | None = None,
) -> Plan:
    """All paths begin at n, where all atoms are, and end where they end; ``begun``: in an epoch before."""
    numbered = enumerate(map(sorted, atoms), start=1)
    made = tuple(Atom(AtomId(number), tuple(regions), "n") for number, regions in numbered)
    paths = {region: ("n",) if end == "n" else ("n", end) for region, end in sorted(end_of.items())}
    return Plan(2, 1, ordering, dict.fromkeys(["n", *end_of.values()], ""), paths, made, begun or {})


def is_met(plan: Plan, membership: Membership) -> bool:
    """For each pair to be ordered: one end, of one epoch, or for each subscriber with both an atom it can follow."""
    for atom in plan.atoms:
        if not all(atom.node in plan.paths.get(region, ()) for region in atom.regions):
            return False
    for pair in combinations(membership.regions, 2):
        who = [s for s, regions in membership.regions_of.items() if regions.issuperset(pair)]
        if plan.ordering == "overlap" and len(who) < 2:
            continue
        if plan.paths.keys() >= set(pair) and len({(plan.paths[r][-1], plan.epochs.get(r)) for r in pair}) == 1:
            continue
        for s in who:
            atoms = [set(atom.regions) for atom in plan.atoms if membership.regions_of[s].issuperset(atom.regions)]
            if not any(atom.issuperset(pair) for atom in atoms):
                return False
    return True


@given(memberships, atom_lists, orderings, st.one_of(st.just(APART), ends), epochs, pathless)
@example(Membership.of({"s": "abc", "t": "abc", "u": "ab"}), [frozenset("abc")], "overlap", APART, {}, frozenset())
@example(Membership.of({"s": "abc", "t": "abc"}), [{*"ab"}, {*"abc"}], "acyclic", APART, {}, frozenset())
@example(Membership.of({"s": "ab", "t": "ab"}), [], "acyclic", dict.fromkeys("ab", "n"), {"a": 1}, frozenset())
@settings(max_examples=700, deadline=None)
def test_c4_is_violated_exactly_when_its_definition_says_so(
    membership: Membership,
    atoms: list[frozenset[str]],
    ordering: Ordering,
    end_of: dict[str, str],
    begun: dict[str, int],
    pathless: frozenset[str],
) -> None:
    plan = over_one_node(atoms, ordering, {r: end for r, end in end_of.items() if r not in pathless}, begun)
    assert ("C4" not in violations(plan, membership)) == is_met(plan, membership)


@given(st.frozensets(st.sampled_from(REGIONS)), atom_lists, orderings, st.one_of(st.just(APART), ends), epochs)
@settings(max_examples=500, deadline=None)
def test_one_subscriber_of_whom_there_are_enough_meets_c4_exactly_when_its_own_atoms_say_so(
    regions: frozenset[str],
    atoms: list[frozenset[str]],
    ordering: Ordering,
    end_of: dict[str, str],
    begun: dict[str, int],
) -> None:
    plan = over_one_node(atoms, ordering, end_of, begun)
    enough = Membership.of({"s": regions, "t": regions}, plan.paths)
    assert can_follow_all(plan, regions) == ("C4" not in violations(plan, enough))


@given(memberships, orderings, st.one_of(st.just(APART), ends), st.data())
@settings(max_examples=300, deadline=None)
def test_a_plan_of_all_pairs_meets_c4_until_one_that_is_needed_goes(
    membership: Membership, ordering: Ordering, end_of: dict[str, str], data: st.DataObject
) -> None:
    pairs = [frozenset(pair) for pair in combinations(REGIONS, 2)]
    assert violations(over_one_node(pairs, ordering, end_of), membership) == {}
    pairs.remove(data.draw(st.sampled_from(pairs)))
    plan = over_one_node(pairs, ordering, end_of)
    assert ("C4" not in violations(plan, membership)) == is_met(plan, membership)
