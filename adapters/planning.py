"""Planning on behalf of a network: what whoever leads does.

Imported when a plan is to be made, not before: it brings scipy, which a server that only publishes and subscribes need
not wait for.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement.planner import make_plan
from sequencing.manager import Planner
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

SEARCH_WORK_MAX = 30_000
"""Of a plan that is being waited for: some 10 ms. Thirty times as much finds the same plans for the trace's servers."""


def planner_over(nodes: Mapping[str, str], ordering: Ordering) -> Planner:
    """Return what plans over these nodes, name → url."""

    def plan(membership: Membership, epoch: int, first_atom: int) -> Plan:
        return make_plan(
            membership,
            nodes,
            epoch=epoch,
            first_atom=first_atom,
            ordering=ordering,
            search_work_max=SEARCH_WORK_MAX,
        )

    return plan
