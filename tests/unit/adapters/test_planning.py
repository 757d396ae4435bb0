"""The leader's planner: small components are spread over the nodes, and stay where they are when they are alone."""

from __future__ import annotations

from adapters.planning import planner_over
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
