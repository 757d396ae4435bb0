"""The manager: from the subscribers' interests to the next plan.

Within an epoch, the membership that a plan counts grows. A subscriber that leaves a region just stops reading it, and
may come back; it is removed from the membership only when that matters (`sequencing.expected`). A subscriber that wants
more regions is granted them in place if places and the existing atoms order everything that must be ordered then: on
one node, always. Otherwise the regions around it begin a new epoch: the components, by the previous atoms and the pairs
to be ordered now, of the joined regions. Only there the membership is taken afresh; other components stay as they are.
(An atom cannot simply be added to a running epoch. Frames that passed its node before it began are free, unless all of
them are delivered everywhere. Three subscribers around a new ring can close a cycle with free frames: see
docs/counterexamples.md.)

A node that was restarted may be back with an older state than it had. Its server is then in another run than the plan
names, and no process communicates with it. The manager notices this, and all regions whose path visits the node begin a
new epoch, with the components around them. That may happen while the network is still in transition between two plans.

An operator may propose other paths for regions, because the manager knows neither loads nor delays. The network goes
over to them in an ordinary transition if they fit what is counted by then.

`sequencing.transition` describes and carries out the transition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain

import networkx as nx

from sequencing.changes import Changes, changes_asked
from sequencing.conditions import can_be_joint, can_follow_all, require_sound, violations
from sequencing.errors import PlanError
from sequencing.expected import observers, orders_all
from sequencing.joint import regions_in
from sequencing.membership import Membership
from sequencing.overlaps import class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import AtomId, Plan
from sequencing.record import Interest, Members, Pair, Record
from sequencing.sole import begun, following_on_one_node, is_late, is_sole, kept, still_wanted

Planner = Callable[[Membership, int, int], Plan]
"""Makes a plan of a membership, for an epoch, with new atom ids from a number on."""

_NOBODY: Members = {}


def next_record(
    record: Record,
    interests: Mapping[str, Interest],
    published: Iterable[str],
    planner: Planner,
    *,
    nodes: Mapping[str, str] | None = None,
    runs: Mapping[str, str] | None = None,
    announced: bool = True,
    expected: Iterable[Pair] = (),
    away: Members = _NOBODY,
) -> Record | None:
    """Return the record that follows a record, None if nothing changes. During a transition, only a lost node matters.

    ``interests``: the current one of each subscriber; ``published``: regions that events are to be published to;
    ``nodes``: name → url of the nodes for new regions, all of the plan if None; ``runs``: the current run of each
    reachable node that may lose something; ``announced``: whether the record's plan is announced; ``expected``:
    declared overlaps, besides those that the record has; ``away``: subscriber → the regions whose order is kept for it,
    of disconnected subscribers that may come back, or did. Regions that begin a new epoch satisfy C1–C5 by themselves;
    no pair to be ordered leads out of them, nor any set of regions that events are in at once. Raises `PlanError`.
    """
    changes = changes_asked(record, interests, published, runs=runs, expected=expected)
    if changes is None:
        return None
    known = record.plan.nodes if nodes is None else nodes
    if is_sole(record, known):
        return following_on_one_node(record, changes, interests, nodes=known, announced=announced, away=away)
    return following_record(record, changes, interests, planner, nodes=nodes, announced=announced, away=away)


def following_record(
    record: Record,
    changes: Changes,
    interests: Mapping[str, Interest],
    planner: Planner,
    *,
    nodes: Mapping[str, str] | None,
    announced: bool,
    away: Members,
) -> Record:
    """Return the record that makes the changes; see `next_record`."""
    joining, lost, declared, pairs = changes.joining, changes.lost, changes.declared, changes.expected
    plans = (*record.behind, record.plan)
    broken = {region for plan in plans for region, path in plan.paths.items() if not lost.isdisjoint(path)}
    record, grown, moving = begun(record, changes, interests, nodes=nodes, announced=announced)
    plan = record.plan
    apart = sets_apart(plan, changes.joint)
    plan = plan.with_sets(changes.joint - apart)
    if not broken and not declared and not apart and not is_late(plan, joining, interests):
        # A subscriber that comes back finds everything in place.
        is_known = announced and all(grown[name] == record.members.get(name) for name in moving)
        if is_known or _are_ordered(plan, grown, moving, pairs):
            members = still_wanted(grown, interests, away)
            # Without links, no frame of a region that was left is in flight, so the membership can be dropped at once.
            may_let_go = members != grown and announced and not plan.atoms and not plan.links
            return replace(record, plan=plan, members=members if may_let_go else grown)
        leaving: Members = {}
        if orders_all(plan.ordering, pairs):
            leaving = {name: grown[name] - kept(name, interests, away) for name in moving}
        staying = {name: regions - leaving.get(name, frozenset()) for name, regions in grown.items()}
        if any(leaving.values()) and _are_ordered(plan, staying, moving, pairs):
            return replace(record, plan=plan, members=staying, leaving=leaving)
    plan = plan.with_sets(apart)
    membership = Membership.of(observers(grown, pairs, plan.ordering), plan.paths, plan.joint)
    # A restarted node begins new numbers, which are one order within an epoch only.
    anew = declared.union(broken, *joining.values(), *map(regions_in, apart), changes.missing if lost else ())
    affected = _affected(plan, membership, anew)
    members = {name: affected & kept(name, interests, away) | regions - affected for name, regions in grown.items()}
    inside = {name: regions & affected for name, regions in members.items() if regions & affected}
    inside_together = [regions for regions in pairs if affected.issuperset(regions)]
    joint = frozenset(name for name in plan.joint if affected.issuperset(regions_in(name)))
    fresh_membership = Membership.of(observers(inside, inside_together, plan.ordering), affected, joint)
    fresh = planner(fresh_membership, plan.epoch + 1, record.next_atom)
    require_sound(fresh, fresh_membership)
    merged = replace(
        plan,
        epoch=plan.epoch + 1,
        version=1,
        nodes={**plan.nodes, **fresh.nodes},
        paths={**plan.paths, **fresh.paths},
        atoms=(*(atom for atom in plan.atoms if affected.isdisjoint(atom.regions)), *fresh.atoms),
        epochs={region: plan.epoch_of(region) for region in plan.paths if region not in affected},
    )
    next_atom = max((atom.id + 1 for atom in fresh.atoms), default=record.next_atom)
    members = {name: regions for name, regions in members.items() if regions}
    return replace(record, plan=merged, members=members, next_atom=next_atom)


def proposed_record(
    record: Record,
    proposed: Plan,
    interests: Mapping[str, Interest],
    *,
    nodes: Mapping[str, str],
    there: AbstractSet[str],
    away: Members,
) -> Record | None:
    """Return the record that goes over to the paths and atoms of a proposed plan, None if it has them already.

    Of the proposal only the regions count that the record has. Arguments otherwise as of `next_record`; ``there``: the
    nodes that answer, registered or not; the record's plan is announced. Counted is what the record counts and its
    subscribers still want: who joins something is served later. Raises `PlanError` if the proposal does not fit: it
    lacks a region that would have to move along, breaks one of C1–C5, or uses a node that is not there; or if what
    would move is on such a node now.
    """
    plan = record.plan
    if proposed.first_epoch != plan.first_epoch or proposed.ordering != plan.ordering:
        raise PlanError("it was made for another network, or for another order")
    proposed = proposed.only(plan.paths.keys() & proposed.paths.keys())
    moving = {region for region in proposed.paths if _is_elsewhere(plan, proposed, region)}
    if not moving:
        return None
    # Of what was heard, a leader that has loaded the record knows no regions.
    counted = {
        name: Interest(
            now.incarnation, now.said, {each: 0 for each in now.since if each in record.members.get(name, ())}
        )
        for name, now in interests.items()
    }
    changes = Changes({}, frozenset(), frozenset(), frozenset(moving), record.expected, plan.runs)

    def planner(membership: Membership, epoch: int, first_atom: int) -> Plan:
        regions = frozenset(membership.regions)
        if missing := regions - proposed.paths.keys():
            raise PlanError(f"region {min(missing)!r} belongs to what would move, and is not in the proposal")
        part = proposed.only(regions)
        if gone := part.nodes.keys() - nodes.keys():
            raise PlanError(f"node {min(gone)} does not answer, or is not registered")
        # The epochs that end have to be ended where they are, too.
        if gone := set(chain.from_iterable(plan.paths[region] for region in regions)) - there:
            raise PlanError(f"node {min(gone)} does not answer, so its regions have to stay there")
        atoms = (atom for atom in part.atoms if len(atom.regions) > 1)
        numbered = tuple(replace(atom, id=AtomId(number)) for number, atom in enumerate(atoms, start=first_atom))
        return Plan(epoch, 1, plan.ordering, {name: nodes[name] for name in part.nodes}, part.paths, numbered)

    moved = following_record(record, changes, counted, planner, nodes=nodes, announced=True, away=away)
    return replace(moved, heard=record.heard)


def _is_elsewhere(plan: Plan, proposed: Plan, region: str) -> bool:
    """Return whether a region has another path in a proposed plan, or other atoms."""
    here, there = (frozenset((atom.node, atom.regions) for atom in each.atoms_of[region]) for each in (plan, proposed))
    return plan.paths[region] != proposed.paths[region] or here != there


def sets_apart(plan: Plan, sets: Iterable[str]) -> frozenset[str]:
    """Return those of some sets of which no event can be in all regions, as the plan is."""
    return frozenset(name for name in sets if not can_be_joint(plan, regions_in(name)))


def _are_ordered(plan: Plan, members: Members, moving: Iterable[str], expected: Collection[Pair]) -> bool:
    """Return whether the plan orders all that is to be ordered, now that some subscribers have other regions."""
    if orders_all(plan.ordering, expected):  # it orders all that there was
        return all(can_follow_all(plan, members[name]) for name in moving)
    return "C4" not in violations(plan, Membership.of(members, plan.paths))


def components(plan: Plan, membership: Membership) -> list[set[str]]:
    """Return the sets of regions that move together: linked by the plan's atoms, by pairs to be ordered, or joint."""
    classes = twin_classes(membership)
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(plan.paths)
    for regions in (*(atom.regions for atom in plan.atoms), *map(regions_in, membership.joint)):
        nx.add_path(graph, regions)
    for twins in twins_to_order(classes, plan.ordering).tolist():
        nx.add_path(graph, [membership.regions[region] for region in classes.members[twins]])
    names = [membership.regions[region] for region in classes.representatives]
    for left, right in zip(*class_pairs_to_order(membership, classes, plan.ordering), strict=True):
        graph.add_edge(names[left], names[right])
    return [*nx.connected_components(graph)]


def _affected(plan: Plan, membership: Membership, joined: frozenset[str]) -> frozenset[str]:
    """Return the components that hold a joined region."""
    return frozenset[str]().union(*(part for part in components(plan, membership) if not joined.isdisjoint(part)))
