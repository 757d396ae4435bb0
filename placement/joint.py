"""Arrangements for events of several regions at once: the regions of a set enter at one vertex.

Sets chain: regions of sets that share one enter together, too. On a line, and on every in-tree, any choice of ingresses
has paths, so there always is such an arrangement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import networkx as nx
import numpy as np

from placement.candidates import Candidate, valued
from placement.world import World
from sequencing.errors import PlanError
from sequencing.joint import regions_in
from sequencing.membership import Membership
from sequencing.overlaps import IntArray, TwinClasses


def groups_of(membership: Membership, classes: TwinClasses) -> list[IntArray]:
    """Return the groups of classes, several each, whose regions have to enter together."""
    class_of, column_of = _classes(membership, classes)
    chained: nx.Graph[int] = nx.Graph()
    for name in membership.joint:
        nx.add_path(chained, [int(class_of[column_of[region]]) for region in regions_in(name)])
    chained.remove_edges_from(list(nx.selfloop_edges(chained)))
    return [np.array(sorted(group), np.int64) for group in nx.connected_components(chained) if len(group) > 1]


def with_leads(world: World, found: Sequence[Candidate], membership: Membership) -> Iterator[Candidate]:
    """Yield the candidates in which each set has a region whose path visits the ingresses of all its others.

    A line always is one, and so is everything on one vertex.
    """
    class_of, column_of = _classes(membership, world.wanted.classes)
    sets = {
        tuple(sorted({int(class_of[column_of[region]]) for region in regions_in(name)})) for name in membership.joint
    }
    apart = [np.array(classes, np.int64) for classes in sorted(sets) if len(classes) > 1]
    for candidate in found:
        arrangement = candidate.arrangement
        distance, ingress, egress = arrangement.tree.distance, arrangement.ingress, arrangement.egress
        if all(_has_lead(distance, ingress[classes], egress[classes]) for classes in apart):
            yield candidate


def _has_lead(distance: IntArray, ingress: IntArray, egress: IntArray) -> bool:
    """Return whether one of some paths visits the beginnings of all. ``distance``: see `Tree.distance`."""
    there, back = distance[ingress[:, None], ingress[None, :]], distance[ingress[None, :], egress[:, None]]
    on_path = (there >= 0) & (back >= 0) & (there + back == distance[ingress, egress][:, None])
    return bool(on_path.all(axis=1).any())


def entering_together(world: World, found: Sequence[Candidate], groups: Sequence[IntArray]) -> Iterator[Candidate]:
    """Yield the candidates, changed so that each group enters at one vertex: of those of its classes, the best."""
    for candidate in found:
        changed: Candidate | None = candidate
        for group in groups:
            changed = _best_entry(world, changed, group) if changed is not None else None
        if changed is not None:
            yield changed


def _classes(membership: Membership, classes: TwinClasses) -> tuple[IntArray, Mapping[str, int]]:
    """Return the class of each region, by its column, and region → column."""
    class_of = np.empty(len(membership.regions), np.int64)
    for number, members in enumerate(classes.members):
        class_of[members] = number
    return class_of, {region: column for column, region in enumerate(membership.regions)}


def _best_entry(world: World, candidate: Candidate, group: IntArray) -> Candidate | None:
    best: Candidate | None = None
    vertices = np.unique(candidate.arrangement.ingress[group]).tolist()
    if len(vertices) == 1:
        return candidate
    for vertex in vertices:
        ingress = candidate.arrangement.ingress.copy()
        ingress[group] = vertex
        try:
            other = valued(world, candidate.name, candidate.arrangement.tree, ingress, candidate.loose_vertex)
        except PlanError:
            continue
        if best is None or other.value < best.value:
            best = other
    return best
