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
    before: Plan | None,
) -> Plan:
    """Plan the epoch after ``before`` for these members and for regions that are published to; checks what it made.

    Raises `PlanError`, `InvalidName`.
    """
    first_atom = 1 + max((atom.id for atom in before.atoms), default=0) if before is not None else 1
    membership = Membership.of(members, published)
    plan = make_plan(membership, nodes, epoch=epoch, first_atom=first_atom, ordering=ordering)
    require_sound(plan)
    return plan
