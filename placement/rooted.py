"""Ingresses on a rooted tree whose vertices stand on hosts, valued many at a time.

On an in-tree (`sequencing.arrangement`) two items that enter at u and v meet at the lowest vertex above both. An item's
meeting vertices lie above its ingress in a row, so its path ends at the uppermost of them, and it is enough to know how
deep that is. So for many ingress vectors at once, the depths at which the pairs meet are one look-up, and the egress is
a minimum over each item's pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.costs import Costs
from placement.topology import FloatArray, IntArray

CHUNK_ENTRIES = 1_500_000
"""Pairs that are valued at once: some 50 MB."""
OTHERS = 0.1
"""Without it, the search would not see that it has relieved one of two nodes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The loads that a node should not exceed, in events/s, and the price of exceeding one by the whole of it, in ms.

    ``handled``: all events that pass a node; ``ordered``: those that get a number of an atom there. ``others``: the
    weight of the excess on all nodes, beside that on the busiest.
    """

    handled: float
    ordered: float
    handled_price_ms: float
    ordered_price_ms: float
    others: float = OTHERS

    def scaled(self, handled: FloatArray, costs: Costs, hosts: Sequence[int]) -> FloatArray:
        """Return loads as if all hosts had the capacity ``handled`` of the limits: for `charge`."""
        if costs.capacity is None:
            return handled
        scaled: FloatArray = handled * (self.handled / costs.capacity[list(hosts)])
        return scaled

    def charge(self, handled: FloatArray, ordered: FloatArray) -> FloatArray:
        """Return the charge in ms; the last axis is the nodes. The worst counts, and the others a little."""
        charged: FloatArray = self.handled_price_ms * self._excess(handled / self.handled)
        charged += self.ordered_price_ms * self._excess(ordered / self.ordered)
        return charged

    def _excess(self, parts: FloatArray) -> FloatArray:
        over = np.maximum(parts - 1.0 - TOLERANCE, 0.0)
        summed: FloatArray = over.max(axis=-1) + self.others * over.sum(axis=-1)
        return summed


TOLERANCE = 1e-9
"""The tolerance as a part of a limit, because sums of rates are rounded."""


class Pairs:
    """The pairs of items that have to meet, laid out for minima over each item's pairs."""

    def __init__(self, costs: Costs) -> None:
        self.items = len(costs.weight)
        one = np.concatenate([costs.left, costs.right, np.arange(self.items)])
        other = np.concatenate([costs.right, costs.left, np.arange(self.items)])
        order = np.argsort(one, kind="stable")
        # Each item is paired with itself too: that is its ingress, and no item is without a pair.
        self.one, self.other = one[order], other[order]
        self.starts = np.flatnonzero(np.r_[True, np.diff(self.one) != 0])
        self.ordering = self.one != self.other
        for twin in costs.twins:
            self.ordering |= (self.one == twin) & (self.other == twin)


class RootedTree:
    """``parents[v]``: the vertex above v, -1 for the root; ``hosts[v]``: on which of the costs' hosts v stands.

    ``between``: ms between these hosts, one way. Raises `ValueError` if the parents do not form one tree.
    """

    def __init__(self, parents: Sequence[int], hosts: Sequence[int], costs: Costs, between: FloatArray) -> None:
        self.parents, self.hosts = tuple(parents), tuple(hosts)
        self.costs = costs
        self.size = len(self.parents)
        chains = [self._chain(vertex) for vertex in range(self.size)]
        self.depth = np.array([len(chain) - 1 for chain in chains])
        levels = int(self.depth.max()) + 1
        if self.parents.count(-1) != 1:
            raise ValueError(f"these parents are not one tree: {self.parents}")
        # above[v, d]: the vertex over v at depth d; walk[v, d]: ms to there; on[v, d, u]: whether u is on the way.
        self.above = np.zeros((self.size, levels), np.int64)
        walk = np.full((self.size, levels), np.inf)
        self.on = np.zeros((self.size, levels, self.size))
        for vertex, chain in enumerate(chains):
            ms, before = 0.0, vertex
            for place, over in enumerate(chain):
                ms += float(between[self.hosts[before], self.hosts[over]]) if place else 0.0
                level = len(chain) - 1 - place
                self.above[vertex, level], walk[vertex, level] = over, ms
                self.on[vertex, level, list(chain[: place + 1])] = 1.0
                before = over
        self.meet = np.array([[self._meet(one, other) for other in chains] for one in chains])
        standing = np.array(self.hosts)
        with np.errstate(invalid="ignore"):
            inside = np.where(np.isfinite(walk), walk, 0.0)[None] * costs.weight[:, None, None]
        self.cost = (
            costs.up[:, standing][:, :, None]
            + np.where(np.isfinite(walk)[None], inside, np.inf)
            + costs.down[:, standing[self.above]]
        )

    def _chain(self, vertex: int) -> tuple[int, ...]:
        chain = [vertex]
        while (vertex := self.parents[vertex]) >= 0:
            if len(chain) > self.size:
                raise ValueError(f"these parents close a loop: {self.parents}")
            chain.append(vertex)
        return tuple(chain)

    @staticmethod
    def _meet(one: Sequence[int], other: Sequence[int]) -> int:
        """The depth of the lowest vertex on both chains to the root."""
        common = 0
        for a, b in zip(reversed(one), reversed(other), strict=False):
            if a != b:
                break
            common += 1
        return common - 1

    def tops(self, pairs: Pairs, ingress: IntArray) -> IntArray:
        """Return the depth at which each item leaves; ``ingress`` is vectors × items."""
        met = self.meet[ingress[:, pairs.one], ingress[:, pairs.other]]
        depths: IntArray = np.minimum.reduceat(met, pairs.starts, axis=1)
        return depths

    def values(self, pairs: Pairs, ingress: IntArray, limits: Limits | None) -> FloatArray:
        """Return the value of each ingress vector (vectors × items) in ms, charges included; less is better."""
        at_once = max(1, CHUNK_ENTRIES // len(pairs.one))
        chunks = [
            self._values(pairs, ingress[start : start + at_once], limits) for start in range(0, len(ingress), at_once)
        ]
        return np.concatenate(chunks)

    def _values(self, pairs: Pairs, ingress: IntArray, limits: Limits | None) -> FloatArray:
        met = self.meet[ingress[:, pairs.one], ingress[:, pairs.other]]
        top = np.minimum.reduceat(met, pairs.starts, axis=1)
        items = np.arange(pairs.items)
        value: FloatArray = self.cost[items, ingress, top].sum(axis=1)
        if limits is not None:
            handled = np.einsum("bkv,k->bv", self.on[ingress, top], self.costs.rates)
            handled = limits.scaled(handled, self.costs, self.hosts)
            value = value + limits.charge(handled, self._ordered(pairs, ingress, met))
        return value

    def loads(self, pairs: Pairs, ingress: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the events/s that each vertex handles, and those that it orders if atoms live where items meet."""
        one = ingress[None]
        met = self.meet[one[:, pairs.one], one[:, pairs.other]]
        top = np.minimum.reduceat(met, pairs.starts, axis=1)
        handled = np.einsum("bkv,k->bv", self.on[one, top], self.costs.rates)
        return handled[0], self._ordered(pairs, one, met)[0]

    def _ordered(self, pairs: Pairs, ingress: IntArray, met: IntArray) -> FloatArray:
        one = pairs.one[pairs.ordering]
        where = self.above[ingress[:, one], met[:, pairs.ordering]]
        flags = np.zeros((len(ingress), pairs.items, self.size), np.bool_)
        flags[np.arange(len(ingress))[:, None], one[None, :], where] = True
        summed: FloatArray = np.einsum("bkv,k->bv", flags.astype(float), self.costs.rates)
        return summed

    def ways(self, pairs: Pairs, ingress: IntArray) -> list[tuple[int, ...]]:
        """Return the vertices that each item passes, for one ingress vector."""
        tops = self.tops(pairs, ingress[None])[0].tolist()
        passed = []
        for start, top in zip(ingress.tolist(), tops, strict=True):
            way = [start]
            while self.depth[way[-1]] > top:
                way.append(self.parents[way[-1]])
            passed.append(tuple(way))
        return passed
