"""The value of an arrangement: short paths, and no node that carries too much.

The value of an arrangement is its *path length*, plus charges for an excess load on the busiest node. The path length
is the number of distinct sequencing nodes on a region's path, as a mean over the regions weighted by their events/s. So
it is also how many nodes an average event visits. Smaller is better.

- A *capacity*, given by the operator or by the paper's rule (Lumezanu 2006, §3.3), is kept if an arrangement can be
  found that keeps it: missing it is charged more than the longest path. If it must be missed, each hundredth of it (of
  an even share of all events, if that is more) costs a hop. Rates are not known more closely, and a path of twice the
  length is not worth a thousandth.
- A *fair share*, an even share of all events and some slack, is the aim of spreading: each further share on the busiest
  node costs a hop. If everything has to meet everything, spreading would lengthen every path and relieve no node, and
  the value reflects that.

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
"""The price of one fair share too much, in hops."""
CAPACITY_PRICE = 100.0
"""The price of one capacity (or even share) too much, in hops, beside the charge for missing it at all."""
TOLERANCE = 1e-9
"""The tolerance as a part of a capacity, because sums of rates are rounded."""
AT_REST = 1e-6
"""The weight of a region without events, in mean rates: its path should be short, but lengthen no other path."""


@dataclass(frozen=True, slots=True)
class PlanObjective:
    """Loads in events/s a node: ``capacity`` and ``fair_share``, infinite where there is none, and the ``even_share``.

    ``nodes``: the number of nodes, which is also the charge for missing the capacity at all.
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
    """Return the objective for a capacity in events/s a node, for the paper's rule (``receiver``), or for None.

    None is spreading, or the paper's rule if even fair shares would keep it. If no region has a subscriber, the paper's
    rule does not apply. Raises `UsageError` for a capacity that is not a positive number.
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
    per_region = np.fromiter((rates.get(region, 1.0) for region in membership.regions), float, len(membership.regions))
    if not np.isfinite(per_region).all() or (per_region < 0).any():
        wrong = int(np.flatnonzero(~np.isfinite(per_region) | (per_region < 0))[0])
        raise UsageError(f"region {membership.regions[wrong]!r} has a rate of {per_region[wrong]} events/s")
    if not np.isfinite(per_region.sum()):
        raise UsageError("the rates add up to more events/s than a number can hold")
    return per_region if per_region.any() else np.ones(len(per_region))


def path_weights(rates: FloatArray) -> FloatArray:
    """Return the weight of each region's path length: its events/s, or a tiny one for a region without events."""
    return np.maximum(rates, AT_REST * rates.mean()) if len(rates) else rates
