"""Blocks (biconnected components) of a bipartite incidence graph: which edges lie on a cycle together.

A depth-first search finds them (Tarjan, Hopcroft), and in Python it takes some 2 µs an edge. In worlds where neighbours
see the same regions most of that is needless: two subscribers with regions a and b close a cycle of four edges, so
whatever is joined by such cycles is known to be in one block beforehand, and only the rest is searched:

- Each part that is joined already becomes a star: a centre, linked to the part's vertices. No cycle through two other
  edges comes or goes by that, except that the star's centre may separate what the part itself would connect.
- So the blocks of the graph are those of the small one, where those that meet in a centre count as one.

Only regions near each other in a subscriber's sorted row are looked at for such cycles: that is linear in the edges
however many regions a subscriber has, and what it misses the search finds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

IntArray = npt.NDArray[np.int64]
NO_BLOCK = -1

CONTRACTED_EDGES_MIN = 1_000
"""Below, the search alone is done before the contraction is."""

NEARBY = (1, 2)
"""Places apart in a row: in a grid whose cells are named row by row, neighbours in both directions."""


def blocks(incidence: sparse.csr_array) -> IntArray:
    """Return the block of each edge, `NO_BLOCK` for an edge on no cycle.

    ``incidence`` has sorted rows without duplicates; edges are in the order of its entries. 1.5 s for 2,500,000 edges
    of a grid world, 6 s where no two subscribers share two regions.
    """
    vertices = sum(incidence.shape)
    rows = np.repeat(np.arange(incidence.shape[0], dtype=np.int64), np.diff(incidence.indptr))
    columns = incidence.indices.astype(np.int64) + incidence.shape[0]
    if len(rows) < CONTRACTED_EDGES_MIN:
        return _search(rows, columns, vertices)
    part_of = _joined_by_fours(rows, columns, vertices)
    joined, alone = np.flatnonzero(part_of != NO_BLOCK), np.flatnonzero(part_of == NO_BLOCK)
    parts = int(part_of.max(initial=NO_BLOCK)) + 1
    # The small graph: edges of no part as they are, and a star for each part. A vertex whose edges are all in one part
    # would be a leaf of it.
    between = _between_parts(rows, columns, part_of, vertices)
    part, vertex = np.r_[part_of[joined], part_of[joined]], np.r_[rows[joined], columns[joined]]
    rays = np.unique((part * vertices + vertex)[between[vertex]])
    centre, tip = rays // vertices, rays % vertices
    tails, heads = np.r_[rows[alone], centre + vertices], np.r_[columns[alone], tip]
    small = _search(tails, heads, vertices + parts)
    of_alone, of_rays = small[: len(alone)], small[len(alone) :]
    # Blocks that meet in a centre are one: number them anew together with the parts.
    on_cycle = of_rays != NO_BLOCK
    found = int(small.max(initial=NO_BLOCK)) + 1
    number = _components(centre[on_cycle], of_rays[on_cycle] + parts, parts + found)
    block_of = np.full(len(rows), NO_BLOCK, np.int64)
    block_of[joined] = number[part_of[joined]]
    on_cycle = of_alone != NO_BLOCK
    block_of[alone[on_cycle]] = number[of_alone[on_cycle] + parts]
    return block_of


def _joined_by_fours(rows: IntArray, columns: IntArray, vertices: int) -> IntArray:
    """Return for each edge the part that cycles of four edges join it to, `NO_BLOCK` for none."""
    edges = len(rows)
    nearby = [np.flatnonzero(rows[gap:] == rows[:-gap]) for gap in NEARBY if gap < edges]
    first = np.concatenate([np.empty(0, np.int64), *nearby])
    second = np.concatenate([np.empty(0, np.int64), *(at + gap for at, gap in zip(nearby, NEARBY, strict=False))])
    unique, pair_of, count = np.unique(
        columns[first] * vertices + columns[second], return_inverse=True, return_counts=True
    )
    shared = count[pair_of] > 1
    first, second, pair_of = first[shared], second[shared], pair_of[shared] + edges
    label = _components(np.r_[first, second], np.r_[pair_of, pair_of], edges + len(unique))[:edges]
    joined = np.zeros(edges, bool)
    joined[first] = joined[second] = True
    result = np.full(edges, NO_BLOCK, np.int64)
    result[joined] = np.unique(label[joined], return_inverse=True)[1]
    return result


def _between_parts(rows: IntArray, columns: IntArray, part_of: IntArray, vertices: int) -> npt.NDArray[np.bool_]:
    """Return which vertices have edges that are not all in one part."""
    lowest, highest = np.full(vertices, len(rows)), np.full(vertices, NO_BLOCK)
    for ends in (rows, columns):
        np.minimum.at(lowest, ends, part_of)
        np.maximum.at(highest, ends, part_of)
    return lowest < highest


def _components(tails: IntArray, heads: IntArray, vertices: int) -> IntArray:
    """Return the connected component of each vertex."""
    graph = sparse.csr_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(vertices, vertices))
    return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _search(tails: IntArray, heads: IntArray, vertices: int) -> IntArray:
    """Return the block of each edge of a simple graph by depth-first search, `NO_BLOCK` for an edge on no cycle."""
    block_of = np.full(len(tails), NO_BLOCK, np.int64)
    alive = _without_leaves(tails, heads, vertices)
    used, ends = np.unique(np.r_[tails[alive], heads[alive]], return_inverse=True)
    edges, count = len(alive), len(used)
    order = np.argsort(ends, kind="stable")
    start = np.r_[0, np.cumsum(np.bincount(ends, minlength=count))].tolist()
    neighbour = np.r_[ends[edges:], ends[:edges]][order].tolist()
    edge = (order % edges if edges else order).tolist()
    block_of[alive] = _depth_first(start, neighbour, edge, edges)
    return block_of


def _without_leaves(tails: IntArray, heads: IntArray, vertices: int, rounds: int = 3) -> IntArray:
    """Return the edges that are left after taking leaves off a few times: it saves time, and no more depends on it."""
    alive = np.arange(len(tails))
    for _ in range(rounds):
        degree = np.bincount(np.r_[tails[alive], heads[alive]], minlength=vertices)
        alive = alive[(degree[tails[alive]] > 1) & (degree[heads[alive]] > 1)]
    return alive


def _depth_first(start: list[int], neighbour: list[int], edge: list[int], edges: int) -> list[int]:
    """Search the graph whose vertex v has the arcs ``start[v]`` … ``start[v + 1]``; see `_search`."""
    block_of = [NO_BLOCK] * edges
    found = 0
    upcoming = start[:-1]
    visited = [0] * len(upcoming)
    lowest = [0] * len(upcoming)
    clock = 0
    open_edges: list[int] = []
    for root in range(len(upcoming)):
        if visited[root]:
            continue
        clock += 1
        visited[root] = lowest[root] = clock
        # The way from the root to here: each vertex, the edge that led to it, and how many edges were open before.
        way, led_by, opened = [root], [NO_BLOCK], [0]
        while way:
            here = way[-1]
            arc = upcoming[here]
            if arc < start[here + 1]:
                upcoming[here] = arc + 1
                there = neighbour[arc]
                seen = visited[there]
                if not seen:
                    clock += 1
                    visited[there] = lowest[there] = clock
                    opened.append(len(open_edges))
                    open_edges.append(edge[arc])
                    way.append(there)
                    led_by.append(edge[arc])
                elif seen < visited[here] and edge[arc] != led_by[-1]:
                    open_edges.append(edge[arc])
                    if seen < lowest[here]:
                        lowest[here] = seen
                continue
            way.pop()
            led_by.pop()
            before = opened.pop()
            if not way:
                break
            if lowest[here] < visited[way[-1]]:
                lowest[way[-1]] = min(lowest[way[-1]], lowest[here])
                continue
            # Nothing below reaches above the vertex that we return to: what was opened since is a block.
            if len(open_edges) - before > 1:
                for inside in open_edges[before:]:
                    block_of[inside] = found
                found += 1
            del open_edges[before:]
    return block_of
