"""The least delay that any network can reach: each region by its own best way, with no order between regions.

A region's events enter a network at one host and leave it at one. Between the two, they cannot be faster than the
shortest way over other hosts. So no network has a smaller mean delay, whatever its nodes and publishers are. Where
no way over another host is ever shorter, as in networks of links, the best entrance is also the best exit: the region's
own 1-median. Measured matrices may have shorter ways over others, so there all pairs of hosts are compared.
"""

from __future__ import annotations

import numpy as np

from placement.central import region_sums
from placement.stretch import Distances, Routes
from placement.topology import FloatArray, IntArray


def lower_bound(distances: Distances) -> Routes:
    """Return the best way for each region. Together these are no network: they order nothing between regions."""
    up, down, weight = region_sums(distances)
    best: IntArray = (up + down).argmin(axis=1)
    routes = Routes.through(best)
    if distances.topology.is_metric or not len(best):
        return routes
    between = _shortest(distances.topology.ms_from(np.arange(up.shape[1])))
    for region in range(len(best)):
        ways = up[region][:, None] + weight[region] * between + down[region]
        enter, leave = np.unravel_index(ways.argmin(), ways.shape)
        routes.ingress[region], routes.egress[region] = enter, leave
        routes.within_ms[region] = between[enter, leave]
    return routes


def _shortest(ms: FloatArray) -> FloatArray:
    """Return the shortest ways between all hosts, over any others (Floyd and Warshall)."""
    shortest = ms.copy()
    np.fill_diagonal(shortest, 0.0)
    for over in range(len(shortest)):
        np.minimum(shortest, shortest[:, over, None] + shortest[over], out=shortest)
    return shortest
