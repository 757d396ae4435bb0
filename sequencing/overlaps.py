"""Which pairs of regions must be ordered against each other, by sparse algebra.

*Double overlaps* (seed 002 §3): with M the subscribers × regions incidence, MᵀM counts the common subscribers of
each pair of regions; a pair with two or more is double-overlapped, because those two could disagree.

*Rings.* Ordering double overlaps alone does not make the union of all delivery orders acyclic. Take three
subscribers and regions a, b, c with s1 ∈ a,b; s2 ∈ b,c; s3 ∈ c,a: no pair is double-overlapped, yet s1 may deliver
x∈a before y∈b, s2 y before z∈c, and s3 z before x. In general a cycle x₁ <ₛ₁ x₂ <ₛ₂ … <ₛₖ x₁ walks the bipartite
incidence graph from region to subscriber to region and closes, so it lies within one of that graph's blocks
(biconnected components): both edges (s, a) and (s, b) of each step do. Conversely a block that holds both lets the
cycle close. Hence the *observable* pairs: a, b such that some subscriber's two edges to them share a block. A double
overlap is the shortest such ring (a cycle of four edges) and is always among them; a region with a single subscriber
never is. Ordering exactly the observable pairs makes the union of all delivery orders acyclic; ordering fewer does not.

*Twins.* Regions with the same subscribers are indistinguishable to this question, so one of them stands for all:
worlds in which a few servers see many regions have few classes of twins however many regions they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from sequencing.membership import Membership

EXACT_BLOCKS_EDGES_MAX = 200_000
"""Above so many subscriptions, whole 2-cores stand in for blocks: more pairs are ordered than need be, never fewer."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TwinClasses:
    """Regions grouped by equal sets of subscribers: ``members[c]`` are the region indices of class c."""

    members: tuple[IntArray, ...]
    subscribers: IntArray
    """The number of subscribers that each class has."""

    @property
    def representatives(self) -> IntArray:
        """One region of each class."""
        return np.array([member[0] for member in self.members], np.int64)


def count_double_overlaps(membership: Membership) -> int:
    """Return the number of pairs of regions with two or more subscribers in common."""
    classes = twin_classes(membership)
    sizes = np.array([len(member) for member in classes.members], np.int64)
    left, right = _class_pairs(membership.incidence, classes, common_min=2)
    within = np.where(classes.subscribers >= 2, sizes * (sizes - 1) // 2, 0)
    return int(np.sum(sizes[left] * sizes[right]) + np.sum(within))


def overlapped_class_pairs(membership: Membership, classes: TwinClasses) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes whose regions are double-overlapped."""
    return _class_pairs(membership.incidence, classes, common_min=2)


def observable_class_pairs(membership: Membership, classes: TwinClasses) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes whose regions' order can be observed, directly or around a ring."""
    return _class_pairs(_split_by_block(membership.incidence), classes, common_min=1)


def twin_classes(membership: Membership) -> TwinClasses:
    """Group the regions by their sets of subscribers; classes are ordered by their first region."""
    by_region = membership.incidence.tocsc()
    by_region.sort_indices()
    members: dict[bytes, list[int]] = {}
    for region, (start, end) in enumerate(pairwise(by_region.indptr)):
        members.setdefault(by_region.indices[start:end].tobytes(), []).append(region)
    counts = np.diff(by_region.indptr)
    groups = tuple(np.array(group, np.int64) for group in members.values())
    return TwinClasses(groups, np.array([counts[group[0]] for group in groups], np.int64))


def _class_pairs(incidence: sparse.csr_array, classes: TwinClasses, *, common_min: int) -> tuple[IntArray, IntArray]:
    quotient = incidence[:, classes.representatives]
    common = sparse.triu(quotient.T @ quotient, k=1).tocoo()
    enough = common.data >= common_min
    return common.row[enough].astype(np.int64), common.col[enough].astype(np.int64)


def _split_by_block(incidence: sparse.csr_array) -> sparse.csr_array:
    """Return the incidence with a row for each (subscriber, block) and without edges that lie on no cycle."""
    edges = incidence.tocoo()
    block_of = _blocks(edges) if edges.nnz <= EXACT_BLOCKS_EDGES_MAX else _cores(edges)
    inside = block_of >= 0
    keys = edges.row[inside].astype(np.int64) * (len(block_of) + 1) + block_of[inside]
    unique, rows = np.unique(keys, return_inverse=True)
    data = np.ones(len(rows), np.int32)
    return sparse.csr_array((data, (rows, edges.col[inside])), shape=(len(unique), incidence.shape[1]))


def _blocks(edges: sparse.coo_array) -> IntArray:
    """Return the block of each edge, -1 for an edge on no cycle."""
    subscribers = edges.shape[0]
    graph: nx.Graph[int] = nx.Graph()
    index_of: dict[tuple[int, int], int] = {}
    for index, (subscriber, region) in enumerate(zip(edges.row.tolist(), edges.col.tolist(), strict=True)):
        graph.add_edge(subscriber, subscribers + region)
        index_of[subscriber, subscribers + region] = index
    block_of = np.full(edges.nnz, -1, np.int64)
    for block, block_edges in enumerate(nx.biconnected_component_edges(graph)):
        indices = [index_of[min(edge), max(edge)] for edge in block_edges]
        if len(indices) > 1:
            block_of[indices] = block
    return block_of


def _cores(edges: sparse.coo_array) -> IntArray:
    """Return the connected 2-core that each edge lies in, -1 for none: every block lies within one."""
    alive = np.ones(edges.nnz, bool)
    while True:
        rows = np.bincount(edges.row[alive], minlength=edges.shape[0])
        columns = np.bincount(edges.col[alive], minlength=edges.shape[1])
        leaves = alive & ((rows[edges.row] == 1) | (columns[edges.col] == 1))
        if not leaves.any():
            break
        alive &= ~leaves
    nodes = sum(edges.shape)
    between = edges.row[alive], edges.col[alive] + edges.shape[0]
    bipartite = sparse.csr_array((np.ones(int(alive.sum()), np.int8), between), shape=(nodes, nodes))
    _, component_of = csgraph.connected_components(bipartite, directed=False)
    return np.where(alive, component_of[edges.row], -1).astype(np.int64)
