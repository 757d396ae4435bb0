"""How many nodes a plan has and where: what is asked for decides, and no restriction makes a better plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placement.placing import EFFORTS, Objective
from placement.planning.places import WORTH_A_NODE, Task
from placement.planning.sizing import sized
from placement.topology import Topology, matrix
from sequencing.membership import Membership


def world(seed: int, *, stray: float = 0.25) -> tuple[Membership, Topology, dict[str, str]]:
    """Groups of servers that are near each other, as random places on a plane, and some that stray."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (8, 2))
    ms = np.hypot(*np.moveaxis(places[:, None] - places[None], -1, 0)) + 0.5
    np.fill_diagonal(ms, 0.2)
    topology = matrix([f"h{number}" for number in range(8)], ms)
    host_of = {f"s{number}": f"h{random.integers(8)}" for number in range(12)}
    stands = [int(host[1:]) for host in host_of.values()]
    regions_of: dict[str, set[str]] = {name: set() for name in host_of}
    for region in range(6):
        centre = stands[random.integers(12)]
        near = np.argsort(ms[centre][stands], kind="stable")[:4]
        for server in np.where(random.random(4) < stray, random.integers(12, size=4), near).tolist():
            regions_of[f"s{server}"].add(f"r{region}")
    return Membership.of({name: regions for name, regions in regions_of.items() if regions}), topology, host_of


def task(seed: int, objective: Objective = "mean", capacity: float | None = None) -> Task:
    membership, topology, host_of = world(seed)
    return Task.of(
        membership,
        topology,
        host_of=host_of,
        ordering="acyclic",
        objective=objective,
        rates={},
        capacity=capacity,
    )


QUICK = EFFORTS["quick"]


@pytest.mark.parametrize(("seed", "objective"), [(0, "mean"), (1, "mean"), (2, "stretch")])
def test_no_restriction_makes_a_better_plan(seed: int, objective: Objective) -> None:
    names = [f"n{number}" for number in range(1, 5)]
    free = task(seed, objective).best(names=names, effort=QUICK)
    work = task(seed).distances.workload
    receiver, total = float(work.received.max()), float(work.region_rates.sum())
    for capacity in (receiver, total / 3):
        limited = task(seed, objective, capacity).best(names=names, effort=QUICK)
        assert free.value <= limited.value * 1.01
    for count in (1, 3):
        assert free.value <= task(seed, objective).best(names=names[:count], effort=QUICK).value + 1e-9
    ruled = task(seed, objective).best(names=names, effort=QUICK, never_worse=True)
    assert free.value <= ruled.value + 1e-9
    if objective == "mean":
        assert ruled.figures.no_worse_than(ruled.central)
        assert bool(ruled.rule) is False or "Rejected" in ruled.rule


def test_the_number_is_the_smallest_that_is_nearly_as_good_and_says_what_others_bring() -> None:
    found = task(1).best(names=None, effort=QUICK)
    others = {other.used: other.value for other in found.others}
    assert all(value > found.value * (1 + WORTH_A_NODE) - 1e-9 for count, value in others.items() if count < found.used)
    assert all(value >= found.value / (1 + WORTH_A_NODE) - 1e-9 for value in others.values())
    answer = found.answer()
    assert answer.startswith(f"{found.used} node")
    assert all(host in answer for host in found.host_of.values())
    assert found.why()[0] == answer
    assert found.as_dict()["tried"] == found.tried > 5


def test_what_more_nodes_bring_is_said_without_a_network_that_uses_them() -> None:
    alone = replace(task(1).best(names=None, effort=QUICK), others=())
    assert replace(alone, most=alone.used + 1).answer().endswith("; more bring nothing.")
    assert "more" not in replace(alone, most=alone.used).answer()


def test_names_of_nodes_are_those_that_were_given() -> None:
    found = task(2).best(names=["left", "right"], effort=QUICK)
    assert set(found.host_of) <= {"left", "right"}
    assert set(found.plan.visits) <= {"left", "right"}


@pytest.mark.parametrize(
    ("zones", "rate", "capacity", "nodes", "why"),
    [
        (30, 400.0, 2_000.0, 6, "2,000 of 2,000 on the busiest node"),
        (
            30,
            400.0,
            470.0,
            30,
            "26 would do by the sum, but regions, and what must be ordered",
        ),
        (30, 1.0, 2_000.0, 1, "1 node: 30 events/s in all"),
        (3, 400.0, 100.0, 3, "none of the other numbers that were tried relieves it"),
    ],
)
def test_as_many_nodes_as_the_events_need(zones: int, rate: float, capacity: float, nodes: int, why: str) -> None:
    membership = Membership.of({f"s{zone}": {f"z{zone}"} for zone in range(zones)})
    found = sized(
        membership,
        ordering="acyclic",
        rates={f"z{zone}": rate for zone in range(zones)},
        capacity=capacity,
    )
    assert found.nodes <= nodes
    assert (found.report.nodes_used, why in found.why) == (min(nodes, found.nodes), True), found.why
    if not found.report.overload:
        assert found.nodes == nodes
