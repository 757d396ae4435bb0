"""What the planner says about its choice: capacities kept and missed, one node or several, and why."""

from __future__ import annotations

import math
import re

import pytest

from placement.objective import CAPACITY_PRICE, PlanObjective
from placement.planner import make_plan, make_plan_and_report
from placement.report import PlanReport
from sequencing.conditions import violations
from sequencing.errors import UsageError
from sequencing.joint import set_name
from sequencing.membership import Membership

THREE = {"n1": "", "n2": "", "n3": ""}
CHAIN = Membership.of({f"{who}{at}": ("abcdef"[at], "abcdef"[at + 1]) for at in range(5) for who in "st"})
"""a – b – c – d – e – f: everybody receives two regions."""
ALL = Membership.of({"s": "abcd", "t": "abcd", "u": "ab"})


def said(report: PlanReport) -> str:
    return " ".join(report.why)


def test_within_a_given_capacity_what_hangs_together_stays_on_one_node() -> None:
    plan, report = make_plan_and_report(CHAIN, THREE, capacity=6.0)
    assert set(plan.paths.values()) == {("n1",)}
    assert (report.rule, report.length, report.overload, report.optimal) == ("capacity", 1.0, 0.0, True)
    assert said(report) == (
        "One node is best: their 6 events/s are no more than the operator allows (6), and a second node would only "
        "lengthen paths."
    )


def test_a_smaller_capacity_takes_as_many_nodes_as_it_must_and_no_more() -> None:
    plan, report = make_plan_and_report(CHAIN, THREE, capacity=4.0)
    assert (report.peak, report.nodes_used, report.overload) == (4.0, 2, 0.0)
    assert report.length == pytest.approx(7 / 6)
    assert sorted(map(len, plan.paths.values())) == [1, 1, 1, 1, 1, 2]
    assert report.why == ()


def test_the_seeds_rule_is_kept_where_the_nodes_suffice() -> None:
    five = {f"n{number}": "" for number in range(1, 6)}
    plan, report = make_plan_and_report(CHAIN, five, capacity="receiver")
    assert (report.rule, report.capacity, report.peak, report.overload) == ("receiver", 2.0, 2.0, 0.0)
    assert violations(plan, CHAIN) == {}


def test_a_capacity_that_cannot_be_kept_is_missed_by_little_and_said_to_be() -> None:
    _, report = make_plan_and_report(CHAIN, THREE, capacity=2.0)
    assert report.overload == 1.0
    assert said(report) == (
        "The busiest node carries 3 events/s, 50.0% more than the operator allows: nothing better exists for 3 nodes."
    )


def test_regions_that_all_meet_are_named_when_no_number_of_nodes_can_help() -> None:
    _, report = make_plan_and_report(ALL, THREE, rates={"a": 5.0, "b": 2.0}, capacity=4.0)
    assert report.nodes_used == 1
    assert "Regions that must all be ordered against each other (a, c)" in said(report)
    assert "have 9 events/s" in said(report)
    assert "One node is best: each must be ordered against every other" in said(report)


def test_without_a_capacity_the_load_is_spread() -> None:
    plan, report = make_plan_and_report(CHAIN, THREE)
    assert (report.rule, report.nodes_used) == ("spread", 3)
    assert len({path[0] for path in plan.paths.values()}) == 3
    assert report.fair_share == 2.5


def test_a_spectator_of_everything_does_not_keep_the_load_from_being_spread() -> None:
    watched = Membership.of({**CHAIN.regions_of, "spectator": "abcdef"})
    assert make_plan_and_report(watched, THREE, ordering="overlap")[1].nodes_used == 3
    assert make_plan_and_report(watched, THREE, ordering="overlap", capacity="receiver")[1].nodes_used == 1


def test_loose_regions_on_other_nodes_do_not_hide_that_the_others_are_on_one() -> None:
    clique = Membership.of({"s": "abc", "t": "abc", "u": "ab"}, ["x", "y"])
    _, report = make_plan_and_report(clique, THREE)
    assert report.nodes_used == 3
    assert "One node is best for the regions that need order: each must be ordered against every other" in said(report)


def test_a_tight_world_stays_on_one_node_and_the_alternative_is_named() -> None:
    members = {f"{who}{a}{b}": a + b for a in "abcdefg" for b in "abcdefg" if a < b and a + b != "ag" for who in "st"}
    watched = Membership.of({**members, "all": "abcdefg"})
    _, report = make_plan_and_report(watched, {"n1": "", "n2": ""}, ordering="overlap")
    assert report.nodes_used == 1
    assert said(report) == (
        "One node is best: over 2 nodes, an event would visit 1.43 nodes on average, and the busiest node would still "
        "carry 100% of what it carries now."
    )


def test_components_get_nodes_of_their_own_where_that_costs_nothing() -> None:
    apart = Membership.of({f"{who}{island}": "abcdef"[island * 2 :][:2] for island in range(3) for who in "st"})
    for capacity in (None, "receiver", 100.0):
        plan, report = make_plan_and_report(apart, THREE, capacity=capacity)
        assert (plan.links, report.length) == (frozenset(), 1.0)
        if capacity != 100.0:
            assert report.peak == 2.0


@pytest.mark.parametrize("capacity", [0, -1.0, math.inf, math.nan])
def test_a_capacity_is_a_positive_number(capacity: float) -> None:
    with pytest.raises(UsageError, match="positive number of events/s"):
        make_plan(CHAIN, THREE, capacity=capacity)


@pytest.mark.parametrize("rate", [-1.0, math.inf, math.nan])
def test_a_rate_is_a_number_that_is_not_negative(rate: float) -> None:
    with pytest.raises(UsageError, match="region 'b' has a rate of"):
        make_plan(CHAIN, THREE, rates={"b": rate})


def test_without_any_events_all_regions_count_the_same() -> None:
    silent = make_plan(CHAIN, THREE, rates=dict.fromkeys("abcdef", 0.0))
    assert silent.paths == make_plan(CHAIN, THREE).paths


def test_a_region_at_rest_gets_a_short_path_too() -> None:
    plan = make_plan(CHAIN, THREE, rates={"a": 0.0, "f": 0.0})
    assert len(plan.paths["a"]) == len(plan.paths["f"]) == 1


def test_more_nodes_than_regions_leave_some_idle() -> None:
    plan, report = make_plan_and_report(Membership.of({"s": "a", "t": "b"}), THREE)
    assert (plan.paths, report.nodes_used) == ({"a": ("n1",), "b": ("n2",)}, 2)
    assert make_plan_and_report(Membership.of({"s": "a"}), THREE)[1].why == (
        "One node is best: there is nothing to share out.",
    )


def test_missing_a_capacity_is_worse_than_any_path_length() -> None:
    objective = PlanObjective("capacity", 5, 1.0, 10.0)
    assert objective.value(5.0, 10.0) == 5.0
    assert objective.value(1.0, 10.001) > 5.0
    assert objective.value(1.0, 20.0) == pytest.approx(1 + 5 + CAPACITY_PRICE)


def test_worlds_too_large_to_search_are_planned_from_lines() -> None:
    ring = {f"{who}{at}": (f"r{at}", f"r{(at + 1) % 500}") for at in range(500) for who in "st"}
    plan, report = make_plan_and_report(Membership.of(ring), THREE)
    assert {tried.name.split()[1].rstrip(",") for tried in report.tried} == {"cuthill-mckee", "spectral", "least-cut"}
    assert report.length < 1.01
    assert violations(plan, Membership.of(ring)) == {}


SIDE = 6


def grid_with_shots(*, sees: int) -> Membership:
    """Return a subscriber for each cell, which also has those around it, and an event over each border.

    ``sees``: whether of its neighbours (1), or none (0).
    """
    places = [(x, y) for x in range(SIDE) for y in range(SIDE)]
    around = range(-sees, sees + 1)
    members = {
        f"s{x}{y}": [
            f"{a}{b}" for a in (x + r for r in around) for b in (y + d for d in around) if {a, b} <= {*range(SIDE)}
        ]
        for x, y in places
    }
    borders = [((x, y), (x + right, y + 1 - right)) for x, y in places for right in (0, 1)]
    joint = {set_name([f"{x}{y}", f"{a}{b}"]) for (x, y), (a, b) in borders if max(a, b) < SIDE}
    return Membership.of(members, joint=frozenset(joint))


def test_events_over_borders_leave_no_node_with_far_more_than_the_mean_and_take_no_atom() -> None:
    plan, report = make_plan_and_report(grid_with_shots(sees=0), THREE)
    assert max(report.loads.values()) < 1.2 * sum(report.loads.values()) / 3
    assert {path[0] for path in plan.paths.values()} == {*THREE}
    assert (plan.atoms, report.why) == ((), ())


def test_a_node_that_carries_far_more_than_the_mean_is_told_with_what_relieves_it() -> None:
    world = grid_with_shots(sees=1)
    report = make_plan_and_report(world, THREE)[1]
    told = re.search(r"1\.5 times the mean of all nodes: `--capacity (\d+)` relieves it", said(report))
    assert told is not None
    relieved = make_plan_and_report(world, THREE, capacity=float(told[1]))[1]
    assert relieved.peak <= float(told[1]) < report.peak
    assert relieved.length > report.length
