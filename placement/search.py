"""Local search: move ingresses on a tree while that makes the arrangement better.

An arrangement is determined by its tree and by where each class enters (`sequencing.arrangement`), so every move
changes nothing but ingresses, and what it yields satisfies C1–C4 or is refused. Moves, from small to large:

- one class enters at another vertex;
- two classes that must meet do so together, or two classes exchange their ingresses;
- everything that enters at one vertex and hangs together moves to another one: whole components find nodes of their
  own;
- all of a vertex moves to another one (a contraction), or two vertices exchange what enters there.

When none of them helps, some classes are displaced, a few or nearly all, and the search begins again from there. The
random source has a fixed seed, and the effort is limited by counted work and never by a clock: the same world gets
the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from random import Random

from placement.objective import PlanObjective
from placement.world import Items
from sequencing.arrangement import Tree

BALANCE_PRICE = 1e-6
"""The price of uneven loads, in hops: it decides between equally good arrangements, and leads out of plateaus."""
LEVEL = 0.01
"""The weight of the excess on all nodes together, beside that on the busiest: several may be as busy."""
IMPROVEMENT_MIN = 1e-9
EXCHANGED_ITEMS_MAX = 24
"""Exchanges are as many as pairs of items: beyond this, groups that move together do as well."""


class Layout:
    """Items on a tree: their ingresses, egresses and the loads of the vertices, kept up to date as items move.

    Raises `ValueError` if the ingresses have no paths.
    """

    def __init__(self, items: Items, objective: PlanObjective, tree: Tree, ingress: Sequence[int]) -> None:
        self.items, self.objective, self.size = items, objective, tree.size
        self._distance: list[list[int]] = tree.distance.tolist()
        self._meeting: list[list[int]] = tree.meeting.tolist()
        self._walks = {
            (u, v): tree.walk(u, v) for u in range(tree.size) for v in range(tree.size) if self._distance[u][v] >= 0
        }
        self._scale = 1 / (sum(items.weights) or 1.0)
        self._total_squared = sum(items.rates) ** 2 or 1.0
        self._aims = objective.aims
        self.work = 0
        self.ingress = list(ingress)
        self.egress = [0] * len(self.ingress)
        self._loads = [0.0] * tree.size
        self._length = 0.0
        for item, start in enumerate(self.ingress):
            end = self._furthest(item, start, {})
            if end is None:
                raise ValueError("these ingresses have no paths on this tree")
            self.egress[item] = end
            for vertex in self._walks[start, end]:
                self._loads[vertex] += items.rates[item]
            self._length += items.weights[item] * len(self._walks[start, end])
        self.guide = self._guide(self._length, self._loads)

    @property
    def value(self) -> float:
        """The objective's value, which the guide approaches."""
        return self.objective.value(self._length * self._scale, max(self._loads))

    def move(self, moves: Mapping[int, int]) -> bool:
        """Let items enter elsewhere if that is possible and better; return whether it was."""
        changed = self._consequences(moves)
        if changed is None:
            return False
        length, loads = self._length, self._loads.copy()
        for item, (start, end) in changed.items():
            rate, weight = self.items.rates[item], self.items.weights[item]
            before, after = self._walks[self.ingress[item], self.egress[item]], self._walks[start, end]
            length += weight * (len(after) - len(before))
            for vertex in before:
                loads[vertex] -= rate
            for vertex in after:
                loads[vertex] += rate
        guide = self._guide(length, loads)
        if guide > self.guide - IMPROVEMENT_MIN:
            return False
        self.guide, self._length, self._loads = guide, length, loads
        for item, (start, end) in changed.items():
            self.ingress[item], self.egress[item] = start, end
        return True

    def _consequences(self, moves: Mapping[int, int]) -> dict[int, tuple[int, int]] | None:
        """Return the new ingress and egress of each item that they change for, None if some path is impossible."""
        changed: dict[int, tuple[int, int]] = {}
        touched: dict[int, None] = {}
        for item, start in moves.items():
            end = self._furthest(item, start, moves)
            if end is None:
                return None
            changed[item] = start, end
            before, after = self._meeting[self.ingress[item]], self._meeting[start]
            for other in self.items.neighbours[item]:
                if before[self.ingress[other]] != after[self.ingress[other]]:
                    touched[other] = None
        for item in touched:
            if item not in moves:
                end = self._furthest(item, self.ingress[item], moves)
                if end is None:
                    return None
                if end != self.egress[item]:
                    changed[item] = self.ingress[item], end
        return changed

    def _furthest(self, item: int, start: int, moves: Mapping[int, int]) -> int | None:
        """Return where an item that enters at ``start`` has met all its neighbours, None if no path does."""
        meeting, ingress, distance = self._meeting[start], self.ingress, self._distance
        neighbours = self.items.neighbours[item]
        self.work += 1 + len(neighbours)
        passes = {meeting[moves.get(other, ingress[other])] for other in neighbours}
        furthest = start
        for vertex in passes:
            if vertex < 0:
                return None
            if distance[furthest][vertex] > 0:
                furthest = vertex
        for vertex in passes:
            if distance[vertex][furthest] < 0:
                return None
        return furthest

    def _guide(self, length: float, loads: Sequence[float]) -> float:
        guide = self.objective.value(length * self._scale, max(loads))
        for aim, price in self._aims:
            for load in loads:
                if load > aim:
                    guide += LEVEL * price * (load - aim)
        return guide + BALANCE_PRICE * sum(load * load for load in loads) / self._total_squared


def improve(
    items: Items,
    objective: PlanObjective,
    tree: Tree,
    ingress: Sequence[int],
    *,
    work_max: int,
    restarts: int = 0,
) -> tuple[list[int], int]:
    """Return better ingresses than the given ones, or these, and the work it took (looks at a neighbour).

    ``restarts``: how often to displace some of the items and begin again. Raises `ValueError` if the given ingresses
    have no paths on the tree.
    """
    random = Random(0)
    layout = Layout(items, objective, tree, ingress)
    best, best_value, work = list(ingress), layout.value, 0
    for restart in range(restarts + 1):
        if restart:
            layout = _displaced(items, objective, tree, layout.ingress, random)
        _descend(layout, work_max - work)
        work += layout.work
        if layout.value < best_value - IMPROVEMENT_MIN or (not restart and layout.value <= best_value):
            best, best_value = layout.ingress, layout.value
        if work >= work_max or not items.rates:
            break
    return list(best), work


def _displaced(items: Items, objective: PlanObjective, tree: Tree, ingress: Sequence[int], random: Random) -> Layout:
    """Return a layout of which few or nearly all items enter at a random vertex."""
    displaced = list(ingress)
    for _ in range(random.randint(1, 2 * len(displaced))):
        displaced[random.randrange(len(displaced))] = random.randrange(tree.size)
    try:
        return Layout(items, objective, tree, displaced)
    except ValueError:
        return Layout(items, objective, tree, ingress)


def _descend(layout: Layout, work_max: int) -> None:
    improved = True
    while improved:
        improved = False
        for moves in _moves(layout):
            if layout.work >= work_max:
                return
            improved |= layout.move(moves)


def _moves(layout: Layout) -> Iterator[Mapping[int, int]]:
    """Yield the moves of one round; they follow the layout as it changes."""
    vertices, neighbours, ingress = range(layout.size), layout.items.neighbours, layout.ingress
    for item in range(len(neighbours)):
        for vertex in vertices:
            if vertex != ingress[item]:
                yield {item: vertex}
    for item, others in enumerate(neighbours):
        for other in others:
            if item < other:
                for vertex in vertices:
                    if vertex != ingress[item] and vertex != ingress[other]:
                        yield {item: vertex, other: vertex}
    if len(neighbours) <= EXCHANGED_ITEMS_MAX:
        for item, other in combinations(range(len(neighbours)), 2):
            if ingress[item] != ingress[other]:
                yield {item: ingress[other], other: ingress[item]}
    for here, there in permutations(vertices, 2):
        for group in _groups(layout, here):
            yield dict.fromkeys(group, there)
        entering = [item for item, start in enumerate(ingress) if start == here]
        yield dict.fromkeys(entering, there)
        if here < there:
            yield dict.fromkeys(entering, there) | {item: here for item, start in enumerate(ingress) if start == there}


def _groups(layout: Layout, vertex: int) -> Iterator[list[int]]:
    """Yield the items that enter at a vertex, by connected group there, leaving out single items."""
    left = {item: None for item, start in enumerate(layout.ingress) if start == vertex}
    while left:
        group = [next(iter(left))]
        del left[group[0]]
        for item in group:
            for other in layout.items.neighbours[item]:
                if other in left:
                    del left[other]
                    group.append(other)
        if len(group) > 1:
            yield group
