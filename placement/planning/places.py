"""A plan whose nodes stand on the hosts of a topology."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from placement.bound import lower_bound
from placement.central import central
from placement.objective import region_rates
from placement.placing import Effort, LoadRule, Objective, place
from placement.planning.rows import MalformedRow, read_rows
from placement.stretch import Distances, Figures, figures
from placement.textlines import foreign_encoding, read_lines
from placement.topology import IntArray, Topology
from placement.workloads import Workload
from sequencing.errors import InvalidInput, UsageError
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

SUBSCRIBERS_MAX = 5_000
"""Each costs two runs of Dijkstra's algorithm and two rows as long as there are hosts."""


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

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "hosts": dict(self.host_of),
            "mean_ms": self.figures.mean_ms,
            "p95_ms": self.figures.p95_ms,
            "direct_ms": self.direct_ms,
            "lower_bound_ms": self.bound_ms,
            "above_lower_bound": self.gap,
            "central_ms": self.central.mean_ms,
            "central_p95_ms": self.central.p95_ms,
            "stretch": {
                "mean": self.stretch if self.direct_ms else None,
                "worst": _worst(self.figures),
                "central_worst": _worst(self.central),
            },
            "capacity": self.capacity,
            "peak": self.peak,
            "overload": self.overload,
            "capacities": dict(self.capacities),
        }

    def why(self) -> tuple[str, ...]:
        """Say for a person where the nodes stand and what that comes to."""
        places = ", ".join(f"{node} on {host}" for node, host in self.host_of.items())
        ours, central = self.figures, self.central
        ways = ours.mean_ms, self.direct_ms, central.mean_ms
        above = "" if self.gap is None else f"; this is {self.gap:.1%} above"
        through, direct, by_one = (f"{ms:,.1f} ms" for ms in ways)
        return (
            f"Nodes stand {places}.",
            f"Publisher to subscriber: {through} on average; {direct} directly, {by_one} by one sequencer for all.",
            f"No network is below {self.bound_ms:,.1f} ms, each region by its best way{above}.",
            f"95% arrive within {ours.p95_ms:,.1f} ms, by one sequencer within {central.p95_ms:,.1f} ms.",
            f"The worst latency stretch is {ours.worst_stretch:,.2f}, by one sequencer {central.worst_stretch:,.2f}.",
            *self._missed(),
        )

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

    def planned(
        self,
        *,
        names: Sequence[str] | None,
        effort: Effort | None = None,
        nodes: int | None = None,
        capacity: float | None = None,
    ) -> PlanOnHosts:
        """Place a network: its arrangement and its hosts together (`placement.placing`).

        ``names``: of the possible nodes; None for as many as the load asks for, or ``nodes`` at most: n1, n2, ….
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
            nodes=nodes if names is None else len(names),
            effort=effort,
            allowed=self.allowed,
        )
        plan = placed.plan(work, ordering=self.ordering, names=names)
        loads = placed.handled(work.region_rates)
        peak = float(loads.max(initial=0.0))
        kept = self._rule()
        overload = kept.excess(loads, placed.hosts)
        worst = int(np.argmax(loads - kept.on(placed.hosts))) if overload else None
        return PlanOnHosts(
            plan,
            {node: distances.topology.names[host] for node, host in zip(plan.nodes, placed.hosts, strict=False)},
            figures(distances, placed.routes(distances.topology)),
            self.central,
            self.direct_ms,
            self.bound_ms,
            self.limit,
            peak,
            overload,
            self.own_limits,
            None if worst is None else [*plan.nodes][worst],
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

    @cached_property
    def direct_ms(self) -> float:
        """The mean delay from publisher to subscriber without any network."""
        received = float(self.distances.received_rates.sum())
        return float(self.distances.received_direct_ms.sum()) / received if received else 0.0


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
        raise UsageError(f"--node-hosts: the topology has no host {unknown[0]!r}")
    return np.array([number_of[host] for host in hosts], np.int64)


def _workload(
    membership: Membership, topology: Topology, host_of: Mapping[str, str], rates: Mapping[str, float]
) -> Workload:
    if len(membership.subscribers) > SUBSCRIBERS_MAX:
        raise UsageError(
            f"--topology: {len(membership.subscribers):,} subscribers are more than {SUBSCRIBERS_MAX:,}: plan for the "
            "servers that they are on, or without a topology"
        )
    number_of = {host: number for number, host in enumerate(topology.names)}
    hosts = []
    for subscriber in membership.subscribers:
        host = host_of.get(subscriber, subscriber)
        if host not in number_of:
            cure = "" if subscriber in host_of else "; say by --hosts FILE where subscribers stand"
            raise UsageError(f"subscriber {subscriber!r}: the topology has no host {host!r}{cure}")
        hosts.append(number_of[host])
    members = membership.incidence.toarray().astype(bool)
    by_region = region_rates(membership, rates)
    published = members * (by_region / np.maximum(members.sum(axis=0), 1))
    # Events of a region without subscribers pass a node, too, wherever they come from.
    published[:1] += np.where(members.any(axis=0), 0.0, by_region)
    return Workload(np.array(hosts, np.int64), members, published, membership.subscribers, membership.regions)
