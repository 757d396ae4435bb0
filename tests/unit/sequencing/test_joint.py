"""Sets of regions that events are in at once: a plan has them together, and goes on to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from placement.planner import make_plan
from sequencing.beside import granted_beside, rebased
from sequencing.changes import Changes
from sequencing.conditions import can_be_joint, violations
from sequencing.errors import PlanError
from sequencing.homes import Home, homes_of
from sequencing.joint import is_set, label, regions_in, set_name, wished
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import Plan
from sequencing.planchange import change_between, changed
from sequencing.record import Interest, Record
from sequencing.sole import following_on_one_node

NODES = {"n1": "", "n2": "", "n3": ""}
AB, BC, CD = set_name("ab"), set_name("bc"), set_name("cd")
APART = Plan(5, 1, "acyclic", NODES, {"a": ("n1",), "b": ("n2",), "c": ("n3",), "d": ("n3",)}, (), first_epoch=1)


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom, ordering="acyclic", search_work_max=500)


def interest(said: int, **since: int) -> Interest:
    return Interest(1, said, since)


def wishing(record: Record, *names: str, interests: dict[str, Interest] | None = None) -> Record:
    following = next_record(record, interests or {}, names, planner)
    assert following is not None
    return following.settled()


def begin_together(plan: Plan, name: str) -> bool:
    return len({(plan.paths[region][0], plan.epoch_of(region)) for region in regions_in(name)}) == 1


def test_a_set_is_named_by_its_regions() -> None:
    assert (AB, regions_in(AB), label(AB)) == ("a\nb", ("a", "b"), "a + b")
    assert set_name(("b", "a")) == AB
    assert (is_set(AB), is_set("a"), regions_in("a"), label("a")) == (True, False, ("a",), "a")
    assert wished(["a", BC]) == (frozenset("abc"), frozenset({BC}))


def test_what_is_apart_begins_an_epoch_and_no_other_region_does() -> None:
    record = wishing(Record(APART), AB)
    assert (record.plan.epoch, record.plan.joint) == (6, frozenset({AB}))
    assert not can_be_joint(APART, "ab")
    assert record.plan.epoch_of("c") == record.plan.epoch_of("d") == 5
    assert next_record(record, {}, [AB], planner) is None
    assert can_be_joint(record.plan, "ab")


def test_what_is_together_stays_as_it_is() -> None:
    record = wishing(Record(APART), CD)
    assert (record.plan.epoch, record.plan.paths, record.plan.joint) == (5, APART.paths, frozenset({CD}))


def test_regions_without_a_place_begin_together() -> None:
    record = wishing(Record(APART), set_name("xyz"))
    assert record.plan.epoch == 5
    assert begin_together(record.plan, set_name("xyz"))


def test_the_regions_of_a_set_move_together() -> None:
    record = wishing(Record(APART), AB)
    interests = {"s": interest(1, b=1, c=1)}
    record = wishing(record, interests=interests)
    assert record.plan.epoch == 7
    assert {record.plan.epoch_of(region) for region in "abc"} == {7}
    assert can_be_joint(record.plan, "ab")


def test_a_node_that_lost_something_takes_the_set_along() -> None:
    record = wishing(Record(APART), AB, CD)
    lost = record.plan.paths["a"][0]
    following = next_record(record, {}, (), planner, runs={lost: "two"})
    assert following is not None
    assert {following.plan.epoch_of(region) for region in "ab"} == {7}
    assert can_be_joint(following.plan, "ab")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_wished_and_joined_each_plan_has_its_sets_together(seed: int) -> None:
    random, regions = Random(seed), "abcdefgh"
    record, interests = Record(Plan(2, 0, "acyclic", NODES, {}, (), first_epoch=1)), dict[str, Interest]()
    for said in range(1, 12):
        before = record.plan
        name = f"s{random.randrange(4)}"
        known = interests[name].since if name in interests else {}
        interests[name] = Interest(1, said, {**known, **dict.fromkeys(random.sample(regions, 2), said)})
        published = [set_name(random.sample(regions, random.choice((2, 2, 3)))), random.choice(regions)]
        beside = granted_beside(record, interests, published, nodes=NODES, busy=frozenset())
        record = beside.settled() if beside is not None else record
        following = next_record(record, interests, published, planner)
        record = following.settled() if following is not None else record
        assert not record.plan.without_place(published)
        counted = Membership.of(record.members, record.plan.paths, record.plan.joint)
        assert set(violations(record.plan, counted)) <= {"C2", "C3"}  # these hold within components
        assert all(can_be_joint(record.plan, regions_in(name)) for name in record.plan.joint)
        assert changed(before, change_between(before, record.plan)) == record.plan
        assert changed(record.plan, change_between(record.plan, before)) == before
        assert Plan.from_json(record.plan.to_json()) == record.plan


def test_a_plan_whose_sets_are_apart_is_refused() -> None:
    membership = Membership.of({"s": "ab"}, "abc", frozenset({AB}))
    for paths, epochs in (({"a": ("n1", "n3"), "b": ("n2", "n3")}, {}), ({"a": ("n1",), "b": ("n1",)}, {"b": 4})):
        plan = replace(APART, paths={**APART.paths, **paths}, epochs=epochs)
        assert "C5" in violations(plan, membership)
    assert "C5" in violations(replace(APART, paths={"a": ("n1",)}), membership)
    with pytest.raises(PlanError, match="C5"):
        next_record(
            Record(APART), {}, [AB], lambda *given: replace(planner(*given), paths={"a": ("n1",), "b": ("n2",)})
        )


def test_where_only_double_overlaps_are_ordered_sets_are_not_made() -> None:
    by_overlap = replace(APART, ordering="overlap")
    assert next_record(Record(by_overlap), {}, [AB], planner) is None
    assert granted_beside(Record(by_overlap), {}, [AB], nodes=NODES, busy=frozenset()) is None


def test_beside_a_move_a_set_of_other_regions_is_granted() -> None:
    assert granted_beside(Record(APART), {}, [AB], nodes=NODES, busy=frozenset()) is None
    found = granted_beside(Record(APART), {}, [CD, AB], nodes=NODES, busy=frozenset("a"))
    assert found is not None
    assert found.plan.joint == {CD}
    assert granted_beside(Record(APART), {}, [CD], nodes=NODES, busy=frozenset("c")) is None


def test_a_plan_that_moves_a_region_of_a_set_that_was_granted_meanwhile_is_made_again() -> None:
    base = Record(APART)
    granted = granted_beside(base, {}, [CD], nodes=NODES, busy=frozenset())
    assert granted is not None
    following = next_record(base, {"s": interest(1, a=1, d=1)}, (), planner)
    assert following is not None
    assert following.plan.epoch_of("c") == 5
    assert rebased(base, following, granted) is None
    elsewhere = next_record(base, {}, [AB], planner)
    assert elsewhere is not None
    both = rebased(base, elsewhere, granted)
    assert both is not None
    assert both.plan.joint == {AB, CD}


def test_regions_of_a_set_begin_where_the_others_are_unless_their_path_is_longer() -> None:
    def homes(plan: Plan, missing: Iterable[str], *joint: str) -> dict[str, Home]:
        return homes_of(plan, {}, {}, frozenset(missing), NODES, joint)

    plan = Plan(5, 1, "acyclic", NODES, {"a": ("n1", "n2"), "b": ("n2",), "c": ("n3",)}, (), {"c": 4}, first_epoch=1)
    assert homes(plan, "x", set_name("cx")) == {"x": Home("n3", 4)}
    assert homes(plan, "x", set_name("ax")) == {}
    assert homes(plan, "x", set_name("bcx")) == {}
    assert homes(plan, "xy", set_name("cx"), set_name("xy")) == {"x": Home("n3", 4), "y": Home("n3", 4)}
    assert homes(plan, "xy", set_name("xy")) == {"x": Home("n1", 5), "y": Home("n1", 5)}


def test_one_node_begins_an_epoch_for_a_set_of_several_epochs_only() -> None:
    one = Plan(5, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",), "c": ("n1",)}, (), {"a": 4})

    def following(name: str) -> Record:
        changes = Changes({}, frozenset(), frozenset(), frozenset(), frozenset(), {}, frozenset({name}))
        return following_on_one_node(Record(one), changes, {}, nodes=one.nodes, announced=True, away={})

    assert (following(BC).plan.epoch, following(BC).plan.joint) == (5, frozenset({BC}))
    assert (following(AB).plan.epoch, following(AB).plan.joint) == (6, frozenset({AB}))
    assert not following(AB).plan.epochs


def test_a_change_names_the_sets_that_are_new_or_gone() -> None:
    with_both = replace(APART, version=2, joint=frozenset({AB, CD}))
    with_one = replace(with_both, version=3, joint=frozenset({CD}))
    assert change_between(APART, with_both)["joint"] == [AB, CD]
    assert change_between(with_both, with_one)["apart"] == [AB]
    assert changed(with_both, change_between(with_both, with_one)).joint == {CD}
    with pytest.raises(PlanError, match="without a path"):
        changed(APART, {"epoch": 5, "version": 2, "joint": [set_name("ax")]})


def test_a_world_of_new_sets_is_shared_out_by_a_plan_and_few_sets_begin_in_place() -> None:
    def wished(side: int) -> Record:
        places = [(x, y) for x in range(side) for y in range(side)]
        steps = [((x, y), (x + right, y + 1 - right)) for x, y in places for right in (0, 1)]
        sets = [set_name([f"{x}{y}", f"{a}{b}"]) for (x, y), (a, b) in steps if max(a, b) < side]
        record = wishing(Record(Plan(5, 1, "acyclic", NODES, {}, (), first_epoch=1)), *sets)
        assert record.plan.joint == {*sets}
        assert all(can_be_joint(record.plan, regions_in(name)) for name in sets)
        return record

    few, many = wished(3), wished(6)
    assert few.plan.epoch == 5
    entries = Counter(path[0] for path in many.plan.paths.values())
    assert max(entries.values()) <= 36 // 2
    assert len(entries) == 3
