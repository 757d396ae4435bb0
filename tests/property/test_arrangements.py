"""Every arrangement that is tried is sound, whatever the world, the nodes, the rates and the capacity."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement.candidates import candidates
from placement.capacity import CutLine
from placement.exact import optimum
from placement.objective import objective_for, path_weights, region_rates
from placement.orders import orders
from placement.planner import build, make_plan_and_report
from placement.search import Layout, improve
from placement.world import Items, World
from sequencing.arrangement import Tree, meetings
from sequencing.conditions import violations
from sequencing.membership import Membership
from sequencing.plan import Ordering

memberships = st.builds(
    Membership.of,
    st.dictionaries(
        st.sampled_from(["s1", "s2", "s3", "s4", "s5", "s6"]), st.frozensets(st.sampled_from("abcdefgh")), max_size=6
    ),
    st.frozensets(st.sampled_from("axy"), max_size=3),
)
orderings = st.sampled_from(["acyclic", "overlap", "causal"])
rates = st.dictionaries(st.sampled_from("abcdefghx"), st.sampled_from([0.0, 0.5, 3.0, 1e6]))
capacities = st.sampled_from([None, "receiver", 0.25, 1.0, 2.5, 6.0, 1e6, 1e9])


def asked(
    membership: Membership,
    nodes: int,
    ordering: Ordering,
    rates: dict[str, float],
    capacity: float | Literal["receiver"] | None,
) -> World:
    by_region = region_rates(membership, rates)
    objective = objective_for(membership, by_region, nodes, capacity)
    return World(meetings(membership, ordering), by_region, objective, nodes)


@given(memberships, st.integers(1, 6), orderings, rates, capacities)
@settings(max_examples=60, deadline=None)
def test_every_arrangement_is_sound_and_comes_to_what_it_says(
    membership: Membership,
    nodes: int,
    ordering: Ordering,
    rates: dict[str, float],
    capacity: float | Literal["receiver"] | None,
) -> None:
    world = asked(membership, nodes, ordering, rates, capacity)
    named = {f"n{number}": "" for number in range(nodes)}
    weights = dict(zip(membership.regions, path_weights(world.rates).tolist(), strict=True))
    for candidate in candidates(world, exact=False):
        plan, loads = build(membership, world, candidate, named, epoch=1, first_atom=1, ordering=ordering)
        assert violations(plan, membership) == {}, candidate.name
        assert plan.paths.keys() == set(membership.regions)
        counted = dict.fromkeys(named, 0.0)
        for region, rate in zip(membership.regions, world.rates.tolist(), strict=True):
            for node in plan.paths[region]:
                counted[node] += rate
        assert {name: loads.get(name, 0.0) for name in named} == pytest.approx(counted)
        length = sum(weights[region] * len(path) for region, path in plan.paths.items()) / (sum(weights.values()) or 1)
        assert candidate.length == pytest.approx(length)


@given(memberships, st.integers(1, 6), orderings, rates, capacities)
@settings(max_examples=60, deadline=None)
def test_the_chosen_plan_is_never_worse_than_the_plain_line(
    membership: Membership,
    nodes: int,
    ordering: Ordering,
    rates: dict[str, float],
    capacity: float | Literal["receiver"] | None,
) -> None:
    named = {f"n{number}": "" for number in range(nodes)}
    plan, report = make_plan_and_report(membership, named, ordering=ordering, rates=rates, capacity=capacity)
    assert violations(plan, membership) == {}
    assert report.tried[0].name == "line cuthill-mckee, even cuts"
    assert report.value <= min(tried.value for tried in report.tried) + 1e-9
    assert report.value >= asked(membership, nodes, ordering, rates, capacity).least_value - 1e-9 or not plan.paths
    again, _ = make_plan_and_report(membership, named, ordering=ordering, rates=rates, capacity=capacity)
    assert again == plan


@given(memberships, st.integers(1, 4), orderings, rates, capacities)
@settings(max_examples=40, deadline=None)
def test_no_plan_is_better_than_the_optimum(
    membership: Membership,
    nodes: int,
    ordering: Ordering,
    rates: dict[str, float],
    capacity: float | Literal["receiver"] | None,
) -> None:
    world = asked(membership, nodes, ordering, rates, capacity)
    assume(0 < len(world.items.rates) <= 8)
    tried = list(candidates(world, exact=False))
    least = min(candidate.value for candidate in tried)
    search = optimum(world.items, world.objective, nodes, known=least + 1e-6, looks_max=50_000)
    assume(search.complete)
    assert search.best is not None
    assert search.best.value <= least + 1e-9
    assert all(not candidate.optimal or candidate.value <= search.best.value + 1e-9 for candidate in tried)


@given(memberships, rates)
@settings(max_examples=100, deadline=None)
def test_every_order_has_each_class_once_and_keeps_components_together(
    membership: Membership, rates: dict[str, float]
) -> None:
    world = asked(membership, 1, "acyclic", rates, None)
    wanted = world.wanted
    neighbours = {int(c): {int(c)} for c in np.flatnonzero(wanted.ordered)}
    for a, b in zip(wanted.left.tolist(), wanted.right.tolist(), strict=True):
        merged = neighbours[a] | neighbours[b]
        for c in merged:
            neighbours[c] = merged
    for name, order in orders(wanted, world.class_rates):
        assert sorted(order.tolist()) == np.flatnonzero(wanted.ordered).tolist(), name
        runs = [frozenset(neighbours[c]) for c in order.tolist()]
        changes = sum(before != after for before, after in pairwise(runs))
        assert changes == max(0, len(set(runs)) - 1), name


lines = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.integers(0, 4)), min_size=1, max_size=8)


@given(lines, st.integers(1, 4), st.sampled_from([0.0, 1.0, 2.0, 3.5, 5.0, 8.0, 40.0]))
@settings(max_examples=300, deadline=None)
def test_cuts_under_a_capacity_are_the_best_of_all_cuts(
    slots: list[tuple[float, int]], blocks: int, capacity: float
) -> None:
    rate = np.array([rate for rate, _ in slots])
    last_slot = np.array([min(at + reach, len(slots) - 1) for at, (_, reach) in enumerate(slots)])
    line = CutLine(rate, rate + 1, last_slot)

    def comes_to(block_of: np.ndarray) -> tuple[float, float]:
        ends = block_of[last_slot]
        loads = [float(rate[(block_of <= block) & (block <= ends)].sum()) for block in range(blocks)]
        return max(loads), float((rate + 1) @ (ends - block_of))

    ways = _cuts(len(slots), blocks)
    every = [comes_to(np.searchsorted(np.array(cuts), np.arange(len(slots)), side="right")) for cuts in ways]
    assert line.least_peak(blocks) == pytest.approx(min(peak for peak, _ in every), abs=1e-6)
    possible = [crossing for peak, crossing in every if peak <= capacity]
    found = line.cut(blocks, capacity)
    assert (found is not None) == bool(possible)
    if found is not None:
        peak, crossing = comes_to(found)
        assert peak <= capacity + 1e-6
        assert crossing == pytest.approx(min(possible))


def _cuts(slots: int, blocks: int) -> list[tuple[int, ...]]:
    return [cuts for count in range(blocks) for cuts in combinations(range(1, slots), count)]


graphs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@given(
    graphs,
    st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=7, max_size=7),
    st.lists(st.integers(0, 3), min_size=7, max_size=7),
)
@settings(max_examples=60, deadline=None)
def test_searching_keeps_its_books_and_never_makes_things_worse(
    pairs: list[tuple[int, int]], rates: list[float], ingress: list[int]
) -> None:
    neighbours: list[set[int]] = [set() for _ in rates]
    for a, b in pairs:
        if a != b:
            neighbours[a].add(b)
            neighbours[b].add(a)
    items = Items([rate + 1 for rate in rates], rates, [sorted(near) for near in neighbours])
    objective = objective_for(Membership.of({}), np.array(rates), 4, 6.0)
    tree = Tree.towards([2, 2, 3, -1])
    found, work = improve(items, objective, tree, ingress, work_max=20_000, restarts=2)
    before, after = Layout(items, objective, tree, ingress), Layout(items, objective, tree, found)
    assert after.value <= before.value + 1e-9
    assert work <= 20_000 + 1_000
    assert (found, work) == improve(items, objective, tree, ingress, work_max=20_000, restarts=2)
    before.move({0: 3, 1: 0})
    again = Layout(items, objective, tree, before.ingress)
    assert again.egress == before.egress
    assert again.guide == pytest.approx(before.guide)
