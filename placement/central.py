"""One sequencer for all regions: the network that every other one has to justify itself against.

A network of one node is a central sequencer, so a placement without a limit of load never has to be slower than one.
"""

from __future__ import annotations

import numpy as np

from placement.placed import Placed, PlacedAtom
from placement.stretch import Distances
from placement.topology import FloatArray, IntArray


def central(distances: Distances, allowed: IntArray | None = None) -> Placed:
    """Return one sequencer at the 1-median of all deliveries, or the best of the ``allowed`` hosts."""
    return sequencers(distances, 1, allowed)[0]


def sequencers(distances: Distances, count: int, allowed: IntArray | None = None) -> list[Placed]:
    """Return networks of one node, on the hosts with the least mean delays, the least first."""
    costs = region_costs(distances).sum(axis=0)
    among = np.arange(len(costs)) if allowed is None else allowed
    hosts = among[np.argsort(costs[among], kind="stable")][:count]
    regions = range(len(distances.workload.regions))
    atoms = (PlacedAtom(tuple(regions), 0),) if len(regions) > 1 else ()
    return [Placed((host,), tuple((0,) for _ in regions), atoms) for host in hosts.tolist()]


def region_costs(distances: Distances) -> FloatArray:
    """Return regions × hosts: the delays of a region's deliveries if it passes that host, summed over events/s."""
    up, down, _ = region_sums(distances)
    return up + down


def region_sums(distances: Distances) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the delays of a region's deliveries to each host and from it, regions × hosts, and deliveries/s.

    Delays are summed over events/s.
    """
    return weighted_sums(distances, np.ones(len(distances.workload.names)))


def weighted_sums(distances: Distances, worth: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """As `region_sums`, with a weight for each subscriber as a destination."""
    work = distances.workload
    rates = work.inside
    upward = rates * ((work.counts * worth) @ work.members - work.members * worth[:, None])
    downward = work.members * worth[:, None] * (work.counts[:, None] * rates.sum(axis=0) - rates)
    up, down = distances.by_place(upward), distances.by_place(downward)
    return up.T @ distances.up, down.T @ distances.down, down.sum(axis=0)
