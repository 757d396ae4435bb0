"""Where the search for a network begins: everything on one node, lines cut for the load, and facilities."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx
import numpy as np

from placement.candidates import Candidate, candidates
from placement.costs import Costs
from placement.improvement import Improvement, Layout
from placement.objective import PlanObjective
from placement.topology import FloatArray, IntArray
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
        if count <= min(vertices, items, len(between)):
            yield _facilities(search, costs, between, count)


def _lines(search: Improvement, costs: Costs, vertices: int, limit: float) -> Iterator[Layout]:
    """Start from the planner's result for the loads, which ignores places."""
    for count in sorted({min(vertices, 4), vertices}):
        world = _world(costs, count, limit)
        rooted = [(candidate, _parents(candidate.arrangement.tree)) for candidate in candidates(world, exact=False)]
        best = sorted(rooted, key=lambda pair: pair[0].value)
        for candidate, parents in [pair for pair in best if pair[1] is not None][:LINES]:
            assert parents is not None
            yield search.start(parents, _ingress(world, candidate))


def _world(costs: Costs, vertices: int, limit: float) -> World:
    """Return the planner's task for the items: a class each, and no places."""
    items = len(costs.weight)
    singly = tuple(np.array([item]) for item in range(items))
    classes = TwinClasses(singly, np.full(items, 2))
    wanted = Meetings(classes, costs.left, costs.right, np.array(sorted(costs.twins), np.int64))
    rule = PlanObjective("receiver", vertices, float(costs.rates.sum()) / vertices, limit)
    return World(wanted, costs.rates, rule, vertices)


def _ingress(world: World, candidate: Candidate) -> IntArray:
    ingress = candidate.arrangement.ingress.copy()
    ingress[world.loose] = candidate.loose_vertex
    return ingress


def least_loaded(costs: Costs, vertices: int, limit: float) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the parents of a tree and the vertices that each item passes, for the least load above a limit.

    The planner's result on trees of any direction, rooted at their first vertex; of equal loads the shortest paths.
    """
    world = _world(costs, vertices, limit)
    best = min(candidates(world), key=lambda candidate: (max(candidate.peak, limit), candidate.length))
    tree, ingress = best.arrangement.tree, _ingress(world, best)
    egress = np.where(world.wanted.ordered, best.arrangement.egress, ingress)
    ways = [tuple(tree.walk(*ends)) for ends in zip(ingress.tolist(), egress.tolist(), strict=True)]
    return _rooted(tree), ways


def _rooted(tree: Tree) -> tuple[int, ...]:
    """Return the parent of each vertex, whatever the direction of the edges; trees of a forest are joined."""
    joined = nx.Graph(tree.edges)
    joined.add_nodes_from(range(tree.size))
    first, *others = (min(part) for part in nx.connected_components(joined))
    joined.add_edges_from((first, other) for other in others)
    over = {vertex: parent for parent, vertex in nx.bfs_edges(joined, 0)}
    return tuple(over.get(vertex, -1) for vertex in range(tree.size))


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
