"""A plan whose nodes stand on the hosts of a topology."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from placement.bound import lower_bound
from placement.central import central
from placement.objective import region_rates
from placement.placed import Placed
from placement.placing import EFFORTS, Effort, LoadRule, Objective, place, value_of
from placement.planning.rows import MalformedRow, read_rows
from placement.stretch import SAME, Distances, Figures, figures
from placement.textlines import foreign_encoding, read_lines
from placement.topology import IntArray, Topology
from placement.workloads import Workload
from sequencing.errors import InvalidInput, UsageError
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

COUNTS = (1, 2, 3, 4, 6, 8)
"""Numbers of nodes that are compared."""
COUNTS_MAX = 8
WORTH_A_NODE = 0.01
"""What is not worth more nodes, as a part of the least delay."""
EVEN_COUNTS_MAX = 4
"""Even loads are tried for at most so many nodes if there is no capacity: for more they take long and do not help."""
COMPARED_REGIONS_MAX = 200
"""With more regions, each search takes long, and only one is made."""
QUICK = EFFORTS["quick"]

CELLS_MAX = 100_000_000
"""Rows of subscribers that differ, times regions: some 3 GB."""


@dataclass(frozen=True, slots=True)
class PlanOnHosts:
    """A plan, the host of each of its nodes that has one, and its delays, in ms.

    ``central``: the delays with one sequencer at the 1-median; ``direct_ms``: without any; ``bound_ms``: a mean that no
    network is below. ``capacity``: the limit of events/s through a node, if there is one; ``peak``: of the busiest
    node, which exceeds it by ``overload``. ``capacities``: of the hosts that have one of their own; then the
    overload is that of the node that exceeds its own by most, ``worst``.
    """

    plan: Plan
    host_of: Mapping[str, str]
    figures: Figures
    central: Figures
    direct_ms: float
    bound_ms: float
    capacity: float | None
    peak: float
    overload: float
    capacities: Mapping[str, float]
    worst: str | None
    objective: Objective = "mean"
    others: tuple[PlanOnHosts, ...] = ()
    """The best networks of other numbers of nodes that it was compared with, by that number."""
    tried: int = 1
    """How many networks were compared."""
    most: int = 0
    """The most nodes that one of them could have, 0 if numbers of nodes were not compared."""
    rule: str = ""
    """Why a network that is better by the objective was not taken."""

    @property
    def value(self) -> float:
        """What the objective minimises: ms, or the mean stretch of destinations."""
        return value_of(self.figures, self.objective)

    @property
    def used(self) -> int:
        """The number of nodes that have a host."""
        return len(self.host_of)

    @property
    def stretch(self) -> float:
        """Mean sequenced over mean direct delay; nan where nothing is delivered to others."""
        return self.figures.mean_ms / self.direct_ms if self.direct_ms else float("nan")

    @property
    def gap(self) -> float | None:
        """By what part the mean delay is above the lower bound; None if that is 0."""
        return self.figures.mean_ms / self.bound_ms - 1 if self.bound_ms else None

    @property
    def rank(self) -> tuple[float, float, int]:
        """Less is better: first the excess over the capacity, then the objective, then the number of nodes."""
        return self.overload, self.value, self.used

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "hosts": dict(self.host_of),
            "mean_ms": self.figures.mean_ms,
            "p95_ms": self.figures.p95_ms,
            "max_ms": self.figures.max_ms,
            "direct_ms": self.direct_ms,
            "lower_bound_ms": self.bound_ms,
            "above_lower_bound": self.gap,
            "central_ms": self.central.mean_ms,
            "central_p95_ms": self.central.p95_ms,
            "stretch": {
                "mean": self.stretch if self.direct_ms else None,
                "of_destinations": value_of(self.figures, "stretch"),
                "worst": _worst(self.figures),
                "central_worst": _worst(self.central),
            },
            "capacity": self.capacity,
            "peak": self.peak,
            "overload": self.overload,
            "capacities": dict(self.capacities),
            "objective": self.objective,
            "tried": self.tried,
            "others": [
                {"nodes": other.used, "value": other.value, "overload": other.overload} for other in self.others
            ],
            "rejected": self.rule or None,
        }

    def why(self) -> tuple[str, ...]:
        """Say for a person where the nodes stand and what that comes to."""
        places = ", ".join(f"{node} on {host}" for node, host in self.host_of.items())
        ours, central = self.figures, self.central
        ways = ours.mean_ms, self.direct_ms, central.mean_ms
        above = "" if self.gap is None else f"; this is {self.gap:.1%} above"
        through, direct, by_one = (f"{ms:,.1f} ms" for ms in ways)
        return (
            self.answer(),
            *([self.rule] if self.rule else []),
            f"Nodes stand {places}.",
            f"Publisher to subscriber: {through} on average; {direct} directly, {by_one} by one sequencer for all.",
            f"No network is below {self.bound_ms:,.1f} ms, each region by its best way{above}.",
            f"95% arrive within {ours.p95_ms:,.1f} ms, by one sequencer within {central.p95_ms:,.1f} ms.",
            f"The worst latency stretch is {ours.worst_stretch:,.2f}, by one sequencer {central.worst_stretch:,.2f}.",
            f"Its mean is {value_of(ours, 'stretch'):,.2f}, by one sequencer {value_of(central, 'stretch'):,.2f}.",
            *self._missed(),
        )

    def answer(self) -> str:
        """Say how many nodes, where, and what fewer or more of them would bring."""
        places = [f"{host} ({count})" if count > 1 else host for host, count in Counter(self.host_of.values()).items()]
        said = f"{_nodes(self.used)}, on {_listed(places)}: {self.told(self.value)}"
        fewer = [other for other in self.others if other.used < self.used]
        more = [other for other in self.others if other.used > self.used]
        if fewer:
            best = min(fewer, key=lambda other: (other.overload, other.value))
            said += f"; {_nodes(best.used)} had {self.told(best.value)}"
            said += f", and {best.overload:,.6g} events/s too many on one" if best.overload > self.overload else ""
        if more:
            best = min(more, key=lambda other: (other.overload, other.value))
            gain = round(self.value - best.value, 2 if self.objective == "stretch" else 1)
            unit = "" if self.objective == "stretch" else " ms"
            said += f"; {_nodes(best.used)} would bring {gain:,}{unit}" if gain > 0 else "; more bring nothing"
        elif self.used < self.most:
            said += "; more bring nothing"
        return f"{said}."

    def told(self, value: float) -> str:
        """Return a value of the objective in words."""
        if self.objective == "stretch":
            return f"a mean stretch of {value:,.2f}"
        what = {"mean": "on average", "p95": "for 95%", "max": "at most"}[self.objective]
        return f"{value:,.1f} ms {what}"

    def _missed(self) -> Iterator[str]:
        if self.worst is not None and self.capacities:
            host = self.host_of[self.worst]
            may = self.capacities.get(host, self.capacity)
            yield (
                f"Node {self.worst} on {host} carries {self.overload:,.6g} events/s more than a node there may "
                f"({may:,.6g}): no placement that keeps all capacities was found."
            )
        elif self.capacity is not None and self.overload:
            yield (
                f"The busiest node carries {self.peak:,.6g} events/s, {self.overload / self.capacity:,.1%} more than "
                f"the capacity ({self.capacity:,.6g}): no placement that keeps it was found."
            )


@dataclass(frozen=True)
class Task:
    """A world to be placed: who stands where, the order that is wanted, and what counts. Use `Task.of`."""

    distances: Distances
    ordering: Ordering
    objective: Objective
    limit: float | None
    """Events/s through a node, if there is a limit."""
    own_limits: Mapping[str, float]
    """The same, of hosts with a limit of their own."""
    allowed: IntArray | None = None
    """The hosts that nodes may stand on, None for all."""

    @classmethod
    def of(
        cls,
        membership: Membership,
        topology: Topology,
        *,
        host_of: Mapping[str, str],
        ordering: Ordering,
        objective: Objective,
        rates: Mapping[str, float],
        capacity: float | Literal["receiver"] | None,
        node_hosts: Mapping[str, float | None] | None = None,
    ) -> Task:
        """Read a world.

        ``host_of``: subscriber → host; those that it leaves out stand on the host that has their name. ``capacity``:
        events/s through a node, ``receiver`` for as many as the busiest subscriber receives, or None for no limit. A
        region's events are published by its subscribers in equal parts. ``node_hosts``: the hosts that nodes may stand
        on, with the events/s that a node there may carry, None for ``capacity``. Raises `UsageError` for a subscriber
        without a host, and for hosts that the topology does not have.
        """
        allowed = None if node_hosts is None else _numbers([*node_hosts], topology)
        own = {host: most for host, most in (node_hosts or {}).items() if most is not None}
        work = _workload(membership, topology, host_of, rates)
        limit = (float(work.received.max(initial=0.0)) or None) if capacity == "receiver" else capacity
        return cls(Distances.of(work, topology), ordering, objective, limit, own, allowed)

    def best(
        self,
        *,
        names: Sequence[str] | None,
        effort: Effort,
        never_worse: bool = False,
        show: Callable[[str], None] = lambda _: None,
    ) -> PlanOnHosts:
        """Place a network: the best by the objective of all that are tried.

        ``names``: of the possible nodes; with them, the objective alone decides. None: of the networks that are within
        `WORTH_A_NODE` of the best, that with the fewest nodes. Tried are the search itself, and quicker ones with 1 to
        `COUNTS_MAX` nodes, some also with even loads (`_ways`); if one of these is better than the search itself, it is
        repeated as long as ``effort`` says. A smaller excess over the capacity comes first. ``never_worse``: see
        `placement.placing.place`.
        """
        most = len(names) if names is not None else COUNTS_MAX
        sums = self.objective in ("mean", "stretch") and not never_worse
        show("placing")
        found = [self.planned(names=names, effort=effort, never_worse=never_worse)]
        ways = [*self._ways(most, sums=sums)] if len(self.distances.workload.regions) <= COMPARED_REGIONS_MAX else []
        placed = partial(self.planned, names=names, never_worse=never_worse)
        for nodes, capacity in ways:
            show(f"placing {_nodes(nodes)}")
            found.append(placed(nodes=nodes, capacity=capacity, effort=QUICK))
        if ways:
            best = min(range(len(ways)), key=lambda place: found[1 + place].rank)
            (nodes, capacity), quicker = ways[best], found[1 + best]
            if (quicker.overload, quicker.value + SAME) < (found[0].overload, found[0].value):
                show(f"placing {_nodes(nodes)} with more effort")
                found.append(placed(nodes=nodes, capacity=capacity, effort=effort))
        chosen = self._chosen(found, names, never_worse=never_worse)
        return replace(chosen, most=max((nodes for nodes, _ in ways), default=0))

    def _ways(self, most: int, *, sums: bool) -> Iterator[tuple[int, float | None]]:
        """Yield numbers of nodes and capacities to search with, None for the task's own.

        Even loads help to keep a capacity. What is asked for that is no sum (``sums``, `placement.costs`) is only
        approached, and other networks than the search's own may be better by it.
        """
        total = float(self.distances.workload.region_rates.sum())
        most = min(most, len(self.distances.workload.regions))
        limited = self.limit is not None or bool(self.own_limits)
        even_most = most if limited else 0 if sums else EVEN_COUNTS_MAX
        for nodes in sorted({most, *(count for count in COUNTS if count <= most)}):
            yield nodes, None
            if 1 < nodes <= even_most and total:
                yield nodes, total / nodes
        receiver = float(self.distances.workload.received.max(initial=0.0))
        if limited and receiver:
            yield most, receiver

    def _chosen(self, found: Sequence[PlanOnHosts], names: Sequence[str] | None, *, never_worse: bool) -> PlanOnHosts:
        if never_worse:
            # What keeps a capacity that one node exceeds comes first.
            ruled = [each for each in found if each.figures.no_worse_than(self.central)]
            least = min(each.overload for each in found)
            found = [each for each in ruled if each.overload <= least] or found
        best = min(found, key=lambda each: each.rank)
        if names is None:
            near = [
                each
                for each in found
                if each.overload <= best.overload and each.value <= best.value * (1 + WORTH_A_NODE)
            ]
            best = min(near, key=lambda each: (each.used, each.rank))
        of_count: dict[int, PlanOnHosts] = {}
        for each in sorted(found, key=lambda each: each.rank):
            of_count.setdefault(each.used, each)
        others = tuple(of_count[count] for count in sorted(of_count) if count != best.used)
        return replace(best, others=others, tried=len(found), rule=self._rejected(best) if never_worse else "")

    def _rejected(self, best: PlanOnHosts) -> str:
        """Say what the rule costs: the best network that it does not allow."""
        free = self.planned(names=None, nodes=COUNTS_MAX, effort=QUICK)
        if free.rank >= best.rank or free.figures.no_worse_than(self.central):
            return ""
        return (
            f"Rejected: {_nodes(free.used)} with {free.told(free.value)}, because its 95% ({free.figures.p95_ms:,.1f} "
            f"ms) or worst stretch ({free.figures.worst_stretch:,.2f}) is worse than that of one node "
            f"({self.central.p95_ms:,.1f} ms, {self.central.worst_stretch:,.2f})."
        )

    def of_plan(self, plan: Plan, host_of: Mapping[str, str]) -> PlanOnHosts:
        """Return what a plan comes to whose nodes stand on these hosts.

        Raises `UsageError` for a node of a path without a host, and for hosts that the topology does not have.
        """
        used = sorted({node for path in plan.paths.values() for node in path})
        if lacking := [node for node in used if node not in host_of]:
            raise UsageError(
                f'node {lacking[0]} has no "host" in the plan: add one to its entry in "nodes", or plan with a topology'
            )
        hosts = tuple(_numbers([host_of[node] for node in used], self.distances.topology).tolist())
        place = {node: number for number, node in enumerate(used)}
        ways = tuple(tuple(place[node] for node in plan.paths[region]) for region in self.distances.workload.regions)
        return self._measured(Placed(hosts, ways, ()), plan, used)

    def planned(
        self,
        *,
        names: Sequence[str] | None,
        effort: Effort | None = None,
        nodes: int | None = None,
        capacity: float | None = None,
        never_worse: bool = False,
    ) -> PlanOnHosts:
        """Place a network: its arrangement and its hosts together (`placement.placing`).

        ``names``: of the possible nodes; None for as many as the load asks for: n1, n2, …. ``nodes``: the most.
        ``capacity``: events/s through a node, instead of the task's.
        """
        rule = self._rule(capacity)
        distances, work = self.distances, self.distances.workload
        placed = place(
            distances,
            np.random.default_rng(0),
            ordering=self.ordering,
            objective=self.objective,
            rule=rule,
            nodes=len(names) if names is not None and nodes is None else nodes,
            effort=effort,
            allowed=self.allowed,
            never_worse=never_worse,
        )
        plan = placed.plan(work, ordering=self.ordering, names=names)
        return self._measured(placed, plan, [*plan.nodes])

    def _measured(self, placed: Placed, plan: Plan, names: Sequence[str]) -> PlanOnHosts:
        distances, work = self.distances, self.distances.workload
        loads = placed.handled(work.region_rates)
        peak = float(loads.max(initial=0.0))
        kept = self._rule()
        overload = kept.excess(loads, placed.hosts)
        worst = int(np.argmax(loads - kept.on(placed.hosts))) if overload else None
        return PlanOnHosts(
            plan,
            {node: distances.topology.names[host] for node, host in zip(names, placed.hosts, strict=False)},
            figures(distances, placed.routes(distances.topology)),
            self.central,
            distances.direct_ms,
            self.bound_ms,
            self.limit,
            peak,
            overload,
            self.own_limits,
            None if worst is None else names[worst],
            self.objective,
        )

    def _rule(self, capacity: float | None = None) -> LoadRule:
        """Return the rule for the task's limits, or for a capacity instead, which no host's own limit exceeds."""
        limit = next((each for each in (capacity, self.limit) if each is not None), np.inf)
        if not self.own_limits:
            return LoadRule(limit)
        most = np.inf if capacity is None else capacity
        return LoadRule.by_host([min(self.own_limits.get(host, limit), most) for host in self.distances.topology.names])

    @cached_property
    def central(self) -> Figures:
        """The delays with one sequencer at the 1-median."""
        return figures(self.distances, central(self.distances, self.allowed).routes(self.distances.topology))

    @cached_property
    def bound_ms(self) -> float:
        """A mean delay that no network is below: see `placement.bound`."""
        return figures(self.distances, lower_bound(self.distances)).mean_ms


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _worst(reached: Figures) -> float | None:
    return reached.worst_stretch if len(reached.known) else None


def read_hosts(file: Path, *, of: str = "subscriber") -> dict[str, str]:
    """Read ``subscriber,host`` rows, or ``node,host``. Raises `InvalidInput` for two hosts of one."""
    host_of: dict[str, str] = {}

    def take(name: str, host: str) -> None:
        if host_of.setdefault(name, host) != host:
            raise MalformedRow(f"{of} {name!r} stands on {host_of[name]!r} already")

    read_rows(file, (of, "host"), take)
    return host_of


def read_node_hosts(file: Path) -> dict[str, float | None]:
    """Read the hosts that nodes may stand on, a line each, with the events/s that a node there may carry, or None.

    A first ``host`` is a header. Raises `InvalidInput` for a host with two capacities, for a capacity that is not a
    number above 0, and if there is no host or the text is not UTF-8.
    """
    limits: dict[str, float | None] = {}
    begun = False
    for number, line in read_lines(file):
        where = f"{file}, line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{where}: {foreign_encoding(line) or error}") from error
        if not text:
            continue
        host, *capacity = (cell.strip() for cell in next(csv.reader([text])))
        if begun or host.casefold() != "host":
            events_per_s = _capacity(capacity, where)
            if limits.setdefault(host, events_per_s) != events_per_s:
                raise InvalidInput(f"{where}: host {host!r} has another capacity already")
        begun = True
    if not limits:
        raise InvalidInput(f"{file}: there is no host, so nodes have nowhere to stand")
    return limits


def _capacity(cells: Sequence[str], where: str) -> float | None:
    if not cells or not any(cells):
        return None
    try:
        [text] = cells
        events_per_s = float(text)
    except ValueError:
        events_per_s = 0.0
    if not 0 < events_per_s < np.inf:
        raise InvalidInput(f"{where}: {','.join(cells)!r} is not a number of events/s above 0")
    return events_per_s


def _numbers(hosts: Sequence[str], topology: Topology) -> IntArray:
    number_of = {host: number for number, host in enumerate(topology.names)}
    if unknown := [host for host in hosts if host not in number_of]:
        raise UsageError(f"the topology has no host {unknown[0]!r} for a node")
    return np.array([number_of[host] for host in hosts], np.int64)


def _workload(
    membership: Membership, topology: Topology, host_of: Mapping[str, str], rates: Mapping[str, float]
) -> Workload:
    number_of = {host: number for number, host in enumerate(topology.names)}
    incidence, counts = membership.incidence.tocsr().sorted_indices(), Counter[tuple[int, bytes]]()
    first: dict[tuple[int, bytes], int] = {}
    for row, subscriber in enumerate(membership.subscribers):
        host = host_of.get(subscriber, subscriber)
        if host not in number_of:
            cure = "" if subscriber in host_of else "; say by a file of hosts where subscribers stand"
            raise UsageError(f"subscriber {subscriber!r}: the topology has no host {host!r}{cure}")
        has = incidence.indices[incidence.indptr[row] : incidence.indptr[row + 1]]
        first.setdefault(alike := (number_of[host], has.tobytes()), row)
        counts[alike] += 1
    if len(first) * len(membership.regions) > CELLS_MAX:
        raise UsageError(
            f"{len(first):,} subscribers that differ in host or regions, times {len(membership.regions):,} regions, is "
            f"more than {CELLS_MAX:,}: plan for the servers that they are on, or without a topology"
        )
    rows = [*first.values()]
    members = incidence[rows].toarray().astype(bool)
    several = np.array([counts[alike] for alike in first], float)
    by_region = region_rates(membership, rates)
    published = members * several[:, None] * (by_region / np.maximum(several @ members, 1))
    # Events of a region without subscribers pass a node, too, wherever they come from.
    published[:1] += np.where(members.any(axis=0), 0.0, by_region)
    hosts = np.array([host for host, _ in first], np.int64)
    names = tuple(membership.subscribers[row] for row in rows)
    return Workload(hosts, members, published, names, membership.regions, several, membership)
