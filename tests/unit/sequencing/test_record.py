"""What a record says of epochs that end, and what requests make of interests."""

from __future__ import annotations

from dataclasses import replace

from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, OldEpoch, Record, Request, pair_of

NODES = {"n1": "", "n2": "", "n3": ""}
FIRST = Plan(1, 1, "acyclic", NODES, {"a": ("n1", "n2"), "b": ("n2", "n3"), "c": ("n1",)}, (), {}, {"n2": "one"})


def following(plan: Plan, epoch: int, *moved: str, **runs: str) -> Plan:
    """Return the next plan, in which some regions begin a new epoch."""
    epochs = {region: plan.epoch_of(region) for region in plan.paths if region not in moved}
    return replace(plan, epoch=epoch, version=1, epochs=epochs, runs={**plan.runs, **runs})


def test_what_a_subscriber_says_after_what_was_heard_of_it_is_new() -> None:
    interest = Interest(2, 5, {"old": 1, "known": 3, "new": 4, "newest": 5})
    assert interest.after(Interest(2, 3)) == {"new", "newest"}
    assert (
        interest.after(None)
        == interest.after(Interest(1, 9))
        == interest.after(Interest(3, 9))
        == interest.since.keys()
    )


def test_a_request_adds_to_what_its_connection_wants_and_an_older_one_changes_nothing() -> None:
    first = Request(2, 1, {"a": 1, "b": 1}, floor=7).after(None)
    assert first == Interest(2, 1, {"a": 1, "b": 1}, 7)
    second = Request(2, 3, {"b": 0, "c": 3}).after(first)
    assert second == Interest(2, 3, {"a": 1, "c": 3})
    assert Request(2, 3, {"b": 0, "c": 3}).after(second) == second, "it was repeated"
    assert Request(2, 2, {"d": 2}).after(second) is None
    assert Request(1, 9, {"d": 2}).after(second) is None, "a newer connection has the name"


def test_a_request_of_all_or_of_a_newer_connection_replaces_what_was_wanted() -> None:
    before = Interest(2, 3, {"a": 1, "c": 3})
    assert Request(2, 3, {"c": 3}, whole=True).after(before) == Interest(2, 3, {"c": 3})
    assert Request(3, 1, {"x": 1}).after(before) == Interest(3, 1, {"x": 1})


def test_pairs_are_sorted_whichever_way_they_are_named() -> None:
    assert pair_of("a", "b") == pair_of("b", "a") == ("a", "b")


def test_each_epoch_of_each_region_ends_once_with_what_is_lost_on_its_path() -> None:
    second = following(FIRST, 2, "a", n2="two")
    third = following(second, 3, "a", "b", n3="one")
    record = Record(third, behind=(FIRST, second))
    assert record.old_epochs() == (
        OldEpoch("a", 1, ("n1", "n2"), frozenset({"n2"})),
        OldEpoch("b", 1, ("n2", "n3"), frozenset({"n2", "n3"})),
        OldEpoch("a", 2, ("n1", "n2"), frozenset()),
    )
    assert record.ending() == {("a", 1), ("b", 1), ("a", 2)}
    assert [plan.paths.keys() for plan in record.news().behind] == [{"a", "b"}, {"a"}]
    assert record.news().ending() == record.ending()


def test_a_plan_that_moves_nothing_leaves_nothing_behind() -> None:
    record = Record(replace(FIRST, version=2), behind=(FIRST,), abandoned=(FIRST,), expected=frozenset({("a", "b")}))
    assert record.old_epochs() == ()
    assert record.news() == Record(record.plan)
    again = Record(replace(FIRST, version=2, paths=dict(FIRST.paths)), behind=(FIRST,))
    assert again.old_epochs() == (), "also where that is not seen at once"


def test_streams_that_have_ended_at_a_node_that_may_lose_them_are_kept_in_mind_for_256_epochs() -> None:
    plan = following(FIRST, 2, "a", "b", "c")
    settled = Record(plan, behind=(FIRST,), ended={"n2": (("z", 1),)}, leaving={"s": frozenset("a")}).settled()
    assert settled.ended == {"n2": (("z", 1), ("a", 1))}, "b and c ended at nodes that lose nothing"
    assert (settled.behind, settled.leaving) == ((), {})
    late = Record(following(plan, 257, "a"), behind=(plan,), ended=settled.ended).settled()
    assert late.ended == {"n2": (("a", 2),)}
    later = Record(replace(plan, epoch=258), ended={"n2": (("z", 1), ("y", 2), ("a", 3))}).settled()
    assert later.ended == {"n2": (("a", 3),)}
    just = Record(replace(plan, epoch=256), ended={"n2": (("z", 0), ("a", 1))}).settled()
    assert just.ended == {"n2": (("a", 1),)}


def test_a_new_record_begins_with_the_first_atom() -> None:
    assert Record(FIRST).next_atom == 1


def test_what_is_left_of_plans_behind_has_the_regions_that_end_and_the_atoms_between_them() -> None:
    atoms = (Atom(AtomId(1), ("a", "b"), "n2"), Atom(AtomId(2), ("b", "c"), "n3"), Atom(AtomId(3), ("c", "d"), "n1"))
    paths = {"a": ("n1", "n2"), "b": ("n2", "n3"), "c": ("n3",), "d": ("n1",)}
    first = Plan(1, 1, "acyclic", NODES, paths, atoms)
    second = following(first, 2, "a", "b")
    record = Record(following(second, 3, "b", "d"), behind=(first, second))
    assert [(plan.epoch, {region: plan.epoch_of(region) for region in plan.paths}) for plan in record.left_plans()] == [
        (1, {"a": 1, "b": 1, "d": 1}),
        (2, {"b": 2}),
    ]
    [left, _] = record.left_plans()
    assert left.paths["a"] == ("n1", "n2")
    assert [atom.regions for atom in left.atoms] == [("a", "b"), ("b",), ("d",)]
    assert Plan.from_json(left.to_json()) == left
    assert record.settled().left_plans() == ()
