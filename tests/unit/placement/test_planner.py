"""Plans for worlds at the edges: without overlaps, without subscribers, without anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.planner import make_plan
from sequencing.conditions import violations
from sequencing.errors import InvalidName, PlanError
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Ordering

THREE = {"n1": "", "n2": "redis://two", "n3": ""}
TWINS = Membership.of({f"{who}{pair}": pair + pair.upper() for pair in ("ab", "bc", "cd") for who in "st"})
"""A chain of four classes of two regions; on three nodes two classes end at one."""

both_orderings = pytest.mark.parametrize("ordering", ["acyclic", "overlap"])


@both_orderings
def test_a_world_without_anything_has_an_empty_plan(ordering: Ordering) -> None:
    for membership in (Membership.of({}), Membership.of({"s": ()})):
        plan = make_plan(membership, THREE, epoch=4, ordering=ordering)
        assert (plan.epoch, plan.version, plan.paths, plan.atoms, plan.nodes) == (4, 1, {}, (), THREE)


@both_orderings
def test_without_overlaps_there_are_no_atoms_and_the_regions_spread_over_the_nodes(ordering: Ordering) -> None:
    plan = make_plan(Membership.of({f"s{region}": region for region in "abcdef"}), THREE, ordering=ordering)
    assert plan.atoms == ()
    assert sorted(plan.paths.values()) == [("n1",), ("n1",), ("n2",), ("n2",), ("n3",), ("n3",)]


@both_orderings
def test_one_region_with_many_subscribers_needs_no_atom(ordering: Ordering) -> None:
    plan = make_plan(Membership.of({f"s{number}": "a" for number in range(5)}), THREE, ordering=ordering)
    assert (plan.paths, plan.atoms) == ({"a": ("n1",)}, ())


@both_orderings
def test_regions_that_all_share_all_subscribers_have_the_order_of_one_node_and_need_no_atom(ordering: Ordering) -> None:
    plan = make_plan(Membership.of({f"s{number}": "abcd" for number in range(3)}), THREE, ordering=ordering)
    assert plan.atoms == ()
    assert set(plan.paths.values()) == {("n1",)}


@both_orderings
def test_classes_that_end_at_different_nodes_have_one_atom_for_all_their_regions(ordering: Ordering) -> None:
    plan = make_plan(TWINS, THREE, ordering=ordering)
    assert plan.atoms == (
        Atom(AtomId(1), ("B", "b", "C", "c"), plan.egresses["c"]),
        Atom(AtomId(2), ("C", "c", "D", "d"), plan.egresses["d"]),
    )
    assert {plan.egresses[region] for region in "aAbB"} == {plan.egresses["a"]}
    assert violations(plan, TWINS) == {}


@both_orderings
def test_twins_of_a_single_subscriber_need_no_atom(ordering: Ordering) -> None:
    assert make_plan(Membership.of({"s": "abc", "t": "d"}), THREE, ordering=ordering).atoms == ()


@both_orderings
def test_a_region_without_subscribers_gets_the_least_loaded_node(ordering: Ordering) -> None:
    membership = Membership.of({"s": "ab", "t": "ab"}, known_regions=["quiet", "still"])
    plan = make_plan(membership, THREE, ordering=ordering)
    assert plan.paths == {"a": ("n1",), "b": ("n1",), "quiet": ("n2",), "still": ("n3",)}


def test_rates_decide_what_is_least_loaded() -> None:
    membership = Membership.of({}, known_regions=["busy", "quiet", "still"])
    plan = make_plan(membership, {"n1": "", "n2": ""}, rates={"busy": 10.0})
    assert plan.paths == {"busy": ("n1",), "quiet": ("n2",), "still": ("n2",)}


@both_orderings
def test_groups_of_regions_that_share_nothing_need_no_link(ordering: Ordering) -> None:
    membership = Membership.of({"s": "abc", "t": "ab", "u": "bc", "v": "xyz", "w": "xy", "z": "yz"})
    plan = make_plan(membership, {"n1": "", "n2": ""}, ordering=ordering)
    assert plan.links == frozenset()
    assert {plan.paths[region] for region in "abc"} != {plan.paths[region] for region in "xyz"}
    assert violations(plan, membership) == {}


def test_a_ring_of_single_overlaps_is_ordered_only_where_no_cycle_is_promised() -> None:
    ring = Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})
    free = make_plan(ring, THREE, ordering="overlap")
    assert (free.atoms, len({*free.egresses.values()})) == ((), 3)
    assert violations(replace(free, ordering="acyclic"), ring).keys() == {"C4"}
    assert {*make_plan(ring, THREE, ordering="acyclic").paths.values()} == {("n1",)}


def test_a_wide_ring_of_single_overlaps_has_atoms_only_where_no_cycle_is_promised() -> None:
    ring = Membership.of({f"s{at}": ("abcdefgh"[at], "bcdefgha"[at]) for at in range(8)})
    assert make_plan(ring, THREE, ordering="overlap").atoms == ()
    plan = make_plan(ring, THREE, ordering="acyclic")
    around = {frozenset(pair) for pair in zip("abcdefgh", "bcdefgha", strict=True)}
    apart = {pair for pair in around if len({plan.egresses[region] for region in pair}) == 2}
    assert {frozenset(atom.regions) for atom in plan.atoms} == apart
    assert 2 <= len(apart) < 8


def test_the_order_in_which_members_are_listed_does_not_matter() -> None:
    members = {"s1": "abd", "s2": "bcd", "s3": "cda", "s4": "ab", "s5": "e"}
    turned = {name: regions[::-1] for name, regions in reversed(members.items())}
    assert make_plan(Membership.of(members), THREE) == make_plan(Membership.of(turned), THREE)


def test_atoms_of_a_later_epoch_can_begin_where_the_ids_of_an_earlier_one_ended() -> None:
    first = make_plan(TWINS, THREE)
    second = make_plan(TWINS, THREE, epoch=2, first_atom=1 + max(atom.id for atom in first.atoms))
    assert not {atom.id for atom in first.atoms} & {atom.id for atom in second.atoms}
    assert [atom.regions for atom in first.atoms] == [atom.regions for atom in second.atoms]


def test_without_nodes_there_is_no_plan() -> None:
    with pytest.raises(PlanError, match="no sequencing node"):
        make_plan(Membership.of({"s": "a"}), {})
    with pytest.raises(InvalidName):
        make_plan(Membership.of({"s": "a"}), {"no node": ""})
