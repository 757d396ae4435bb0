"""Split the load that one node orders over a row of nodes, each within a limit, so that events pass few of them.

Items (regions) have to meet in pairs. Each item gets the set of nodes at which it is ordered, such that any two that
have to meet have one in common; no node orders more than the limit; and an item passes all nodes of the row from its
first to its last. The weighted mean number of nodes that an item passes is minimised: a path decomposition of
the overlap graph in which passing is cheap, and only being ordered takes room.

That is hard, and small; so it is annealed, by moves of one item: into one more node, out of one, from one to another,
or into one alone. Items without a common node and loads above the limit are allowed on the way, at a price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

STEPS_EACH = 1_500
"""Moves tried for each item; one takes about 2 µs."""
STEPS_MAX = 60_000
SIZES = (3, 4, 6, 8, 12)
"""Rows that are tried; nodes that are not needed stay empty, and are left out in the end."""
SIZES_AFTER = 2
"""Once a row was found, this many longer ones are tried: more room lets the annealing find shorter paths."""
TRIES = 2
ITEMS_MAX = 200
"""More items would need more steps than there is time for."""
WARM, COLD = 20.0, 0.01
"""Temperatures, in hops of an item of mean weight."""
UNMET_PRICE = 50.0, 400.0
"""The price of each pair without a common node, in the same unit, at the beginning and in the end."""
OVER_PRICE = 1_000.0, 4_000.0
"""The price of a whole limit too much."""
RATE_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """For each item, the nodes of the row (0 … size-1) at which it is ordered, as bits; and the mean nodes passed."""

    size: int
    nodes: tuple[int, ...]
    length: float


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a node: ``rates`` (events/s) and ``weights`` of its items, and the ``pairs`` that have to meet.

    ``from_below``, ``upward``: the items that come from, or go on to, another node of the tree, and so pass the row
    from its beginning, or to its end.
    """

    rates: Sequence[float]
    weights: Sequence[float]
    pairs: Sequence[tuple[int, int]]
    from_below: frozenset[int] = frozenset()
    upward: frozenset[int] = frozenset()


def split(load: Load, limit: float, random: Random) -> Row | None:
    """Return the best row found whose nodes order at most ``limit`` events/s each, None if none was found or sought."""
    if sum(load.rates) <= limit * (1 + RATE_SLACK):
        return Row(1, (1,) * len(load.rates), 1.0)
    if len(load.rates) > ITEMS_MAX:
        return None
    best: Row | None = None
    after = 0
    for size in SIZES:
        for _ in range(TRIES):
            row = _Annealing(load, limit, size, random).run()
            if row is not None and (best is None or row.length < best.length):
                best = row
        after += best is not None
        if after > SIZES_AFTER:
            break
    return best


class _Annealing:
    def __init__(self, load: Load, limit: float, size: int, random: Random) -> None:
        self.load, self.limit, self.size, self.random = load, limit, size, random
        items = len(load.rates)
        self.neighbours: list[list[int]] = [[] for _ in range(items)]
        for one, other in load.pairs:
            if one != other:
                self.neighbours[one].append(other)
                self.neighbours[other].append(one)
        mean = sum(load.weights) / items or 1.0
        self.weights = [weight / mean for weight in load.weights]
        self.rates = [rate / limit for rate in load.rates]
        self.length = [[self._length(item, bits) for bits in range(1 << size)] for item in range(items)]
        # Begin with everything everywhere: all meet, and the excess is removed step by step.
        self.at = [(1 << size) - 1] * items
        self.loads = [sum(self.rates)] * size
        self.unmet = 0

    def _length(self, item: int, bits: int) -> float:
        first = 0 if item in self.load.from_below else (bits & -bits).bit_length() - 1
        last = self.size - 1 if item in self.load.upward else bits.bit_length() - 1
        return self.weights[item] * (last - first + 1)

    def run(self) -> Row | None:
        random, items = self.random, len(self.rates)
        steps = min(STEPS_MAX, STEPS_EACH * items)
        cool = (COLD / WARM) ** (1 / steps)
        temperature = WARM
        unmet_price, unmet_growth = UNMET_PRICE[0], (UNMET_PRICE[1] / UNMET_PRICE[0]) ** (1 / steps)
        over_price, over_growth = OVER_PRICE[0], (OVER_PRICE[1] / OVER_PRICE[0]) ** (1 / steps)
        best: tuple[float, tuple[int, ...]] | None = None
        length = sum(self.length[item][self.at[item]] for item in range(items))
        for _ in range(steps):
            temperature *= cool
            unmet_price *= unmet_growth
            over_price *= over_growth
            item = int(random.random() * items)
            change = self._change(item, self._moved(self.at[item]), temperature, unmet_price, over_price)
            length += change
            if change and not self.unmet and (best is None or length < best[0] - RATE_SLACK) and self._fits():
                best = length, tuple(self.at)
        if best is None:
            return None
        return _without_empty(best[1], self.size, best[0] / items)

    def _fits(self) -> bool:
        return max(self.loads) <= 1 + RATE_SLACK

    def _moved(self, bits: int) -> int:
        random = self.random
        one = 1 << int(random.random() * self.size)
        kind = random.random()
        if kind < 0.5:
            return bits ^ one
        if kind < 0.8:
            other = 1 << int(random.random() * self.size)
            return (bits & ~one) | other
        return one

    def _change(self, item: int, bits: int, temperature: float, unmet_price: float, over_price: float) -> float:
        """Move an item if chance wants it; return by how much the length has changed."""
        before = self.at[item]
        if not bits or bits == before:
            return 0.0
        at, loads, rate = self.at, self.loads, self.rates[item]
        unmet = 0
        for other in self.neighbours[item]:
            there = at[other]
            unmet += (not there & bits) - (not there & before)
        length = self.length[item][bits] - self.length[item][before]
        over = 0.0
        left, entered = before & ~bits, bits & ~before
        for bit in range(self.size):
            if left >> bit & 1:
                load = loads[bit]
                if load > 1.0:
                    over -= min(rate, load - 1.0)
            elif entered >> bit & 1:
                load = loads[bit] + rate
                if load > 1.0:
                    over += min(rate, load - 1.0)
        price = length + unmet_price * unmet + over_price * over
        if price > 0 and self.random.random() >= math.exp(-price / temperature):
            return 0.0
        at[item] = bits
        self.unmet += unmet
        for bit in range(self.size):
            if left >> bit & 1:
                loads[bit] -= rate
            elif entered >> bit & 1:
                loads[bit] += rate
        return length


def _without_empty(nodes: Sequence[int], size: int, length: float) -> Row:
    """Leave out the nodes of a row that order nothing."""
    used = [bit for bit in range(size) if any(bits >> bit & 1 for bits in nodes)]
    renumbered = tuple(sum(1 << place for place, bit in enumerate(used) if bits >> bit & 1) for bits in nodes)
    return Row(len(used), renumbered, length)
