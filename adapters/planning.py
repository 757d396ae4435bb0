"""Planning on behalf of a network: the leader's work.

A leader imports it when there is something to decide, not before. It needs numpy, scipy and networkx, which an extra
installs. A server that only publishes and subscribes need not load them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain

from placement.planner import make_plan
from sequencing.changes import Changes
from sequencing.manager import Planner, following_record, proposed_record
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan
from sequencing.record import Interest, Members, Record

__all__ = ["following", "planner_over", "proposed_record"]

SEARCH_WORK_MAX = 2_000
"""The search limit of a plan that clients wait for: some 2 ms.

For squares of cells on a grid, fifteen times as much finds a shorter plan for one in ten, and takes 10 ms more.
"""


def following(
    record: Record,
    changes: Changes,
    interests: Mapping[str, Interest],
    *,
    nodes: Mapping[str, str],
    announced: bool,
    away: Members,
) -> Record:
    """Return the next record, which makes these changes on these nodes; see `sequencing.manager.next_record`."""
    planner = planner_over(nodes, record.plan.ordering, record.plan)
    return following_record(record, changes, interests, planner, nodes=nodes, announced=announced, away=away)


def planner_over(nodes: Mapping[str, str], ordering: Ordering, before: Plan | None = None) -> Planner:
    """Return the planner for these nodes, name → url; ``before``: the plan of which a part is planned again.

    The nodes that the fewest other paths visit come first: else each small component would go to the first one.
    """

    def plan(membership: Membership, epoch: int, first_atom: int) -> Plan:
        visits = Counter(before.visits if before is not None else {})
        if before is not None:
            visits.subtract(chain.from_iterable(before.paths.get(region, ()) for region in membership.regions))
        quiet_first = sorted(nodes, key=lambda name: (visits[name], name))
        return make_plan(
            membership,
            {name: nodes[name] for name in quiet_first},
            epoch=epoch,
            first_atom=first_atom,
            ordering=ordering,
            search_work_max=SEARCH_WORK_MAX,
            is_urgent=True,
        )

    return plan
