"""The difference between two plans makes the one of the other, whichever is the older."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import orjson
import pytest

from placement.planner import make_plan
from sequencing.errors import PlanError
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan, sole_plan
from sequencing.planchange import NOTHING, change_between, changed, regions_between
from sequencing.record import Interest, Record

NODES = {"n1": "redis://one", "n2": "", "n3": "redis://three"}
PLAN = Plan(
    5,
    2,
    "acyclic",
    NODES,
    {"a": ("n1", "n2"), "b": ("n1", "n2", "n3"), "c": ("n3",), "d": ("n3",)},
    (Atom(AtomId(4), ("a", "b"), "n1"), Atom(AtomId(6), ("c", "d"), "n3")),
    {"c": 4, "d": 4},
    {"n2": "one"},
    3,
)


def plans(seed: int) -> Iterator[Plan]:
    """Yield the plans of a network in which subscribers join, as they follow one another."""
    random, regions = Random(seed), "abcdefghij"
    record, interests = Record(Plan(1, 0, "acyclic", NODES, {}, ())), dict[str, Interest]()

    def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
        return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom, ordering="acyclic")

    yield record.plan
    for said in range(1, 13):
        name = f"s{random.randrange(5)}"
        known = interests[name].since if name in interests else {}
        interests[name] = Interest(1, said, {**known, **dict.fromkeys(random.sample(regions, 2), said)})
        following = next_record(record, interests, random.sample(regions, 1), planner)
        if following is not None:
            yield following.plan
            record = following.settled()


@pytest.mark.parametrize("seed", range(20))
def test_plans_that_follow_one_another_are_made_of_each_other_both_ways(seed: int) -> None:
    known = before = NOTHING
    for plan in plans(seed):
        document = orjson.loads(orjson.dumps(change_between(before, plan)))
        known = changed(known, document)
        assert known == plan
        assert changed(plan, change_between(plan, before)) == before
        before = plan


@pytest.mark.parametrize("seed", range(5))
def test_a_change_names_what_changes_and_shares_the_rest(seed: int) -> None:
    for before, after in pairwise(plans(seed)):
        document = change_between(before, after)
        moved = {region for region in after.paths if before.paths.get(region) is None}
        moved |= {region for region in before.paths if before.epoch_of(region) != after.epoch_of(region)}
        assert document.get("regions", {}).keys() == moved == regions_between(before, after)
        assert "nodes" not in document
        if not moved:
            again = changed(before, document)
            assert again.is_laid_out_as(before) or again.epoch != before.epoch


def test_a_new_run_and_a_node_that_is_new_are_told() -> None:
    other = replace(PLAN, version=3, nodes={**NODES, "n4": "redis://four"}, runs={"n2": "two"})
    assert changed(PLAN, change_between(PLAN, other)) == other
    assert changed(PLAN, change_between(PLAN, other)).is_laid_out_as(PLAN)


def test_the_first_plan_that_lists_regions_follows_one_that_lists_none() -> None:
    sole = sole_plan("causal", "n1", "redis://one", 7)
    listed = replace(sole, epoch=8, sole="", paths={"a": ("n1",), "b": ("n1",)}, epochs={"a": 7, "b": 7})
    assert changed(NOTHING, change_between(NOTHING, sole)) == sole
    assert changed(sole, change_between(sole, listed)) == listed


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.pop("epoch"),
        lambda document: document.update(version="2"),
        lambda document: document.update(ordering="causal-ish"),
        lambda document: document.update(nodes=["n1"]),
        lambda document: document.update(sole="n9"),
        lambda document: document["regions"].update(a=[5, "n9"]),
        lambda document: document["regions"].update(a=[5]),
        lambda document: document["regions"].update(a=[6, "n1"]),
        lambda document: document["regions"].update({"": [5, "n1"]}),
        lambda document: document.update(atoms=[[1, "n1", ["nowhere"]]]),
        lambda document: document.update(atoms=[[1, "n1", [99]]]),
        lambda document: document.update(atoms=[["1", "n1", [0]]]),
    ],
)
def test_what_is_no_change_of_a_plan_is_refused(spoil: Callable[[Any], object]) -> None:
    document = change_between(NOTHING, PLAN)
    spoil(document)
    with pytest.raises(PlanError, match="not the change of a gamecast plan"):
        changed(NOTHING, document)
    with pytest.raises(PlanError):
        changed(NOTHING, [])
