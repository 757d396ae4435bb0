"""One node: decisions of the manager that need no planner, because the node's own order is all that there is.

Every region ends at the node, so regions of one epoch need no atom, and a join is granted in place. A new epoch begins
when the node was restarted and may have lost something, when history of a later epoch is asked for, or when regions of
an earlier network are of several epochs. It begins for all regions, so from then on they are of one.

Most networks of one node need not even that, see `sequencing.listing`; they begin and end here.

`sequencing.manager` decides for networks of several nodes. It takes libraries that a network of one node need not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sequencing.changes import Changes
from sequencing.homes import homes_of
from sequencing.joint import regions_in
from sequencing.listing import listed
from sequencing.node import Node
from sequencing.plan import Plan
from sequencing.record import Interest, Members, Record
from sequencing.transition import Prepare

_NO_INTEREST = Interest(0, 0)


def is_sole(record: Record, nodes: Mapping[str, str]) -> bool:
    """Return whether there is one node, in all plans that are in use, and in ``nodes``, name → url."""
    plans = (*record.behind, *record.abandoned, record.plan)
    names = set(nodes).union(*(plan.nodes for plan in plans))
    return len(names) == 1 and not any(plan.atoms for plan in plans)


def following_on_one_node(
    record: Record,
    changes: Changes,
    interests: Mapping[str, Interest],
    *,
    nodes: Mapping[str, str],
    announced: bool,
    away: Members,
) -> Record:
    """Return the record that makes the changes; arguments as those of `sequencing.manager.next_record`.

    Only where `is_sole`.
    """
    is_lost = bool(changes.lost) and any(plan.paths for plan in (*record.behind, record.plan))
    record, grown, moving = begun(record, changes, interests, nodes=nodes, announced=announced)
    plan, members = record.plan, still_wanted(grown, interests, away)
    is_known = announced and all(grown[name] == record.members.get(name) for name in moving)
    plan = plan.with_sets(changes.joint)
    record = replace(record, plan=plan)
    are_apart = not all(_are_of_one_epoch(plan, regions_in(name)) for name in changes.joint)
    in_place = not are_apart and (is_known or all(_are_of_one_epoch(plan, grown[name]) for name in moving))
    if is_lost or is_late(plan, changes.joining, interests) or not in_place:
        return replace(record, plan=replace(plan, epoch=plan.epoch + 1, version=1, epochs={}), members=members)
    # Once it is announced, nothing of a region that was left is in flight.
    return replace(record, members=members if announced else grown)


def begun(
    record: Record,
    changes: Changes,
    interests: Mapping[str, Interest],
    *,
    nodes: Mapping[str, str] | None,
    announced: bool,
) -> tuple[Record, Members, set[str]]:
    """Return the record that changes begin with, whose plan has the missing regions; the members with what they join;
    and the subscribers that join, or, if the last plan was not announced, were leaving.
    """
    behind, abandoned, moving = (*record.behind, record.plan), record.abandoned, set(changes.joining)
    members = record.members
    if not announced:
        behind, abandoned = record.behind, (*abandoned, record.plan)
        members, moving = union(members, record.leaving), moving.union(record.leaving)
    known = record.plan.nodes if nodes is None else nodes
    homes = homes_of(record.plan, members, changes.joining, changes.missing, known, changes.joint)
    following = replace(
        record,
        plan=replace(record.plan.with_regions(sorted(changes.missing), nodes, homes), runs=changes.runs),
        members=members,
        heard=dict(interests),
        behind=behind,
        abandoned=abandoned,
        expected=changes.expected,
        leaving={},
    )
    return following, union(members, changes.joining), moving


def still_wanted(members: Members, interests: Mapping[str, Interest], away: Members) -> dict[str, frozenset[str]]:
    """Return the members without what they want no more, and without those that want nothing."""
    left = {name: regions & kept(name, interests, away) for name, regions in members.items()}
    # Most are as they were: the very same object.
    return {name: members[name] if len(members[name]) == len(each) else each for name, each in left.items() if each}


def kept(name: str, interests: Mapping[str, Interest], away: Members) -> AbstractSet[str]:
    """Return the regions that a subscriber wants, or that are kept for it while it is disconnected."""
    return interests.get(name, _NO_INTEREST).since.keys() | away.get(name, frozenset())


def is_late(plan: Plan, joining: Members, interests: Mapping[str, Interest]) -> bool:
    """Return whether a region that is joined is of an earlier epoch than one of which its subscriber had anything.

    History goes epoch by epoch: a subscriber never continues with an earlier one. No subscriber has had an epoch that
    has not begun yet; a floor there is taken into account when it has joined.
    """
    return any(
        plan.epoch_of(region) < interests.get(name, _NO_INTEREST).floor <= plan.epoch
        for name, regions in joining.items()
        for region in regions
    )


def union(members: Members, joining: Members) -> dict[str, frozenset[str]]:
    """Return the members with what they join."""
    nothing: frozenset[str] = frozenset()
    return {**members, **{name: members.get(name, nothing) | regions for name, regions in joining.items()}}


def _are_of_one_epoch(plan: Plan, regions: Iterable[str]) -> bool:
    """Return whether regions are of one epoch, so that the node orders them."""
    return not plan.epochs or len(set(map(plan.epoch_of, regions))) <= 1


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


def begin_listed(record: Record, interests: Mapping[str, Interest]) -> Prepare:
    """Return the task that begins all regions of the members, before the node begins no more.

    So none of these is refused in an epoch in which it goes on.
    """
    plan = first_listed(record, interests, frozenset()).plan
    return Prepare(record.plan.sole, plan, tuple(plan.steps(record.plan.sole)), ())


def first_listed(record: Record, interests: Mapping[str, Interest], begun: AbstractSet[str]) -> Record:
    """Return the record with which a network of one node begins to make plans.

    What is there stays as it is, in its epoch. The plan's epoch is a new one, in which other regions begin: a publisher
    that was refused in the old one goes on in a later one only.
    """
    first = listed(record, interests, begun)
    epochs = dict.fromkeys(first.plan.paths, first.plan.epoch)
    return replace(first, plan=replace(first.plan, epoch=first.plan.epoch + 1, version=1, epochs=epochs))
