"""What makes one arrangement better than another: short paths, and no node that carries too much.

The value of an arrangement is its *path length*, the number of distinct sequencing nodes on a region's path, as a
mean over the regions weighted by their events/s (so it is also how many nodes an average event visits), plus charges
for what the busiest node carries too much. Smaller is better.

- A *capacity*, given by the operator or by the seed's rule, is kept whenever an arrangement can be found that keeps
  it: to miss it is charged more than the longest path. How far it is missed, where it must be, costs a hop for each
  hundredth of it (of an even share of all events, if that is more): rates are not known more closely, and nobody
  wants twice the path for a thousandth.
- A *fair share*, an even share of all events and some slack, is what spreading aims at: each further share on the
  busiest node costs a hop. Where everything has to meet everything, spreading would lengthen every path and relieve
  no node, and there the value says so.

The path length counts nodes and not milliseconds: before vertices stand on machines there are no latencies. A planner
that knows a topology would value paths by them, which is the first argument of `PlanObjective.value` and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sequencing.errors import UsageError
from sequencing.membership import Membership

FloatArray = npt.NDArray[np.float64]

Rule = Literal["spread", "receiver", "capacity"]

SPREAD_SLACK = 0.25
"""By how much (as a part of it) a node may exceed an even share for free: perfect shares are rarely worth a hop."""
SHARE_PRICE = 1.0
"""Of one fair share too much, in hops."""
CAPACITY_PRICE = 100.0
"""Of one capacity (or even share) too much, in hops, beside the charge for missing it at all."""
TOLERANCE = 1e-9
"""Of a capacity, for sums of rates are rounded."""
AT_REST = 1e-6
"""The weight of a region without events, in mean rates: its path should be short, but nobody else's longer for it."""


@dataclass(frozen=True, slots=True)
class PlanObjective:
    """Loads in events/s a node: ``capacity`` and ``fair_share``, infinite where there is none, and the ``even_share``.

    ``nodes``: how many there are, which is what it costs to miss the capacity at all.
    """

    rule: Rule
    nodes: int
    even_share: float
    capacity: float = math.inf
    fair_share: float = math.inf

    def overload(self, peak: float) -> float:
        """Return by how many events/s the busiest node, which carries ``peak``, exceeds the capacity."""
        return peak - self.capacity if peak > self.capacity * (1 + TOLERANCE) else 0.0

    def value(self, length: float, peak: float) -> float:
        """Return the value of an arrangement with this mean path length and this load (events/s) on its busiest node.

        It grows with both.
        """
        if overload := self.overload(peak):
            length += self.nodes + CAPACITY_PRICE * overload / max(self.capacity, self.even_share)
        if peak > self.fair_share:
            length += SHARE_PRICE * (peak - self.fair_share) / self.fair_share
        return length

    @property
    def aims(self) -> tuple[tuple[float, float], ...]:
        """The loads that no node should exceed, each with the price of an event/s too much."""
        capacity_price = CAPACITY_PRICE / max(self.capacity, self.even_share)
        aims = (self.capacity, capacity_price), (self.fair_share, SHARE_PRICE / self.fair_share)
        return tuple((load, price) for load, price in aims if load < math.inf)


def objective_for(
    membership: Membership, rates: FloatArray, nodes: int, capacity: float | Literal["receiver"] | None
) -> PlanObjective:
    """Return the objective for a capacity in events/s a node, for the seed's rule (``receiver``), or for None.

    None is spreading, and the seed's rule where even fair shares would keep it. Where no region has a subscriber the
    seed's rule has nothing to say. Raises `UsageError` for a capacity that is not a positive number.
    """
    even_share = float(rates.sum()) / nodes
    if capacity is not None and capacity != "receiver":
        if not 0 < capacity < math.inf:
            raise UsageError(f"a node's capacity is a positive number of events/s, not {capacity!r}")
        return PlanObjective("capacity", nodes, even_share, float(capacity))
    busiest = busiest_receiver(membership, rates) or math.inf
    if capacity == "receiver" and busiest < math.inf:
        return PlanObjective("receiver", nodes, even_share, busiest)
    fair_share = (1 + SPREAD_SLACK) * even_share or math.inf
    return PlanObjective("spread", nodes, even_share, busiest if busiest >= fair_share else math.inf, fair_share)


def busiest_receiver(membership: Membership, rates: FloatArray) -> float:
    """Return the events/s that the busiest subscriber receives: Lumezanu 2006, §3.3 lets a node handle as many."""
    return float((membership.incidence @ rates).max(initial=0.0))


def region_rates(membership: Membership, rates: Mapping[str, float]) -> FloatArray:
    """Return the events/s of each region, 1 where not given; without any event anywhere all count the same.

    Raises `UsageError` for a rate that is negative or not finite.
    """
    found = np.fromiter((rates.get(region, 1.0) for region in membership.regions), float, len(membership.regions))
    if not np.isfinite(found).all() or (found < 0).any():
        wrong = int(np.flatnonzero(~np.isfinite(found) | (found < 0))[0])
        raise UsageError(f"region {membership.regions[wrong]!r} has a rate of {found[wrong]} events/s")
    return found if found.any() else np.ones(len(found))


def path_weights(rates: FloatArray) -> FloatArray:
    """Return what each region's path length counts: its events/s, and next to nothing for a region at rest."""
    return np.maximum(rates, AT_REST * rates.mean()) if len(rates) else rates
