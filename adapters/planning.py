"""Planning on behalf of a network: what whoever holds the lease does.

Imported when a plan is to be made, not before: it brings scipy, which a server that only publishes and subscribes need
not wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placement.planner import make_plan
from sequencing.conditions import require_sound
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan


def plan_epoch(
    members: Mapping[str, Iterable[str]],
    published: Iterable[str],
    nodes: Mapping[str, str],
    *,
    epoch: int,
    ordering: Ordering,
) -> Plan:
    """Plan an epoch for these members and for regions that are published to; checks what it made.

    Raises `PlanError`, `InvalidName`.
    """
    plan = make_plan(Membership.of(members, published), nodes, epoch=epoch, ordering=ordering)
    require_sound(plan)
    return plan
