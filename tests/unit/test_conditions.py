"""C1–C4: a plan made by hand to violate one of them is reported for that one and for no other."""

from __future__ import annotations

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


CHAIN = {"a": "n1 n2", "b": "n1 n2 n3", "c": "n2 n3"}
PAIRS = (("ab", "n1"), ("ac", "n2"), ("bc", "n3"))


@pytest.mark.parametrize("atoms", [PAIRS, (("abc", "n2"),), (("ab", "n2"), ("bc", "n2"), ("ac", "n2"), ("ab", "n1"))])
def test_a_chain_with_an_atom_for_each_pair_is_sound(atoms: tuple[tuple[str, str], ...]) -> None:
    assert violations(plan(CHAIN, *atoms), SHARED) == {}
    require_sound(plan(CHAIN, *atoms), SHARED)


def test_a_tree_is_sound_too() -> None:
    star = plan({"a": "n1 n4", "b": "n2 n4", "c": "n3 n4"}, ("ab", "n4"), ("ac", "n4"), ("bc", "n4"))
    assert violations(star, SHARED) == {}


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
    found = violations(plan(CHAIN | {"b": "n3 n2 n1"}, *PAIRS), SHARED)
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


def test_single_overlaps_need_no_atom_by_c4() -> None:
    assert violations(plan(CHAIN), Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})) == {}


@pytest.mark.parametrize("ordering", ["acyclic", "causal"])
def test_rings_of_single_overlaps_need_atoms_where_no_cycle_is_promised(ordering: Ordering) -> None:
    ring = Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"})
    assert violations(plan(CHAIN, *PAIRS, ordering=ordering), ring) == {}
    assert violations(plan(CHAIN, ("ab", "n1"), ("bc", "n3"), ordering=ordering), ring) == {
        "C4": "no atom that 's3' can follow orders 'a' and 'c'"
    }
    # Cut open, the ring lets nobody tell.
    assert violations(plan(CHAIN, ordering=ordering), Membership.of({"s1": "ab", "s2": "bc"})) == {}


def test_c4_a_region_without_a_path_that_overlaps_is_reported() -> None:
    found = violations(plan({"a": "n1", "b": "n1"}, ("ab", "n1")), SHARED)
    assert found["C4"].endswith("overlap, and one of them has no path")


def test_c4_an_atom_of_a_region_that_nobody_knows_serves_nobody() -> None:
    wide = plan({"a": "n1", "b": "n1", "x": "n1"}, ("abx", "n1"))
    assert violations(wide, Membership.of({"s1": "ab", "s2": "ab"})).keys() == {"C4"}


def test_c4_twins_in_the_thousands_with_one_atom_are_checked_as_one() -> None:
    regions = [f"r{number}" for number in range(3_000)]
    atom = Atom(AtomId(1), tuple(regions), "n1")
    crowd = Membership.of({f"s{number}": regions for number in range(10)})
    paths = dict.fromkeys(regions, ("n1",))
    assert violations(Plan(1, 1, "acyclic", {"n1": ""}, paths, (atom,)), crowd) == {}
    less = Atom(AtomId(1), tuple(regions[1:]), "n1")
    assert violations(Plan(1, 1, "acyclic", {"n1": ""}, paths, (less,)), crowd).keys() == {"C4"}


def test_an_unsound_plan_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(PlanError, match=r"C3: .*; C4: no atom"):
        require_sound(plan(CHAIN | {"b": "n3 n2 n1"}, ("ab", "n1"), ("bc", "n3")), SHARED)
    require_sound(plan(CHAIN))
