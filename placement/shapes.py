"""The oriented trees that arrangements are tried on.

Up to `ALL_SHAPES_MAX` vertices there are so few oriented trees that all of them can be tried; beyond, the planner
takes some in-trees that differ in what they are good at: the line for worlds that are long, the star for parts around
one hub, the binary tree for parts within parts, the broom for a line that starts in several places.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import networkx as nx

from sequencing.arrangement import Tree

ALL_SHAPES_MAX = 6
"""48 trees on six vertices; their number grows fivefold with each vertex."""


@lru_cache
def oriented_trees(size: int) -> tuple[Tree, ...]:
    """Return every oriented tree of a size, the line first; of two that differ in names or by reversing all edges, one.

    Reversed, all paths keep their lengths and loads, so the two serve equally well. Raises `ValueError` above
    `ALL_SHAPES_MAX`.
    """
    if not 1 <= size <= ALL_SHAPES_MAX:
        raise ValueError(f"all oriented trees are listed for 1 to {ALL_SHAPES_MAX} vertices, not for {size}")
    if size == 1:
        return (Tree.line(1),)
    trees: dict[str, Tree] = {_canonical(Tree.line(size)): Tree.line(size)}
    shapes: Iterator[Any] = nx.nonisomorphic_trees(size)
    for shape in shapes:
        edges = sorted(shape.edges)
        for turned in product((False, True), repeat=len(edges)):
            oriented = Tree(
                size, tuple((b, a) if swapped else (a, b) for (a, b), swapped in zip(edges, turned, strict=True))
            )
            trees.setdefault(_canonical(oriented), oriented)
    return tuple(trees.values())


@lru_cache
def in_trees(size: int) -> tuple[tuple[str, Tree], ...]:
    """Return named in-trees of a size, the line first.

    Their vertices are numbered as along a line that was folded into them. So the blocks of a cut line can be put on any
    of them, and near blocks are still near.
    """
    middle, last = size // 2, size - 1
    shapes = {
        "line": (*range(1, size), -1),
        "star": tuple(-1 if vertex == middle else middle for vertex in range(size)),
        "binary": _halves(0, size, -1),
        "broom": tuple(-1 if vertex == last else max(vertex + 1, middle) for vertex in range(size)),
    }
    different = {parents: name for name, parents in reversed(shapes.items())}
    return tuple((name, Tree.towards(parents)) for name, parents in shapes.items() if different[parents] == name)


def _halves(start: int, end: int, parent: int) -> tuple[int, ...]:
    """Return the parents of the vertices from start to end: their middle's is given, each half's is that middle."""
    if start >= end:
        return ()
    middle = (start + end) // 2
    return (*_halves(start, middle, middle), parent, *_halves(middle + 1, end, middle))


def _canonical(tree: Tree) -> str:
    """Return a text that trees share if and only if they differ in names or by reversing all edges."""
    near: dict[int, list[tuple[int, str]]] = {vertex: [] for vertex in range(tree.size)}
    for here, there in tree.edges:
        near[here].append((there, ">"))
        near[there].append((here, "<"))

    def text(vertex: int, come_from: int) -> str:
        return (
            "("
            + "".join(sorted(sign + text(other, vertex) for other, sign in near[vertex] if other != come_from))
            + ")"
        )

    least = min(text(vertex, -1) for vertex in near)
    swap = str.maketrans("<>", "><")
    for vertex, neighbours in near.items():
        near[vertex] = [(other, sign.translate(swap)) for other, sign in neighbours]
    return min(least, *(text(vertex, -1) for vertex in near))
