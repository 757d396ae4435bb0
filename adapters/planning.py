"""Planning on behalf of a network: what the leader does.

Imported when there is something to decide, not before: it brings numpy, scipy and networkx, which come with an extra,
and which a server that only publishes and subscribes need not load.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement.planner import make_plan
from sequencing.changes import Changes
from sequencing.manager import Planner, following_record
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Members, Record

SEARCH_WORK_MAX = 30_000
"""Of a plan that is being waited for: some 10 ms. Thirty times as much finds the same plans for the trace's servers."""


def following(
    record: Record,
    changes: Changes,
    interests: Mapping[str, Interest],
    *,
    nodes: Mapping[str, str],
    announced: bool,
    away: Members,
) -> Record:
    """Return what to go to so that changes are made, on these nodes; see `sequencing.manager.next_record`."""
    planner = planner_over(nodes, record.plan.ordering)
    return following_record(record, changes, interests, planner, nodes=nodes, announced=announced, away=away)


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
