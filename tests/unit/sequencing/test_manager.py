"""What the manager decides, and how it gets from one plan to the next whatever interrupts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.planner import make_plan
from sequencing.frames import UNKNOWN_END, PublishedFrame
from sequencing.keyspace import NodeKeys, keyspace
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.node import TICK_META, Answer, Node, Verdict
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from sequencing.transition import Transition

NODES = {"n1": "", "n2": ""}


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def interest(regions: str, said: int = 1, incarnation: int = 1) -> Interest:
    return Interest(incarnation, said, dict.fromkeys(regions, said))


def settled(interests: dict[str, Interest], record: Record | None = None, published: str = "") -> Record:
    before = record or Record(Plan(1, 1, "acyclic", NODES, {}, ()))
    following = next_record(before, interests, published, planner)
    assert following is not None
    return following.settled()


TWO = {"s1": interest("ab"), "s2": interest("ab")}


def twice(*pairs: str) -> dict[str, Interest]:
    """Two subscribers for each."""
    return {f"{who} of {pair}": interest(pair) for pair in pairs for who in ("one", "other")}


CHAIN = twice("cd", "de", "ef", "fg")
"""Beside a and b, its regions do not all end at one node."""


def test_what_must_be_ordered_anew_begins_an_epoch() -> None:
    record = settled(TWO)
    assert (record.plan.epoch, record.plan.egresses, record.plan.atoms) == (2, {"a": "n1", "b": "n1"}, ())
    assert record.members == {"s1": {"a", "b"}, "s2": {"a", "b"}}
    chain = settled(TWO | CHAIN)
    assert (chain.plan.epoch, [atom.regions for atom in chain.plan.atoms]) == (2, [("f", "g")])


def test_what_ends_at_one_node_is_ordered_by_it_and_begins_none_unless_it_is_of_different_epochs() -> None:
    plan = Plan(3, 1, "acyclic", NODES, {"a": ("n2",), "b": ("n1", "n2"), "c": ("n2",)}, (), {"c": 2})
    record = settled(TWO, Record(plan))
    assert (record.plan.epoch, record.plan.version, record.plan.paths, record.plan.atoms) == (3, 2, plan.paths, ())
    older = settled({"s1": interest("ac"), "s2": interest("ac")}, Record(plan))
    assert [older.plan.epoch_of(region) for region in "abc"] == [4, 3, 4]


def test_nothing_changes_while_nobody_wants_more() -> None:
    record = settled(TWO)
    assert next_record(record, TWO, "ab", planner) is None
    assert next_record(record, {"s1": interest("ab")}, "", planner) is None


def test_who_joins_what_is_ordered_already_is_granted_in_place() -> None:
    record = settled(TWO | CHAIN)
    for pair in ("ab", "cd", "fg"):
        joined = settled({**TWO, **CHAIN, "s3": interest(pair)}, record)
        assert (joined.plan.epoch, joined.plan.version, joined.plan.atoms) == (2, 2, record.plan.atoms)
        assert joined.members["s3"] == set(pair)
    apart = settled({**TWO, **CHAIN, "s3": interest("cg"), "s4": interest("cg")}, record)
    assert apart.plan.epoch == 3


def test_a_region_that_is_only_published_to_gets_a_place_in_place() -> None:
    record = settled(TWO)
    published = settled(TWO, record, "c")
    assert (published.plan.epoch, published.plan.version, len(published.plan.paths["c"])) == (2, 2, 1)


def test_who_leaves_and_comes_back_is_granted_anew_and_nothing_else_changes() -> None:
    record = settled(TWO)
    left = {**TWO, "s2": Interest(1, 2, {"a": 1})}
    assert next_record(record, left, "", planner) is None
    back = settled({**TWO, "s2": Interest(1, 3, {"a": 1, "b": 3})}, record)
    assert (back.plan.epoch, back.plan.version, back.heard["s2"].said) == (2, 2, 3)


def test_a_new_connection_of_a_name_is_heard_even_if_it_wants_what_the_old_one_had() -> None:
    record = settled(TWO)
    again = settled({**TWO, "s2": interest("ab", incarnation=2)}, record)
    assert (again.plan.epoch, again.heard["s2"].incarnation) == (2, 2)


def test_other_components_keep_their_epoch_their_atoms_and_their_leavers() -> None:
    interests = {**TWO, "s3": interest("ab"), **CHAIN}
    record = settled(interests, published="x")
    left = {"s1": interest("a", 2), "one of cd": Interest(1, 2, {"c": 1})}
    changed = settled({**interests, **left, "s5": interest("ax"), "s6": interest("ax")}, record)
    assert {region: changed.plan.epoch_of(region) for region in "abcdefgx"} == {
        **dict.fromkeys("abx", 3),
        **dict.fromkeys("cdefg", 2),
    }
    [kept] = record.plan.atoms
    assert kept.regions == ("f", "g")
    [still, fresh] = changed.plan.atoms
    assert (still, fresh.id) == (kept, kept.id + 1)
    assert set("abx").issuperset(fresh.regions)
    assert changed.members["s1"] == {"a"}
    assert changed.members["one of cd"] == {"c", "d"}


def moving() -> tuple[Record, dict[str, Node]]:
    """Two regions of two nodes that change their ingresses, with an event of each under way."""
    before = Plan(1, 1, "acyclic", NODES, {"a": ("n1", "n2"), "b": ("n2",)}, ())
    after = Plan(2, 1, "acyclic", NODES, {"a": ("n2",), "b": ("n2", "n1")}, ())
    nodes = {name: Node(name) for name in NODES}
    for node in nodes.values():
        node.prepare(1, 1, before.steps(node.name), {})
    assert nodes["n1"].publish([event("a", 1)]) == [Answer(Verdict.OK, (1, 1))]
    assert nodes["n2"].publish([event("b", 1)]) == [Answer(Verdict.OK, (1, 1))]
    return Record(after, behind=(before,)), nodes


def event(region: str, first: int, epoch: int = 1) -> PublishedFrame:
    return PublishedFrame(region, epoch, "p", 1, first, 1, b"%d" % first)


def carry(nodes: dict[str, Node]) -> None:
    for source, target in (("n1", "n2"), ("n2", "n1")):
        answer = nodes[target].transfer(source, nodes[source].links.get(target, []))
        nodes[source].acknowledge(target, answer.accepted)


def perform(transition: Transition, nodes: dict[str, Node], tasks_max: int) -> None:
    """Do up to so many tasks; the network carries on meanwhile."""
    for _ in range(tasks_max):
        if transition.finished:
            return
        task = transition.tasks()[0]
        transition.done(task, task.perform(nodes[task.node]))
        carry(nodes)


@pytest.mark.parametrize("tasks_done", range(12))
def test_a_manager_may_die_after_any_task_and_another_begins_again(tasks_done: int) -> None:
    record, nodes = moving()
    perform(Transition(record), nodes, tasks_done)
    successor = Transition(record)
    perform(successor, nodes, 100)
    assert successor.finished
    repeated, following = event("a", 1, epoch=2), event("a", 2, epoch=2)
    assert nodes["n2"].publish([repeated, following]) == [Answer(Verdict.SEEN, (1, 1)), Answer(Verdict.OK, (2, 1))]
    assert nodes["n1"].publish([event("a", 2)]) == [Answer(Verdict.STALE, (2,))]
    assert nodes["n2"].publish([event("b", 2, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    carry(nodes)
    ends = {(1, "a"): "n2", (1, "b"): "n2", (2, "a"): "n2", (2, "b"): "n1"}
    assert {stream: len(nodes[node].egress[stream]) for stream, node in ends.items()} == {
        (1, "a"): 2,
        (1, "b"): 2,
        (2, "a"): 1,
        (2, "b"): 1,
    }


def test_nothing_is_announced_before_all_nodes_know_it_and_nothing_forgotten_before_all_is_through() -> None:
    record, nodes = moving()
    transition = Transition(record)
    phases = []
    while not transition.finished:
        phases.append((type(transition.tasks()[0]).__name__, transition.prepared))
        for task in transition.tasks():
            transition.done(task, task.perform(nodes[task.node]))
        if phases[-1][0] == "Drain":
            carry(nodes)
    names = [name for name, _ in phases]
    assert names[:3] == ["Prepare", "Close", "Open"]
    assert (names[-1], set(names[3:-1])) == ("Forget", {"Drain"})
    assert [prepared for _, prepared in phases] == [False, *[True] * (len(phases) - 1)]


def test_a_node_that_knows_a_later_plan_holds_a_transition_up() -> None:
    record, nodes = moving()
    nodes["n1"].prepare(3, 1, [], {})
    transition = Transition(record)
    for task in transition.tasks():
        transition.done(task, task.perform(nodes[task.node]))
    assert not transition.prepared
    assert [task.node for task in transition.tasks()] == ["n1"]


def with_runs(n1: str, n2: str, plan: Plan) -> Plan:
    return replace(plan, runs={"n1": n1, "n2": n2})


def test_a_lost_node_begins_an_epoch_for_what_went_through_it_and_what_belongs_to_that() -> None:
    paths = {"a": ("n1", "n2"), "b": ("n2",), "c": ("n1",)}
    atoms = (Atom(AtomId(1), ("a", "b"), "n2"),)
    record = Record(Plan(3, 1, "acyclic", NODES, paths, atoms, runs={"n1": "x", "n2": "x"}), next_atom=2)
    assert next_record(record, {}, "", planner, runs={"n1": "x"}) is None
    following = next_record(record, {}, "", planner, runs={"n1": "y", "n2": "x"})
    assert following is not None
    assert {region: following.plan.epoch_of(region) for region in "abc"} == dict.fromkeys("abc", 4)
    assert (following.plan.runs, following.behind) == ({"n1": "y", "n2": "x"}, (record.plan,))
    apart = Record(replace(record.plan, paths={**paths, "a": ("n2",)}))
    following = next_record(apart, {}, "", planner, runs={"n1": "y"})
    assert following is not None
    assert {region: following.plan.epoch_of(region) for region in "abc"} == {"a": 3, "b": 3, "c": 4}


def test_what_has_the_order_of_one_node_begins_anew_together_when_another_node_is_lost() -> None:
    paths = {"a": ("n1", "n2"), "b": ("n2",), "c": ("n2",)}
    plan = Plan(3, 1, "acyclic", NODES, paths, (), runs={"n1": "x", "n2": "x"})
    record = Record(plan, {"s1": frozenset("ab"), "s2": frozenset("ab"), "s3": frozenset("c")}, TWO)
    following = next_record(record, TWO, "", planner, runs={"n1": "y"})
    assert following is not None
    assert {region: following.plan.epoch_of(region) for region in "abc"} == {"a": 4, "b": 4, "c": 3}


def test_a_region_that_is_new_when_a_node_is_lost_is_not_numbered_among_what_was_lost() -> None:
    record = Record(Plan(3, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, (), runs={"n1": "x"}))
    following = next_record(record, {}, "b", planner, nodes={"n1": ""}, runs={"n1": "y"})
    assert following is not None
    assert {region: following.plan.epoch_of(region) for region in "ab"} == {"a": 4, "b": 4}


def test_a_lost_node_that_nothing_went_through_is_taken_back_in_place() -> None:
    record = Record(Plan(3, 1, "acyclic", NODES, {"a": ("n1",)}, (), runs={"n1": "x", "n2": "x"}))
    following = next_record(record, {}, "", planner, runs={"n2": "y"})
    assert following is not None
    assert (following.plan.epoch, following.plan.version, following.plan.runs["n2"]) == (3, 2, "y")


def test_what_a_lost_node_forgot_is_told_by_the_tick_of_the_ingress_or_is_not_known() -> None:
    """a: n1 → n2, b: n2 only, c: n2 → n1; n2 loses everything."""
    before = Plan(1, 1, "acyclic", NODES, {"a": ("n1", "n2"), "b": ("n2",), "c": ("n2", "n1")}, (), runs={"n2": "x"})
    after = Plan(2, 1, "acyclic", NODES, dict.fromkeys("abc", ("n1",)), (), runs={"n2": "y"})
    nodes = {name: Node(name) for name in NODES}
    for node in nodes.values():
        node.prepare(1, 1, before.steps(node.name), {})
    nodes["n1"].publish([event("a", 1), event("a", 2)])
    nodes["n2"].publish([event("b", 1), event("c", 1)])
    nodes["n1"].transfer("n2", nodes["n2"].links["n1"])
    nodes["n2"] = Node("n2")
    transition = Transition(Record(after, behind=(before,), ended={"n2": (("b", 0),)}))
    perform(transition, nodes, 100)
    assert transition.finished
    ends = {stream: frames[-1].last for node in nodes.values() for stream, frames in node.egress.items()}
    assert ends == {(1, "a"): 3, (1, "b"): UNKNOWN_END, (0, "b"): UNKNOWN_END, (1, "c"): UNKNOWN_END}
    assert nodes["n1"].publish([event("b", 5, epoch=2)]) == [Answer(Verdict.OK, (2, 1))]
    assert nodes["n1"].links == {}


def test_a_node_that_is_lost_during_a_transition_ends_all_epochs_behind_together() -> None:
    record, nodes = moving()
    [before], after = record.behind, record.plan
    record = Record(with_runs("x", "x", after), behind=(with_runs("x", "x", before),))
    perform(Transition(record), nodes, 3)
    following = next_record(record, {}, "", planner, runs={"n1": "x", "n2": "y"})
    assert following is not None
    assert [plan.epoch for plan in following.behind] == [1, 2]
    assert {(old.region, old.epoch, bool(old.lost)) for old in following.old_epochs()} == {
        (region, epoch, True) for region in "ab" for epoch in (1, 2)
    }
    nodes["n2"] = Node("n2")
    transition = Transition(following)
    perform(transition, nodes, 100)
    assert transition.finished
    streams = {stream: frames for node in nodes.values() for stream, frames in node.egress.items()}
    assert {frames[-1].meta for (epoch, _), frames in streams.items() if epoch < 3} == {TICK_META}


def test_a_plan_that_was_never_announced_is_abandoned_and_leaves_nothing_behind() -> None:
    record, nodes = moving()
    [before], after = record.behind, record.plan
    record = Record(with_runs("x", "x", after), behind=(with_runs("x", "x", before),))
    perform(Transition(record), nodes, 1)
    following = next_record(record, {}, "", planner, runs={"n2": "y"}, announced=False)
    assert following is not None
    assert ([plan.epoch for plan in following.behind], [plan.epoch for plan in following.abandoned]) == ([1], [2])
    perform(Transition(following), nodes, 100)
    assert all(b"2 " not in field[:2] for node in nodes.values() for field in keyspace(node)[steps_key(node)])


def steps_key(node: Node) -> bytes:
    return NodeKeys(node.name).steps.encode()
