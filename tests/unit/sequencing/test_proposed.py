"""Plans that an operator proposes: the network goes over to what fits, and to nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement.planner import make_plan
from sequencing.errors import PlanError
from sequencing.manager import next_record, proposed_record
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record
from sequencing.transition import Transition

NODES = {"n1": "", "n2": "", "n3": ""}


def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
    return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def interest(regions: str, said: int = 1, incarnation: int = 1) -> Interest:
    return Interest(incarnation, said, dict.fromkeys(regions, said))


BOTH = {"s1": interest("ab"), "s2": interest("ab"), "t": interest("cd")}


def settled(interests: dict[str, Interest] | None = None, record: Record | None = None) -> Record:
    before = record or Record(Plan(1, 1, "acyclic", NODES, {}, ()))
    following = next_record(before, interests or BOTH, "", planner)
    assert following is not None
    return following.settled()


def proposal(record: Record, paths: dict[str, tuple[str, ...]], *atoms: tuple[str, str]) -> Plan:
    """A plan with these paths, and atoms, regions and node each."""
    numbered = tuple(Atom(AtomId(number), tuple(regions), node) for number, (regions, node) in enumerate(atoms, 1))
    return replace(record.plan, paths=paths, atoms=numbered, epochs={})


def gone_over(record: Record, proposed: Plan, interests: dict[str, Interest] | None = None) -> Record | None:
    return proposed_record(record, proposed, interests or BOTH, nodes=NODES, there=NODES.keys(), away={})


def test_what_is_proposed_begins_an_epoch_of_its_own_and_all_else_stays() -> None:
    record = settled()
    found = gone_over(record, proposal(record, {"a": ("n2", "n3"), "b": ("n3",)}))
    assert found is not None
    plan = found.plan
    assert (plan.paths["a"], plan.paths["b"]) == (("n2", "n3"), ("n3",))
    assert [plan.epoch_of(region) for region in "abcd"] == [3, 3, 2, 2]
    assert (plan.paths["c"], found.members, found.heard) == (record.plan.paths["c"], record.members, record.heard)
    assert found.behind == (record.plan,)
    assert {task.node for task in Transition(found).tasks()} >= {"n2", "n3"}


def test_atoms_get_numbers_that_no_epoch_has_had() -> None:
    record = replace(settled(), next_atom=41)
    found = gone_over(record, proposal(record, {"a": ("n2", "n3"), "b": ("n2",)}, ("ab", "n2")))
    assert found is not None
    assert [(atom.id, atom.regions, atom.node) for atom in found.plan.atoms] == [(41, ("a", "b"), "n2")]
    assert found.next_atom == 42


def test_what_there_is_already_changes_nothing() -> None:
    record = settled()
    assert gone_over(record, record.plan) is None
    found = gone_over(record, proposal(record, {"a": ("n2", "n3"), "b": ("n2",)}, ("ab", "n2")))
    assert found is not None
    again = proposal(record, {"a": ("n2", "n3"), "b": ("n2",), "gone": ("n1",)}, ("ab", "n2"))
    assert gone_over(found.settled(), again) is None


@pytest.mark.parametrize(
    ("paths", "atoms", "reason"),
    [
        ({"a": ("n2",)}, (), "region 'b' belongs to what would move"),
        ({"a": ("n2",), "b": ("n3",)}, (), "C4"),
        ({"a": ("n2", "n3"), "b": ("n3", "n2")}, (("ab", "n2"),), "C3"),
        ({"a": ("n9",), "b": ("n9",)}, (), "node n9 does not answer"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    paths: dict[str, tuple[str, ...]], atoms: tuple[tuple[str, str], ...], reason: str
) -> None:
    record = settled()
    proposed = replace(proposal(record, paths, *atoms), nodes={**NODES, "n9": ""})
    with pytest.raises(PlanError, match=reason):
        gone_over(record, proposed)


def test_what_is_on_a_silent_node_cannot_move() -> None:
    record = settled()
    there = {name: url for name, url in NODES.items() if name != record.plan.paths["a"][0]}
    elsewhere = min(there)
    with pytest.raises(PlanError, match="does not answer"):
        proposed_record(
            record,
            proposal(record, {"a": (elsewhere,), "b": (elsewhere,)}),
            BOTH,
            nodes=there,
            there=there.keys(),
            away={},
        )


def test_a_node_that_the_plan_does_not_have_yet_gets_its_url_from_the_leader() -> None:
    record = settled()
    proposed = replace(proposal(record, {"a": ("n4",), "b": ("n4",)}), nodes={"n4": ""})
    found = proposed_record(record, proposed, BOTH, nodes={**NODES, "n4": "redis://four"}, there=NODES.keys(), away={})
    assert found is not None
    assert (found.plan.nodes["n4"], found.plan.paths["a"]) == ("redis://four", ("n4",))


def test_a_plan_of_another_network_or_order_is_refused() -> None:
    record = settled()
    for other in (replace(record.plan, first_epoch=99), replace(record.plan, ordering="overlap")):
        with pytest.raises(PlanError, match="another"):
            gone_over(record, replace(other, paths={"a": ("n2",), "b": ("n2",)}))


def test_who_asks_for_more_meanwhile_is_still_heard() -> None:
    record = settled()
    asking = {**BOTH, "s1": Interest(1, 2, {"a": 1, "b": 1, "c": 2}), "new": interest("a", 5)}
    found = gone_over(record, proposal(record, {"a": ("n3",), "b": ("n3",)}), asking)
    assert found is not None
    assert (found.members, found.heard) == (record.members, record.heard)
    served = next_record(found.settled(), asking, "", planner)
    assert served is not None
    assert served.members["s1"] == {"a", "b", "c"}
    assert served.members["new"] == {"a"}


def test_a_leader_that_has_loaded_the_record_counts_the_same_although_it_knows_no_regions_that_were_heard() -> None:
    record = settled()
    loaded = replace(record, heard={name: replace(heard, since={}) for name, heard in record.heard.items()})
    found = gone_over(loaded, proposal(record, {"a": ("n3",), "b": ("n3",)}))
    assert found is not None
    assert (found.members, found.heard) == (record.members, loaded.heard)


def test_the_same_paths_with_an_atom_elsewhere_are_another_plan() -> None:
    record = settled()
    paths: dict[str, tuple[str, ...]] = {"a": ("n1", "n2", "n3"), "b": ("n1", "n2")}
    found = gone_over(record, proposal(record, paths, ("ab", "n1")))
    assert found is not None
    again = gone_over(found.settled(), proposal(record, paths, ("ab", "n2")))
    assert again is not None
    assert [atom.node for atom in again.plan.atoms] == ["n2"]


def test_who_has_left_counts_no_more_and_who_may_come_back_does() -> None:
    record = settled()
    left = {"s1": interest("a"), "s2": interest("a"), "t": BOTH["t"]}
    apart = proposal(record, {"a": ("n2",), "b": ("n3",)})
    found = gone_over(record, apart, left)
    assert found is not None
    assert found.members == {"s1": {"a"}, "s2": {"a"}, "t": {"c", "d"}}
    away = {"s2": frozenset("ab")}
    with pytest.raises(PlanError, match="C4"):
        proposed_record(record, apart, {"t": BOTH["t"]}, nodes=NODES, there=NODES.keys(), away=away)


def test_who_came_back_as_another_incarnation_is_served_by_the_next_record() -> None:
    record = settled()
    back = {**BOTH, "s1": interest("ab", 1, incarnation=2)}
    found = gone_over(record, proposal(record, {"a": ("n3",), "b": ("n3",)}), back)
    assert found is not None
    assert found.heard["s1"].incarnation == 1
    served = next_record(found.settled(), back, "", planner)
    assert served is not None
    assert served.heard["s1"].incarnation == 2
