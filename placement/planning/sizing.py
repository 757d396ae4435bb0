"""How many nodes a world needs, without a topology: the fewest of which none carries more than it may."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from placement.objective import TOLERANCE, region_rates
from placement.planner import make_plan_and_report
from placement.report import PlanReport
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

NODES_MAX = 256
FEW = 16
"""Where no number keeps the capacity, each up to this is compared with the others that were tried."""
ASSUMED_CAPACITY = 5_000.0
"""Events/s that a node is taken to carry unless it is said: less than half of what one took in benchmarks."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A plan of as few nodes as were found; ``why`` so many, as one sentence."""

    plan: Plan
    report: PlanReport
    nodes: int
    why: str


def sized(
    membership: Membership, *, ordering: Ordering, rates: Mapping[str, float], capacity: float | Literal["receiver"]
) -> Sized:
    """Return a plan of the fewest nodes that keep a capacity; where none does, of those that miss it least.

    Tried are the number that the events need at least, then twice as many and so on, and then what is between: a
    region's events pass one node at least, and so may not be divided. At most one node for each region is of use.
    """

    @cache
    def plan(count: int) -> tuple[Plan, PlanReport]:
        names = dict.fromkeys((f"n{number}" for number in range(1, count + 1)), "")
        return make_plan_and_report(membership, names, ordering=ordering, rates=rates, capacity=capacity)

    by_region = region_rates(membership, rates)
    total = float(by_region.sum())
    limit = plan(1)[1].capacity or math.inf
    most = max(1, min(NODES_MAX, len(membership.regions)))
    least = min(most, max(1, math.ceil(total / limit * (1 - TOLERANCE)))) if limit < math.inf else 1
    tried = [1, least]
    while plan(tried[-1])[1].overload and tried[-1] < most:
        tried.append(min(most, 2 * tried[-1]))
    count = tried[-1]
    if plan(count)[1].overload:
        few = range(1, min(most, FEW) + 1)
        count = min({*tried, *few}, key=lambda each: (round(plan(each)[1].overload / limit, 9), each))
    else:
        low = tried[-2] if count > least else least - 1
        while count - low > 1:  # more nodes than suffice suffice, too
            middle = (low + count) // 2
            low, count = (middle, count) if plan(middle)[1].overload else (low, middle)
    best, report = plan(count)
    if report.nodes_used < count and not plan(max(1, report.nodes_used))[1].overload > report.overload:
        count = max(1, report.nodes_used)  # the others would have nothing to do
        best, report = plan(count)
    return Sized(best, report, count, _why(report, count, total, least))


def _why(report: PlanReport, count: int, total: float, least: int) -> str:
    nodes = "1 node" if count == 1 else f"{count:,} nodes"
    limit = report.capacity
    if limit is None or math.isinf(limit):
        return f"{nodes}, for {total:,.6g} events/s in all: there is no limit for a node."
    if report.overload:
        return (
            f"{nodes}: {total:,.6g} events/s in all, and the busiest node still carries {report.peak:,.6g} of the "
            f"{limit:,.6g} that it may; none of the other numbers that were tried relieves it, because a region's "
            "events, and those of regions that must be ordered against each other, pass one node."
        )
    why = f"{nodes}: {total:,.6g} events/s in all, {report.peak:,.6g} of {limit:,.6g} on the busiest node"
    if count > least:
        why += f"; {least:,} would do by the sum, but regions, and what must be ordered together, are not divided"
    return f"{why}."
