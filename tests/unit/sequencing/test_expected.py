"""Networks in which overlaps are expected: who walks is let go of in place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.planner import make_plan
from sequencing.conditions import can_follow_all
from sequencing.errors import InvalidName, UsageError
from sequencing.expected import Emptied, Tails, links_to_sweep, observers
from sequencing.frames import LinkedFrame, StampedFrame
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.node import Node
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record, pair_of
from sequencing.transition import Prepare, Transition

NODES = {"n1": "", "n2": "", "n3": ""}
LINE = frozenset({("a", "b"), ("b", "c"), ("c", "d")})
CHAIN = Plan(
    2,
    1,
    "acyclic",
    NODES,
    {"a": ("n1",), "b": ("n1", "n2"), "c": ("n2", "n3"), "d": ("n3",)},
    tuple(Atom(AtomId(i), pair, f"n{i}") for i, pair in enumerate(sorted(LINE), start=1)),
)


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def interest(said: int, **since: int) -> Interest:
    return Interest(1, said, since)


WISHES = {"x": interest(1, a=1), "y": interest(1, b=1, c=1), "z": interest(1, a=1, b=1)}
RECORD = Record(
    CHAIN, {name: frozenset(each.since) for name, each in WISHES.items()}, WISHES, next_atom=4, expected=LINE
)


def test_declared_overlaps_are_ordered_before_anybody_is_there() -> None:
    record = next_record(Record(Plan(1, 1, "acyclic", NODES, {}, ())), {}, (), planner, expected=LINE)
    assert record is not None
    assert all(can_follow_all(record.plan, frozenset(pair)) for pair in LINE)
    ends = record.plan.egresses
    assert {pair_of(*atom.regions) for atom in record.plan.atoms} == {(a, b) for a, b in LINE if ends[a] != ends[b]}
    assert len({*ends.values()}) > 1
    assert record.members == {}
    assert next_record(record.settled(), {}, (), planner, expected=LINE) is None


def test_who_walks_from_neighbour_to_neighbour_stays_in_the_epoch_and_is_let_go_of_what_it_left() -> None:
    walked = next_record(RECORD, {**WISHES, "x": interest(3, c=3)}, (), planner)
    assert walked is not None
    assert (walked.plan.epoch, walked.members["x"], walked.leaving) == (2, frozenset("c"), {"x": frozenset("a")})
    assert walked.settled().leaving == {}


def test_as_long_as_nothing_is_in_the_way_nobody_is_let_go_of() -> None:
    widened = next_record(RECORD, {**WISHES, "x": interest(2, a=1, b=2)}, (), planner)
    assert widened is not None
    assert (widened.plan.epoch, widened.members["x"], widened.leaving) == (2, frozenset("ab"), {})


def test_what_nobody_expected_begins_an_epoch_also_where_a_single_subscriber_has_it() -> None:
    jumped = next_record(RECORD, {**WISHES, "x": interest(2, a=1, d=2)}, (), planner)
    assert jumped is not None
    assert jumped.plan.epoch == 3
    assert not can_follow_all(CHAIN, frozenset("ad"))
    assert can_follow_all(jumped.plan, frozenset("ad"))


def test_what_nobody_expected_changes_nothing_where_it_ends_at_one_node() -> None:
    plan = replace(CHAIN, paths={**CHAIN.paths, "e": ("n3",), "f": ("n3",)}, epochs={"f": 1})
    widened = next_record(replace(RECORD, plan=plan), {**WISHES, "x": interest(2, d=2, e=2)}, (), planner)
    assert widened is not None
    assert (widened.plan.epoch, widened.members["x"], widened.leaving) == (2, frozenset("de"), {"x": frozenset("a")})
    older = next_record(replace(RECORD, plan=plan), {**WISHES, "x": interest(2, d=2, f=2)}, (), planner)
    assert older is not None
    assert older.plan.epoch == 3


def test_who_walks_to_where_nobody_expected_it_begins_an_epoch_whatever_it_leaves() -> None:
    jumped = next_record(RECORD, {**WISHES, "y": Interest(1, 2, {"b": 1, "d": 2})}, (), planner)
    assert jumped is not None
    assert (jumped.plan.epoch, jumped.members["y"], jumped.leaving) == (3, frozenset("bd"), {})


def test_nobody_hears_of_a_walk_before_all_links_were_emptied_in_each_round() -> None:
    record = next_record(RECORD, {**WISHES, "x": interest(3, c=3)}, (), planner)
    assert record is not None
    nodes = {name: Node(name) for name in NODES}
    waiting = StampedFrame("b", 2, 1, b"", b"", b"")
    nodes["n1"].links["n2"] = [LinkedFrame(7, waiting)]
    transition = Transition(record)
    kinds: list[type[object]] = []
    while not transition.finished and len(kinds) < 40:
        for task in transition.tasks():
            kinds.append(type(task))
            assert transition.prepared is False or not isinstance(task, Tails | Emptied)
            transition.done(task, task.perform(nodes[task.node]))
        if kinds.count(Emptied) == 4:
            assert transition.tasks() == [Emptied("n1", (("n2", 7),), 0)]
            nodes["n1"].acknowledge("n2", 7)
            nodes["n2"].links["n3"] = [LinkedFrame(9, waiting)]  # it went on
        if kinds.count(Emptied) == 8:
            assert transition.tasks() == [Emptied("n2", (("n3", 9),), 1)]
            nodes["n2"].acknowledge("n3", 9)
    assert list(dict.fromkeys(kinds)) == [Tails, Emptied]
    assert kinds.count(Tails) == 4
    assert Prepare not in kinds


def test_a_walk_that_nobody_heard_of_is_taken_back_when_a_node_is_lost() -> None:
    before = replace(RECORD, plan=replace(CHAIN, runs={"n3": "old"}))
    walking = next_record(before, {**WISHES, "x": interest(3, c=3)}, (), planner)
    assert walking is not None
    lost = next_record(walking, {**WISHES, "x": interest(3, c=3)}, (), planner, runs={"n3": "new"}, announced=False)
    assert lost is not None
    assert (lost.plan.epoch, lost.leaving) == (3, {})


def test_a_walk_that_nobody_heard_of_is_swept_anew_when_what_is_lost_has_nothing_to_do_with_it() -> None:
    apart = replace(CHAIN, nodes={**NODES, "n4": ""}, runs={"n4": "old"})
    walked = {**WISHES, "x": interest(3, c=3)}
    walking = next_record(replace(RECORD, plan=apart), walked, (), planner)
    assert walking is not None
    again = next_record(walking, walked, (), planner, runs={"n4": "new"}, announced=False)
    assert again is not None
    assert (again.plan.epoch, again.members["x"], again.leaving) == (2, frozenset("c"), {"x": frozenset("a")})


def test_nobody_waits_for_a_link_to_what_a_node_was_before_it_began_anew() -> None:
    before, after = replace(CHAIN, runs={"n3": "old"}), replace(CHAIN, version=2, runs={"n3": "new"})
    transition = Transition(Record(after, behind=(before,), leaving={"x": frozenset("a")}))
    assert [type(task) for task in transition.tasks()] == [Prepare]
    transition.done(transition.tasks()[0], True)
    assert transition.tasks() == [Tails("n1", ("n2",), 0)]


def test_as_many_rounds_are_swept_as_the_longest_chain_of_nodes_has_links_and_only_where_somebody_leaves() -> None:
    assert links_to_sweep(CHAIN, "a") == ({"n1": ("n2",), "n2": ("n3",)}, 2)
    apart = replace(CHAIN, paths={"a": ("n1",), "b": ("n1",), "c": ("n2", "n3"), "d": ("n3",)})
    assert links_to_sweep(apart, "a") == ({}, 0)
    assert links_to_sweep(apart, "c") == ({"n2": ("n3",)}, 1)
    assert links_to_sweep(replace(CHAIN, runs={"n2": "r"}), "a")[0]["n1"] == ("n2#r",)
    assert links_to_sweep(CHAIN, ["a", "unknown"]) == links_to_sweep(CHAIN, "a")
    assert links_to_sweep(CHAIN, ["unknown"]) == ({}, 0)


def test_of_two_trees_that_are_swept_together_the_longer_chain_counts_and_targets_are_in_order() -> None:
    names = [f"n{number}" for number in range(1, 10)]
    star = {target: ("n1", target) for target in names[1:6]}
    plan = replace(
        CHAIN, nodes=dict.fromkeys(names, ""), paths={**star, "x": ("n7", "n8", "n9"), "y": ("n9",)}, atoms=()
    )
    links = {"n1": tuple(names[1:6]), "n7": ("n8",), "n8": ("n9",)}
    for regions in (["n2", "x"], ["x", "n2"]):
        assert links_to_sweep(plan, regions) == (links, 2)
    longer = replace(plan, paths={**star, "x": ("n7", "n8")})
    assert links_to_sweep(longer, ["n2", "x"])[1] == 2


def test_links_are_emptied_when_each_is() -> None:
    node = Node("n1", links={"n2": [LinkedFrame(5, StampedFrame("a", 1, 1, b"", b"", b""))], "n3": []})
    assert not Emptied("n1", (("n2", 5), ("n3", 5)), 0).perform(node)
    assert not Emptied("n1", (("n3", 5), ("n2", 6)), 0).perform(node)
    assert Emptied("n1", (("n2", 4), ("n3", 5)), 0).perform(node)


def test_an_expected_pair_is_as_good_as_somebody_who_has_it() -> None:
    members = {"s": frozenset("ad")}
    assert sorted(map(sorted, observers(members, [("a", "b")], "acyclic").values())) == [["a", "b"], ["a", "d"]]
    twice = sorted(map(sorted, observers(members, [("a", "b")], "overlap").values()))
    assert twice == [["a", "b"], ["a", "b"], ["a", "d"], ["a", "d"]]
    assert observers(members, [], "overlap") == members


def test_what_is_expected_and_who_leaves_is_told_to_managers_alone() -> None:
    record = replace(RECORD, leaving={"x": frozenset("a")}, behind=(CHAIN,))
    news = record.news()
    assert (news.expected, news.leaving, news.behind, news.members) == (frozenset(), {}, (), record.members)


def test_an_overlap_is_of_two_regions() -> None:
    assert pair_of("b", "a") == ("a", "b")
    with pytest.raises(UsageError):
        pair_of("a", "a")
    with pytest.raises(InvalidName):
        pair_of("a", "")
