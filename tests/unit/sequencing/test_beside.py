"""Grants beside a move: who has nothing to do with what moves is granted in place meanwhile."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from placement.planner import make_plan
from sequencing.beside import granted_beside, let_go, moving_regions, rebased, to_prepare
from sequencing.conditions import require_sound
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from sequencing.transition import Transition

NODES = {"n1": "", "n2": "", "n3": ""}
PLAN = Plan(
    5,
    1,
    "acyclic",
    NODES,
    {"a": ("n1", "n2"), "b": ("n2",), "c": ("n2",), "p": ("n3",), "q": ("n3",), "r": ("n3",)},
    (Atom(AtomId(1), ("a", "b"), "n2"),),
    first_epoch=1,
)
MEMBERS = {"s": frozenset("ab"), "t": frozenset("p"), "u": frozenset("q")}
HEARD = {name: Interest(1, 1) for name in MEMBERS}
RECORD = Record(PLAN, MEMBERS, HEARD, next_atom=2)
NOTHING_BUSY: frozenset[str] = frozenset()
JOINS_R = Interest(1, 2, {"a": 1, "b": 1, "r": 2})


def wants(regions: str, said: int = 2) -> Interest:
    return Interest(1, said, dict.fromkeys(regions, said))


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom, ordering="acyclic", search_work_max=500)


def moved(*regions: str) -> Record:
    """Return the record whose transition moves some regions."""
    epochs = {region: 5 for region in PLAN.paths if region not in regions}
    return replace(RECORD, plan=replace(PLAN, epoch=6, epochs=epochs), behind=(PLAN,))


def test_what_is_ordered_already_is_granted_beside_what_moves() -> None:
    record = moved("a", "b")
    busy = moving_regions(record)
    assert busy == {"a", "b"}
    found = granted_beside(record, {"t": wants("q"), "s": wants("c")}, (), nodes=NODES, busy=busy)
    assert found is not None
    assert found.members == {**MEMBERS, "t": frozenset("pq")}
    assert found.heard == {**HEARD, "t": wants("q")}
    assert (found.plan.epoch, found.plan.version, found.behind) == (6, 2, record.behind)
    assert found.old_epochs() == record.old_epochs()
    assert to_prepare(record, found) == []


@pytest.mark.parametrize(
    ("wanted", "busy"),
    [
        ({"t": wants("a")}, "ab"),  # it joins what moves
        ({"s": wants("p")}, "ab"),  # it has what moves
        ({"t": wants("c")}, ""),  # that takes an epoch
        ({"t": Interest(1, 1, {"q": 1})}, ""),  # it was heard of
        ({"v": Interest(1, 1, {"r": 1}, 6)}, ""),  # it has had something of a later epoch
        ({}, ""),
    ],
)
def test_nothing_else_is(wanted: dict[str, Interest], busy: str) -> None:
    record = replace(moved("a", "b"), plan=replace(moved("a", "b").plan, epochs=dict.fromkeys("cpqr", 5)))
    assert granted_beside(record, wanted, (), nodes=NODES, busy=frozenset(busy)) is None


def test_where_only_double_overlaps_are_ordered_nothing_is_granted_beside() -> None:
    record = replace(RECORD, plan=replace(PLAN, ordering="overlap"))
    assert granted_beside(record, {"t": wants("q")}, (), nodes=NODES, busy=NOTHING_BUSY) is None


def test_new_regions_get_places_that_their_nodes_have_to_prepare() -> None:
    found = granted_beside(moved("a", "b"), {"t": wants("x")}, ("y",), nodes={"n2": "", "n3": ""}, busy=frozenset("ab"))
    assert found is not None
    assert (found.plan.paths["x"], found.plan.epoch_of("x")) == (("n3",), 5)
    assert found.members["t"] == set("px")
    tasks = to_prepare(moved("a", "b"), found)
    assert {task.node: [step.region for step in task.steps] for task in tasks} == {
        "n3": ["x"],
        found.plan.paths["y"][0]: ["y"],
    } or {task.node: sorted(step.region for step in task.steps) for task in tasks} == {"n3": ["x", "y"]}


def test_a_plan_goes_on_top_of_what_was_granted_while_it_was_made() -> None:
    interests = {"s": JOINS_R, "t": wants("q")}
    following = next_record(RECORD, {"s": JOINS_R}, (), planner)
    assert following is not None
    now = granted_beside(RECORD, interests, ("y",), nodes=NODES, busy=frozenset("abr"))
    assert now is not None
    on_top = rebased(RECORD, following, now)
    assert on_top is not None
    assert on_top.members == {**now.members, "s": frozenset("abr")}
    assert (on_top.heard["t"], on_top.heard["s"]) == (wants("q"), JOINS_R)
    assert on_top.behind == (now.plan,)
    assert on_top.plan.paths == {**now.plan.paths, **{r: following.plan.paths[r] for r in "abr"}}
    assert (on_top.plan.epoch, on_top.plan.epoch_of("y"), on_top.plan.epoch_of("a")) == (6, 5, 6)
    assert rebased(RECORD, following, RECORD) is following


@pytest.mark.parametrize("granted", [{"s": frozenset("abp")}, {"t": frozenset("pr")}, {"new": frozenset("b")}])
def test_a_plan_is_made_again_where_a_grant_has_touched_what_it_moves(granted: dict[str, frozenset[str]]) -> None:
    following = next_record(RECORD, {"s": JOINS_R}, (), planner)
    assert following is not None
    heard = {**HEARD, **dict.fromkeys(granted, Interest(1, 3))}
    now = replace(RECORD, plan=replace(PLAN, version=2), members={**MEMBERS, **granted}, heard=heard)
    assert rebased(RECORD, following, now) is None


def test_a_plan_is_made_again_where_somebody_came_back_that_it_counts_no_more() -> None:
    """s has left a and b when the plan is made, and has b again before it is ready: as before, by another request."""
    t_joins = Interest(1, 2, {"p": 1, "a": 2})
    following = next_record(RECORD, {"s": Interest(1, 2), "t": t_joins}, (), planner)
    assert following is not None
    assert "s" not in following.members
    now = granted_beside(RECORD, {"s": wants("ab", 3)}, (), nodes=NODES, busy=frozenset("ap"))
    assert now is None  # a is joined by another
    now = granted_beside(RECORD, {"s": wants("b", 3)}, (), nodes=NODES, busy=NOTHING_BUSY)
    assert now is not None
    assert now.members == RECORD.members
    assert rebased(RECORD, following, now) is None


def test_a_plan_that_gives_a_place_is_made_again_where_a_grant_has_given_it() -> None:
    following = next_record(RECORD, {"s": Interest(1, 2, {"a": 1, "b": 1, "r": 2, "x": 2})}, (), planner)
    assert following is not None
    now = granted_beside(RECORD, {}, ("x",), nodes=NODES, busy=NOTHING_BUSY)
    assert now is not None
    assert rebased(RECORD, following, now) is None


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_granted_beside_satisfies_the_conditions(seed: int) -> None:
    random, record = Random(seed), Record(Plan(2, 0, "acyclic", NODES, {}, (), first_epoch=1))
    interests: dict[str, Interest] = {}
    for said in range(1, 25):
        for _ in range(2):
            name = f"s{random.randrange(6)}"
            known = interests[name].since if name in interests else {}
            world = "abcdef" if int(name[1:]) < 3 else "uvwxyz"
            interests[name] = Interest(1, 200 * said, {**known, random.choice(world): 200 * said})
        for name in [name for name in interests if random.random() < 0.1]:
            interests[name] = Interest(1, 200 * said + 1)
        base, asked = record, dict(interests)
        following = next_record(base, asked, (), planner)
        if following is None:
            continue
        name = f"s{random.randrange(6)}"
        had = interests[name].since if name in interests else {}
        if random.random() < 0.5:  # it left all while the plan was made, and asks again, mostly for the same
            had = dict.fromkeys(base.members.get(name, ()), 200 * said + 100)
        more = had if had and random.random() < 0.5 else {**had, random.choice("abcdefuvwxyz"): 200 * said + 100}
        later = {name: Interest(1, 200 * said + 100, more)}
        interests |= later
        now = granted_beside(base, later, (), nodes=NODES, busy=NOTHING_BUSY)
        on_top = rebased(base, following, now if now is not None else base)
        if on_top is None:
            record = now if now is not None else base
            continue
        require_sound(on_top.plan, Membership.of(on_top.members, on_top.plan.paths))
        if on_top.old_epochs():
            granted = granted_beside(on_top, {**interests, **later}, (), nodes=NODES, busy=moving_regions(on_top))
            if granted is not None:
                require_sound(granted.plan, Membership.of(granted.members, granted.plan.paths))
                assert granted.old_epochs() == on_top.old_epochs()
                on_top = granted
        record = on_top.settled()
    assert record.plan.epoch > 2


def test_who_will_not_come_back_is_let_go_of_after_a_sweep_of_its_links() -> None:
    found = let_go(RECORD, {"s", "unknown"})
    assert found is not None
    assert found.members == {"t": {"p"}, "u": {"q"}}
    assert found.heard == {name: HEARD[name] for name in "tu"}
    assert found.plan.version == 2
    assert found.leaving == {"s": {"a", "b"}}
    assert [type(task).__name__ for task in Transition(found).tasks()] == ["Tails"]


def test_without_links_it_is_let_go_of_at_once() -> None:
    plan = replace(PLAN, paths={"p": ("n3",), "q": ("n3",)}, atoms=())
    found = let_go(Record(plan, {"t": frozenset("p")}, {"t": HEARD["t"]}), {"t"})
    assert found is not None
    assert (found.members, found.leaving, Transition(found).finished) == ({}, {}, True)


def test_where_only_double_overlaps_are_ordered_it_is_counted_until_an_epoch_begins() -> None:
    assert let_go(replace(RECORD, plan=replace(PLAN, ordering="overlap")), {"s"}) is None
