"""One node: decisions of the manager that need no planner, because the node's own order is all that there is.

Every region ends at the node, so regions of one epoch need no atom, and a join is granted in place. A new epoch begins
when the node was restarted and may have lost something, when history of a later epoch is asked for, or when regions of
an earlier network are of several epochs. It begins for all regions, so from then on they are of one.

`sequencing.manager` decides for networks of several nodes. It takes libraries that a network of one node need not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from sequencing.changes import Changes
from sequencing.plan import Plan
from sequencing.record import Interest, Members, Record

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
    joining, moving, abandoned = changes.joining, set(changes.joining), record.abandoned
    behind = (*record.behind, record.plan)
    is_lost = bool(changes.lost) and any(each.paths for each in behind)
    if not announced:
        behind, abandoned = record.behind, (*abandoned, record.plan)
        moving.update(record.leaving)
        record = replace(record, members=union(record.members, record.leaving))
    grown = union(record.members, joining)
    plan = replace(record.plan.with_regions(sorted(changes.missing), nodes), runs=changes.runs)
    record = replace(
        record, heard=dict(interests), behind=behind, abandoned=abandoned, expected=changes.expected, leaving={}
    )

    def kept(name: str) -> dict[str, frozenset[str]]:
        regions = grown[name] & (interests.get(name, _NO_INTEREST).since.keys() | away.get(name, frozenset()))
        return {name: frozenset(regions)} if regions else {}

    is_known = announced and all(grown[name] == record.members.get(name) for name in moving)
    if not is_lost and not is_late(plan, joining, interests) and (is_known or _are_of_one_epoch(plan, grown, moving)):
        if announced:  # nothing of a region that was left is in flight
            grown = {name: regions for name in grown for regions in kept(name).values()}
        return replace(record, plan=plan, members=grown)
    members = {name: regions for name in grown for regions in kept(name).values()}
    return replace(record, plan=replace(plan, epoch=plan.epoch + 1, version=1, epochs={}), members=members)


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
    return {name: members.get(name, nothing) | joining.get(name, nothing) for name in [*members, *joining]}


def _are_of_one_epoch(plan: Plan, members: Members, moving: Iterable[str]) -> bool:
    """Return whether each of some subscribers has regions of one epoch, which the node orders."""
    others: AbstractSet[str] = plan.epochs.keys()
    return not others or all(len(set(map(plan.epoch_of, members[name]))) <= 1 for name in moving)
