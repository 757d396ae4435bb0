"""Networks of one node whose plan lists no region, and what lists their regions when that is needed.

As long as the node loses nothing, its own order is all that there is: no plan and no atom is needed, and no join makes
an order that the node does not have. So the plan says only that all regions are there (`sequencing.plan.sole_plan`). A
region begins when it is published to first, in the network's only epoch, and a join is granted by the control store,
without a leader.

When plans are needed after all, because nodes are registered or the node has lost something, the control store grants
no more joins and the node begins no more regions. What subscribers have and what there is then is listed in the first
plan, in its place and epoch (`sequencing.sole.first_listed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sequencing.plan import Plan
from sequencing.record import Interest, Record


def listed(record: Record, interests: Mapping[str, Interest], begun: AbstractSet[str]) -> Record:
    """Return the record of a network of one node with all regions and members listed, under the same number.

    ``interests``: of each connection; ``begun``: the regions in which anything was published.
    """
    members = {name: frozenset(interest.since) for name, interest in interests.items() if interest.since}
    return replace(
        record,
        plan=listing(record.plan, frozenset(begun).union(*members.values())),
        members=members,
        heard=dict(interests),
    )


def listing(plan: Plan, regions: Iterable[str]) -> Plan:
    """Return a plan with some regions in the place of none; as it is if it lists regions."""
    return replace(plan, sole="", paths=dict.fromkeys(sorted(regions), (plan.sole,))) if plan.sole else plan
