"""Worlds of the size that games have: overlaps, changes and conditions in seconds, and in little memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

from placement.planning.grid import grid_world
from sequencing.conditions import violations
from sequencing.membership import Membership
from sequencing.overlap_index import OverlapIndex
from sequencing.overlaps import class_pairs_to_order, count_double_overlaps, twin_classes
from sequencing.plan import Atom, AtomId, Plan

SUBSCRIBERS, REGIONS = 200_000, 20_000
SECONDS_MAX = 15.0
"""Ten times what two busy cores take; looking at pairs one by one would take minutes."""


@pytest.fixture(scope="module")
def world() -> Membership:
    return grid_world(SUBSCRIBERS, REGIONS)


def all_meeting(world: Membership, *, without: int | None = None) -> Plan:
    """Return a plan in which all regions pass one node and end apart, with an atom for each observable pair but one."""
    classes = twin_classes(world)
    left, right = class_pairs_to_order(world, classes, "acyclic")
    names = [world.regions[member[0]] for member in classes.members]
    pairs = [(names[a], names[b]) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    if without is not None:
        del pairs[without]
    atoms = tuple(Atom(AtomId(number), pair, "n") for number, pair in enumerate(pairs, start=1))
    paths = {region: ("n", f"end {region}") for region in world.regions}
    return Plan(1, 1, "acyclic", dict.fromkeys(["n", *(end for _, end in paths.values())], ""), paths, atoms)


def all_in_one(world: Membership, *, apart: str) -> Plan:
    """Return a plan without atoms in which all regions but one end at one node."""
    paths = {region: ("n", "m") if region == apart else ("n",) for region in world.regions}
    return Plan(1, 1, "acyclic", {"n": "", "m": ""}, paths, ())


def test_the_index_agrees_with_sparse_algebra_before_and_after_changes(world: Membership) -> None:
    begun = time.process_time()
    index = OverlapIndex(world)
    overlaps = count_double_overlaps(world)
    assert len(index) == overlaps
    changes = [(s, min(world.regions_of[s])) for s in world.subscribers[::20]]
    ceased = [index.leave(*change) for change in changes]
    assert len(index) == overlaps - sum(map(len, ceased))
    rows = np.arange(0, SUBSCRIBERS, 20)
    left = world.incidence.copy()
    left.data[left.indptr[rows]] = 0
    assert len(index) == count_double_overlaps(Membership.from_incidence(world.subscribers, world.regions, left))
    became = [index.join(*change) for change in reversed(changes)]
    assert sum(map(len, became)) == sum(map(len, ceased))
    assert len(index) == overlaps
    assert time.process_time() - begun < SECONDS_MAX


def test_one_missing_atom_among_tens_of_thousands_is_found(world: Membership) -> None:
    begun = time.process_time()
    assert violations(all_meeting(world), world) == {}
    assert violations(all_meeting(world, without=12_345), world).keys() == {"C4"}
    assert time.process_time() - begun < SECONDS_MAX


def test_one_region_of_tens_of_thousands_that_ends_elsewhere_is_found(world: Membership) -> None:
    begun = time.process_time()
    assert violations(all_in_one(world, apart="nobody's"), world) == {}
    found = violations(all_in_one(world, apart=world.regions[12_345]), world)
    assert found.keys() == {"C4"}
    assert repr(world.regions[12_345]) in found["C4"]
    assert time.process_time() - begun < SECONDS_MAX
