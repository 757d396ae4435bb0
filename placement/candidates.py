"""Candidate arrangements: cut lines for worlds of any size, searched trees for those that are small enough.

A line is an order of the classes and a way to cut it. *Even* cuts share out the events and prefer places where little
crosses (`placement.cutting`); the others let as little cross as a bound on the busiest node allows
(`placement.capacity`), for several bounds. The best lines are then folded into trees and improved by local search. How
much of this is done depends on counts of classes and pairs alone, so that equal worlds get equal plans.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from placement.capacity import CutLine
from placement.cutting import cut
from placement.exact import optimum
from placement.objective import FloatArray, PlanObjective
from placement.orders import orders
from placement.search import improve
from placement.shapes import in_trees, oriented_trees
from placement.world import World
from sequencing.arrangement import Arrangement, Tree, arrange
from sequencing.overlaps import IntArray

BOUNDS = 6
"""The number of steps between the lowest bound on the busiest node and all events on one node."""
BOUNDS_SLOTS_MAX = 20_000
"""Longer lines are cut for the lowest bounds only: each takes about a millisecond a block for this many slots."""
SEARCH_ITEMS_MAX = 400
SEARCH_PAIRS_MAX = 4_000
SEARCH_VERTICES_MAX = 32
"""Larger worlds and networks are left as the lines have them: a round of moves takes items × vertices × neighbours."""
SEARCH_WORK_MAX = 1_000_000
STARTS = 2
EVERY_SHAPE_VERTICES_MAX = 4
"""Up to this many vertices all oriented trees are searched, and not only in-trees."""
EXACT_ITEMS_MAX = 8
EXACT_NODES_MAX = 5
EXACT_LOOKS_MAX = 20_000
"""An exhaustive search of a small world nearly always costs less than restarts; an abandoned one takes some 0.3 s."""
URGENT_LOOKS_MAX = 500
"""So many take some 5 ms."""
RESTARTED_ITEMS_MAX = 24
RESTARTED = 2
RESTARTS = 48
"""Few items have few arrangements, most of them bad; a search with restarts often finds the good ones."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arrangement and its figures. ``length``: mean path length in nodes; ``loads``: events/s of each vertex.

    ``loose_vertex``: the vertex of each of the world's loose regions.
    """

    name: str
    arrangement: Arrangement
    loose_vertex: IntArray
    length: float
    loads: FloatArray
    value: float
    optimal: bool
    """Whether it is known that no plan on these nodes is better."""

    @property
    def peak(self) -> float:
        """Events/s of the busiest vertex."""
        return float(self.loads.max())


def candidates(
    world: World, *, exact: bool = True, work_max: int = SEARCH_WORK_MAX, is_urgent: bool = False
) -> Iterator[Candidate]:
    """Yield arrangements; the plain line (reverse Cuthill–McKee, cut evenly) is always among them, and comes first.

    A candidate that is known to be optimal is the last. ``exact``: whether small worlds may be searched exhaustively;
    ``work_max``: neighbours examined in all searches together, about half a microsecond each. ``is_urgent``: if a short
    exhaustive search finds the best arrangement, yield that after the plain line, and no other: it is a few times as
    quick.
    """
    so_far: list[Candidate] = []
    lines = _lines(world)
    if is_urgent:
        plain = next(lines)
        best = _exhaustive(world, [plain], URGENT_LOOKS_MAX) if exact and not plain.optimal else None
        yield plain
        if best is not None:
            yield best
        if best is not None or plain.optimal:
            return
        so_far.append(plain)
    for candidate in chain(lines, _searched(world, so_far, exact=exact, work_max=work_max)):
        so_far.append(candidate)
        yield candidate
        if candidate.optimal:
            return


def _lines(world: World) -> Iterator[Candidate]:
    wanted, vertices = world.wanted, world.vertices
    tree = Tree.line(vertices)
    count = len(wanted.ordered)
    for name, order in orders(wanted, world.class_rates):
        slot_of = np.full(count, -1, np.int64)
        slot_of[order] = np.arange(len(order))
        left, right = slot_of[wanted.left], slot_of[wanted.right]
        last_slot = np.arange(len(order))
        np.maximum.at(last_slot, np.minimum(left, right), np.maximum(left, right))
        rate, weight = world.class_rates[order], world.class_weights[order]
        seen: set[bytes] = set()
        for way, blocks in _cuts(rate, weight, last_slot, vertices, world.objective):
            if blocks.tobytes() not in seen:
                seen.add(blocks.tobytes())
                ingress = np.zeros(count, np.int64)
                ingress[order] = blocks
                yield valued(world, f"line {name}, {way}", tree, ingress)


def _cuts(
    rate: FloatArray, weight: FloatArray, last_slot: IntArray, blocks: int, objective: PlanObjective
) -> Iterator[tuple[str, IntArray]]:
    yield "even cuts", cut(rate, last_slot, blocks)
    if blocks == 1 or not rate.any():
        return
    yield "uncut", np.zeros(len(rate), np.int64)
    line = CutLine(rate, weight, last_slot)
    least, total = line.least_peak(blocks), float(rate.sum())
    bounds = {min(max(least, aim), total): None for aim, _ in objective.aims}
    if len(rate) <= BOUNDS_SLOTS_MAX:
        low = min(bounds)
        bounds |= {low * (total / low) ** (step / BOUNDS): None for step in range(1, BOUNDS)}
    for bound in bounds:
        if (ends := line.cut(blocks, bound)) is not None:
            yield "least crossing", ends


def _searched(world: World, so_far: Sequence[Candidate], *, exact: bool, work_max: int) -> Iterator[Candidate]:
    """Yield improved trees, beginning with the promising lines in ``so_far``, and the best one searched again.

    The second search is exhaustive if that is possible; otherwise it uses restarts. The caller adds the trees that it
    takes from here to ``so_far``.
    """
    count, pairs = int(world.wanted.ordered.sum()) + len(world.loose), len(world.wanted.left)
    if (
        world.vertices == 1
        or world.vertices > SEARCH_VERTICES_MAX
        or count > SEARCH_ITEMS_MAX
        or pairs > SEARCH_PAIRS_MAX
    ):
        return
    trials = list(_trials(world, so_far))
    budget = work_max // (len(trials) + RESTARTED)
    improved: list[tuple[float, int, Candidate]] = []
    for number, (name, tree, start) in enumerate(trials):
        candidate = _improved(world, f"{name}, searched", tree, start, budget, restarts=0)
        improved.append((candidate.value, number, candidate))
        yield candidate
    if exact and (best := _exhaustive(world, so_far, EXACT_LOOKS_MAX)) is not None:
        yield best
        return
    if count > RESTARTED_ITEMS_MAX:
        return
    best_of_tree = {trials[number][1]: number for _, number, _ in sorted(improved, reverse=True)}
    for number in sorted(best_of_tree.values(), key=lambda number: improved[number][:2])[:RESTARTED]:
        name, tree, _ = trials[number]
        start = _start(world, improved[number][2])
        yield _improved(world, f"{name}, searched again", tree, start, budget, restarts=RESTARTS)


def _exhaustive(world: World, so_far: Sequence[Candidate], looks_max: int) -> Candidate | None:
    """Return the best arrangement of all there are, None if the world is too large to look at all."""
    count = int(world.wanted.ordered.sum()) + len(world.loose)
    if count > EXACT_ITEMS_MAX or world.nodes > EXACT_NODES_MAX:
        return None
    best = min(so_far, key=lambda candidate: candidate.value)
    search = optimum(world.items, world.objective, world.nodes, known=best.value, looks_max=looks_max)
    if not search.complete:
        return None
    if search.best is not None:
        ingress = [walk[0] for walk in search.best.walks]
        best = _from_items(world, "exhaustive search", search.best.tree, ingress)
    return replace(best, optimal=True)


def _trials(world: World, lines: Sequence[Candidate]) -> Iterator[tuple[str, Tree, tuple[int, ...]]]:
    """Yield names, trees and ingresses of the world's items from which to search."""
    best = sorted(lines, key=lambda line: line.value)
    for start in list(dict.fromkeys(_start(world, line) for line in best))[:STARTS]:
        for name, tree in in_trees(world.vertices):
            yield name, tree, start
    if world.vertices <= EVERY_SHAPE_VERTICES_MAX:
        for tree in oriented_trees(world.vertices):
            yield "tree", tree, (0,) * len(world.items.rates)


def _start(world: World, candidate: Candidate) -> tuple[int, ...]:
    return *candidate.arrangement.ingress[world.wanted.ordered].tolist(), *candidate.loose_vertex.tolist()


def _improved(world: World, name: str, tree: Tree, start: Sequence[int], work_max: int, *, restarts: int) -> Candidate:
    ingress, _ = improve(world.items, world.objective, tree, start, work_max=work_max, restarts=restarts)
    return _from_items(world, name, tree, ingress)


def _from_items(world: World, name: str, tree: Tree, item_ingress: Sequence[int]) -> Candidate:
    classes = np.flatnonzero(world.wanted.ordered)
    ingress = np.zeros(len(world.wanted.ordered), np.int64)
    ingress[classes] = item_ingress[: len(classes)]
    return valued(world, name, tree, ingress, np.array(item_ingress[len(classes) :], np.int64))


def valued(world: World, name: str, tree: Tree, ingress: IntArray, loose_vertex: IntArray | None = None) -> Candidate:
    """Return the arrangement with these ingresses, one for each class, and its figures.

    ``loose_vertex``: of each loose region; None: where the load is least. Raises `PlanError` where there are no paths.
    """
    arrangement = arrange(world.wanted, tree, ingress)
    loads = arrangement.loads(world.class_rates)
    loose_rates = world.rates[world.loose]
    if loose_vertex is None:
        loose_vertex = _least_loaded(loads, loose_rates)
    loads = loads + np.bincount(loose_vertex, loose_rates, tree.size)
    ordered = world.wanted.ordered
    visited = float(world.class_weights[ordered] @ arrangement.lengths[ordered] + world.weights[world.loose].sum())
    length = visited / (float(world.weights.sum()) or 1.0)
    value = world.objective.value(length, float(loads.max()))
    optimal = world.nodes == 1 or value <= world.least_value
    return Candidate(name, arrangement, loose_vertex, length, loads, value, optimal)


def _least_loaded(loads: FloatArray, rates: FloatArray) -> IntArray:
    """Return a vertex for each of these rates, each in turn to where the load is least."""
    heap = [(load, vertex) for vertex, load in enumerate(loads.tolist())]
    heapq.heapify(heap)
    vertices = []
    for rate in rates.tolist():
        load, vertex = heap[0]
        vertices.append(vertex)
        heapq.heapreplace(heap, (load + rate, vertex))
    return np.array(vertices, np.int64)
