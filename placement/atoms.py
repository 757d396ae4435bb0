"""Choose the node for the atom of two paths among the nodes that both pass, so that no node orders too much.

Any node that both paths pass is allowed (C4). The one where they meet first is the simplest. If a node then orders more
than a limit, the pairs of one item there are moved, all at once, to other nodes on which they meet as well.

If that is not enough, the vertex that orders too much becomes a row of vertices. Its pairs are spread over the row so
that events pass few of its vertices (`placement.splitting`). If no such row is found, a vertex is put above it that
takes over as many pairs as necessary. A vertex then keeps pairs whose items are within the limit together, as many as a
greedy choice finds. It always keeps one, because a subscriber of both items receives as much. So this ends with every
vertex within the limit, if the limit is no less than the load of the busiest receiver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from placement.costs import Costs
from placement.splitting import Load, Row, split

Pair = tuple[int, int]
Ways = Sequence[tuple[int, ...]]
MOVES_MAX = 500
PAIRS_MAX = 3_000
"""Each move examines all pairs for each item of a vertex."""
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Spread:
    """A tree, the vertices that each item passes, and where the atom of each pair lives (an item's own: it twice)."""

    parents: tuple[int, ...]
    ways: tuple[tuple[int, ...], ...]
    at: Mapping[Pair, int]


def spread_out(costs: Costs, parents: Sequence[int], ways: Ways, limit: float, random: Random) -> Spread:
    """Return atoms such that each vertex orders ``limit`` events/s at most; adds vertices where that needs some."""
    return _Spreading(costs, parents, ways, limit, random).run()


class _Spreading:
    def __init__(self, costs: Costs, parents: Sequence[int], ways: Ways, limit: float, random: Random) -> None:
        self.rates, self.weights = costs.rates.tolist(), costs.weight.tolist()
        self.parents, self.ways, self.limit, self.random = list(parents), list(ways), limit, random
        self.at = dict(assign(costs, ways, limit))
        self.split: set[int] = set()

    def run(self) -> Spread:
        while (vertex := self._overloaded()) is not None:
            pairs = [pair for pair, standing in self.at.items() if standing == vertex]
            row = None if vertex in self.split else self._row(vertex, pairs)
            if row is not None:
                self._lay_row(vertex, pairs, row)
            elif not self._move_up(vertex, pairs):
                break
        return Spread(tuple(self.parents), tuple(self.ways), self.at)

    def _overloaded(self) -> int | None:
        inside = _inside(self.at)
        loads = {vertex: sum(self.rates[item] for item in items) for vertex, items in inside.items()}
        vertex = max(loads, key=lambda v: loads[v], default=-1)
        return vertex if vertex >= 0 and loads[vertex] > self.limit * (1 + TOLERANCE) else None

    def _row(self, vertex: int, pairs: Sequence[Pair]) -> Row | None:
        items = sorted({item for pair in pairs for item in pair})
        place_of = {item: place for place, item in enumerate(items)}
        load = Load(
            [self.rates[item] for item in items],
            [self.weights[item] for item in items],
            [(place_of[one], place_of[other]) for one, other in pairs],
            frozenset(place_of[item] for item in items if self.ways[item][0] != vertex),
            frozenset(place_of[item] for item in items if self.ways[item][-1] != vertex),
        )
        return split(load, self.limit, self.random)

    def _lay_row(self, vertex: int, pairs: Sequence[Pair], row: Row) -> None:
        """Put the row where the vertex was; it is the first one of it."""
        vertices = [vertex, *range(len(self.parents), len(self.parents) + row.size - 1)]
        self.split.update(vertices)
        over = self.parents[vertex]
        self.parents += [-1] * (row.size - 1)
        for here, there in zip(vertices, [*vertices[1:], over], strict=True):
            self.parents[here] = there
        items = sorted({item for pair in pairs for item in pair})
        bits_of = dict(zip(items, row.nodes, strict=True))
        for item, way in enumerate(self.ways):
            if vertex in way:
                place = way.index(vertex)
                bits = bits_of.get(item, 1)
                first = 0 if place > 0 else (bits & -bits).bit_length() - 1
                last = row.size if place + 1 < len(way) else bits.bit_length()
                self.ways[item] = (*way[:place], *vertices[first:last], *way[place + 1 :])
        for one, other in pairs:
            common = bits_of[one] & bits_of[other]
            self.at[one, other] = vertices[(common & -common).bit_length() - 1]

    def _move_up(self, vertex: int, pairs: Sequence[Pair]) -> bool:
        kept = _kept(pairs, self.rates, self.limit)
        going = [pair for pair in pairs if not kept.issuperset(pair)]
        if len(going) == len(pairs):
            return False
        above = len(self.parents)
        self.parents.append(self.parents[vertex])
        self.parents[vertex] = above
        further = {item for pair in going for item in pair}
        for item, way in enumerate(self.ways):
            if vertex in way[:-1] or (way[-1] == vertex and item in further):
                place = way.index(vertex) + 1
                self.ways[item] = (*way[:place], above, *way[place:])
        self.at |= dict.fromkeys(going, above)
        return True


def _inside(at: Mapping[Pair, int]) -> dict[int, set[int]]:
    """Vertex → the items that it orders."""
    by_vertex: dict[int, set[int]] = {}
    for pair, vertex in at.items():
        by_vertex.setdefault(vertex, set()).update(pair)
    return by_vertex


def _kept(pairs: Sequence[Pair], rates: Sequence[float], limit: float) -> set[int]:
    """Return items within the limit, chosen so that many of the pairs are among them; the heaviest pair is."""
    kept = set(max(pairs, key=lambda pair: sum(rates[item] for item in set(pair))))
    room = limit * (1 + TOLERANCE) - sum(rates[item] for item in kept)
    neighbours: dict[int, set[int]] = {}
    for one, other in pairs:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    while True:
        fitting = [item for item in neighbours if item not in kept and rates[item] <= room]
        if not fitting:
            return kept
        best = max(fitting, key=lambda item: (len(neighbours[item] & kept), rates[item], -item))
        kept.add(best)
        room -= rates[best]


def assign(costs: Costs, ways: Sequence[Sequence[int]], limit: float) -> Mapping[Pair, int]:
    """Return the vertex of each pair's atom, and of those of items with themselves (an item twice).

    ``ways``: the vertices that each item passes, in order; ``limit``: events/s that a vertex should order at most. It
    may be exceeded where no move helps.
    """
    shared = {
        pair: [vertex for vertex in ways[pair[0]] if vertex in set(ways[pair[1]])]
        for pair in zip(costs.left.tolist(), costs.right.tolist(), strict=True)
    }
    at = {pair: vertices[0] for pair, vertices in shared.items()} | {
        (item, item): ways[item][0] for item in costs.twins
    }
    shared |= {(item, item): list(ways[item]) for item in costs.twins}
    balance = _Balance(costs.rates.tolist(), at, shared, limit)
    for _ in range(MOVES_MAX if len(at) <= PAIRS_MAX else 0):
        if not balance.improve():
            break
    return balance.at


class _Balance:
    def __init__(
        self, rates: Sequence[float], at: dict[Pair, int], shared: Mapping[Pair, Sequence[int]], limit: float
    ) -> None:
        self.rates, self.at, self.shared, self.limit = rates, at, shared, limit
        self.count: dict[int, dict[int, int]] = {}
        for pair, vertex in at.items():
            self._add(pair, vertex, 1)

    def _add(self, pair: Pair, vertex: int, by: int) -> None:
        counts = self.count.setdefault(vertex, {})
        for item in set(pair):
            counts[item] = counts.get(item, 0) + by
            if not counts[item]:
                del counts[item]

    def _load(self, vertex: int) -> float:
        return sum(self.rates[item] for item in self.count.get(vertex, ()))

    def _excess(self) -> float:
        return sum(max(0.0, self._load(vertex) - self.limit) for vertex in self.count)

    def improve(self) -> bool:
        """Move the pairs of one item away from a vertex that orders too much; return whether that was possible."""
        excess = self._excess()
        if excess <= self.limit * 1e-9:
            return False
        best: tuple[float, Mapping[Pair, int]] | None = None
        for vertex in [v for v in self.count if self._load(v) > self.limit]:
            for item in list(self.count[vertex]):
                pairs = [pair for pair, here in self.at.items() if here == vertex and item in pair]
                moved = self._moved(pairs, vertex)
                if moved is not None and (best is None or moved[0] < best[0]):
                    best = moved
        if best is None or best[0] >= excess - self.limit * 1e-9:
            return False
        self._carry_out(best[1])
        return True

    def _moved(self, pairs: Sequence[Pair], vertex: int) -> tuple[float, Mapping[Pair, int]] | None:
        """Return the excess if each of these pairs went to the vertex where it adds least, and these vertices."""
        before = dict.fromkeys(pairs, vertex)
        goal: dict[Pair, int] = {}
        for pair in pairs:
            options = [other for other in self.shared[pair] if other != vertex]
            if not options:
                self._carry_out(before)
                return None
            goal[pair] = min(options, key=lambda other: self._added(pair, other))
            self._carry_out({pair: goal[pair]})
        excess = self._excess()
        self._carry_out(before)
        return excess, goal

    def _added(self, pair: Pair, vertex: int) -> float:
        counts = self.count.get(vertex, {})
        added = sum(self.rates[item] for item in set(pair) if item not in counts)
        return max(0.0, self._load(vertex) + added - self.limit) * 1e3 + added

    def _carry_out(self, goal: Mapping[Pair, int]) -> None:
        for pair, vertex in goal.items():
            if self.at[pair] != vertex:
                self._add(pair, self.at[pair], -1)
                self.at[pair] = vertex
                self._add(pair, vertex, 1)
