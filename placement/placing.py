"""Place a sequencing network on a topology: arrangement and hosts together, for the least publish → deliver delay.

The core's arrangement decides which nodes a region's events pass; where these stand decides what that costs. Both are
chosen together. Components of the overlap graph are placed one by one, each on a tree of its own. For each the search
(`placement.improvement`) starts from

- one node at the best host for all (the 1-median), which is what a central sequencer is;
- lines that the planner cuts for the load (`placement.candidates`), which say what can be shared out at all;
- hosts that serve as facilities (p-median by exchange), each region entering at the nearest, joined by a tree.

**Loads.** Two limits, both of the seed's rule (002 §1, §3.3), that no node should order more messages than the busiest
receiver receives. *Ordered* events, those that get a number at a node, are kept below that everywhere: that can always
be done, because an atom orders two groups, and whoever subscribes to both receives as much. *Handled* events, which
also count those that only pass, cannot: of regions that must all be ordered against each other, some node handles all
(`placement.world.World.clique`). So their excess is charged, one hundredth of the whole delay for each hundredth of the
limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal

import numpy as np
from scipy.sparse import csgraph, csr_array

from placement.atoms import Spread, spread_out
from placement.candidates import candidates
from placement.costs import Costs
from placement.improvement import Improvement, Layout
from placement.objective import PlanObjective
from placement.placed import Placed, PlacedAtom
from placement.rooted import Limits
from placement.siting import site
from placement.stretch import Distances, Figures, figures
from placement.topology import FloatArray, IntArray
from placement.world import World
from sequencing.arrangement import Meetings, Tree, meetings
from sequencing.overlaps import TwinClasses
from sequencing.plan import Ordering

Objective = Literal["mean", "p95", "max", "stretch"]
"""Of deliveries their mean, 95th percentile or largest delay; or the mean stretch over destinations."""

VERTICES_MAX = 8
IMPROVEMENT_MIN = 1e-9
DETOUR_PRICE = 0.5
"""Of a ms from there to the root, when a facility chooses through which other one it is joined."""
LINES = 2
FACILITIES = (2, 3, 4, 6, 8)
KICKS = 4
REWEIGHTED = 4
HANDLED_PRICE = 0.05
ORDERED_PRICE = 0.02
"""Of a whole limit too much, in delays of a central sequencer."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to search: hosts that are looked at (None: all), vertices of a tree, displacements."""

    shortlist: int | None = 48
    anchors: int = 6
    neighbours: int = 12
    vertices_max: int = VERTICES_MAX
    kicks: int = KICKS


def place(
    distances: Distances,
    random: np.random.Generator,
    *,
    ordering: Ordering = "overlap",
    objective: Objective = "mean",
    limited: bool = True,
    effort: Effort | None = None,
) -> Placed:
    """Place a network for a workload; ``limited``: whether nodes should keep the seed's load rule.

    The same random state gives the same network. 64 groups of 128 subscribers on 10,000 hosts take about a second.
    """
    placing = _Placing(distances, random, ordering, limited=limited, effort=effort or Effort())
    if objective == "mean":
        return placing.best(np.ones(len(distances.workload.names)))
    straight = distances.received_direct_ms
    worth = np.where(straight > 0, 1.0 / np.where(straight > 0, straight, 1.0), 0.0)
    if objective == "stretch":
        return placing.best(worth / (worth.sum() or 1.0))
    worth = np.ones(len(straight))
    best, best_value = None, np.inf
    for _ in range(REWEIGHTED):
        found = placing.best(worth)
        reached = figures(distances, found.routes(distances.topology))
        value = {"p95": reached.p95_ms, "max": reached.max_ms}[objective]
        if value < best_value:
            best, best_value = found, value
        worth = worth * _farness(distances, reached)
    assert best is not None
    return best


def _farness(distances: Distances, reached: Figures) -> FloatArray:
    """How much more each destination should count: those that wait longest."""
    rates = distances.received_rates
    delay = np.where(rates > 0, reached.stretch * distances.received_direct_ms / np.where(rates > 0, rates, 1.0), 0.0)
    delay = np.nan_to_num(delay)
    return np.asarray((delay / (delay[delay > 0].mean() if (delay > 0).any() else 1.0)) ** 2)


@dataclass(frozen=True, slots=True)
class _Part:
    """A component of the overlap graph, placed: hosts of its vertices, events/s that these handle, value in ms."""

    spread: Spread
    hosts: tuple[int, ...]
    handled: FloatArray
    value: float


class _Placing:
    def __init__(
        self, distances: Distances, random: np.random.Generator, ordering: Ordering, *, limited: bool, effort: Effort
    ) -> None:
        self.distances, self.random, self.effort = distances, random, effort
        self.limited = limited
        work = distances.workload
        self.wanted = meetings(work.membership, ordering)
        self.receiver = float(work.received.max(initial=0.0)) or 1.0
        self.hosts: list[int] = []
        self.paths: dict[int, tuple[int, ...]] = {}
        self.atoms: list[PlacedAtom] = []
        self.carried: list[float] = []

    def best(self, worth: FloatArray) -> Placed:
        """Return a network for destinations that count so much each."""
        self.hosts, self.paths, self.atoms, self.carried = [], {}, [], []
        costs = Costs.of(self.distances, self.wanted, worth)
        for items in _parts(costs):
            self._place_part(costs.of_items(items))
        for item in range(costs.ordered, len(costs.weight)):
            self._place_loose(costs, item)
        regions = len(self.distances.workload.regions)
        return Placed(tuple(self.hosts), tuple(self.paths[region] for region in range(regions)), tuple(self.atoms))

    def _place_part(self, costs: Costs) -> None:
        topology = self.distances.topology
        effort = self.effort
        listed = self._listed(costs)
        near = costs.on(listed)
        between = topology.ms_from(listed)[:, listed]
        scale = float(near.whole.min()) or 1.0
        limits = Limits(self.receiver, self.receiver, HANDLED_PRICE * scale, ORDERED_PRICE * scale)
        if not self.limited:
            limits = Limits(np.inf, np.inf, 0.0, 0.0)
        search = Improvement(near, between, limits, roomy=topology.roomy)
        vertices = min(effort.vertices_max, len(near.weight), len(listed))
        starts = list(self._starts(search, near, between, vertices))
        best = search.search(starts, self.random, kicks=effort.kicks)
        # Rows of nodes at one place often beat nodes that the search has shared the load over.
        finished = [self._finish(search, near, layout, limits) for layout in dict.fromkeys((starts[0], best))]
        self._take(near, min(finished, key=lambda part: part.value), listed)

    def _listed(self, costs: Costs) -> IntArray:
        """Return the hosts that are looked at: the best ones, and those near to the very best, for nodes that follow
        one another."""
        topology = self.distances.topology
        if self.effort.shortlist is None:
            listed = np.arange(costs.up.shape[1])
        else:
            listed = costs.shortlist(of_all=self.effort.shortlist)
            best = np.argsort(costs.whole, kind="stable")[: self.effort.anchors]
            near = np.argsort(topology.ms_from(best), axis=1, kind="stable")[:, : self.effort.neighbours]
            listed = np.union1d(listed, near)
        return listed if topology.roomy else np.setdiff1d(listed, self.hosts)

    def _starts(self, search: Improvement, costs: Costs, between: FloatArray, vertices: int) -> Iterator[Layout]:
        items = len(costs.weight)
        everything = np.zeros(items, np.int64)
        yield search.start((-1,), everything)
        if vertices == 1:
            return
        if self.limited and costs.rates.sum() > self.receiver:
            yield from self._lines(search, costs, vertices)
        for count in FACILITIES:
            if count <= min(vertices, items):
                yield _facilities(search, costs, between, count)

    def _lines(self, search: Improvement, costs: Costs, vertices: int) -> Iterator[Layout]:
        """Start from what the planner makes of the loads: it knows nothing of places."""
        items = len(costs.weight)
        singly = tuple(np.array([item]) for item in range(items))
        classes = TwinClasses(singly, np.full(items, 2))
        wanted = Meetings(classes, costs.left, costs.right, np.array(sorted(costs.twins), np.int64))
        for count in sorted({min(vertices, 4), vertices}):
            rule = PlanObjective("receiver", count, float(costs.rates.sum()) / count, self.receiver)
            found = candidates(World(wanted, costs.rates, rule, count), exact=False)
            rooted = [(candidate, _parents(candidate.arrangement.tree)) for candidate in found]
            best = sorted(rooted, key=lambda pair: pair[0].value)
            for candidate, parents in [pair for pair in best if pair[1] is not None][:LINES]:
                assert parents is not None
                yield search.start(parents, candidate.arrangement.ingress)

    def _finish(self, search: Improvement, costs: Costs, layout: Layout, limits: Limits) -> _Part:
        """Share out the atoms, with more vertices where that needs some, and value what comes of it."""
        ways = search.tree(layout.parents, layout.hosts).ways(search.pairs, layout.ingress)
        limit = self.receiver if self.limited else np.inf
        spread = spread_out(costs, layout.parents, ways, limit, Random(int(self.random.integers(1 << 62))))
        hosts = layout.hosts
        if spread.ways != tuple(ways):
            hosts = site(spread.parents, spread.ways, costs, search.between, roomy=search.roomy)
        value, handled = 0.0, np.zeros(len(spread.parents))
        for item, way in enumerate(spread.ways):
            inside = sum(float(search.between[hosts[here], hosts[there]]) for here, there in pairwise(way))
            value += float(costs.up[item, hosts[way[0]]] + costs.down[item, hosts[way[-1]]])
            value += float(costs.weight[item]) * inside
            handled[list(way)] += costs.rates[item]
        return _Part(spread, hosts, handled, value + float(limits.charge(handled, np.zeros(1))))

    def _take(self, costs: Costs, part: _Part, listed: IntArray) -> None:
        """Add the part's nodes, paths and atoms; vertices that nothing passes are left out."""
        spread = part.spread
        used = sorted({vertex for way in spread.ways for vertex in way})
        node_of = {vertex: len(self.hosts) + place for place, vertex in enumerate(used)}
        self.hosts += [int(listed[part.hosts[vertex]]) for vertex in used]
        self.carried += part.handled[used].tolist()
        for item, way in enumerate(spread.ways):
            for region in costs.regions[item].tolist():
                self.paths[region] = tuple(node_of[vertex] for vertex in way)
        for (one, other), vertex in spread.at.items():
            regions = costs.regions[one] if one == other else np.concatenate([costs.regions[one], costs.regions[other]])
            self.atoms.append(PlacedAtom(tuple(regions.tolist()), node_of[vertex]))

    def _place_loose(self, costs: Costs, item: int) -> None:
        """A region that needs no atom goes where it is best, if the node there can carry it too, or gets a node."""
        rate = float(costs.rates[item])
        roomy = self.distances.topology.roomy
        for host in np.argsort(costs.up[item] + costs.down[item], kind="stable").tolist():
            here = [node for node, standing in enumerate(self.hosts) if standing == host]
            with_room = [node for node in here if not self.limited or self.carried[node] + rate <= self.receiver]
            if with_room:
                node = with_room[0]
            elif not here or roomy:
                node = len(self.hosts)
                self.hosts.append(host)
                self.carried.append(0.0)
            else:
                continue
            self.carried[node] += rate
            self.paths[int(costs.regions[item][0])] = (node,)
            return
        raise AssertionError("a region found no host, though there are more hosts than nodes")


def _parts(costs: Costs) -> list[IntArray]:
    """Return the items that need an atom, by what hangs together, the busiest part first."""
    size = costs.ordered
    if not size:
        return []
    graph = csr_array((np.ones(len(costs.left), np.int8), (costs.left, costs.right)), shape=(size, size))
    _, part_of = csgraph.connected_components(graph, directed=False)
    parts = [np.flatnonzero(part_of == part) for part in range(int(part_of.max()) + 1)]
    return sorted(parts, key=lambda items: -float(costs.weight[items].sum()))


def _parents(tree: Tree) -> tuple[int, ...] | None:
    """Return the parent of each vertex, None if the tree is not an in-tree with one root."""
    over = dict(tree.edges)
    if len(over) < len(tree.edges) or len(over) != tree.size - 1:
        return None
    return tuple(over.get(vertex, -1) for vertex in range(tree.size))


def _facilities(search: Improvement, costs: Costs, between: FloatArray, count: int) -> Layout:
    """Start from a p-median: the hosts from which items are served best if each has the nearest, found by exchange."""
    served = costs.up + costs.down
    chosen = [int(served.sum(axis=0).argmin())]
    while len(chosen) < count:
        chosen.append(_best_added(served, chosen))
    improved = True
    while improved:
        improved = False
        for place in range(count):
            others = chosen[:place] + chosen[place + 1 :]
            better = _best_added(served, others)
            if _served(served, [*others, better]) < _served(served, chosen) - IMPROVEMENT_MIN:
                chosen[place], improved = better, True
    ingress = served[:, chosen].argmin(axis=1)
    weight = np.bincount(ingress, costs.weight, count)
    return search.valued(_joined(between[np.ix_(chosen, chosen)], int(weight.argmax())), chosen, ingress)


def _best_added(served: FloatArray, chosen: list[int]) -> int:
    known = served[:, chosen].min(axis=1) if chosen else np.full(len(served), np.inf)
    total = np.minimum(served, known[:, None]).sum(axis=0)
    total[chosen] = np.inf
    return int(total.argmin())


def _served(served: FloatArray, chosen: list[int]) -> float:
    return float(served[:, chosen].min(axis=1).sum())


def _joined(between: FloatArray, root: int) -> tuple[int, ...]:
    """Return parents that lead to the root, each by way of others as far as these are no great detour."""
    parents = [-1] * len(between)
    to_root = between[:, root].copy()
    joined = [root]
    for vertex in np.argsort(to_root, kind="stable").tolist():
        if vertex != root:
            parents[vertex] = min(joined, key=lambda over: between[vertex, over] + DETOUR_PRICE * to_root[over])
            to_root[vertex] = between[vertex, parents[vertex]] + to_root[parents[vertex]]
            joined.append(vertex)
    return tuple(parents)
