"""What a record says of epochs that end and of wishes, and that it is written in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest

from sequencing.errors import PlanError
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, OldEpoch, Record, pair_of

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


@pytest.mark.parametrize("said", [[1, 1, {"a": 1, "b": "1"}, 0], [1, 1, {"a": None}, 0], [1, 1], [1, 1, {"a": 1}], {}])
def test_what_is_no_wish_is_refused(said: object) -> None:
    assert Interest.from_document([1, 2, {"a": 1}, 7]) == Interest(1, 2, {"a": 1}, 7)
    with pytest.raises(PlanError, match="not a subscriber's interest"):
        Interest.from_document(said)


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
    assert record.news().behind == record.behind


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


def test_a_record_is_written_in_one_way_however_its_sets_are_ordered() -> None:
    names = [f"region {number}" for number in range(50)]
    pairs = [pair_of(one, other) for one, other in pairwise(names)]
    atoms = (Atom(AtomId(1), ("a", "b"), "n2"),)
    written = {
        Record(
            replace(FIRST, atoms=atoms),
            {"s": frozenset(order(names))},
            expected=frozenset(order(pairs)),
            leaving={"s": frozenset(order(names))},
        ).to_json()
        for order in (list, lambda found: reversed(list(found)))
    }
    [text] = written
    assert Record.from_json(text).to_json() == text
    _, second, *lines = text.split(b"\n")
    people = orjson.loads(second)
    assert people["members"]["s"] == people["leaving"]["s"] == sorted(names)
    assert orjson.loads(lines[people["expected"]]) == [list(pair) for pair in sorted(pairs)]


@pytest.mark.parametrize("read", [Record.from_lines, Record.plan_of])
@pytest.mark.parametrize("wire", [None, 1, 2])
def test_a_network_of_another_wire_is_refused(read: Callable[[list[bytes]], object], wire: int | None) -> None:
    head, *lines = Record(FIRST).to_lines()
    _, document = orjson.loads(head)
    other = document if wire is None else [wire, document]
    with pytest.raises(PlanError, match=f"wire is of version {wire or 1}, and this gamecast speaks version 3"):
        read([orjson.dumps(other), *lines])


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
