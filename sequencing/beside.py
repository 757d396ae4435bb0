"""Grants beside a move: joins that go on while other regions get a new epoch.

A plan that begins an epoch takes time: to make it, and to bring it to all nodes. Both concern only the components of
the regions that move. A subscriber that has none of them, and joins none, is granted in place meanwhile what the plan
in use orders already. That stays true: in place nothing is added but regions without atoms, and C1 to C4 hold for the
regions that move and for the others by themselves (`sequencing.manager`).

While a plan is being made, grants change the record from which it was made. So the plan is put on top of what there is
by then (`rebased`), unless a grant has touched what the plan moves: then another one is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeVar

from sequencing.changes import sets_to_order
from sequencing.conditions import can_follow_all
from sequencing.expected import orders_all
from sequencing.homes import homes_of
from sequencing.joint import regions_in, wished
from sequencing.manager import sets_apart
from sequencing.plan import Plan
from sequencing.planchange import change_between, changed, note_growth, regions_between
from sequencing.record import Interest, Members, Record
from sequencing.sole import is_late, union
from sequencing.transition import Prepare

T = TypeVar("T")


def moving_regions(record: Record) -> AbstractSet[str]:
    """Return the regions that move, or begin, with the transition of a record."""
    return set[str]().union(*(regions_between(plan, record.plan) for plan in record.behind))


def granted_beside(
    record: Record,
    interests: Mapping[str, Interest],
    published: Iterable[str],
    *,
    nodes: Mapping[str, str],
    busy: AbstractSet[str],
) -> Record | None:
    """Return the next version of a record whose plan is announced, with what can be granted in place; None if nothing.

    ``interests``, ``published`` and ``nodes``: as of `sequencing.manager.next_record`; ``busy``: regions that a
    subscriber may neither have nor join. A transition goes on as it is.
    """
    plan = record.plan
    if not orders_all(plan.ordering, record.expected):
        return None  # what is ordered depends on all subscribers
    joining = {name: interest.after(record.heard.get(name)) for name, interest in interests.items()}
    joining = {name: regions for name, regions in joining.items() if regions}
    joining = {name: regions for name, regions in joining.items() if _is_apart(name, regions, record.members, busy)}
    regions, sets = wished(published)
    missing = plan.without_place(regions.union(*joining.values()) - busy)
    sets = frozenset(name for name in sets_to_order(plan, sets) if busy.isdisjoint(regions_in(name)))
    homes = homes_of(plan, record.members, joining, missing, nodes, sets)
    with_all = plan.with_regions(sorted(missing), nodes, homes)
    grown = union(record.members, joining)
    granted = [
        name
        for name, regions in joining.items()
        if not is_late(with_all, {name: regions}, interests) and can_follow_all(with_all, grown[name])
    ]
    placed = missing & regions.union(*(joining[name] for name in granted))
    sets -= sets_apart(with_all, sets)
    if not granted and not placed and not sets:
        return None
    following = with_all
    if placed != missing:
        there = {region: (with_all.paths[region][0], with_all.epoch_of(region)) for region in placed}
        following = plan.with_regions(sorted(placed), nodes, there)
    following = following.with_sets(sets)
    note_growth(plan, following, placed)
    return replace(
        record,
        plan=following,
        members={**record.members, **{name: grown[name] for name in granted}},
        heard={**record.heard, **{name: interests[name] for name in granted}},
    )


def let_go(record: Record, gone: Collection[str]) -> Record | None:
    """Return the record that counts some subscribers no more, which have gone and will not come back; None if that
    takes a new epoch.

    After a sweep, see `sequencing.expected`: what they have delivered is before nothing that is in flight then. Where
    there are no links, nothing is.
    """
    plan = record.plan
    if not orders_all(plan.ordering, record.expected):
        return None
    return replace(
        record,
        plan=replace(plan, version=plan.version + 1),
        members={name: regions for name, regions in record.members.items() if name not in gone},
        heard={name: heard for name, heard in record.heard.items() if name not in gone},
        behind=(*record.behind, plan),
        leaving={name: record.members[name] for name in gone if name in record.members} if plan.links else {},
    )


def to_prepare(before: Record, after: Record) -> list[Prepare]:
    """Return what nodes have to do before a record with new regions is announced, in place."""
    plan = after.plan
    new = sorted(regions_between(before.plan, plan))
    nodes = dict.fromkeys(plan.paths[region][0] for region in new)
    return [Prepare(node, plan, tuple(plan.steps(node, new)), ()) for node in nodes]


def _is_apart(name: str, joins: AbstractSet[str], members: Members, busy: AbstractSet[str]) -> bool:
    return busy.isdisjoint(joins) and busy.isdisjoint(members.get(name, ()))


def rebased(base: Record, following: Record, now: Record) -> Record | None:
    """Return what follows now, where a record was to follow another one that was granted something in place since.

    None if the two touch the same regions or subscribers. ``base``, ``now``: records without a transition.
    """
    if now is base:
        return following
    moved = regions_between(base.plan, following.plan)
    # Who left regions and has them back is counted as before, but the plan may have been made without it.
    granted = {name for name, heard in now.heard.items() if base.heard.get(name) is not heard}
    taken = {name for name, regions in following.members.items() if base.members.get(name) != regions}
    taken |= base.members.keys() - following.members.keys()
    placed = regions_between(base.plan, now.plan).union(*map(regions_in, now.plan.joint - base.plan.joint))
    if granted & taken or moved & placed or any(not moved.isdisjoint(now.members[name]) for name in granted):
        return None
    return replace(
        following,
        plan=_on_top(base.plan, following.plan, now.plan),
        members=_merged(base.members, following.members, now.members),
        heard=_merged(base.heard, following.heard, now.heard),
        behind=tuple(now.plan if plan is base.plan else plan for plan in following.behind),
    )


def _on_top(base: Plan, following: Plan, now: Plan) -> Plan:
    plan = changed(now, change_between(base, following))
    if plan.epoch == now.epoch:
        plan = replace(plan, version=now.version + 1)
    return plan


def _merged(base: Mapping[str, T], following: Mapping[str, T], now: Mapping[str, T]) -> dict[str, T]:
    """Return what there is now, with what was to change; where both have changed, as it is now."""
    new = {name: value for name, value in following.items() if base.get(name) is not value}
    merged = {**now, **{name: value for name, value in new.items() if now.get(name) is base.get(name)}}
    for name in base.keys() - following.keys():
        if now.get(name) is base.get(name):
            merged.pop(name, None)
    return merged
