"""Networks of one node whose plan lists no region, and what lists their regions when that is needed.

As long as the node loses nothing, its own order is all that there is: no plan and no atom is needed, and no join makes
an order that the node does not have. So the plan says only that all regions are there (`sequencing.plan.sole_plan`). A
region begins when it is published to first, in the network's only epoch, and a join is granted by the control store,
without a leader.

What subscribers have is kept in `Rows`. When plans are needed after all, because nodes are registered or the node has
lost something, the control store grants no more joins and the node begins no more regions. What there is then is listed
in the first plan, in its place and epoch (`first_listed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sequencing.plan import Plan
from sequencing.record import Interest, Members, Record

if TYPE_CHECKING:  # who has no node in memory needs none
    from sequencing.node import Node


@dataclass(frozen=True, slots=True)
class Rows:
    """What is known of a network whose plan lists no region.

    ``said``: subscriber → incarnation, and the ``said`` up to which it was answered; ``members``: subscriber → its
    regions.
    """

    said: Mapping[str, tuple[int, int]]
    members: Members


@dataclass(frozen=True, slots=True)
class BeginAny:
    """Have a node begin whatever region of a plan's epoch is published to. The answer: if no later plan is there."""

    node: str
    plan: Plan

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        return node.begin_any(self.plan.epoch, self.plan.version)


@dataclass(frozen=True, slots=True)
class BeginNoMore:
    """Have a node begin only the regions of its steps. The answer: those that have begun in an epoch."""

    node: str
    epoch: int

    def perform(self, node: Node) -> frozenset[str]:
        """Perform the task at a node in memory."""
        node.begin_no_more()
        return node.begun(self.epoch)


def listed(record: Record, rows: Rows, begun: AbstractSet[str]) -> Record:
    """Return the record of a network of one node with all regions and members listed, under the same number.

    ``begun``: the regions in which anything was published.
    """
    return replace(
        record,
        plan=listing(record.plan, frozenset(begun).union(*rows.members.values())),
        members={name: regions for name, regions in rows.members.items() if regions},
        heard={name: Interest(incarnation, said) for name, (incarnation, said) in rows.said.items()},
    )


def listing(plan: Plan, regions: Iterable[str]) -> Plan:
    """Return a plan with some regions in the place of none; as it is if it lists regions."""
    return replace(plan, sole="", paths=dict.fromkeys(sorted(regions), (plan.sole,))) if plan.sole else plan


def first_listed(record: Record, rows: Rows, begun: AbstractSet[str]) -> Record:
    """Return the record with which a network of one node begins to make plans.

    What is there stays as it is, in its epoch. The plan's epoch is a new one, in which other regions begin: a publisher
    that was refused in the old one goes on in a later one only.
    """
    found = listed(record, rows, begun)
    epochs = dict.fromkeys(found.plan.paths, found.plan.epoch)
    return replace(found, plan=replace(found.plan, epoch=found.plan.epoch + 1, version=1, epochs=epochs))
