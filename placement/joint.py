"""Arrangements for events of several regions at once: in each set, a region's path visits where all others enter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from placement.candidates import Candidate
from placement.world import World
from sequencing.joint import regions_in
from sequencing.membership import Membership
from sequencing.overlaps import IntArray, TwinClasses


def with_leads(world: World, candidates: Sequence[Candidate], membership: Membership) -> Iterator[Candidate]:
    """Yield the candidates in which each set has a region whose path visits the ingresses of all its others.

    A line always is one, and so is everything on one vertex.
    """
    class_of, column_of = _classes(membership, world.wanted.classes)
    sets = {
        tuple(sorted({int(class_of[column_of[region]]) for region in regions_in(name)})) for name in membership.joint
    }
    apart = [np.array(classes, np.int64) for classes in sorted(sets) if len(classes) > 1]
    for candidate in candidates:
        arrangement = candidate.arrangement
        distance, ingress, egress = arrangement.tree.distance, arrangement.ingress, arrangement.egress
        if all(_has_lead(distance, ingress[classes], egress[classes]) for classes in apart):
            yield candidate


def _has_lead(distance: IntArray, ingress: IntArray, egress: IntArray) -> bool:
    """Return whether one of some paths visits the beginnings of all. ``distance``: see `Tree.distance`."""
    there, back = distance[ingress[:, None], ingress[None, :]], distance[ingress[None, :], egress[:, None]]
    on_path = (there >= 0) & (back >= 0) & (there + back == distance[ingress, egress][:, None])
    return bool(on_path.all(axis=1).any())


def _classes(membership: Membership, classes: TwinClasses) -> tuple[IntArray, Mapping[str, int]]:
    """Return the class of each region, by its column, and region → column."""
    class_of = np.empty(len(membership.regions), np.int64)
    for number, members in enumerate(classes.members):
        class_of[members] = number
    return class_of, {region: column for column, region in enumerate(membership.regions)}
