"""Where a region begins that is new: with the others of its subscriber, so that joining it takes no epoch."""

from __future__ import annotations

import pytest

from placement.planner import make_plan
from sequencing.homes import Home, homes_of
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import Plan
from sequencing.record import Interest, Record

NODES = {"n1": "", "n2": "", "n3": ""}
PATHS = {"a": ("n2",), "b": ("n1", "n2"), "c": ("n3",), "d": ("n2",)}
OTHERS = {f"{node} {number}": (node,) for node in ("n1", "n2", "n3") for number in range(9)}
PLAN = Plan(7, 1, "acyclic", NODES, {**PATHS, **OTHERS}, (), {"a": 5, "b": 5, "d": 6}, first_epoch=1)


@pytest.mark.parametrize(
    ("members", "joins", "home"),
    [
        ("ab", "x", Home("n2", 5)),
        ("ab", "xy", Home("n2", 5)),
        ("a", "bx", Home("n2", 5)),
        ("", "ax", Home("n2", 5)),
        ("c", "x", Home("n3", 7)),
        ("ac", "x", None),  # at two nodes
        ("ad", "x", None),  # of two epochs
        ("", "xy", None),  # of no node yet
        ("ab", "a", None),  # nothing is new
    ],
)
def test_it_is_where_all_others_of_the_subscriber_end(members: str, joins: str, home: Home | None) -> None:
    missing = set(joins) - PATHS.keys()
    found = homes_of(PLAN, {"s": frozenset(members)}, {"s": frozenset(joins)}, missing, NODES)
    assert found == (dict.fromkeys(missing, home) if home is not None else {})


def test_the_first_of_two_subscribers_takes_a_region_home() -> None:
    joining = {"s": frozenset("x"), "t": frozenset("xy")}
    found = homes_of(PLAN, {"s": frozenset("a"), "t": frozenset("c")}, joining, "xy", NODES)
    assert found == {"x": Home("n2", 5), "y": Home("n3", 7)}


def test_nothing_goes_to_a_node_that_is_away_or_has_more_than_its_share() -> None:
    def found(plan: Plan, *nodes: str) -> dict[str, Home]:
        return homes_of(plan, {"s": frozenset("c")}, {"s": frozenset("x")}, "x", nodes)

    assert found(PLAN, "n1", "n2") == {}
    for crowd in range(5):
        paths = {**PATHS, **{f"crowd {number}": ("n3",) for number in range(crowd)}}
        plan = Plan(7, 1, "acyclic", NODES, paths, (), first_epoch=1)
        of_n3, all_visits = 1 + crowd, 5 + crowd
        assert bool(found(plan, *NODES)) == (of_n3 <= 1.5 * all_visits / 3), crowd


def test_a_subscriber_with_more_than_a_share_of_its_own_goes_on_at_its_node() -> None:
    mine = {f"mine {number}": ("n3",) for number in range(100)}
    plan = Plan(7, 1, "acyclic", NODES, {**OTHERS, **mine}, (), first_epoch=1)
    for members, home in ((frozenset(mine), {"x": Home("n3", 7)}), (frozenset([*mine][:50]), {})):
        assert homes_of(plan, {"s": members}, {"s": frozenset("x")}, "x", NODES) == home


def test_nothing_begins_in_the_first_epoch_of_a_network_that_has_another_one() -> None:
    plan = Plan(7, 1, "acyclic", NODES, {"a": ("n1",)}, (), {"a": 6}, first_epoch=6)
    assert homes_of(plan, {"s": frozenset("a")}, {"s": frozenset("x")}, "x", NODES) == {}


def test_a_subscriber_that_walks_over_new_regions_needs_no_epoch() -> None:
    def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
        return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom, ordering="acyclic")

    record = Record(Plan(2, 0, "acyclic", NODES, dict(OTHERS), (), first_epoch=1))
    since: dict[str, int] = {}
    epochs: list[int] = []
    for said in range(1, 5):
        since[f"cell {said}"] = said
        following = next_record(record, {"s": Interest(1, said, dict(since))}, (), planner)
        assert following is not None
        record = following.settled()
        epochs.append(record.plan.epoch)
    assert epochs == [2] * 4
    assert len({record.plan.paths[region] for region in since}) == 1
    assert {record.plan.epoch_of(region) for region in since} == {2}
