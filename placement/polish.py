"""Polish a placed tree: more or fewer vertices, any host, and steps that get worse before they get better.

`placement.improvement` searches on a shortlist of hosts, and on trees of the sizes that it began with. Here each round
changes the best tree that is known at random, puts items and hosts in order again on the hosts that it stands on and a
few others, and keeps the result if it is better, or, at first, if it is not much worse (threshold accepting). A change
is one of these:

- a vertex moves to one of the hosts that would serve its events best;
- some of the items that enter at a vertex get one of their own, on a host near to them, below or above it;
- a vertex is taken away, and what hung below it hangs where it hung;
- a vertex hangs elsewhere, or some items enter elsewhere.

The budget is in looks at a pair of items, as in `placement.improvement`, so equal worlds get equal networks on any
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placement.costs import Costs
from placement.improvement import IMPROVEMENT_MIN, Improvement, Layout
from placement.rooted import Limits, Pairs, RootedTree
from placement.topology import FloatArray, IntArray, Topology

WARM = 0.01
"""By what part a layout may be worse than the last one at the beginning; it falls to 0 along a line."""
BEST_FEW = 4
"""A host is drawn from so many of the best ones."""
OTHERS = 6
"""Hosts beside those of the tree that a round may use."""
MOVED, SPLIT, MERGED, HUNG = 0.3, 0.55, 0.7, 0.85
"""Up to which number, drawn from 0 to 1, a round makes each change."""
SCATTERED = 0.1
ROUND_LOOKS = 20_000
"""What a round costs beside its looks at pairs, in such looks."""


class Polishing:
    """The polishing of one tree. ``costs``: on all hosts of the topology; ``pool``: the hosts that nodes may stand on.

    ``vertices``: how many the tree may have. Layouts that go in and come out have the topology's numbers of hosts.
    """

    def __init__(
        self,
        costs: Costs,
        topology: Topology,
        limits: Limits,
        pool: IntArray,
        vertices: int,
        random: np.random.Generator,
    ) -> None:
        self.costs, self.topology, self.limits = costs, topology, limits
        self.pool, self.vertices, self.random = pool, vertices, random
        self.pairs = Pairs(costs)
        self.served = costs.up[:, pool] + costs.down[:, pool]
        self._from: dict[int, FloatArray] = {}
        self._to: dict[int, FloatArray] = {}

    def run(self, layout: Layout, looks_max: int) -> Layout:
        """Return the best layout found within so many looks, the given one if none is better."""
        best = current = layout
        looks = 0
        while looks < looks_max:
            warm = WARM * (1 - looks / looks_max)
            tried, spent = self._round(current)
            looks += spent + ROUND_LOOKS
            if not self.topology.roomy and len(set(tried.hosts)) < len(tried.hosts):
                continue  # a host has room for one node
            if tried.value <= current.value * (1 + warm):
                current = tried
            if tried.value < best.value - IMPROVEMENT_MIN:
                best = tried
        return best

    def _round(self, layout: Layout) -> tuple[Layout, int]:
        parents, hosts, ingress = self._changed(list(layout.parents), list(layout.hosts), layout.ingress.copy())
        near = np.unique(np.concatenate([hosts, self.random.choice(self.pool, min(OTHERS, len(self.pool)))]))
        place = {host: number for number, host in enumerate(near.tolist())}
        search = Improvement(self.costs.on(near), self._between(near.tolist()), self.limits, roomy=self.topology.roomy)
        begun = search.valued(parents, [place[host] for host in hosts], ingress)
        pruned = _pruned(search, search.settle(begun))
        return replace(pruned, hosts=tuple(int(near[host]) for host in pruned.hosts)), search.looks

    def _changed(
        self, parents: list[int], hosts: list[int], ingress: IntArray
    ) -> tuple[list[int], list[int], IntArray]:
        size, drawn = len(parents), self.random.random()
        vertex = int(self.random.integers(size))
        if drawn < MOVED:
            hosts[vertex] = self._better_host(vertex, parents, hosts, ingress)
        elif drawn < SPLIT and size < self.vertices:
            self._split(vertex, parents, hosts, ingress)
        elif drawn < MERGED and size > 1:
            return _without(vertex, parents, hosts, ingress)
        elif drawn < HUNG and size > 2:
            self._hang(vertex, parents)
        else:
            moved = self.random.random(len(ingress)) < max(SCATTERED, 1.5 / len(ingress))
            ingress[moved] = self.random.integers(size, size=int(moved.sum()))
        return parents, hosts, ingress

    def _better_host(self, vertex: int, parents: Sequence[int], hosts: Sequence[int], ingress: IntArray) -> int:
        """Return one of the best hosts for a vertex, if items keep their paths: these end at the root, at most."""
        tree = RootedTree(parents, range(len(parents)), self.costs.on(np.array(hosts)), self._between(hosts))
        ways = tree.ways(self.pairs, ingress)
        cost = np.zeros(len(self.pool))
        for item, way in enumerate(ways):
            if vertex not in way:
                continue
            at, weight = way.index(vertex), self.costs.weight[item]
            cost += weight * self._row_from(hosts[way[at - 1]])[self.pool] if at else self.costs.up[item, self.pool]
            if at + 1 < len(way):
                cost += weight * self._row_to(hosts[way[at + 1]])[self.pool]
            else:
                cost += self.costs.down[item, self.pool]
        others = [host for other, host in enumerate(hosts) if other != vertex]
        return self._one_of_best(cost, others, otherwise=hosts[vertex])

    def _split(self, vertex: int, parents: list[int], hosts: list[int], ingress: IntArray) -> None:
        inside = np.flatnonzero(ingress == vertex)
        chosen = self.random.choice(inside if len(inside) else len(ingress))
        host = self._one_of_best(self.served[chosen], hosts, otherwise=-1)
        if host < 0:
            return
        new = len(parents)
        hosts.append(host)
        if self.random.random() < 0.5:
            parents.append(vertex)
        else:
            parents.append(parents[vertex])
            parents[vertex] = new
        nearer = inside[self._own(inside, host) < self._own(inside, hosts[vertex])]
        ingress[nearer] = new
        ingress[chosen] = new

    def _own(self, items: IntArray, host: int) -> FloatArray:
        own: FloatArray = self.costs.up[items, host] + self.costs.down[items, host]
        return own

    def _hang(self, vertex: int, parents: list[int]) -> None:
        below = {vertex}
        for _ in parents:
            below |= {child for child, parent in enumerate(parents) if parent in below}
        elsewhere = [other for other in range(len(parents)) if other not in below]
        if elsewhere:
            parents[vertex] = int(self.random.choice(elsewhere))
        else:  # the root: one of the others becomes it
            other = int(self.random.choice([other for other in below if other != vertex]))
            _make_root(other, parents)

    def _one_of_best(self, cost: FloatArray, taken: Sequence[int], *, otherwise: int) -> int:
        """Return a host of the pool, where no other vertex stands unless there is room; ``otherwise`` if none is
        free."""
        if not self.topology.roomy:
            cost = np.where(np.isin(self.pool, taken), np.inf, cost)
        few = np.argpartition(cost, min(BEST_FEW, len(cost)) - 1)[:BEST_FEW]
        few = few[np.isfinite(cost[few])]
        return int(self.pool[self.random.choice(few)]) if len(few) else otherwise

    def _between(self, hosts: Sequence[int]) -> FloatArray:
        return np.array([self._row_from(host)[list(hosts)] for host in hosts])

    def _row_from(self, host: int) -> FloatArray:
        if host not in self._from:
            self._from[host] = self.topology.ms_from(np.array([host]))[0]
        return self._from[host]

    def _row_to(self, host: int) -> FloatArray:
        if host not in self._to:
            self._to[host] = self.topology.ms_to(np.array([host]))[0]
        return self._to[host]


def _make_root(vertex: int, parents: list[int]) -> None:
    """Turn the edges on the way from the root around."""
    before, at = -1, vertex
    while at >= 0:
        following = parents[at]
        parents[at] = before
        before, at = at, following


def _without(
    vertex: int, parents: list[int], hosts: list[int], ingress: IntArray
) -> tuple[list[int], list[int], IntArray]:
    """Take a vertex away: its parent, or for the root one of its children, takes its place."""
    over = parents[vertex]
    if over < 0:
        over = parents.index(vertex)
        parents[over] = -1
    moved = [over if parent == vertex else parent for parent in parents]
    del moved[vertex], hosts[vertex]
    names = np.arange(len(parents)) - (np.arange(len(parents)) > vertex)
    names[vertex] = names[over]
    return [int(names[parent]) if parent >= 0 else -1 for parent in moved], hosts, names[ingress]


def _pruned(search: Improvement, layout: Layout) -> Layout:
    """Leave out vertices that nothing passes."""
    ways = search.tree(layout.parents, layout.hosts).ways(search.pairs, layout.ingress)
    used = {vertex for way in ways for vertex in way}
    parents, hosts, ingress = list(layout.parents), list(layout.hosts), layout.ingress
    for vertex in reversed(range(len(parents))):
        if vertex not in used and len(parents) > 1:
            parents, hosts, ingress = _without(vertex, parents, hosts, ingress)
    return search.valued(parents, hosts, ingress) if len(parents) < len(layout.parents) else layout
