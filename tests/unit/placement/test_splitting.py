"""Rows of nodes that share what one would order too much of, and where atoms live."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from random import Random

import numpy as np
import pytest

from placement.atoms import spread_out
from placement.costs import Costs
from placement.splitting import Load, split


def passed(bits: int) -> int:
    return bits.bit_length() - (bits & -bits).bit_length() + 1


def test_what_is_within_the_limit_stays_on_one_node() -> None:
    found = split(Load([1.0, 2.0], [1.0, 1.0], [(0, 1)]), 3.0, Random(0))
    assert found is not None
    assert (found.size, found.nodes, found.length) == (1, (1, 1), 1.0)


def test_a_clique_is_spread_over_three_nodes_of_which_some_pass_all() -> None:
    clique = Load([1.0] * 6, [1.0] * 6, list(combinations(range(6), 2)))
    found = split(clique, 4.0, Random(0))
    assert found is not None
    assert found.size == 3
    for one, other in clique.pairs:
        assert found.nodes[one] & found.nodes[other]
    for node in range(3):
        assert sum(1 for bits in found.nodes if bits >> node & 1) <= 4
    # Two blocks of two items at each node; one of the three blocks is at the first and the last, and passes them all.
    assert found.length == pytest.approx((2 * 2 + 2 * 2 + 2 * 3) / 6)


def best_of_all(load: Load, limit: float, size: int) -> float:
    items = len(load.rates)
    least = float("inf")
    for bits in product(range(1, 1 << size), repeat=items):
        if all(bits[a] & bits[b] for a, b in load.pairs) and all(
            sum(rate for rate, its in zip(load.rates, bits, strict=True) if its >> node & 1) <= limit
            for node in range(size)
        ):
            least = min(least, sum(w * passed(its) for w, its in zip(load.weights, bits, strict=True)) / items)
    return least


@pytest.mark.parametrize("seed", range(4))
def test_small_rows_are_as_short_as_an_exhaustive_search_finds(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = random.uniform(1, 5, 4).tolist()
    pairs = [pair for pair in combinations(range(4), 2) if random.random() < 0.8]
    heaviest = max((rates[a] + rates[b] for a, b in pairs), default=0.0)
    limit = max(heaviest, 0.6 * sum(rates))
    load = Load(rates, [1.0] * 4, pairs)
    found = split(load, limit, Random(seed))
    least = min(best_of_all(load, limit, size) for size in (1, 2, 3, 4))
    if found is None:
        assert least == float("inf")
    else:
        assert found.length == pytest.approx(least)


def costs_of(rates: list[float], pairs: list[tuple[int, int]]) -> Costs:
    left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    items = len(rates)
    flat = np.zeros((items, 1))
    weights = np.ones(items) / items
    return Costs(
        flat, flat, weights, np.array(rates), left, right, tuple(np.array([i]) for i in range(items)), frozenset()
    )


def test_spreading_leaves_every_pair_an_atom_on_both_paths_and_every_vertex_within_the_limit() -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        items = int(random.integers(2, 14))
        rates = random.uniform(1, 9, items).tolist()
        pairs = [pair for pair in combinations(range(items), 2) if random.random() < 0.5]
        if not pairs:
            continue
        limit = max(*(rates[a] + rates[b] for a, b in pairs), 0.4 * sum(rates))
        parents = (1, 2, -1)
        ways = [tuple(range(start, 3)) for start in random.integers(3, size=items).tolist()]
        found = spread_out(costs_of(rates, pairs), parents, ways, limit, Random(seed))
        assert found.at.keys() == set(pairs)
        ordered: dict[int, set[int]] = {}
        for pair, vertex in found.at.items():
            assert all(vertex in found.ways[item] for item in pair)
            ordered.setdefault(vertex, set()).update(pair)
        for inside in ordered.values():
            assert sum(rates[item] for item in inside) <= limit * (1 + 1e-9)
        for way in found.ways:
            assert all(found.parents[here] == there for here, there in pairwise(way))
        assert found.parents.count(-1) == 1


def test_without_a_limit_nothing_is_spread() -> None:
    found = spread_out(costs_of([5.0, 5.0], [(0, 1)]), (-1,), [(0,), (0,)], np.inf, Random(0))
    assert (found.parents, found.ways, dict(found.at)) == ((-1,), ((0,), (0,)), {(0, 1): 0})
