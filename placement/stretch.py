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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

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
    """The figures of routes. ``stretch``, ``mean_ratio``: by row of the workload, nan where there is none (see above).

    ``counts``: the destinations of each row. ``mean_ms``, ``p95_ms``, ``max_ms``: of all deliveries to others, weighted
    by events/s.
    """

    stretch: FloatArray
    mean_ratio: FloatArray
    mean_ms: float
    p95_ms: float
    max_ms: float
    counts: FloatArray

    @property
    def known(self) -> FloatArray:
        """The stretches that exist."""
        return self.stretch[~np.isnan(self.stretch)]

    @property
    def mean_stretch(self) -> float:
        """The mean over all destinations that have one, 0 if there is none."""
        there = ~np.isnan(self.stretch)
        return float(np.average(self.stretch[there], weights=self.counts[there])) if there.any() else 0.0

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
    """The delays that a workload's placement needs: between each host with subscribers and every host of the topology.

    ``up[p, h]``: from the p-th of `places` to host h; ``down[p, h]``: from host h to that place.
    """

    workload: Workload
    topology: Topology
    up: FloatArray
    down: FloatArray

    @classmethod
    def of(cls, workload: Workload, topology: Topology) -> Distances:
        """Compute them: two runs of Dijkstra's algorithm for each place in a network."""
        places = np.unique(workload.hosts)
        return cls(workload, topology, topology.ms_from(places), topology.ms_to(places))

    @cached_property
    def places(self) -> IntArray:
        """The hosts with subscribers."""
        return np.unique(self.workload.hosts)

    @cached_property
    def place_of(self) -> IntArray:
        """For each row of the workload the number of its place."""
        return np.searchsorted(self.places, self.workload.hosts)

    def by_place(self, of_rows: FloatArray) -> FloatArray:
        """Sum rows of the workload by place: rows × anything → places × anything."""
        rows = len(self.place_of)
        standing = csr_array((np.ones(rows), (self.place_of, np.arange(rows))), shape=(len(self.places), rows))
        summed: FloatArray = np.asarray(standing @ of_rows)
        return summed

    @cached_property
    def having(self) -> tuple[IntArray, IntArray]:
        """The rows and regions of the workload that belong together."""
        row, region = np.nonzero(self.workload.members)
        return row, region

    @cached_property
    def direct(self) -> FloatArray:
        """places × places: from a machine at the row's to another one at the column's."""
        between: FloatArray = self.up[:, self.places]
        return between

    @cached_property
    def published(self) -> FloatArray:
        """places × regions: events/s from there."""
        return self.by_place(self.workload.rates)

    @cached_property
    def members_at(self) -> FloatArray:
        """places × regions: how many subscribers there have the region."""
        return self.by_place(self.workload.members * self.workload.counts[:, None])

    @cached_property
    def heard_direct_ms(self) -> FloatArray:
        """For each destination, the direct delays of what it receives, its own included, summed over events/s."""
        to_place = self.published.T @ self.direct  # regions × places
        heard: FloatArray = (self.workload.members * to_place[:, self.place_of].T).sum(axis=1)
        return heard

    @cached_property
    def received_direct_ms(self) -> FloatArray:
        """The same of what it receives from others."""
        return self.heard_direct_ms - self.workload.own * self.direct[self.place_of, self.place_of]

    @cached_property
    def received_rates(self) -> FloatArray:
        """For each destination the events/s that it receives from others."""
        rates: FloatArray = self.workload.received - self.workload.own
        return rates

    @cached_property
    def deliveries(self) -> float:
        """Deliveries/s of all, to others."""
        return float(self.workload.counts @ self.received_rates)

    @cached_property
    def direct_ms(self) -> float:
        """The mean delay from publisher to subscriber without any network."""
        return float(self.workload.counts @ self.received_direct_ms) / self.deliveries if self.deliveries else 0.0


def figures(distances: Distances, routes: Routes) -> Figures:
    """Return the figures of routes; see the module for what is left out.

    Regions with one route are one: what takes time is the pairs of places, once for each route that there is.
    """
    work, direct, place = distances.workload, distances.direct, distances.place_of
    own_at, members_at = distances.by_place(work.inside), distances.members_at
    is_apart = direct > 0
    inverse = np.where(is_apart, 1.0 / np.where(is_apart, direct, 1.0), 0.0)
    ratio_to, apart_to = np.zeros((2, len(work.regions), len(distances.places)))
    delays: list[FloatArray] = []
    rates: list[FloatArray] = []
    for ingress, egress, within_ms, regions in _alike(routes):
        published = distances.published[:, regions]
        taken = distances.up[:, ingress][:, None] + within_ms + distances.down[:, egress][None, :]
        ratio_to[regions] = published.T @ (taken * inverse)
        apart_to[regions] = published.T @ is_apart
        weight = published @ members_at[:, regions].T
        weight[np.diag_indices_from(weight)] -= own_at[:, regions].sum(axis=1)
        heard = weight > SAME * published.sum(axis=1)[:, None]
        delays.append(taken[heard])
        rates.append(weight[heard])
    # What a subscriber receives in a region, without what it publishes there itself.
    row, region = distances.having
    at, own = place[row], work.rates[row, region] / work.counts[row]
    up, down = distances.up[at, routes.ingress[region]], distances.down[at, routes.egress[region]]
    entering = (distances.published * distances.up[:, routes.ingress]).sum(axis=0)
    inside = routes.within_ms[region] + down
    own_ratio = (up + inside) * inverse[at, at]

    def summed(of_each: FloatArray) -> FloatArray:
        found: FloatArray = np.bincount(row, of_each, len(work.names)).astype(float)
        return found

    sequenced = summed(entering[region] + work.region_rates[region] * inside - own * (up + inside))
    ratios = summed(ratio_to[region, at] - own * own_ratio)
    ratio_rates = summed(apart_to[region, at] - own * is_apart[at, at])
    with np.errstate(divide="ignore", invalid="ignore"):
        straight, all_heard = distances.received_direct_ms, distances.heard_direct_ms
        stretch = np.where(straight > SAME * all_heard, sequenced / straight, np.nan)
        mean_ratio = np.where(ratio_rates > SAME * work.received, ratios / ratio_rates, np.nan)
    return Figures(stretch, mean_ratio, *_summary(delays, rates), work.counts)


def _alike(routes: Routes) -> Iterator[tuple[int, int, float, IntArray]]:
    """Yield each route that some region has, with its regions."""
    of: dict[tuple[int, int, float], list[int]] = {}
    ways = zip(routes.ingress.tolist(), routes.egress.tolist(), routes.within_ms.tolist(), strict=True)
    for region, way in enumerate(ways):
        of.setdefault(way, []).append(region)
    for (ingress, egress, within_ms), regions in of.items():
        yield ingress, egress, within_ms, np.array(regions, np.int64)


def _summary(delays: list[FloatArray], rates: list[FloatArray]) -> tuple[float, float, float]:
    values, weights = np.concatenate([np.empty(0), *delays]), np.concatenate([np.empty(0), *rates])
    if not len(values):
        return 0.0, 0.0, 0.0
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    p95 = values[order][min(int(np.searchsorted(reached, 0.95 * reached[-1])), len(values) - 1)]
    return float(np.average(values, weights=weights)), float(p95), float(values.max())
