"""Decisions for one node without the planner: as those of the manager with it, of random networks, step by step."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from placement.planner import make_plan
from sequencing.changes import changes_asked
from sequencing.conditions import violations
from sequencing.manager import following_record
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Record
from sequencing.sole import following_on_one_node, is_sole

NODES = {"n1": ""}
REGIONS = "abcdef"
NAMES = ("x", "y", "z")
WORLDS = 150
STEPS = 12


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def asked(random: Random, interests: dict[str, Interest], newest: int) -> dict[str, Interest]:
    """Some subscriber wants more, or less, or is gone, or comes back."""
    name = random.choice(NAMES)
    before = interests.get(name)
    if before is not None and random.random() < 0.2:
        return {other: interest for other, interest in interests.items() if other != name}
    said = (before.said if before is not None else 0) + 1
    kept = {region: since for region, since in (before.since if before else {}).items() if random.random() < 0.8}
    more = {region: said for region in random.sample(REGIONS, random.randint(0, 2)) if region not in kept}
    floor = random.choice((0, 0, 0, newest))
    return {**interests, name: Interest(before.incarnation if before else 1, said, {**kept, **more}, floor)}


def test_decisions_are_those_of_the_manager() -> None:
    epochs = granted = 0
    for seed in range(WORLDS):
        random = Random(seed)
        ordering: Ordering = random.choice(("acyclic", "overlap", "causal"))
        record = Record(Plan(1, 0, ordering, NODES, {}, ()))
        interests: dict[str, Interest] = {}
        run = "1"
        for _ in range(STEPS):
            interests = asked(random, interests, record.plan.epoch)
            run = str(int(run) + 1) if random.random() < 0.1 else run
            published = random.sample(REGIONS, random.randint(0, 1))
            changes = changes_asked(record, interests, published, runs={"n1": run})
            if changes is None:
                continue
            away = {"z": frozenset(random.sample(REGIONS, 2))} if random.random() < 0.3 else {}
            announced = random.random() < 0.8 or not record.plan.paths
            assert is_sole(record, NODES)
            found = following_on_one_node(record, changes, interests, nodes=NODES, announced=announced, away=away)
            wanted = following_record(record, changes, interests, planner, nodes=NODES, announced=announced, away=away)
            assert (found.plan.paths, found.plan.atoms, found.plan.runs) == (wanted.plan.paths, (), wanted.plan.runs)
            assert found.plan.epoch == wanted.plan.epoch
            assert not found.plan.epochs, "all regions are of one epoch"
            if found.plan.epoch == record.plan.epoch:
                assert found == replace(wanted, next_atom=found.next_atom), f"seed {seed}"
            else:  # there, who has left a region that keeps its epoch is counted until it begins another
                assert all(regions <= wanted.members[name] for name, regions in found.members.items()), f"seed {seed}"
                assert (found.heard, found.behind, found.abandoned) == (wanted.heard, wanted.behind, wanted.abandoned)
            assert not violations(found.plan, Membership.of(found.members, found.plan.paths))
            for name, regions in changes.joining.items():
                assert found.members[name] >= regions & interests[name].since.keys()
                granted += 1
            epochs += found.plan.epoch > record.plan.epoch
            record = found.settled() if random.random() < 0.8 else found
    assert min(epochs, granted) > 50


def test_declared_overlaps_take_no_epoch_where_the_node_orders_all() -> None:
    record = Record(Plan(1, 1, "overlap", NODES, {"a": ("n1",)}, ()))
    changes = changes_asked(record, {}, (), expected=[("a", "b")])
    assert changes is not None
    found = following_on_one_node(record, changes, {}, nodes=NODES, announced=True, away={})
    assert (found.plan.epoch, set(found.expected), set(found.plan.paths)) == (1, {("a", "b")}, {"a", "b"})


def test_several_nodes_or_atoms_need_the_planner() -> None:
    plan = Plan(1, 1, "acyclic", NODES, {"a": ("n1",)}, ())
    assert is_sole(Record(plan), NODES)
    assert not is_sole(Record(plan), {**NODES, "n2": ""})
    assert not is_sole(Record(plan, behind=(replace(plan, nodes={"n0": "", "n1": ""}),)), NODES)
    assert not is_sole(Record(make_plan(Membership.of({"x": "ab", "y": "bc"}), {"n0": ""}, ordering="acyclic")), NODES)


def test_regions_of_several_epochs_are_brought_together_by_a_join_of_both() -> None:
    plan = Plan(2, 1, "acyclic", NODES, {"a": ("n1",), "b": ("n1",), "c": ("n1",)}, (), epochs={"a": 1})
    interests = {"x": Interest(1, 1, {"a": 1, "b": 1})}
    record = Record(plan)
    changes = changes_asked(record, interests, ())
    assert changes is not None
    found = following_on_one_node(record, changes, interests, nodes=NODES, announced=True, away={})
    assert (found.plan.epoch, found.plan.epochs) == (3, {})
    assert found.members == {"x": frozenset("ab")}
