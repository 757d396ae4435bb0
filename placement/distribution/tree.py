"""The costs of a way of distributing: Kshemkalyani 2008, §6.11.3.

Graphs are undirected; an edge has ``delay_ms`` (from 0 on), and ``cost`` where that is something else than its delay
(what its bandwidth costs, say). A tree's *network cost* counts each edge once, its *destination cost* is the mean cost
of the path from the source to a destination. The book divides by |N'|; here N' are the destinations, and the source,
whose path is empty, is not one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import networkx as nx

from sequencing.errors import UsageError

DELAY = "delay_ms"
COST = "cost"

Graph: TypeAlias = "nx.Graph[str]"


@dataclass(frozen=True, slots=True)
class Distribution:
    """How one multicast reaches its destinations, and what that costs.

    ``edges``: the edges used, for each of the paths that use it where nothing is shared. ``delays_ms``: destination →
    delay from the source. ``messages``: how many times the multicast crosses an edge.
    """

    kind: str
    edges: tuple[tuple[str, str], ...]
    network_cost: float
    destination_cost: float
    delays_ms: Mapping[str, float]
    messages: int

    @property
    def delay_max_ms(self) -> float:
        """When the last destination has it."""
        return max(self.delays_ms.values())


def of_tree(
    kind: str,
    graph: Graph,
    edges: Iterable[tuple[str, str]],
    *,
    source: str,
    destinations: Collection[str],
    messages: int | None = None,
) -> Distribution:
    """Return what a tree costs that spans source and destinations; ``messages``: if not one an edge."""
    tree = graph.edge_subgraph([(u, v) for u, v in edges])
    used = tuple(sorted((min(edge), max(edge)) for edge in tree.edges))
    paths = nx.single_source_shortest_path(tree, source) if used else {source: [source]}
    return Distribution(
        kind,
        used,
        sum(cost_of(graph, u, v) for u, v in used),
        _mean(path_cost(graph, paths[each]) for each in destinations),
        {each: path_delay_ms(graph, paths[each]) for each in destinations},
        len(used) if messages is None else messages,
    )


def of_paths(kind: str, graph: Graph, paths: Mapping[str, list[str]]) -> Distribution:
    """Return what separate copies cost, one along each path, destination → its path from the source."""
    used = tuple((min(u, v), max(u, v)) for path in paths.values() for u, v in pairwise(path))
    return Distribution(
        kind,
        tuple(sorted(used)),
        sum(cost_of(graph, u, v) for u, v in used),
        _mean(path_cost(graph, path) for path in paths.values()),
        {destination: path_delay_ms(graph, path) for destination, path in paths.items()},
        len(used),
    )


def cost_of(graph: Graph, u: str, v: str) -> float:
    """Return the cost of an edge: its delay where it has none."""
    edge = graph.edges[u, v]
    return float(edge.get(COST, edge[DELAY]))


def path_cost(graph: Graph, path: list[str]) -> float:
    """Return the cost of a path."""
    return sum(cost_of(graph, u, v) for u, v in pairwise(path))


def path_delay_ms(graph: Graph, path: list[str]) -> float:
    """Return the delay of a path."""
    return sum(float(graph.edges[u, v][DELAY]) for u, v in pairwise(path))


def require_multicast(graph: Graph, source: str, destinations: Collection[str]) -> None:
    """Raise `UsageError` unless source and destinations are different nodes of one component of a usable graph."""
    if not destinations:
        raise UsageError("a multicast has at least one destination")
    for each in (source, *destinations):
        if each not in graph:
            raise UsageError(f"{each!r} is no node of the graph, which has {len(graph):,}")
    if source in destinations:
        raise UsageError(f"{source!r} is the source and a destination: it has what it sends")
    for u, v, edge in graph.edges(data=True):
        if not (edge.get(DELAY, -1) >= 0 and edge.get(COST, 0) >= 0):
            raise UsageError(f"the edge between {u!r} and {v!r} needs a {DELAY}, and a {COST} if any, from 0 on")
    cut_off = sorted(set(destinations).difference(nx.single_source_shortest_path_length(graph, source)))
    if cut_off:
        raise UsageError(f"no way leads from {source!r} to {cut_off[0]!r}: the graph is not connected")


def _mean(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return sum(values) / len(values)
