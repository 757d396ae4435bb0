"""The best possible arrangement, for small worlds: the planner's heuristics are measured against it.

**Among which arrangements.** Every plan that satisfies C1–C4 on the given number of nodes: any forest, any orientation,
any path for each class, valued by the planner's own objective under the same capacity. The search examines trees
instead of forests, because an unused edge does no harm. It examines one tree of all that differ in names or by
reversing every edge, because path lengths and loads stay. It examines one path for all twins, because the shared part
of their paths is enough (`sequencing.arrangement`). Nothing is lost by this.

**How.** For each such tree, classes get one of its directed paths after the other, those that have most neighbours
first; a path that misses a neighbour's path is rejected. A branch is abandoned if even its most optimistic end is no
better than the known value. In that end, the remaining classes get their shortest possible paths and the load becomes
as even as possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placement.objective import PlanObjective
from placement.shapes import oriented_trees
from placement.world import Items
from sequencing.arrangement import Tree

IMPROVEMENT_MIN = 1e-9


@dataclass(frozen=True, slots=True)
class Found:
    """An arrangement: a tree, the walk that is each item's path, and the value."""

    tree: Tree
    walks: tuple[tuple[int, ...], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """``best``: better than the known value, None if none is; ``complete``: whether the search was complete."""

    best: Found | None
    complete: bool
    looks: int


def optimum(
    items: Items, objective: PlanObjective, nodes: int, *, known: float = math.inf, looks_max: int | None = None
) -> Exhausted:
    """Look for the best arrangement of some items on up to ``nodes`` nodes, one to six.

    ``known``: the value of an arrangement that exists, which saves looking at worse ones; ``looks_max``: partial
    arrangements after which to give up. The time grows exponentially with the items: eight on five nodes take
    milliseconds, rarely seconds. Raises `ValueError` for more than six nodes.
    """
    search = _Search(items, objective, known, math.inf if looks_max is None else looks_max)
    for tree in oriented_trees(nodes):
        search.over(tree)
    return Exhausted(search.best, search.looks <= search.looks_max, search.looks)


class _Search:
    def __init__(self, items: Items, objective: PlanObjective, known: float, looks_max: float) -> None:
        self.items, self.objective, self.bound, self.looks_max = items, objective, known, looks_max
        self.best: Found | None = None
        self.looks = 0
        self.order = _closest_first(items)
        place_of = {item: place for place, item in enumerate(self.order)}
        self.later = [
            [o for o in items.neighbours[item] if place_of[o] > place] for place, item in enumerate(self.order)
        ]
        self.scale = 1 / (sum(items.weights) or 1.0)
        weights, rates = ([values[item] for item in self.order] for values in (items.weights, items.rates))
        self.weight_left = [sum(weights[place:]) for place in range(len(weights) + 1)]
        self.rate_left = [sum(rates[place:]) for place in range(len(rates) + 1)]

    def over(self, tree: Tree) -> None:
        """Search one tree for an arrangement better than the bound."""
        walks = sorted(
            (tree.walk(u, v) for u in range(tree.size) for v in range(tree.size) if tree.distance[u, v] >= 0),
            key=lambda walk: (len(walk), walk),
        )
        self.tree, self.walks = tree, walks
        self.meets = [
            sum(1 << other for other, walk in enumerate(walks) if not set(walk).isdisjoint(mine)) for mine in walks
        ]
        self.chosen = [0] * len(self.order)
        self._place(0, 0.0, [0.0] * tree.size, [(1 << len(walks)) - 1] * len(self.order))

    def _place(self, place: int, length: float, loads: list[float], allowed: list[int]) -> None:
        self.looks += 1
        if self.looks > self.looks_max:
            return
        if place == len(self.order):
            value = self.objective.value(length * self.scale, max(loads))
            if value < self.bound - IMPROVEMENT_MIN:
                self.bound = value
                self.best = Found(self.tree, tuple(self.walks[number] for number in self.chosen), value)
            return
        item = self.order[place]
        weight, rate = self.items.weights[item], self.items.rates[item]
        even = (sum(loads) + self.rate_left[place]) / self.tree.size
        for number, walk in enumerate(self.walks):
            if not allowed[item] >> number & 1:
                continue
            longer = length + weight * len(walk)
            least_length = (longer + self.weight_left[place + 1]) * self.scale
            least_peak = max(even + rate * (len(walk) - 1) / self.tree.size, *(loads[vertex] + rate for vertex in walk))
            if self.objective.value(least_length, max(least_peak, *loads)) >= self.bound - IMPROVEMENT_MIN:
                continue
            loaded = loads.copy()
            for vertex in walk:
                loaded[vertex] += rate
            still = allowed.copy()
            for other in self.later[place]:
                still[other] &= self.meets[number]
            if all(still[other] for other in self.later[place]):
                self.chosen[item] = number
                self._place(place + 1, longer, loaded, still)


def _closest_first(items: Items) -> Sequence[int]:
    """Return the items in an order in which each has many neighbours among the earlier ones; the heaviest leads."""
    order: list[int] = []
    left = set(range(len(items.rates)))
    while left:
        following = max(
            left,
            key=lambda item: (len(set(items.neighbours[item]).intersection(order)), items.rates[item], -item),
        )
        order.append(following)
        left.remove(following)
    return order
