"""Cheap trees on which no wait exceeds a bound: Algorithm 6.9 of Kshemkalyani 2008, §6.11.4 (Kompella et al.).

Two departures from the book. It takes delays to be integers and computes C_d(x, y) for each d < Δ; here a delay is any
positive number, and paths are found by labels (cost, delay) of which none is worse than another in both; on integers
the outcome is the same. And where the book's criteria read P_D(s, u), the delay of the constrained cheapest path to u,
here it is the delay of the way to u *in the tree so far*, as in the paper: by the other one the tree can break the
bound that it is built for.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from placement.distribution.tree import DELAY, Distribution, Graph, cost_of, of_tree, require_multicast
from sequencing.errors import UsageError


@dataclass(frozen=True, slots=True)
class ConstrainedPath:
    """The cheapest path between two nodes whose delay is below the bound; of several the fastest."""

    cost: float
    delay_ms: float
    nodes: tuple[str, ...]


def cst_cd(graph: Graph, source: str, destinations: Collection[str], *, bound_ms: float) -> Distribution:
    """Build the tree by the cost of an edge over the delay that is left after it: f_CD."""
    return _constrained("CST_CD", graph, source, destinations, bound_ms, lambda cost, left_ms: cost / left_ms)


def cst_c(graph: Graph, source: str, destinations: Collection[str], *, bound_ms: float) -> Distribution:
    """Build the tree by the cost of an edge alone, as long as it keeps the bound: f_C."""
    return _constrained("CST_C", graph, source, destinations, bound_ms, lambda cost, left_ms: cost)


def constrained_paths(graph: Graph, start: str, *, bound_ms: float) -> dict[str, ConstrainedPath]:
    """Return the constrained cheapest path from ``start`` to each node that one leads to (step 1)."""
    cheapest: dict[str, ConstrainedPath] = {}
    fastest: dict[str, float] = {}
    labels: list[tuple[float, float, tuple[str, ...]]] = [(0.0, 0.0, (start,))]
    while labels:
        cost, delay_ms, nodes = heapq.heappop(labels)
        here = nodes[-1]
        if delay_ms >= fastest.get(here, math.inf):
            continue
        fastest[here] = delay_ms
        cheapest.setdefault(here, ConstrainedPath(cost, delay_ms, nodes))
        for following in graph.adj[here]:
            later_ms = delay_ms + float(graph.edges[here, following][DELAY])
            if later_ms < bound_ms and later_ms < fastest.get(following, math.inf):
                heapq.heappush(labels, (cost + cost_of(graph, here, following), later_ms, (*nodes, following)))
    return cheapest


def _constrained(
    kind: str,
    graph: Graph,
    source: str,
    destinations: Collection[str],
    bound_ms: float,
    criterion: Callable[[float, float], float],
) -> Distribution:
    require_multicast(graph, source, destinations)
    closure = {each: constrained_paths(graph, each, bound_ms=bound_ms) for each in (source, *destinations)}
    for each in destinations:
        if each not in closure[source]:
            least_ms = nx.dijkstra_path_length(graph, source, each, weight=DELAY)
            raise UsageError(
                f"no way from {source!r} to {each!r} takes less than {bound_ms:g} ms, the fastest takes {least_ms:g}: "
                "raise the bound"
            )
    expanded = _spanning(closure, source, destinations, bound_ms, criterion)
    edges = _without_loops(graph.edge_subgraph(expanded), source, destinations)
    return of_tree(kind, graph, edges, source=source, destinations=destinations)


def _spanning(
    closure: Mapping[str, Mapping[str, ConstrainedPath]],
    source: str,
    destinations: Collection[str],
    bound_ms: float,
    criterion: Callable[[float, float], float],
) -> list[tuple[str, str]]:
    """Grow a tree over the closure graph (step 2); return the graph's own edges that it stands for."""
    delay_ms = {source: 0.0}
    missing = set(destinations)
    edges: list[tuple[str, str]] = []
    while missing:
        # The way from the source itself is always among them, so there is always one that keeps the bound.
        choices = (
            (criterion(way.cost, bound_ms - so_far_ms - way.delay_ms), so_far_ms + way.delay_ms, member, joining)
            for member, so_far_ms in delay_ms.items()
            for joining in missing
            if (way := closure[member].get(joining)) is not None and so_far_ms + way.delay_ms < bound_ms
        )
        _, reached_ms, member, joining = min(choices)
        delay_ms[joining] = reached_ms
        missing.discard(joining)
        edges += pairwise(closure[member][joining].nodes)
    return edges


def _without_loops(expanded: Graph, source: str, destinations: Collection[str]) -> set[tuple[str, str]]:
    """Break loops (step 3): of the edges, keep each destination's way of the least delay, which keeps the bound too."""
    paths = nx.single_source_dijkstra_path(expanded, source, weight=DELAY)
    return {edge for each in destinations for edge in pairwise(paths[each])}
