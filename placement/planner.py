"""From a membership to a plan: overlaps, arrangements, the best of them, nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Literal

import networkx as nx
import numpy as np

from placement.candidates import SEARCH_WORK_MAX, Candidate, candidates
from placement.joint import with_leads
from placement.objective import objective_for, region_rates
from placement.report import PlanReport, report
from placement.world import World
from sequencing.arrangement import Arrangement, meetings
from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.names import check_node_name
from sequencing.overlaps import IntArray, class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import Atom, AtomId, Ordering, Plan

IMPROVEMENT_MIN = 1e-9
"""Arrangements whose values differ by less are equally good, and the simpler one, which comes earlier, is taken."""


def make_plan(
    membership: Membership,
    nodes: Mapping[str, str],
    *,
    epoch: int = 1,
    first_atom: int = 1,
    ordering: Ordering = "acyclic",
    rates: Mapping[str, float] | None = None,
    capacity: float | Literal["receiver"] | None = None,
    search_work_max: int = SEARCH_WORK_MAX,
    is_urgent: bool = False,
) -> Plan:
    """Plan a sequencing network.

    ``nodes``: name → url, in the order in which events pass them where the order is free; ``first_atom``: the first
    atom's id, because ids are never used again in a later epoch; ``rates``: events/s of each region, 1 where not given;
    ``capacity``: events/s that a node may carry, or ``receiver`` for the load of the busiest subscriber (Lumezanu 2006,
    §3.3); None to spread the load over the nodes as far as it is worth longer paths (`placement.objective`);
    ``search_work_max``, ``is_urgent``: see `candidates`. Regions that need no order against others go to the least
    loaded nodes. Deterministic. Raises `PlanError` without nodes, `UsageError` for invalid rates and capacities.
    """
    plan, _ = make_plan_and_report(
        membership,
        nodes,
        epoch=epoch,
        first_atom=first_atom,
        ordering=ordering,
        rates=rates,
        capacity=capacity,
        search_work_max=search_work_max,
        is_urgent=is_urgent,
    )
    return plan


def make_plan_and_report(
    membership: Membership,
    nodes: Mapping[str, str],
    *,
    epoch: int = 1,
    first_atom: int = 1,
    ordering: Ordering = "acyclic",
    rates: Mapping[str, float] | None = None,
    capacity: float | Literal["receiver"] | None = None,
    search_work_max: int = SEARCH_WORK_MAX,
    is_urgent: bool = False,
) -> tuple[Plan, PlanReport]:
    """Make a plan as `make_plan` does, and report the alternatives, the figures, and why the plan is the best."""
    if not nodes:
        raise PlanError("there is no sequencing node to plan with: register one (`gamecast node --name n1 …`)")
    for name in nodes:
        check_node_name(name)
    by_region = region_rates(membership, rates or {})
    objective = objective_for(membership, by_region, len(nodes), capacity)
    world = World(meetings(membership, ordering), by_region, objective, len(nodes))
    tried = list(candidates(world, work_max=search_work_max, is_urgent=is_urgent))
    if membership.joint:
        tried = list(with_leads(world, tried, membership))
    best = best_of(tried)
    plan, loads = build(membership, world, best, nodes, epoch=epoch, first_atom=first_atom, ordering=ordering)
    return plan, report(world, membership.regions, tried, best, loads)


def build(
    membership: Membership,
    world: World,
    candidate: Candidate,
    nodes: Mapping[str, str],
    *,
    epoch: int,
    first_atom: int,
    ordering: Ordering,
) -> tuple[Plan, Mapping[str, float]]:
    """Return an arrangement's plan, and the events/s of each node that it has a vertex for."""
    kinds = _kinds_of_path(world, candidate)
    standing = _stand(candidate, kinds, list(nodes))
    tree = candidate.arrangement.tree
    path_of_kind = {kind: tuple(standing[vertex] for vertex in tree.walk(*kind)) for kind in set(kinds)}
    paths = dict(zip(membership.regions, (path_of_kind[kind] for kind in kinds), strict=True))
    atoms = _atoms(membership, ordering, candidate.arrangement, kinds, standing, first_atom)
    plan = Plan(epoch, 1, ordering, dict(nodes), paths, atoms)
    return plan, {name: float(candidate.loads[vertex]) for vertex, name in standing.items()}


def best_of(tried: Sequence[Candidate]) -> Candidate:
    """Return the candidate of the least value; of equals the earlier, which is simpler, or the proven one."""
    least = min(candidate.value for candidate in tried)
    best = [candidate for candidate in tried if candidate.value <= least + IMPROVEMENT_MIN]
    return next((candidate for candidate in best if candidate.optimal), best[0])


def _kinds_of_path(world: World, best: Candidate) -> list[tuple[int, int]]:
    """Return the ingress and the egress vertex of each region."""
    ingress, egress = (np.zeros(len(world.rates), np.int64) for _ in range(2))
    members, ordered = world.wanted.classes.members, np.flatnonzero(world.wanted.ordered)
    if len(ordered):
        regions = np.concatenate([members[c] for c in ordered.tolist()])
        class_of = np.repeat(ordered, [len(members[c]) for c in ordered.tolist()])
        ingress[regions], egress[regions] = best.arrangement.ingress[class_of], best.arrangement.egress[class_of]
    ingress[world.loose] = egress[world.loose] = best.loose_vertex
    return list(zip(ingress.tolist(), egress.tolist(), strict=True))


def _stand(best: Candidate, kinds: list[tuple[int, int]], names: list[str]) -> dict[int, str]:
    """Return the node for each vertex: along the paths, and as the regions come, in the order of the names.

    All nodes are alike here. A topology's latencies would be another way to choose them.
    """
    flow: nx.DiGraph[int] = nx.DiGraph()
    seen: dict[int, None] = {}
    tree = best.arrangement.tree
    for kind in dict.fromkeys(kinds):
        walk = tree.walk(*kind)
        seen |= dict.fromkeys(walk)
        nx.add_path(flow, walk)
    seen |= dict.fromkeys(range(tree.size))
    place_of = {vertex: place for place, vertex in enumerate(seen)}
    flow.add_nodes_from(seen)
    order = nx.lexicographical_topological_sort(flow, key=place_of.__getitem__)
    return dict(zip(order, names, strict=False))


def _atoms(
    membership: Membership,
    ordering: Ordering,
    arrangement: Arrangement,
    kinds: Sequence[tuple[int, int]],
    standing: Mapping[int, str],
    first_atom: int,
) -> tuple[Atom, ...]:
    """Return an atom for each pair of classes that end at different nodes; the others have the order of theirs.

    ``kinds``: the ingress and the egress vertex of each region.
    """
    names = membership.regions
    if membership.joint:
        apart = _apart(membership, ordering, arrangement, kinds)
    else:
        wanted = arrangement.meetings
        ends = np.flatnonzero(arrangement.egress[wanted.left] != arrangement.egress[wanted.right])
        pairs = (column[ends].tolist() for column in (wanted.left, wanted.right, arrangement.atom_vertex))
        members = wanted.classes.members
        apart = ((members[a], members[b], vertex) for a, b, vertex in zip(*pairs, strict=True))
    regions_of: dict[int, tuple[str, ...]] = {}

    def regions(members: IntArray) -> tuple[str, ...]:
        if (known := regions_of.get(int(members[0]))) is None:
            known = regions_of[int(members[0])] = tuple(names[region] for region in members.tolist())
        return known

    return tuple(
        Atom(AtomId(number), regions(a) + regions(b), standing[vertex])
        for number, (a, b, vertex) in enumerate(apart, start=first_atom)
    )


def _apart(
    membership: Membership, ordering: Ordering, arrangement: Arrangement, kinds: Sequence[tuple[int, int]]
) -> Iterator[tuple[IntArray, IntArray, int]]:
    """Yield what needs an atom: regions with one path and the same subscribers, others, and where the two meet.

    That events are in several regions at once has these meet, and takes no atom: only subscribers do.
    """
    classes = twin_classes(membership)
    parts: list[list[tuple[int, int, IntArray]]] = []
    for members in classes.members:
        of_kind: dict[tuple[int, int], list[int]] = {}
        for region in members.tolist():
            of_kind.setdefault(kinds[region], []).append(region)
        parts.append([(*kind, np.array(regions, np.int64)) for kind, regions in of_kind.items()])
    left, right = class_pairs_to_order(membership, classes, ordering)
    pairs = chain(
        chain.from_iterable(product(parts[a], parts[b]) for a, b in zip(left.tolist(), right.tolist(), strict=True)),
        chain.from_iterable(combinations(parts[twins], 2) for twins in twins_to_order(classes, ordering).tolist()),
    )
    meeting = arrangement.tree.meeting
    for (one_in, one_out, one), (other_in, other_out, other) in pairs:
        if one_out != other_out:
            yield one, other, int(meeting[one_in, other_in])
