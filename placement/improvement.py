"""Local search over ingresses, the tree's shape and the hosts at once.

A *sweep* values every move of one kind and carries out the best ones together, as far as together they are still the
best: single items to any vertex; then all items that enter at a vertex to another one; then two items that have to
meet, both to one vertex; then vertices to other places in the tree. After that the hosts are chosen again for the
present paths (`placement.siting`), and so on until nothing improves. Then some items are displaced at random and the
search begins again, as often as the effort allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from placement.costs import Costs
from placement.rooted import Limits, Pairs, RootedTree
from placement.siting import site
from placement.topology import FloatArray, IntArray

IMPROVEMENT_MIN = 1e-7
TOGETHER_MAX = 24
SWEEP_LOOKS_MAX = 5_000_000
"""Pairs examined in one sweep, some 10 ns each; if there are more moves, some are drawn."""
LOOKS_MAX = 500_000_000
"""In the whole search of a component; 64 groups of the paper's take a fifth of it."""
PAIR_MOVES_MAX = 4_000
ROUNDS_MAX = 12
DISPLACED_PART = 0.15
VERTEX_KICKED = 0.5
"""How often a vertex is displaced instead of items."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A tree, the hosts of its vertices (numbers of the shortlist), the ingress of each item, and the value in ms."""

    parents: tuple[int, ...]
    hosts: tuple[int, ...]
    ingress: IntArray
    value: float


class Improvement:
    """A search on one set of items and hosts. ``between``: ms between the hosts that the costs are for."""

    def __init__(self, costs: Costs, between: FloatArray, limits: Limits, *, roomy: bool) -> None:
        self.costs, self.between, self.limits, self.roomy = costs, between, limits, roomy
        self.pairs = Pairs(costs)
        self.looks = 0
        self._drawn = np.random.default_rng(0)

    def tree(self, parents: Sequence[int], hosts: Sequence[int]) -> RootedTree:
        """Return a tree on these hosts."""
        return RootedTree(parents, hosts, self.costs, self.between)

    def start(self, parents: Sequence[int], ingress: IntArray) -> Layout:
        """Return a layout with the best hosts for given paths."""
        anywhere = [vertex % len(self.between) for vertex in range(len(parents))]
        ways = self.tree(parents, anywhere).ways(self.pairs, ingress)
        hosts = site(parents, ways, self.costs, self.between, roomy=self.roomy)
        return self.valued(parents, hosts, ingress)

    def valued(self, parents: Sequence[int], hosts: Sequence[int], ingress: IntArray) -> Layout:
        """Return a layout as it is given."""
        value = float(self.tree(parents, hosts).values(self.pairs, ingress[None], self.limits)[0])
        return Layout(tuple(parents), tuple(hosts), ingress, value)

    def improve(self, layout: Layout) -> Layout:
        """Return a layout that no move improves, or as far as `ROUNDS_MAX` rounds lead."""
        for _ in range(ROUNDS_MAX):
            if self.looks > LOOKS_MAX:
                break
            before = layout.value
            layout = self._descend(layout)
            layout = self._resite(layout)
            if layout.value >= before - IMPROVEMENT_MIN:
                reshaped = self._reshape(layout)
                if reshaped.value >= layout.value - IMPROVEMENT_MIN:
                    break
                layout = reshaped
        return layout

    def settle(self, layout: Layout) -> Layout:
        """Return a layout with better ingresses and hosts for its tree."""
        return self._resite(self._descend(layout))

    def search(self, starts: Sequence[Layout], random: np.random.Generator, *, kicks: int) -> Layout:
        """Improve each start, and then the best of them again after each of ``kicks`` displacements."""
        best = min((self.improve(start) for start in starts), key=lambda layout: layout.value)
        for _ in range(kicks if self.looks <= LOOKS_MAX else 0):
            improved = self.improve(self._kicked(best, random))
            if improved.value < best.value - IMPROVEMENT_MIN:
                best = improved
        return best

    def _kicked(self, layout: Layout, random: np.random.Generator) -> Layout:
        """Displace some items, or a vertex: the items that enter there then choose again among all vertices."""
        free = np.setdiff1d(np.arange(len(self.between)), layout.hosts)
        if len(free) and random.random() < VERTEX_KICKED:
            hosts = list(layout.hosts)
            hosts[random.integers(len(hosts))] = int(random.choice(free))
            return self.valued(layout.parents, hosts, layout.ingress)
        ingress = layout.ingress.copy()
        displaced = random.random(len(ingress)) < max(DISPLACED_PART, 1.5 / max(len(ingress), 1))
        ingress[displaced] = random.integers(len(layout.parents), size=int(displaced.sum()))
        return self.valued(layout.parents, layout.hosts, ingress)

    def _resite(self, layout: Layout) -> Layout:
        ways = self.tree(layout.parents, layout.hosts).ways(self.pairs, layout.ingress)
        hosts = site(layout.parents, ways, self.costs, self.between, roomy=self.roomy)
        resited = self.valued(layout.parents, hosts, layout.ingress)
        return resited if resited.value < layout.value else layout

    def _descend(self, layout: Layout) -> Layout:
        tree = self.tree(layout.parents, layout.hosts)
        ingress, value = layout.ingress, layout.value
        kinds = [self._singles, self._wholes, self._doubles]
        kind = 0
        while kind < len(kinds) and self.looks <= LOOKS_MAX:
            moves = kinds[kind](tree, ingress)
            self.looks += len(moves) * len(self.pairs.one)
            neighbour, neighbour_value = self._best(tree, ingress, moves) if len(moves) else (ingress, value)
            if neighbour_value < value - IMPROVEMENT_MIN:
                ingress, value, kind = neighbour, neighbour_value, 0
            else:
                kind += 1
        return Layout(layout.parents, layout.hosts, ingress, value)

    def _best(self, tree: RootedTree, ingress: IntArray, moves: IntArray) -> tuple[IntArray, float]:
        """Return the best of these ingress vectors, or several of them combined if that is better."""
        values = tree.values(self.pairs, moves, self.limits)
        order = np.argsort(values, kind="stable")[:TOGETHER_MAX]
        combined = np.empty((len(order), moves.shape[1]), np.int64)
        current = ingress
        for place, move in enumerate(moves[order]):
            changed = (move != ingress) & (current == ingress)
            current = np.where(changed, move, current)
            combined[place] = current
        together = tree.values(self.pairs, combined, self.limits)
        place = int(together.argmin())
        if together[place] < values[order[0]]:
            return combined[place], float(together[place])
        return moves[order[0]], float(values[order[0]])

    def _singles(self, tree: RootedTree, ingress: IntArray) -> IntArray:
        """Each item to each other vertex, or as many of these as a sweep may examine."""
        items, vertices = len(ingress), tree.size
        if vertices == 1:
            return np.empty((0, items), np.int64)
        allowed = max(1, SWEEP_LOOKS_MAX // (len(self.pairs.one) * (vertices - 1)))
        chosen = np.arange(items) if items <= allowed else self._drawn.choice(items, allowed, replace=False)
        item = np.repeat(chosen, vertices - 1)
        moved = np.repeat(ingress[None], len(item), axis=0)
        step = np.tile(np.arange(1, vertices), len(chosen))
        moved[np.arange(len(item)), item] = (ingress[item] + step) % vertices
        return moved

    def _wholes(self, tree: RootedTree, ingress: IntArray) -> IntArray:
        """All that enter at one vertex to another one, or the two exchanged."""
        vectors = []
        for here, there in permutations(range(tree.size), 2):
            inside = ingress == here
            if inside.any():
                vectors.append(np.where(inside, there, ingress))
                if here < there:
                    vectors.append(np.where(inside, there, np.where(ingress == there, here, ingress)))
        return np.array(vectors, np.int64).reshape(-1, len(ingress))

    def _doubles(self, tree: RootedTree, ingress: IntArray) -> IntArray:
        """Two items that have to meet, both to one vertex."""
        pairs, vertices = len(self.costs.left), tree.size
        if not 1 < vertices * pairs <= min(PAIR_MOVES_MAX, SWEEP_LOOKS_MAX // len(self.pairs.one)):
            return np.empty((0, len(ingress)), np.int64)
        to = np.tile(np.arange(vertices), pairs)
        rows = np.arange(len(to))
        moved = np.repeat(ingress[None], len(to), axis=0)
        moved[rows, np.repeat(self.costs.left, vertices)] = to
        moved[rows, np.repeat(self.costs.right, vertices)] = to
        return moved

    def _reshape(self, layout: Layout) -> Layout:
        """Return the best of the trees in which one vertex hangs elsewhere, or two have changed places."""
        best = layout
        for parents, hosts, ingress in _shapes(layout):
            reshaped = self.valued(parents, hosts, ingress)
            if reshaped.value < best.value - IMPROVEMENT_MIN:
                best = reshaped
        return best


def _shapes(layout: Layout) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], IntArray]]:
    parents, hosts = layout.parents, layout.hosts
    size = len(parents)
    for vertex, over in permutations(range(size), 2):
        # The vertex, with what hangs below it, to another one; a root first makes the other one root.
        if parents[vertex] >= 0 and parents[vertex] != over and vertex not in _line(parents, over):
            yield _replaced(parents, {vertex: over}), hosts, layout.ingress
        # The vertex alone: what hung below it goes to where it was, and it is put between the other one and its parent.
        below = {child: parents[vertex] for child, parent in enumerate(parents) if parent == vertex}
        if parents[vertex] >= 0:
            out = _replaced(parents, below)
            yield _replaced(out, {vertex: out[over], over: vertex}), hosts, layout.ingress
        if vertex < over:
            swapped = list(hosts)
            swapped[vertex], swapped[over] = hosts[over], hosts[vertex]
            names = np.arange(size)
            names[[vertex, over]] = over, vertex
            yield parents, tuple(swapped), names[layout.ingress]
            yield parents, tuple(swapped), layout.ingress


def _line(parents: Sequence[int], vertex: int) -> list[int]:
    line = [vertex]
    while parents[line[-1]] >= 0:
        line.append(parents[line[-1]])
    return line


def _replaced(parents: Sequence[int], changes: dict[int, int]) -> tuple[int, ...]:
    return tuple(changes.get(vertex, parent) for vertex, parent in enumerate(parents))
