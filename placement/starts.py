"""Where the search for a network begins: everything on one node, lines cut for the load, and facilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placement.candidates import candidates
from placement.costs import Costs
from placement.improvement import Improvement, Layout
from placement.objective import PlanObjective
from placement.topology import FloatArray
from placement.world import World
from sequencing.arrangement import Meetings, Tree
from sequencing.overlaps import TwinClasses

LINES = 2
FACILITIES = (2, 3, 4, 6, 8)
IMPROVEMENT_MIN = 1e-9
DETOUR_PRICE = 0.5
"""The weight of a ms from there to the root, when a facility chooses through which other one it is joined."""


def starts(search: Improvement, costs: Costs, between: FloatArray, vertices: int, limit: float) -> Iterator[Layout]:
    """Yield layouts on up to ``vertices`` vertices, the one with everything on one node first.

    ``limit``: events/s that a node should handle; lines are cut for it if one node would handle more.
    """
    items = len(costs.weight)
    yield search.start((-1,), np.zeros(items, np.int64))
    if vertices == 1:
        return
    if costs.rates.sum() > limit:
        yield from _lines(search, costs, vertices, limit)
    for count in FACILITIES:
        if count <= min(vertices, items):
            yield _facilities(search, costs, between, count)


def _lines(search: Improvement, costs: Costs, vertices: int, limit: float) -> Iterator[Layout]:
    """Start from the planner's result for the loads, which ignores places."""
    items = len(costs.weight)
    singly = tuple(np.array([item]) for item in range(items))
    classes = TwinClasses(singly, np.full(items, 2))
    wanted = Meetings(classes, costs.left, costs.right, np.array(sorted(costs.twins), np.int64))
    for count in sorted({min(vertices, 4), vertices}):
        rule = PlanObjective("receiver", count, float(costs.rates.sum()) / count, limit)
        found = candidates(World(wanted, costs.rates, rule, count), exact=False)
        rooted = [(candidate, _parents(candidate.arrangement.tree)) for candidate in found]
        best = sorted(rooted, key=lambda pair: pair[0].value)
        for candidate, parents in [pair for pair in best if pair[1] is not None][:LINES]:
            assert parents is not None
            # Items that need no atom have no ingress there; any will do to begin with.
            yield search.start(parents, np.maximum(candidate.arrangement.ingress, 0))


def _parents(tree: Tree) -> tuple[int, ...] | None:
    """Return the parent of each vertex, None if the tree is not an in-tree with one root."""
    over = dict(tree.edges)
    if len(over) < len(tree.edges) or len(over) != tree.size - 1:
        return None
    return tuple(over.get(vertex, -1) for vertex in range(tree.size))


def _facilities(search: Improvement, costs: Costs, between: FloatArray, count: int) -> Layout:
    """Start from a p-median: the hosts from which items are served best if each has the nearest, found by exchange."""
    served = costs.up + costs.down
    chosen = [int(served.sum(axis=0).argmin())]
    while len(chosen) < count:
        chosen.append(_best_added(served, chosen))
    improved = True
    while improved:
        improved = False
        for place in range(count):
            others = chosen[:place] + chosen[place + 1 :]
            better = _best_added(served, others)
            if _served(served, [*others, better]) < _served(served, chosen) - IMPROVEMENT_MIN:
                chosen[place], improved = better, True
    ingress = served[:, chosen].argmin(axis=1)
    weight = np.bincount(ingress, costs.weight, count)
    return search.valued(_joined(between[np.ix_(chosen, chosen)], int(weight.argmax())), chosen, ingress)


def _best_added(served: FloatArray, chosen: list[int]) -> int:
    known = served[:, chosen].min(axis=1) if chosen else np.full(len(served), np.inf)
    total = np.minimum(served, known[:, None]).sum(axis=0)
    total[chosen] = np.inf
    return int(total.argmin())


def _served(served: FloatArray, chosen: list[int]) -> float:
    return float(served[:, chosen].min(axis=1).sum())


def _joined(between: FloatArray, root: int) -> tuple[int, ...]:
    """Return parents that lead to the root, each by way of others as far as these are no great detour."""
    parents = [-1] * len(between)
    to_root = between[:, root].copy()
    joined = [root]
    for vertex in np.argsort(to_root, kind="stable").tolist():
        if vertex != root:
            parents[vertex] = min(joined, key=lambda over: between[vertex, over] + DETOUR_PRICE * to_root[over])
            to_root[vertex] = between[vertex, parents[vertex]] + to_root[parents[vertex]]
            joined.append(vertex)
    return tuple(parents)
