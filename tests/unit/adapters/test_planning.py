"""The leader's planner: small components are spread over the nodes, and stay where they are when they are alone."""

from __future__ import annotations

import random

import pytest

from adapters.planning import planner_over
from placement.planner import make_plan_and_report
from sequencing.membership import Membership
from sequencing.plan import Plan

NODES = {"n1": "", "n2": "", "n3": ""}


def plan_of(before: Plan, *regions: str) -> Plan:
    return planner_over(NODES, "acyclic", before)(Membership.of({"s": regions}), before.epoch + 1, 1)


def test_a_small_component_goes_to_the_node_that_the_fewest_other_paths_visit() -> None:
    paths = {"a": ("n1",), "b": ("n1", "n2"), "c": ("n3",), "d": ("n3",), "x": ("n2",), "y": ("n2",)}
    before = Plan(5, 1, "acyclic", NODES, paths, ())
    assert set(plan_of(before, "x", "y").paths.values()) == {("n2",)}, "its own paths do not count"
    assert set(plan_of(before, "c", "d").paths.values()) == {("n3",)}
    assert set(plan_of(before, "a", "b", "new").paths.values()) == {("n1",)}


def test_without_a_plan_before_the_first_node_is_taken() -> None:
    found = planner_over(NODES, "acyclic")(Membership.of({"s": ("a", "b")}), 1, 1)
    assert set(found.paths.values()) == {("n1",)}


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_that_clients_wait_for_is_as_good_as_the_best_there_is_where_that_is_found_soon(seed: int) -> None:
    draw = random.Random(seed)
    regions = [f"r{number}" for number in range(5)]
    subscribers = {f"s{number}": draw.sample(regions, draw.randrange(1, 4)) for number in range(4)}
    membership = Membership.of(subscribers)
    nodes = dict.fromkeys(("n1", "n2", "n3"), "")
    _, patient = make_plan_and_report(membership, nodes)
    _, urgent = make_plan_and_report(membership, nodes, is_urgent=True)
    assert urgent.value <= patient.value + 1e-9
    assert len(urgent.tried) <= len(patient.tried)
