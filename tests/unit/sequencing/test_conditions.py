"""C1–C4: a plan made by hand to violate one of them is reported for that one and for no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sequencing.conditions import require_sound, violations
from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Ordering, Plan

SHARED = Membership.of({"s1": "abc", "s2": "abc"})


def plan(paths: dict[str, str], *atoms: tuple[str, str], ordering: Ordering = "overlap") -> Plan:
    """Paths like ``n1 n2``; atoms like ``("ab", "n1")``."""
    return Plan(
        1,
        1,
        ordering,
        dict.fromkeys(["n1", "n2", "n3", "n4"], ""),
        {region: tuple(path.split()) for region, path in paths.items()},
        tuple(Atom(AtomId(number), tuple(regions), node) for number, (regions, node) in enumerate(atoms, start=1)),
    )


CHAIN = {"a": "n1 n2", "b": "n1 n2 n3 n4", "c": "n2 n3"}
PAIRS = (("ab", "n1"), ("ac", "n2"), ("bc", "n3"))


@pytest.mark.parametrize("atoms", [PAIRS, (("abc", "n2"),), (("ab", "n2"), ("bc", "n2"), ("ac", "n2"), ("ab", "n1"))])
def test_a_chain_with_an_atom_for_each_pair_is_sound(atoms: tuple[tuple[str, str], ...]) -> None:
    assert violations(plan(CHAIN, *atoms), SHARED) == {}
    require_sound(plan(CHAIN, *atoms), SHARED)


STAR = {"a": "n1 n4", "b": "n2 n4", "c": "n3 n4"}


@pytest.mark.parametrize("atoms", [(), (("ab", "n4"),), (("ab", "n4"), ("ac", "n4"), ("bc", "n4"))])
def test_a_tree_whose_paths_end_at_its_root_is_sound_with_atoms_and_without(atoms: tuple[tuple[str, str], ...]) -> None:
    assert violations(plan(STAR, *atoms), SHARED) == {}


def test_c4_paths_that_meet_and_end_apart_are_not_ordered_by_where_they_meet() -> None:
    beyond = plan({"a": "n1 n2", "b": "n1 n2", "c": "n1 n2 n3"})
    assert violations(beyond, SHARED) == {"C4": "no atom that 's1' can follow orders 'a' and 'c'"}
    assert violations(beyond, Membership.of({"s1": "ab", "s2": "ab"})) == {}


def test_c4_regions_of_different_epochs_need_an_atom_though_they_end_at_one_node() -> None:
    older = replace(plan(STAR), epoch=3, epochs={"a": 2, "b": 2})
    assert violations(older, Membership.of({"s1": "ab", "s2": "ab"})) == {}
    assert violations(older, SHARED) == {"C4": "no atom that 's1' can follow orders 'a' and 'c'"}
    assert violations(replace(older, epochs=dict.fromkeys("abc", 2)), SHARED) == {}


def test_c4_twins_that_end_apart_are_reported() -> None:
    assert violations(plan({"a": "n1", "b": "n1 n2", "c": "n1"}), SHARED) == {
        "C4": "no atom that 's1' can follow orders 'a' and 'b'"
    }
    assert violations(plan({"a": "n1", "b": "n1 n2", "c": "n1"}, ("ab", "n1"), ("bc", "n1")), SHARED) == {}


def test_c1_a_region_without_a_path_is_reported() -> None:
    assert violations(plan({"a": "n1", "b": ""})) == {"C1": "region 'b' visits ()"}


def test_c1_a_path_that_comes_back_is_reported_with_the_edge_that_it_must_reverse() -> None:
    found = violations(plan({"a": "n1 n2 n1"}))
    assert found.keys() == {"C1", "C3"}
    assert found["C1"] == "region 'a' visits ('n1', 'n2', 'n1')"


def test_c2_paths_that_close_a_loop_are_reported() -> None:
    loop = plan({"a": "n1 n2", "b": "n2 n3", "c": "n1 n3"}, ("ab", "n2"), ("bc", "n3"), ("ac", "n1"))
    found = violations(loop, SHARED)
    assert found.keys() == {"C2"}
    assert all(node in found["C2"] for node in ("n1", "n2", "n3"))


def test_c3_an_edge_in_both_directions_is_reported() -> None:
    found = violations(plan(CHAIN | {"b": "n4 n3 n2 n1"}, *PAIRS), SHARED)
    assert found.keys() == {"C3"}
    assert found["C3"].endswith("are linked in both directions")


def test_c4_an_overlap_without_an_atom_is_reported() -> None:
    assert violations(plan(CHAIN, ("ab", "n1"), ("bc", "n3")), SHARED) == {
        "C4": "no atom that 's1' can follow orders 'a' and 'c'"
    }


def test_c4_an_atom_away_from_a_path_that_it_orders_is_reported() -> None:
    assert violations(plan(CHAIN, ("ab", "n1"), ("ac", "n3"), ("bc", "n3")), SHARED) == {
        "C4": "atom 2 lives on n3, which region 'a' does not visit"
    }


def test_c4_an_atom_that_needs_more_regions_than_a_subscriber_has_does_not_serve_it() -> None:
    wide = plan(CHAIN, ("abc", "n2"))
    less = Membership.of({"s1": "abc", "s2": "ab"})
    assert violations(wide, less) == {"C4": "no atom that 's2' can follow orders 'a' and 'b'"}
    assert violations(plan(CHAIN, ("abc", "n2"), ("ab", "n1")), less) == {}


def test_single_overlaps_need_no_atom_where_only_double_ones_are_ordered() -> None:
    assert violations(plan(CHAIN), Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})) == {}


@pytest.mark.parametrize("ordering", ["acyclic", "causal"])
def test_single_overlaps_need_atoms_where_no_cycle_is_promised(ordering: Ordering) -> None:
    ring = Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})
    assert violations(plan(CHAIN, *PAIRS, ordering=ordering), ring) == {}
    two = plan(CHAIN, ("ab", "n1"), ("bc", "n3"), ordering=ordering)
    assert violations(two, ring) == {"C4": "no atom that 's3' can follow orders 'a' and 'c'"}
    # Cut open, the ring lets no two tell; but who comes later and replays could.
    assert violations(two, Membership.of({"s1": "ab", "s2": "bc"})) == {}
    alone = violations(plan(CHAIN, ("ab", "n1"), ordering=ordering), Membership.of({"s1": "ab", "s2": "bc"}))
    assert alone == {"C4": "no atom that 's2' can follow orders 'b' and 'c'"}


def test_c4_a_region_without_a_path_that_overlaps_is_reported() -> None:
    for atoms in ((), (("ab", "n1"),)):
        found = violations(plan({"a": "n1", "b": "n1"}, *atoms), SHARED)
        assert found["C4"].endswith("overlap, and one of them has no path")


def test_c4_an_atom_of_a_region_that_nobody_knows_serves_nobody() -> None:
    wide = plan({"a": "n1", "b": "n1 n2", "x": "n1"}, ("abx", "n1"))
    assert violations(wide, Membership.of({"s1": "ab", "s2": "ab"})).keys() == {"C4"}


def test_c4_twins_in_the_thousands_with_one_atom_are_checked_as_one() -> None:
    regions = [f"r{number}" for number in range(3_000)]
    atom = Atom(AtomId(1), tuple(regions), "n1")
    crowd = Membership.of({f"s{number}": regions for number in range(10)})
    ends = [f"n{number}" for number in range(2, 32)]
    paths = {region: ("n1", ends[number % 30]) for number, region in enumerate(regions)}
    nodes = dict.fromkeys(["n1", *ends], "")
    assert violations(Plan(1, 1, "acyclic", nodes, paths, (atom,)), crowd) == {}
    less = Atom(AtomId(1), tuple(regions[1:]), "n1")
    assert violations(Plan(1, 1, "acyclic", nodes, paths, (less,)), crowd).keys() == {"C4"}


def test_c4_twins_in_the_thousands_that_end_at_one_node_are_checked_as_one() -> None:
    regions = [f"r{number}" for number in range(3_000)]
    crowd = Membership.of({f"s{number}": regions for number in range(10)})
    paths = dict.fromkeys(regions, ("n1",))
    assert violations(Plan(1, 1, "acyclic", {"n1": ""}, paths, ()), crowd) == {}
    one_apart = {**paths, "r2999": ("n1", "n2")}
    found = violations(Plan(1, 1, "acyclic", {"n1": "", "n2": ""}, one_apart, ()), crowd)
    assert found.keys() == {"C4"}
    assert "'r2999'" in found["C4"]


def test_an_unsound_plan_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(PlanError, match=r"C3: .*; C4: no atom"):
        require_sound(plan(CHAIN | {"b": "n4 n3 n2 n1"}, ("ab", "n1"), ("bc", "n3")), SHARED)
    require_sound(plan(CHAIN))
