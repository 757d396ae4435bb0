"""Nearer places for the regions of a running network whose nodes, and subscribers, stand on known hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from placement.placed import Placed
from placement.placing import Effort
from placement.planning.places import Task
from placement.replanning import Part, Replanning, with_part
from placement.stretch import figures
from placement.topology import Topology
from sequencing.conditions import violations
from sequencing.errors import UsageError
from sequencing.membership import Membership
from sequencing.plan import Plan

MOVE_PRICE_MS = 1.0
"""The price of moving everything: a move has to save a millisecond for each event that it moves."""

MISSED_MS = 1e6
"""The price of one capacity too much: more than any delay."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where all stand: a topology, and node → host, subscriber → host (else the host of its name)."""

    topology: Topology
    host_of_node: Mapping[str, str]
    host_of: Mapping[str, str]


class NearerReplanning(Replanning):
    """As `Replanning`; what counts is the mean delay from publisher to subscriber, in ms, and a capacity above all."""

    def __init__(
        self,
        plan: Plan,
        membership: Membership,
        subscribers: Membership,
        ground: Ground,
        *,
        effort: Effort,
        rates: Mapping[str, float],
        nodes: tuple[str, ...],
        there: tuple[str, ...] = (),
        capacity: float | Literal["receiver"] | None = None,
    ) -> None:
        """``subscribers``: the membership without made-up subscribers of expected overlaps.

        Raises `UsageError` for a node without a host, and for hosts that the topology does not have.
        """
        super().__init__(plan, membership, rates=rates, nodes=nodes, there=there, capacity=capacity)
        self._ground, self._effort = ground, effort
        self._subscribers = subscribers
        self._has: dict[str, list[str]] = {}
        for name, regions in subscribers.regions_of.items():
            for region in regions:
                self._has.setdefault(region, []).append(name)
        self._number_of = {host: number for number, host in enumerate(ground.topology.names)}
        self._tasks: dict[tuple[str, ...], Task] = {}
        for node in {*plan.visits, *nodes}:
            if (host := ground.host_of_node.get(node)) is None:
                raise UsageError(f"--nodes: node {node} has no host: give a row {node},HOST")
            if host not in self._number_of:
                raise UsageError(f"--nodes: the topology has no host {host!r}")
        self._limit = np.inf if capacity is None else self.objective.capacity
        self._deliveries = sum(self._received(part) for part in self.parts) or 1.0

    @property
    def move_price(self) -> float:
        """See `Replanning.move_price`."""
        return MOVE_PRICE_MS

    def is_well_off(self, part: Part, paths: Mapping[str, tuple[str, ...]], loads: Mapping[str, float]) -> bool:
        """See `Replanning.is_well_off`: another place may be nearer."""
        return not self._received(part)

    def worth(self, part: Part, paths: Mapping[str, tuple[str, ...]], others: Mapping[str, float]) -> float:
        """Return what a part's deliveries add to the mean delay, in ms, with a charge for exceeding a capacity."""
        delays = self._delay_ms(part, paths)
        if self._limit == np.inf:
            return delays
        loads = with_part(others, part, paths).values()
        return delays + MISSED_MS * sum(max(0.0, load - self._limit) for load in loads) / self._limit

    def _delay_ms(self, part: Part, paths: Mapping[str, tuple[str, ...]]) -> float:
        """Return what a part's deliveries add on these paths to the mean delay of all."""
        task = self._task(part)
        used = sorted({node for region in part.regions for node in paths[region]})
        place = {node: number for number, node in enumerate(used)}
        hosts = tuple(self._number_of[self._ground.host_of_node[node]] for node in used)
        ways = tuple(tuple(place[node] for node in paths[region]) for region in task.distances.workload.regions)
        routes = Placed(hosts, ways, ()).routes(self._ground.topology)
        return figures(task.distances, routes).mean_ms * self._received(part) / self._deliveries

    def candidates(self, part: Part, others: Mapping[str, float]) -> Iterator[Plan]:
        """Yield plans for a part: all on each node, and what placement finds on the hosts of the nodes."""
        for node in self.nodes:
            yield self.plan_of(dict.fromkeys(part.regions, (node,)), ())
        task = self._task(part)
        if len(part.regions) < 2 or task.distances.workload.membership.subscribers != part.membership.subscribers:
            return
        placed = task.planned(names=None, effort=self._effort)
        quietest: dict[str, str] = {}
        for node in sorted(self.nodes, key=lambda name: (-others.get(name, 0.0), name)):
            quietest[self._ground.host_of_node[node]] = node
        name_of = {number: quietest[host] for number, host in placed.host_of.items()}
        # Two of its nodes at one host are the one that is there.
        paths = {
            region: tuple(dict.fromkeys(name_of[node] for node in path)) for region, path in placed.plan.paths.items()
        }
        atoms = tuple(replace(atom, node=name_of[atom.node]) for atom in placed.plan.atoms)
        candidate = self.plan_of(paths, atoms)
        if not violations(candidate, part.membership):
            yield candidate

    def _received(self, part: Part) -> float:
        return self._task(part).distances.deliveries

    def _task(self, part: Part) -> Task:
        if (task := self._tasks.get(part.regions)) is None:
            regions = frozenset(part.regions)
            names = sorted({name for region in part.regions for name in self._has.get(region, ())})
            here = {name: self._subscribers.regions_of[name] & regions for name in names}
            task = self._tasks[part.regions] = Task.of(
                Membership.of(here, regions),
                self._ground.topology,
                host_of=self._ground.host_of,
                ordering=self.plan.ordering,
                objective="mean",
                rates=part.rates,
                capacity=None,
                node_hosts=dict.fromkeys(self._ground.host_of_node[node] for node in self.nodes),
            )
        return task

    def total_ms(self, plan: Plan) -> float:
        """Return the mean delay of all deliveries, in ms."""
        return sum(self._delay_ms(part, plan.paths) for part in self.parts)
