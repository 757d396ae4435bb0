"""Place a sequencing network on a topology: arrangement and hosts together, for the least publish → deliver delay.

The core's arrangement decides which nodes a region's events pass; where these stand decides what that costs. Both are
chosen together. Components of the overlap graph are placed one by one, each on a tree of its own. For each the search
(`placement.improvement`) starts from

- one node at the best host for all (the 1-median), like a central sequencer;
- lines that the planner cuts for the load (`placement.candidates`), which show how far the load can be shared at all;
- hosts that serve as facilities (p-median by exchange), each region entering at the nearest, joined by a tree.

**Loads.** Both limits follow the rule of Lumezanu 2006 (§1, §3.3) that no node should order more messages than the
busiest receiver receives. *Ordered* events, those that get a number at a node, are kept below that everywhere. That is
always possible, because an atom orders two groups, and a subscriber of both receives as much. *Handled* events, which
include those that only pass, cannot always be kept below it: of regions that must all be ordered against each other,
some node handles all (`placement.world.World.clique`). So their excess is charged: a twentieth of the whole delay for
each limit too much.

A *capacity* that an operator gives limits what nodes handle, instead of this rule. It comes before delay: a smaller
excess is better at any delay.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from random import Random
from typing import Literal

import numpy as np
from scipy.sparse import csgraph, csr_array

from placement.atoms import Spread, spread_out
from placement.central import sequencers
from placement.costs import Costs
from placement.improvement import Improvement, Layout
from placement.placed import Placed, PlacedAtom
from placement.polish import Polishing
from placement.rooted import TOLERANCE, Limits
from placement.siting import site
from placement.starts import least_loaded, starts
from placement.stretch import SAME, Distances, Figures, figures
from placement.topology import FloatArray, IntArray
from sequencing.arrangement import meetings
from sequencing.plan import Ordering

Objective = Literal["mean", "p95", "max", "stretch"]
"""Of deliveries their mean, 95th percentile or largest delay; or the mean stretch over destinations."""

VERTICES_MAX = 8
POLISHED_MAX = 16
POOL_MAX = 2_000
"""In larger topologies only listed hosts are tried: a row of shortest ways to 10,000 hosts takes some 10 ms."""
KICKS = 4
FEW_ITEMS, FEW_KICKED = 16, 6
"""This few items are searched in no time, and have few ways out of a bad beginning."""
REWEIGHTED = 4
SEQUENCERS = 12
"""Hosts that are tried for a central sequencer if the objective is not the mean."""
HANDLED_PRICE = 0.05
ORDERED_PRICE = 0.02
"""The price of a whole limit too much, in delays of a central sequencer."""
CAPACITY_PRICE = 1e6
"""The same, for a capacity that an operator gave: a millionth of it outweighs all delays of a central sequencer."""
CAPACITY_OTHERS = 0.01
"""The weight of the excess on all nodes beside that on the busiest one, which is what the operator asked about."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to search: hosts examined (None: all), vertices of a tree, displacements, looks of the polish and the
    vertices that it may use (`placement.polish`), how often the atoms of a node that orders too much are divided, and
    whether the result is compared with a central sequencer (`place`)."""

    shortlist: int | None = 48
    anchors: int = 6
    neighbours: int = 12
    vertices_max: int = VERTICES_MAX
    kicks: int = KICKS
    polish_looks: int = 0
    polished_max: int = POLISHED_MAX
    divisions: int = 1
    against_central: bool = True


EFFORTS: Mapping[str, Effort] = {
    "quick": Effort(),
    "normal": Effort(polish_looks=20_000_000, divisions=4),
    "thorough": Effort(polish_looks=400_000_000, divisions=20),
}
"""By name. On an idle core a network of 32 groups takes some 0.3, 1 and 20 s."""


@dataclass(frozen=True, slots=True)
class LoadRule:
    """The load that a node should carry: ``capacity`` events/s that it handles, infinite for no limit at all, or None
    for the rule of Lumezanu 2006.

    ``of_hosts``: the same for each host of the topology, where they differ; the capacity is the largest of them that is
    finite.
    """

    capacity: float | None = None
    of_hosts: tuple[float, ...] | None = None

    @classmethod
    def by_host(cls, capacities: Sequence[float]) -> LoadRule:
        """Return the rule for hosts that may carry different loads, infinite for any."""
        if len(set(capacities)) <= 1:
            return cls(max(capacities, default=np.inf))
        return cls(max(each for each in capacities if each < np.inf), tuple(capacities))

    def limits(self, receiver: float, scale_ms: float) -> Limits:
        """Return the limits, given the load of the busiest receiver and the delay of a central sequencer."""
        if self.capacity is None:
            return Limits(receiver, receiver, HANDLED_PRICE * scale_ms, ORDERED_PRICE * scale_ms)
        return Limits(self.capacity, np.inf, CAPACITY_PRICE * scale_ms, 0.0, CAPACITY_OTHERS)

    def on(self, hosts: Sequence[int]) -> FloatArray:
        """Return the capacities of nodes on these hosts."""
        if self.of_hosts is not None:
            return np.array(self.of_hosts)[list(hosts)]
        return np.full(len(hosts), np.inf if self.capacity is None else self.capacity)

    def excess(self, handled: FloatArray, hosts: Sequence[int]) -> float:
        """Return by how many events/s nodes on these hosts exceed their capacity at most; the rule of Lumezanu 2006 is
        no capacity."""
        limits = self.on(hosts)
        with np.errstate(invalid="ignore"):
            over = np.where(handled > limits * (1 + TOLERANCE), handled - limits, 0.0)
        return float(over.max(initial=0.0))


def place(
    distances: Distances,
    random: np.random.Generator,
    *,
    ordering: Ordering = "overlap",
    objective: Objective = "mean",
    rule: LoadRule | None = None,
    nodes: int | None = None,
    effort: Effort | None = None,
    allowed: IntArray | None = None,
    never_worse: bool = False,
) -> Placed:
    """Place a network for a workload; without a ``rule`` nodes keep the one of Lumezanu 2006, as above.

    ``allowed``: the hosts that nodes may stand on, None for all. ``nodes``: the most nodes, on one tree for all;
    loads are then shared as far as possible, and the rule is no longer kept at any price. If a central sequencer
    keeps the capacity of a ``rule``, no network is worse by the objective than that, and with ``never_worse`` in
    none of mean, 95th percentile and worst stretch: see `_against_central`. The same random state gives the same
    network. 64 groups of 128 subscribers on 10,000 hosts take some 3 s.
    """
    rule = rule or LoadRule()
    effort = effort or Effort()
    placing = _Placing(distances, random, ordering, rule=rule, nodes=nodes, effort=effort, allowed=allowed)
    network = _searched(placing, objective)
    if rule.capacity is None or not effort.against_central:
        return network
    return _against_central(placing, objective, network, never_worse=never_worse)


def _searched(placing: _Placing, objective: Objective) -> Placed:
    distances = placing.distances
    if objective == "mean":
        return placing.best(np.ones(len(distances.workload.names)))
    straight = distances.received_direct_ms
    worth = np.where(straight > 0, 1.0 / np.where(straight > 0, straight, 1.0), 0.0)
    if objective == "stretch":
        return placing.best(worth / (worth.sum() or 1.0))
    worth = np.ones(len(straight))
    best, best_value = None, np.inf
    for _ in range(REWEIGHTED):
        network = placing.best(worth)
        reached = figures(distances, network.routes(distances.topology))
        if (value := value_of(reached, objective)) < best_value:
            best, best_value = network, value
        worth = worth * _farness(distances, reached)
    assert best is not None
    return best


def value_of(reached: Figures, objective: Objective) -> float:
    """Return what an objective minimises: ms, or the mean stretch of destinations."""
    if objective == "stretch":
        return reached.mean_stretch
    return {"mean": reached.mean_ms, "p95": reached.p95_ms, "max": reached.max_ms}[objective]


def _against_central(placing: _Placing, objective: Objective, ours: Placed, *, never_worse: bool) -> Placed:
    """Return the network, or one node if that is better; a smaller excess over the capacity comes first.

    The objective decides, and some of the next best hosts are tried, too. With ``never_worse``, the network must have
    no greater mean, 95th percentile and worst stretch than one sequencer at the 1-median. If it has, searches in which
    far destinations count more are tried as well.
    """
    single = sequencers(placing.distances, 1 if never_worse else SEQUENCERS, placing.allowed)
    if placing.excess(single[0]) > placing.excess(ours):
        return ours
    if never_worse:
        if ours.hosts == single[0].hosts:
            return ours
        central = placing.figures(single[0])
        rivals = [*_nearer(placing, ours, central), (single[0], central)]
    else:
        rivals = [(network, placing.figures(network)) for network in (ours, *single)]
    return min(rivals, key=lambda rival: (placing.excess(rival[0]), value_of(rival[1], objective)))[0]


def _nearer(placing: _Placing, network: Placed, central: Figures) -> Iterator[tuple[Placed, Figures]]:
    """Yield the first network that is no worse than the central one, of this and of some that favour the farthest."""
    worth = np.ones(len(placing.distances.received_rates))
    for attempt in range(REWEIGHTED):
        if attempt:
            network = placing.best(worth)
        reached = placing.figures(network)
        if reached.no_worse_than(central):
            yield network, reached
            return
        worth = worth * _farness(placing.distances, reached)


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
        self,
        distances: Distances,
        random: np.random.Generator,
        ordering: Ordering,
        *,
        rule: LoadRule,
        nodes: int | None,
        effort: Effort,
        allowed: IntArray | None,
    ) -> None:
        self.allowed = np.arange(len(distances.topology.names)) if allowed is None else np.unique(allowed)
        self.distances, self.random, self.effort = distances, random, effort
        self.rule, self.nodes = rule, nodes
        work = distances.workload
        self.wanted = meetings(work.membership, ordering)
        self.receiver = float(work.received.max(initial=0.0)) or 1.0
        self.hosts: list[int] = []
        self.paths: dict[int, tuple[int, ...]] = {}
        self.atoms: list[PlacedAtom] = []
        self.carried: list[float] = []

    def best(self, worth: FloatArray) -> Placed:
        """Return a network for destinations with these weights."""
        self.hosts, self.paths, self.atoms, self.carried = [], {}, [], []
        costs = Costs.of(self.distances, self.wanted, worth)
        if self.rule.of_hosts is not None:
            costs = replace(costs, capacity=np.array(self.rule.of_hosts))
        if self.nodes is None:
            for items in _parts(costs):
                self._place_part(costs.of_items(items))
            loose = np.arange(costs.ordered, len(costs.weight))
            if self.rule.of_hosts is not None:  # what is large first: else it finds no room
                loose = loose[np.argsort(-costs.rates[loose], kind="stable")]
            for item in loose.tolist():
                self._place_loose(costs, item)
        elif len(costs.weight):
            self._place_part(costs)
        regions = len(self.distances.workload.regions)
        return Placed(tuple(self.hosts), tuple(self.paths[region] for region in range(regions)), tuple(self.atoms))

    def excess(self, network: Placed) -> float:
        """Return by how many events/s a network's busiest node exceeds the capacity of the rule."""
        return self.rule.excess(network.handled(self.distances.workload.region_rates), network.hosts)

    def figures(self, network: Placed) -> Figures:
        """Return the delays of a network."""
        return figures(self.distances, network.routes(self.distances.topology))

    def _place_part(self, costs: Costs) -> None:
        topology = self.distances.topology
        effort = self.effort
        listed = self._listed(costs)
        if not len(listed):
            self._join(costs, self._least_filled())
            return
        near = costs.on(listed)
        between = topology.ms_from(listed)[:, listed]
        scale = float(near.whole.min()) or 1.0
        limits = self.rule.limits(self.receiver, scale)
        search = Improvement(near, between, limits, roomy=topology.roomy)
        vertices = min(self.nodes or effort.vertices_max, len(near.weight), self._room(listed))
        begun = list(starts(search, near, between, vertices, limits.handled))
        kicks = effort.kicks * (FEW_KICKED if len(near.weight) <= FEW_ITEMS else 1)
        best = search.search(begun, self.random, kicks=kicks)
        to_finish = [begun[0], best]
        if effort.polish_looks:
            listed, near, search, polished = self._polished(costs, listed, limits, best)
            to_finish.append(polished)
        # Rows of nodes at one place often beat nodes that the search has shared the load over.
        layouts = [*dict.fromkeys(to_finish)]
        finished = [self._finish(search, near, layout, limits) for layout in layouts]
        _, best_layout = min(zip((part.value for part in finished), layouts, strict=True), key=itemgetter(0))
        finished += [self._finish(search, near, best_layout, limits) for _ in range(effort.divisions - 1)]

        def excess(part: _Part) -> float:
            return self.rule.excess(part.handled, listed[list(part.hosts)].tolist())

        if min(map(excess, finished)) > 0:
            finished.append(self._least_loaded(search, near, vertices, limits))
        best_part = min(finished, key=lambda part: (excess(part), part.value))
        if (node := self._nearer_node(costs, best_part.value)) is not None:
            self._join(costs, node)
        else:
            self._take(near, best_part, listed)

    def _polished(
        self, costs: Costs, listed: IntArray, limits: Limits, best: Layout
    ) -> tuple[IntArray, Costs, Improvement, Layout]:
        """Return what `Polishing` makes of a layout, with the hosts that were listed and then those that it has
        taken."""
        topology, effort = self.distances.topology, self.effort
        pool = listed if len(self.allowed) > POOL_MAX else self.allowed
        if not topology.roomy:
            pool = np.setdiff1d(pool, self.hosts)
        most = min(self.nodes or effort.polished_max, self._room(pool))
        polishing = Polishing(costs, topology, limits, pool, most, self.random)
        placed = replace(best, hosts=tuple(listed[list(best.hosts)].tolist()))
        share = len(costs.weight) / max(self.wanted.ordered.sum(), len(costs.weight))
        polished = polishing.run(placed, int(effort.polish_looks * share))
        wider = np.concatenate([listed, np.setdiff1d(polished.hosts, listed)])
        near = costs.on(wider)
        search = Improvement(near, topology.ms_from(wider)[:, wider], limits, roomy=topology.roomy)
        number = {host: place for place, host in enumerate(wider.tolist())}
        return wider, near, search, replace(polished, hosts=tuple(number[host] for host in polished.hosts))

    def _room(self, hosts: IntArray) -> int:
        """Return how many nodes these hosts have room for."""
        return sys.maxsize if self.distances.topology.roomy else len(hosts)

    def _nearer_node(self, costs: Costs, value: float) -> int | None:
        """Return the best node that stands already, with room for all of a part, if that is better than this value.

        The rule of Lumezanu 2006 limits what a node orders, so its parts have nodes of their own.
        """
        if self.rule.capacity is None:
            return None
        own = (costs.up + costs.down).sum(axis=0)[self.hosts]
        room = np.array(self.carried) + costs.rates.sum() <= self.rule.on(self.hosts)
        better = np.flatnonzero(room & (own < value - SAME))
        return int(better[own[better].argmin()]) if len(better) else None

    def _join(self, costs: Costs, node: int) -> None:
        """Let a part pass one node that stands already."""
        pairs = [*zip(costs.left.tolist(), costs.right.tolist(), strict=True), *((item, item) for item in costs.twins)]
        for regions in costs.regions:
            self.paths |= dict.fromkeys(regions.tolist(), (node,))
        self.atoms += [PlacedAtom(costs.regions_of(pair), node) for pair in pairs]
        self.carried[node] += float(costs.rates.sum())

    def _listed(self, costs: Costs) -> IntArray:
        """Return the hosts that are examined: the best ones, and those near to the very best, for consecutive nodes."""
        topology = self.distances.topology
        listed = self.allowed
        if self.effort.shortlist is not None:
            here = costs.on(listed)
            best = listed[np.argsort(here.whole, kind="stable")[: self.effort.anchors]]
            away = topology.ms_from(best)[:, listed]
            near = listed[np.argsort(away, axis=1, kind="stable")[:, : self.effort.neighbours]]
            listed = np.union1d(listed[here.shortlist(of_all=self.effort.shortlist)], near)
            if costs.capacity is not None:
                listed = np.union1d(listed, self._spacious(costs))
        return listed if topology.roomy else np.setdiff1d(listed, self.hosts)

    def _spacious(self, costs: Costs) -> IntArray:
        """Return hosts that may carry most, and the best ones of those that may carry everything."""
        assert costs.capacity is not None
        capacity = costs.capacity[self.allowed]
        most = np.argsort(-capacity, kind="stable")[: self.effort.anchors]
        enough = np.flatnonzero(capacity >= costs.rates.sum())
        best = enough[np.argsort(costs.whole[self.allowed][enough], kind="stable")[: self.effort.anchors]]
        return self.allowed[np.union1d(most, best)]

    def _finish(self, search: Improvement, costs: Costs, layout: Layout, limits: Limits) -> _Part:
        """Share out the atoms, with more vertices where that needs some, and value what comes of it."""
        ways = search.tree(layout.parents, layout.hosts).ways(search.pairs, layout.ingress)
        limit = limits.ordered if self.nodes is None else np.inf
        chance = int(self.random.integers(1 << 62))
        spread = spread_out(costs, layout.parents, ways, limit, Random(chance))
        if not search.roomy and len(spread.parents) > costs.up.shape[1]:
            spread = spread_out(costs, layout.parents, ways, np.inf, Random(chance))
        hosts = layout.hosts
        if spread.ways != tuple(ways):
            hosts = site(spread.parents, spread.ways, costs, search.between, roomy=search.roomy)
        return _valued(search, costs, spread, hosts, limits)

    def _least_loaded(self, search: Improvement, costs: Costs, vertices: int, limits: Limits) -> _Part:
        """Return what the planner finds for the load alone, on the best hosts: it searches more trees."""
        parents, ways = least_loaded(costs, vertices, limits.handled)
        spread = spread_out(costs, parents, ways, np.inf, Random(0))
        hosts = site(spread.parents, spread.ways, costs, search.between, roomy=search.roomy)
        return _valued(search, costs, spread, hosts, limits)

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
            self.atoms.append(PlacedAtom(costs.regions_of((one, other)), node_of[vertex]))

    def _place_loose(self, costs: Costs, item: int) -> None:
        """Place a region that needs no atom where it is best, if the node there can carry it too; otherwise add a
        node."""
        rate = float(costs.rates[item])
        limit = self.rule.limits(self.receiver, 0.0).handled
        room_of = self.rule.of_hosts
        own = costs.up[item] + costs.down[item]
        among = self.allowed[np.argsort(own[self.allowed], kind="stable")].tolist()
        if not own.any() and self.hosts:
            # One that costs nothing anywhere, for want of subscribers, is no reason for a node if one has room.
            among.insert(0, self.hosts[self._least_filled()])
        for host in among:
            here = [node for node, standing in enumerate(self.hosts) if standing == host]
            room = limit if room_of is None else room_of[host]
            with_room = [node for node in here if self.carried[node] + rate <= room]
            if with_room:
                self._add_loose(costs, item, with_room[0])
                return
            if (not here or self.distances.topology.roomy) and (room_of is None or rate <= room):
                self.hosts.append(host)
                self.carried.append(0.0)
                self._add_loose(costs, item, len(self.hosts) - 1)
                return
        if room_of is not None:
            self._add_where_least_too_much(costs, item, among, room_of)
        else:
            self._add_loose(costs, item, self._least_filled())

    def _add_where_least_too_much(
        self, costs: Costs, item: int, among: Sequence[int], room_of: Sequence[float]
    ) -> None:
        """Place a region where its node exceeds what it may carry by least: one that stands, or a new one."""
        new = [host for host in among if self.distances.topology.roomy or host not in self.hosts]
        self.hosts += new
        self.carried += [0.0] * len(new)
        over = [carried - room_of[host] for carried, host in zip(self.carried, self.hosts, strict=True)]
        node = int(np.argmin(over))
        standing = len(self.hosts) - len(new)
        kept = [*range(standing), *([node] if node >= standing else [])]
        self.hosts, self.carried = [self.hosts[each] for each in kept], [self.carried[each] for each in kept]
        self._add_loose(costs, item, kept.index(node))

    def _least_filled(self) -> int:
        """Return the node that carries least of what it may."""
        if self.rule.of_hosts is None:
            return int(np.argmin(self.carried))
        return int(np.argmin(np.array(self.carried) / self.rule.on(self.hosts)))

    def _add_loose(self, costs: Costs, item: int, node: int) -> None:
        self.carried[node] += float(costs.rates[item])
        self.paths[int(costs.regions[item][0])] = (node,)


def _valued(search: Improvement, costs: Costs, spread: Spread, hosts: tuple[int, ...], limits: Limits) -> _Part:
    value, handled = 0.0, np.zeros(len(spread.parents))
    for item, way in enumerate(spread.ways):
        inside = sum(float(search.between[hosts[here], hosts[there]]) for here, there in pairwise(way))
        value += float(costs.up[item, hosts[way[0]]] + costs.down[item, hosts[way[-1]]])
        value += float(costs.weight[item]) * inside
        handled[list(way)] += costs.rates[item]
    charged = limits.charge(limits.scaled(handled, costs, hosts), np.zeros(1))
    return _Part(spread, hosts, handled, value + float(charged))


def _parts(costs: Costs) -> list[IntArray]:
    """Return the items that need an atom, by connected part, the busiest part first."""
    size = costs.ordered
    if not size:
        return []
    graph = csr_array((np.ones(len(costs.left), np.int8), (costs.left, costs.right)), shape=(size, size))
    _, part_of = csgraph.connected_components(graph, directed=False)
    parts = [np.flatnonzero(part_of == part) for part in range(int(part_of.max()) + 1)]
    return sorted(parts, key=lambda items: -float(costs.weight[items].sum()))
