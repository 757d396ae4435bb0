"""Choose the host of each vertex of a tree when the paths are given: dynamic programming along the tree.

The cost of a vertex on a host is what its items pay to enter or leave there. The cost of an edge is the delay between
its two hosts, as often as items pass it. Such a sum over a tree has its minimum found exactly from the leaves to the
root (vertices × hosts²), with one exception: a host has room for one node, and two vertices that are not neighbours may
want the same. Then vertices and pairs of neighbours are moved, one after the other, to the best free hosts, until none
has a better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from placement.costs import Costs
from placement.topology import FloatArray, IntArray

IMPROVEMENT_MIN = 1e-9
TOLERANCE = 1e-9
"""As a part of a capacity, because sums of rates are rounded."""
ROUNDS_MAX = 20
TOO_MUCH = 1e12
"""The cost of a vertex on a host that cannot carry it, in ms: more than all delays."""
ANCHORS = 4
"""Hosts around which all vertices are tried: the best ones for what enters and leaves."""


def site(
    parents: Sequence[int], ways: Sequence[Sequence[int]], costs: Costs, between: FloatArray, *, roomy: bool
) -> tuple[int, ...]:
    """Return a host for each vertex of a tree.

    ``ways``: the vertices that each item passes; ``roomy``: whether hosts have room for several vertices.
    """
    return tuple(_Siting(parents, ways, costs, between, roomy=roomy).hosts())


class _Siting:
    def __init__(
        self,
        parents: Sequence[int],
        ways: Sequence[Sequence[int]],
        costs: Costs,
        between: FloatArray,
        *,
        roomy: bool,
    ) -> None:
        self.parents, self.size, self.roomy = tuple(parents), len(parents), roomy
        self.between = between if roomy else np.where(np.eye(len(between), dtype=bool), np.inf, between)
        self.own = np.zeros((self.size, len(between)))
        np.add.at(self.own, [way[0] for way in ways], costs.up)
        np.add.at(self.own, [way[-1] for way in ways], costs.down)
        if costs.capacity is not None:
            handled = np.zeros(self.size)
            for way, rate in zip(ways, costs.rates.tolist(), strict=True):
                handled[list(way)] += rate
            missing = handled[:, None] / costs.capacity[None, :] - 1.0
            self.own += TOO_MUCH * np.where(missing > TOLERANCE, missing, 0.0)
        # By the lower vertex of each edge: the weight that passes it upwards, and downwards.
        self.upward, self.downward = np.zeros(self.size), np.zeros(self.size)
        for way, weight in zip(ways, costs.weight.tolist(), strict=True):
            for here, there in pairwise(way):
                if self.parents[here] == there:
                    self.upward[here] += weight
                else:
                    self.downward[there] += weight
        self.flow = self.upward + self.downward

    def hosts(self) -> list[int]:
        nearest = self._exact()
        if self.roomy or len(set(nearest)) == self.size:
            return nearest
        whole = self.own.sum(axis=0)
        anchors = dict.fromkeys([*nearest, *np.argsort(whole, kind="stable")[:ANCHORS].tolist()])
        starts = [self._apart(nearest), *(self._apart([anchor] * self.size) for anchor in anchors)]
        return min(starts, key=self._value)

    def _edge(self, vertex: int) -> FloatArray:
        """hosts × hosts: the cost of the way from the vertex to its parent."""
        if self.flow[vertex] <= IMPROVEMENT_MIN:
            return np.zeros_like(self.between)
        weighed: FloatArray
        if not self.downward[vertex]:
            weighed = self.upward[vertex] * self.between
        elif not self.upward[vertex]:
            weighed = self.downward[vertex] * self.between.T
        else:
            weighed = self.upward[vertex] * self.between + self.downward[vertex] * self.between.T
        return weighed

    def _exact(self) -> list[int]:
        """The best hosts if only neighbours had to be apart."""
        best = self.own.copy()
        choice: dict[int, IntArray] = {}
        order = self._root_first()
        for vertex in reversed(order):
            parent = self.parents[vertex]
            if parent >= 0:
                total = best[vertex][:, None] + self._edge(vertex)
                choice[vertex] = total.argmin(axis=0)
                best[parent] += total.min(axis=0)
        sites = [0] * self.size
        for vertex in order:
            parent = self.parents[vertex]
            sites[vertex] = int(best[vertex].argmin()) if parent < 0 else int(choice[vertex][sites[parent]])
        return sites

    def _root_first(self) -> list[int]:
        order = [self.parents.index(-1)]
        for vertex in order:
            order += [child for child, parent in enumerate(self.parents) if parent == vertex]
        return order

    def _apart(self, wanted: Sequence[int]) -> list[int]:
        """Give each vertex a host of its own, near those that it wants, and improve the result.

        If several vertices want one host, it goes to the one that pays most elsewhere; the others follow along the
        tree.
        """
        hosts: list[int] = [-1] * self.size
        for vertex in sorted(range(self.size), key=lambda vertex: -float(np.ptp(self.own[vertex]))):
            if wanted[vertex] not in hosts:
                hosts[vertex] = wanted[vertex]
        while -1 in hosts:
            vertex = max((v for v in range(self.size) if hosts[v] < 0), key=lambda v: (self._pull(v, hosts), -v))
            hosts[vertex] = int(self._free(self._alone(vertex, hosts), hosts).argmin())
        return self._improved(hosts)

    def _pull(self, vertex: int, hosts: Sequence[int]) -> float:
        """The rate between a vertex and those that have their hosts already."""
        parent = self.parents[vertex]
        up = float(self.flow[vertex]) if parent >= 0 and hosts[parent] >= 0 else 0.0
        return up + sum(
            float(self.flow[child]) for child, over in enumerate(self.parents) if over == vertex and hosts[child] >= 0
        )

    def _improved(self, hosts: list[int]) -> list[int]:
        value = self._value(hosts)
        for _ in range(ROUNDS_MAX):
            before = value
            for vertex in range(self.size):
                cost = self._free(self._alone(vertex, hosts), [host for v, host in enumerate(hosts) if v != vertex])
                hosts[vertex] = int(cost.argmin())
                parent = self.parents[vertex]
                if parent >= 0:
                    self._move_both(vertex, parent, hosts)
            value = self._value(hosts)
            if value >= before - IMPROVEMENT_MIN:
                break
        return hosts

    def _move_both(self, vertex: int, parent: int, hosts: list[int]) -> None:
        others = [host for v, host in enumerate(hosts) if v not in (vertex, parent)]
        below = self._free(self._alone(vertex, hosts, without=parent), others)
        above = self._free(self._alone(parent, hosts, without=vertex), others)
        total = below[:, None] + above[None, :] + self._edge(vertex)
        np.fill_diagonal(total, np.inf)
        least = np.unravel_index(int(total.argmin()), total.shape)
        if total[least] < total[hosts[vertex], hosts[parent]] - IMPROVEMENT_MIN:
            hosts[vertex], hosts[parent] = int(least[0]), int(least[1])

    def _alone(self, vertex: int, hosts: Sequence[int], *, without: int = -1) -> FloatArray:
        """The cost of each host for a vertex, if the others stay where they are."""
        cost: FloatArray = self.own[vertex].copy()
        parent = self.parents[vertex]
        if parent >= 0 and parent != without and hosts[parent] >= 0:
            cost += self._edge(vertex)[:, hosts[parent]]
        for child, over in enumerate(self.parents):
            if over == vertex and child != without and hosts[child] >= 0:
                cost += self._edge(child)[hosts[child]]
        return cost

    @staticmethod
    def _free(cost: FloatArray, taken: Sequence[int]) -> FloatArray:
        cost = cost.copy()
        cost[[host for host in taken if host >= 0]] = np.inf
        return cost

    def _value(self, hosts: Sequence[int]) -> float:
        if len(set(hosts)) < len(hosts):
            return np.inf
        total = float(self.own[np.arange(self.size), list(hosts)].sum())
        for vertex, parent in enumerate(self.parents):
            if parent >= 0:
                total += float(self._edge(vertex)[hosts[vertex], hosts[parent]])
        return total
