"""A plan whose nodes stand on the hosts of a topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gamecast.errors import UsageError
from laboratory.planning.rows import MalformedRow, read_rows
from placement.central import central
from placement.objective import region_rates
from placement.placing import LoadRule, Objective, place
from placement.stretch import Distances, Figures, figures
from placement.topology import Topology
from placement.workloads import Workload
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

SUBSCRIBERS_MAX = 5_000
"""Each costs two runs of Dijkstra's algorithm and two rows as long as there are hosts."""


@dataclass(frozen=True, slots=True)
class PlanOnHosts:
    """A plan, the host of each of its nodes that has one, and its delays, in ms.

    ``central``: the delays with one sequencer at the 1-median; ``direct_ms``: without any. ``capacity``: the limit of
    events/s through a node, if there is one; ``peak``: of the busiest node, which exceeds it by ``overload``.
    """

    plan: Plan
    host_of: Mapping[str, str]
    figures: Figures
    central: Figures
    direct_ms: float
    capacity: float | None
    peak: float
    overload: float

    @property
    def stretch(self) -> float:
        """Mean sequenced over mean direct delay; nan where nothing is delivered to others."""
        return self.figures.mean_ms / self.direct_ms if self.direct_ms else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "hosts": dict(self.host_of),
            "mean_ms": self.figures.mean_ms,
            "p95_ms": self.figures.p95_ms,
            "direct_ms": self.direct_ms,
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
        }

    def why(self) -> tuple[str, ...]:
        """Say for a person where the nodes stand and what that comes to."""
        places = ", ".join(f"{node} on {host}" for node, host in self.host_of.items())
        ours, central = self.figures, self.central
        ways = ours.mean_ms, self.direct_ms, central.mean_ms
        through, direct, by_one = (f"{ms:,.1f} ms" for ms in ways)
        return (
            f"Nodes stand {places}.",
            f"Publisher to subscriber: {through} on average; {direct} directly, {by_one} by one sequencer for all.",
            f"95% arrive within {ours.p95_ms:,.1f} ms, by one sequencer within {central.p95_ms:,.1f} ms.",
            f"The worst latency stretch is {ours.worst_stretch:,.2f}, by one sequencer {central.worst_stretch:,.2f}.",
            *self._missed(),
        )

    def _missed(self) -> Iterator[str]:
        if self.capacity is not None and self.overload:
            yield (
                f"The busiest node carries {self.peak:,.6g} events/s, {self.overload / self.capacity:,.1%} more than "
                f"the capacity ({self.capacity:,.6g}): no placement that keeps it was found."
            )


def plan_on_hosts(
    membership: Membership,
    topology: Topology,
    *,
    host_of: Mapping[str, str],
    names: Sequence[str] | None,
    ordering: Ordering,
    objective: Objective,
    rates: Mapping[str, float],
    capacity: float | Literal["receiver"] | None,
) -> PlanOnHosts:
    """Place a network for a membership: its arrangement and its hosts together (`placement.placing`).

    ``host_of``: subscriber → host; those that it leaves out stand on the host that has their name. ``names``: of the
    possible nodes; None for as many as the load asks for, n1, n2, …. ``capacity``: events/s through a
    node, ``receiver`` for as many as the busiest subscriber receives, or None for no limit. A region's
    events are published by its subscribers in equal parts. Raises `UsageError` for a subscriber without a host.
    """
    work = _workload(membership, topology, host_of, rates)
    distances = Distances.of(work, topology)
    limit = (float(work.received.max(initial=0.0)) or None) if capacity == "receiver" else capacity
    rule = LoadRule(np.inf if limit is None else limit)
    count = None if names is None else len(names)
    placed = place(distances, np.random.default_rng(0), ordering=ordering, objective=objective, rule=rule, nodes=count)
    plan = placed.plan(work, ordering=ordering, names=names)
    handled = placed.handled(work.region_rates)
    direct = float(distances.received_direct_ms.sum())
    received = float(distances.received_rates.sum())
    return PlanOnHosts(
        plan,
        {node: topology.names[host] for node, host in zip(plan.nodes, placed.hosts, strict=False)},
        figures(distances, placed.routes(topology)),
        figures(distances, central(distances).routes(topology)),
        direct / received if received else 0.0,
        limit,
        float(handled.max(initial=0.0)),
        rule.excess(handled),
    )


def _worst(reached: Figures) -> float | None:
    return reached.worst_stretch if len(reached.known) else None


def read_hosts(file: Path) -> dict[str, str]:
    """Read ``subscriber,host`` rows. Raises `InvalidInput` for a repeated subscriber."""
    found: dict[str, str] = {}

    def take(subscriber: str, host: str) -> None:
        if found.setdefault(subscriber, host) != host:
            raise MalformedRow(f"subscriber {subscriber!r} stands on {found[subscriber]!r} already")

    read_rows(file, ("subscriber", "host"), take)
    return found


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
