"""What the manager decides, and how it gets from one plan to the next whatever interrupts it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.planner import make_plan
from sequencing.frames import PublishedFrame
from sequencing.manager import Transition, next_record
from sequencing.membership import Membership
from sequencing.node import Answer, Node, Verdict
from sequencing.plan import Plan
from sequencing.record import Record, Wish

NODES = {"n1": "", "n2": ""}


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def wish(regions: str, said: int = 1, incarnation: int = 1) -> Wish:
    return Wish(incarnation, said, dict.fromkeys(regions, said))


def settled(wishes: dict[str, Wish], record: Record | None = None, published: str = "") -> Record:
    before = record or Record(Plan(1, 1, "acyclic", NODES, {}, ()))
    following = next_record(before, wishes, published, planner)
    assert following is not None
    return replace(following, before=None)


TWO = {"s1": wish("ab"), "s2": wish("ab")}


def test_what_must_be_ordered_anew_begins_an_epoch() -> None:
    record = settled(TWO)
    assert (record.plan.epoch, [atom.regions for atom in record.plan.atoms]) == (2, [("a", "b")])
    assert record.members == {"s1": {"a", "b"}, "s2": {"a", "b"}}


def test_nothing_changes_while_nobody_wants_more() -> None:
    record = settled(TWO)
    assert next_record(record, TWO, "ab", planner) is None
    assert next_record(record, {"s1": wish("ab")}, "", planner) is None


def test_who_joins_what_the_atoms_order_already_is_granted_in_place() -> None:
    record = settled(TWO)
    joined = settled({**TWO, "s3": wish("ab")}, record)
    assert (joined.plan.epoch, joined.plan.version, joined.plan.atoms) == (2, 2, record.plan.atoms)
    assert joined.members["s3"] == {"a", "b"}


def test_a_region_that_is_only_published_to_gets_a_place_in_place() -> None:
    record = settled(TWO)
    published = settled(TWO, record, "c")
    assert (published.plan.epoch, published.plan.version, len(published.plan.paths["c"])) == (2, 2, 1)


def test_who_leaves_and_comes_back_is_granted_anew_and_nothing_else_changes() -> None:
    record = settled(TWO)
    left = {**TWO, "s2": Wish(1, 2, {"a": 1})}
    assert next_record(record, left, "", planner) is None
    back = settled({**TWO, "s2": Wish(1, 3, {"a": 1, "b": 3})}, record)
    assert (back.plan.epoch, back.plan.version, back.heard["s2"].said) == (2, 2, 3)


def test_a_new_connection_of_a_name_is_heard_even_if_it_wants_what_the_old_one_had() -> None:
    record = settled(TWO)
    again = settled({**TWO, "s2": wish("ab", incarnation=2)}, record)
    assert (again.plan.epoch, again.heard["s2"].incarnation) == (2, 2)


def test_other_components_keep_their_epoch_their_atoms_and_their_leavers() -> None:
    wishes = {**TWO, "s3": wish("cd"), "s4": wish("cd")}
    record = settled(wishes)
    changed = settled({**wishes, "s1": wish("a", 2), "s5": wish("ae"), "s6": wish("ae")}, record)
    assert {region: changed.plan.epoch_of(region) for region in "abcde"} == {"a": 3, "b": 3, "c": 2, "d": 2, "e": 3}
    assert {atom.regions for atom in changed.plan.atoms} == {("c", "d"), ("a", "e")}
    assert (changed.members["s1"], changed.members["s3"]) == ({"a"}, {"c", "d"})
    assert len({atom.id for atom in (*record.plan.atoms, *changed.plan.atoms)}) == 3


def moving() -> tuple[Plan, Plan, dict[str, Node]]:
    """Two regions of two nodes that change their ingresses, with an event of each under way."""
    before = Plan(1, 1, "acyclic", NODES, {"a": ("n1", "n2"), "b": ("n2",)}, ())
    after = Plan(2, 1, "acyclic", NODES, {"a": ("n2",), "b": ("n2", "n1")}, ())
    nodes = {name: Node(name) for name in NODES}
    for node in nodes.values():
        node.prepare(1, 1, before.steps(node.name), {})
    assert nodes["n1"].publish([event("a", 1)]) == [Answer(Verdict.OK, (1, 1))]
    assert nodes["n2"].publish([event("b", 1)]) == [Answer(Verdict.OK, (1, 1))]
    return before, after, nodes


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
    before, after, nodes = moving()
    perform(Transition(before, after), nodes, tasks_done)
    successor = Transition(before, after)
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
    before, after, nodes = moving()
    transition = Transition(before, after)
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
    before, after, nodes = moving()
    nodes["n1"].prepare(3, 1, [], {})
    transition = Transition(before, after)
    for task in transition.tasks():
        transition.done(task, task.perform(nodes[task.node]))
    assert not transition.prepared
    assert [task.node for task in transition.tasks()] == ["n1"]
