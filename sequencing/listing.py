"""Networks of one node whose plan lists no region, and what lists their regions when that is needed.

As long as the node loses nothing, its own order is all that there is: no plan and no atom is needed, and no join makes
an order that the node does not have. So the plan says only that all regions are there (`sequencing.plan.sole_plan`). A
region begins when it is published to first, in the network's only epoch, and a join is granted by the control store,
without a leader.

What subscribers have is kept in `Rows`. When plans are needed after all, because nodes are registered or the node has
lost something, the control store grants no more joins and the node begins no more regions. What there is then is listed
in the first plan, in its place and epoch (`sequencing.sole.first_listed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sequencing.plan import Plan
from sequencing.record import Interest, Members, Record


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of a network whose plan lists no region.

    ``said``: subscriber → incarnation, and the ``said`` up to which it was answered; ``members``: subscriber → its
    regions.
    """

    said: Mapping[str, tuple[int, int]]
    members: Members

    def interests(self) -> dict[str, Interest]:
        """Return what the subscribers want, as they would tell it to a leader."""
        return {
            name: Interest(incarnation, said, dict.fromkeys(self.members.get(name, ()), said))
            for name, (incarnation, said) in self.said.items()
        }


def listed(record: Record, rows: Rows, begun: AbstractSet[str]) -> Record:
    """Return the record of a network of one node with all regions and members listed, under the same number.

    ``begun``: the regions in which anything was published.
    """
    return replace(
        record,
        plan=listing(record.plan, frozenset(begun).union(*rows.members.values())),
        members={name: regions for name, regions in rows.members.items() if regions},
        heard=rows.interests(),
    )


def listing(plan: Plan, regions: Iterable[str]) -> Plan:
    """Return a plan with some regions in the place of none; as it is if it lists regions."""
    return replace(plan, sole="", paths=dict.fromkeys(sorted(regions), (plan.sole,))) if plan.sole else plan
