"""The cost of a sequencing network in time: delays and latency stretch of given routes.

A *route* is where events of a region enter the network, how long they are inside, and where they leave it.
From publisher p to destination d (another subscriber of the region) an event takes

    d(p, ingress) + within + d(egress, d)        sequenced
    d(p, d)                                      direct

*Latency stretch* of a destination (Lumezanu 2006, §4.2: "we average the results and index them by destination nodes"):

- **ratio of means**, the measure: its mean sequenced delay over its mean direct delay, of the events it receives;
- **mean of ratios**: the mean, over these events, of sequenced over direct. Neighbours with a tiny direct delay
  dominate it, so it describes the closest pair more than the network.

A subscriber's own events are left out: its direct delay is 0. So are destinations that receive nothing from
others, and ratios with a direct delay of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.topology import FloatArray, IntArray, Topology
from placement.workloads import Workload

SAME = 1e-9
"""Figures that differ by this are equal: sums of delays are rounded."""


@dataclass(frozen=True, slots=True)
class Routes:
    """For each region the hosts where its events enter and leave the network, and the ms that they take between."""

    ingress: IntArray
    egress: IntArray
    within_ms: FloatArray

    @classmethod
    def through(cls, hosts: IntArray) -> Routes:
        """Return routes that pass one host each."""
        return cls(hosts, hosts.copy(), np.zeros(len(hosts)))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of routes. ``stretch``, ``mean_ratio``: by destination, nan where there is none (see above).

    ``mean_ms``, ``p95_ms``, ``max_ms``: of all deliveries to others, weighted by events/s.
    """

    stretch: FloatArray
    mean_ratio: FloatArray
    mean_ms: float
    p95_ms: float
    max_ms: float

    @property
    def known(self) -> FloatArray:
        """The stretches that exist."""
        return self.stretch[~np.isnan(self.stretch)]

    @property
    def worst_stretch(self) -> float:
        """The largest stretch, 0 if there is none."""
        return float(self.known.max(initial=0.0))

    def no_worse_than(self, other: Figures) -> bool:
        """Return whether mean, 95th percentile and worst stretch are no greater than those of another network."""
        return (
            self.mean_ms <= other.mean_ms + SAME
            and self.p95_ms <= other.p95_ms + SAME
            and self.worst_stretch <= other.worst_stretch + SAME
        )


@dataclass(frozen=True)
class Distances:
    """The delays that a workload's placement needs: between each subscriber and every host of the topology.

    ``up[s, h]``: from subscriber s to host h; ``down[s, h]``: from host h to subscriber s.
    """

    workload: Workload
    topology: Topology
    up: FloatArray
    down: FloatArray

    @classmethod
    def of(cls, workload: Workload, topology: Topology) -> Distances:
        """Compute them: two runs of Dijkstra's algorithm a subscriber in a network."""
        return cls(workload, topology, topology.ms_from(workload.hosts), topology.ms_to(workload.hosts))

    @cached_property
    def direct(self) -> FloatArray:
        """subscribers × subscribers: from the row's to the column's."""
        between: FloatArray = self.up[:, self.workload.hosts].copy()
        np.fill_diagonal(between, 0.0)
        return between

    @cached_property
    def received_direct_ms(self) -> FloatArray:
        """For each destination, the direct delays of what it receives from others, summed over events/s."""
        work = self.workload
        # heard[p, d]: events/s that d receives from p.
        heard = work.rates @ work.members.T
        summed: FloatArray = (heard * self.direct).sum(axis=0)
        return summed

    @cached_property
    def received_rates(self) -> FloatArray:
        """For each destination the events/s that it receives from others."""
        work = self.workload
        own = (work.rates * work.members).sum(axis=1)
        rates: FloatArray = work.received - own
        return rates


def figures(distances: Distances, routes: Routes) -> Figures:
    """Return the figures of routes; see the module for what is left out."""
    work, direct = distances.workload, distances.direct
    subscribers = len(work.names)
    sequenced, ratios, ratio_rates = np.zeros(subscribers), np.zeros(subscribers), np.zeros(subscribers)
    delays: list[FloatArray] = []
    rates: list[FloatArray] = []
    for region in range(len(work.regions)):
        there = np.flatnonzero(work.members[:, region])
        rate = work.rates[there, region]
        taken = (
            distances.up[there, routes.ingress[region]][:, None]
            + routes.within_ms[region]
            + distances.down[there, routes.egress[region]][None, :]
        )
        weight = np.repeat(rate[:, None], len(there), axis=1)
        np.fill_diagonal(weight, 0.0)
        sequenced[there] += (weight * taken).sum(axis=0)
        straight = direct[np.ix_(there, there)]
        counted = np.where(straight > 0, weight, 0.0)
        ratios[there] += (counted * taken / np.where(straight > 0, straight, 1.0)).sum(axis=0)
        ratio_rates[there] += counted.sum(axis=0)
        heard = weight > 0
        delays.append(taken[heard])
        rates.append(weight[heard])
    with np.errstate(divide="ignore", invalid="ignore"):
        straight = distances.received_direct_ms
        stretch = np.where(straight > 0, sequenced / straight, np.nan)
        mean_ratio = np.where(ratio_rates > 0, ratios / ratio_rates, np.nan)
    return Figures(stretch, mean_ratio, *_summary(delays, rates))


def _summary(delays: list[FloatArray], rates: list[FloatArray]) -> tuple[float, float, float]:
    values, weights = np.concatenate([np.empty(0), *delays]), np.concatenate([np.empty(0), *rates])
    if not len(values):
        return 0.0, 0.0, 0.0
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    p95 = values[order][min(int(np.searchsorted(reached, 0.95 * reached[-1])), len(values) - 1)]
    return float(np.average(values, weights=weights)), float(p95), float(values.max())
