"""Unicast, and the trees without a bound on the delay: Kshemkalyani 2008, §6.11.1, §6.11.2 and §6.11.5."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import networkx as nx
from networkx.algorithms.approximation import steiner_tree

from placement.distribution.tree import (
    DELAY,
    Distribution,
    Graph,
    cost_of,
    of_paths,
    of_tree,
    require_multicast,
)


def unicast(graph: Graph, source: str, destinations: Collection[str]) -> Distribution:
    """Send a copy to each destination, by the path of the least delay; nothing is shared."""
    require_multicast(graph, source, destinations)
    paths = nx.single_source_dijkstra_path(graph, source, weight=DELAY)
    return of_paths("unicast", graph, {each: paths[each] for each in destinations})


def reverse_paths(graph: Graph, source: str, destinations: Collection[str], *, prune: bool = True) -> Distribution:
    """Forward only messages from the next hop towards the source: reverse path forwarding, §6.11.1.

    With ``prune``, return the tree that is left when all prune messages have been sent: nothing goes where no
    destination
    is. Without, Algorithm 6.7 as it is printed, a broadcast: each node that takes a message sends it on over all other
    links, and a node that gets it from elsewhere ignores it.
    """
    require_multicast(graph, source, destinations)
    next_hop = _next_hops(graph, source)
    if prune:
        edges = {edge for each in destinations for edge in pairwise(_walk(next_hop, each))}
        return of_tree("reverse paths", graph, edges, source=source, destinations=destinations)
    component = [source, *next_hop]
    messages = graph.degree[source] + sum(graph.degree[node] - 1 for node in next_hop)
    links = list(graph.edges(component))
    accepted = of_tree("", graph, next_hop.items(), source=source, destinations=destinations)
    return Distribution(
        "reverse paths, unpruned",
        accepted.edges,
        # Each link once in each direction, but for those of the tree, which nothing crosses upwards.
        2 * sum(cost_of(graph, u, v) for u, v in links) - accepted.network_cost,
        accepted.destination_cost,
        accepted.delays_ms,
        messages,
    )


def steiner(graph: Graph, source: str, destinations: Collection[str]) -> Distribution:
    """Return the cheap tree of Kou, Markowsky and Berman, §6.11.2: at most twice the cost of the cheapest."""
    require_multicast(graph, source, destinations)
    weighted: Graph = nx.Graph()
    within = nx.node_connected_component(graph, source)
    weighted.add_weighted_edges_from((u, v, cost_of(graph, u, v)) for u, v in graph.edges(within))
    tree = steiner_tree(weighted, [source, *destinations], weight="weight", method="kou")
    return of_tree("Steiner (KMB)", graph, tree.edges, source=source, destinations=destinations)


def core_based(graph: Graph, source: str, destinations: Collection[str], *, core: str | None = None) -> Distribution:
    """Graft the destinations onto a tree that grows from a core, §6.11.5; the source is not a member of it.

    A join goes from each destination towards the core until it meets the tree; so does what the source sends, and from
    there it floods the tree: its copies also go where the source's way did not need them, and that is counted.
    ``core``: the destinations' 1-median by delay if None.
    """
    require_multicast(graph, source, destinations)
    center = median(graph, destinations) if core is None else core
    require_multicast(graph, center, [source] if center != source else destinations)
    towards = _next_hops(graph, center)
    tree = {frozenset(edge) for each in destinations if each != center for edge in pairwise(_walk(towards, each))}
    members = {center, *destinations}.union(*tree)
    entry = [source]
    while entry[-1] not in members:
        entry.append(towards[entry[-1]])
    edges = {(min(edge), max(edge)) for edge in tree} | {(min(e), max(e)) for e in pairwise(entry)}
    return of_tree(f"core-based ({center})", graph, edges, source=source, destinations=destinations)


def median(graph: Graph, members: Collection[str]) -> str:
    """Return the node with the least mean delay to some others, the first by name of several."""
    total: dict[str, float] = {}
    for member in members:
        for node, delay_ms in nx.single_source_dijkstra_path_length(graph, member, weight=DELAY).items():
            total[node] = total.get(node, 0.0) + delay_ms
    return min(sorted(total), key=total.__getitem__)


def _next_hops(graph: Graph, root: str) -> dict[str, str]:
    """Return node → the next hop on its path of the least delay to the root: all of one tree."""
    paths = nx.single_source_dijkstra_path(graph, root, weight=DELAY)
    return {node: path[-2] for node, path in paths.items() if node != root}


def _walk(next_hop: dict[str, str], start: str) -> list[str]:
    way = [start]
    while way[-1] in next_hop:
        way.append(next_hop[way[-1]])
    return way
