"""The exhaustive search against plans enumerated without any theory, and judged by the conditions alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from random import Random

import pytest

from placement.candidates import candidates
from placement.exact import optimum
from placement.objective import objective_for, region_rates
from placement.planner import best_of
from placement.shapes import in_trees, oriented_trees
from placement.world import World
from sequencing.arrangement import meetings
from sequencing.conditions import violations
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan


def world_of(membership: Membership, rates: dict[str, float], nodes: int, capacity: float | None) -> World:
    by_region = region_rates(membership, rates)
    objective = objective_for(membership, by_region, nodes, capacity)
    return World(meetings(membership, "overlap"), by_region, objective, nodes)


def plans(membership: Membership, nodes: int) -> Iterator[Plan]:
    """Every way to give each region some nodes in some order, with an atom of each pair on the first node it shares."""
    names = [f"n{number}" for number in range(nodes)]
    paths = [path for length in range(1, nodes + 1) for path in permutations(names, length)]
    for chosen in product(paths, repeat=len(membership.regions)):
        path_of = dict(zip(membership.regions, chosen, strict=True))
        atoms = [
            Atom(AtomId(number), pair, shared[0])
            for number, pair in enumerate(combinations(membership.regions, 2), start=1)
            if (shared := [node for node in path_of[pair[0]] if node in path_of[pair[1]]])
        ]
        yield Plan(1, 1, "overlap", dict.fromkeys(names, ""), path_of, tuple(atoms))


def value(world: World, regions: tuple[str, ...], plan: Plan) -> float:
    """The objective, computed from nothing but the plan's paths."""
    rate = dict(zip(regions, world.rates.tolist(), strict=True))
    loads = dict.fromkeys(plan.nodes, 0.0)
    for region, path in plan.paths.items():
        for node in path:
            loads[node] += rate[region]
    return world.objective.value(sum(loads.values()) / sum(rate.values()), max(loads.values()))


def enumerated(world: World, membership: Membership) -> float:
    valued = [
        (value(world, membership.regions, plan), number) for number, plan in enumerate(plans(membership, world.nodes))
    ]
    everything = list(plans(membership, world.nodes))
    return next(v for v, number in sorted(valued) if violations(everything[number], membership) == {})


def test_one_tree_of_each_kind_is_listed() -> None:
    assert [len(oriented_trees(size)) for size in range(1, 7)] == [1, 1, 2, 5, 15, 49]
    with pytest.raises(ValueError, match="1 to 6"):
        oriented_trees(7)


def test_named_trees_are_rooted_and_none_comes_twice() -> None:
    for size in range(1, 9):
        shapes = in_trees(size)
        assert shapes[0][0] == "line"
        assert len({tree for _, tree in shapes}) == len(shapes)
        for _, tree in shapes:
            assert (tree.meeting >= 0).all()


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_what_enumerating_all_plans_finds(seed: int) -> None:
    random = Random(seed)
    nodes = random.choice([2, 2, 3])
    regions = "abcd"[: 4 if nodes == 2 else 3]
    views = [pair for pair in combinations(regions, 2) if random.random() < 0.6]
    members = {f"{who}{number}": view for number, view in enumerate(views) for who in "st"}
    membership = Membership.of(members, regions)
    rates = {region: random.choice([1.0, 2.0, 5.0]) for region in regions}
    capacity = random.choice([None, sum(rates.values()) * random.choice([0.4, 0.6, 0.8])])
    world = world_of(membership, rates, nodes, capacity)
    search = optimum(world.items, world.objective, nodes)
    assert search.complete
    assert search.best is not None
    assert search.best.value == pytest.approx(enumerated(world, membership))
    assert best_of(list(candidates(world))).value == pytest.approx(search.best.value)


def test_a_world_with_twins_needs_no_more_than_one_path_for_both() -> None:
    membership = Membership.of({"s": "abc", "t": "abc", "u": "cd", "v": "cd"})
    world = world_of(membership, {"c": 2.0}, 2, 4.0)
    search = optimum(world.items, world.objective, 2)
    assert len(world.items.rates) == 3
    assert search.best is not None
    assert search.best.value == pytest.approx(enumerated(world, membership))


def test_zigzag_trees_are_searched_too() -> None:
    """Around a ring of seven, the best tree on four nodes is one with two roots and two leaves."""
    ring = {f"{who}{at}": ("abcdefg"[at], "abcdefg"[(at + 1) % 7]) for at in range(7) for who in "st"}
    rates = dict(zip("abcdefg", [1.0, 1.39, 1.14, 2.0, 1.0, 1.35, 1.0], strict=True))
    world = world_of(Membership.of(ring), rates, 4, 2.331)
    search = optimum(world.items, world.objective, 4)
    assert search.best is not None
    outgoing = {here for here, _ in search.best.tree.edges}
    assert len(set(range(4)) - outgoing) > 1, "several vertices lead nowhere, so this is no in-tree"


def test_what_is_known_is_only_beaten_and_a_limited_search_says_that_it_is_not_complete() -> None:
    membership = Membership.of({f"{who}{at}": ("abcdef"[at], "abcdef"[at + 1]) for at in range(5) for who in "st"})
    world = world_of(membership, {}, 3, 3.0)
    search = optimum(world.items, world.objective, 3)
    assert search.best is not None
    again = optimum(world.items, world.objective, 3, known=search.best.value)
    assert (again.best, again.complete) == (None, True)
    assert again.looks < search.looks
    assert not optimum(world.items, world.objective, 3, looks_max=5).complete
