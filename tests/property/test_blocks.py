"""Blocks, beside what networkx finds in the same graph."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from sequencing import blocks as blocks_module
from sequencing.blocks import NO_BLOCK, blocks

Edges = frozenset[tuple[int, int]]

edge_sets = st.integers(1, 9).flatmap(
    lambda size: st.frozensets(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=5 * size)
)
RING = frozenset((at, other % 7) for at in range(7) for other in (at, at + 1))
TWO_RINGS_AT_A_REGION = RING | {(at + 7, (other - 7) % 7 + 7 if other else 0) for at, other in RING}


@given(edge_sets, st.booleans())
@example(RING, True)
@example(TWO_RINGS_AT_A_REGION, True)
@settings(max_examples=500, deadline=None)
def test_the_blocks_are_those_that_networkx_finds(edges: Edges, contracted: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "CONTRACTED_EDGES_MIN", 0 if contracted else 1_000)
        compare(edges)


def compare(edges: Edges) -> None:
    listed = sorted(edges)
    rows, columns = (np.array([edge[side] for edge in listed], np.int64) for side in (0, 1))
    size = max((max(edge) for edge in listed), default=0) + 1
    matrix = sparse.csr_array((np.ones(len(listed), np.int32), (rows, columns)), shape=(size, size))
    found: dict[int, set[tuple[int, int]]] = {}
    for edge, block in zip(listed, blocks(matrix).tolist(), strict=True):
        if block != NO_BLOCK:
            found.setdefault(block, set()).add(edge)
    assert {frozenset(block) for block in found.values()} == by_networkx(edges)


def by_networkx(edges: Edges) -> set[Edges]:
    graph: nx.Graph[tuple[str, int]] = nx.Graph((("row", row), ("column", column)) for row, column in edges)
    every = [
        frozenset((dict(edge)["row"], dict(edge)["column"]) for edge in block)
        for block in nx.biconnected_component_edges(graph)
    ]
    return {block for block in every if len(block) > 1}


def test_a_long_ring_is_one_block() -> None:
    size = 20_000
    rows = np.repeat(np.arange(size), 2)
    columns = np.stack([np.arange(size), (np.arange(size) + 1) % size], axis=1).ravel()
    ring = sparse.csr_array((np.ones(2 * size, np.int32), (rows, columns)), shape=(size, size))
    ring.sort_indices()
    assert set(blocks(ring).tolist()) == {0}
    open_ring = ring[1:]
    assert set(blocks(open_ring).tolist()) == {NO_BLOCK}
