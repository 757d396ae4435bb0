"""Whose deliveries wait for a region that is stuck, although their own regions are well: order holds them back.

A subscriber delivers the frames of an atom by its numbers. While numbers of a stuck region are missing, it holds the
frames of every region that shares an atom with it, and then of those that share an atom with these. So a region whose
path is well stands still for some of its subscribers, and a server may stand still as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from adapters.redis.networkstate import NetworkState
from sequencing.plan import Atom

BY_SHOWN = 5
"""How many stuck regions are named that hold another one."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What is known of regions from former looks.

    ``ends``: region → epoch, and the last number known to have reached its egress; ``drawn``: the last number of its
    ingress at the last look at which no region was stuck.
    """

    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    drawn: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def after(self, now: NetworkState, *, is_well: bool) -> Arrived:
        """Return it with another look; ``is_well``: whether no region is stuck there."""
        ends, drawn = dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
        for region in now.regions:
            if region.last is not None:
                ends[region.name] = region.epoch, region.last
            elif (end := self.ends.get(region.name)) is not None:
                ends[region.name] = end
            if is_well and region.drawn is not None:
                drawn[region.name] = region.epoch, region.drawn
        return Arrived(ends, drawn if is_well else self.drawn)


@dataclass(frozen=True, slots=True)
class Held:
    """``regions``: region → how many subscribers hold its events, and for which stuck regions; ``subscribers``: name →
    which regions it holds, and for which."""

    regions: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    subscribers: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=dict)


def owing(now: NetworkState, stuck: AbstractSet[str], arrived: Arrived) -> AbstractSet[str]:
    """Return the stuck regions of which numbers are known to be on their way: others have to wait for these."""
    found = set()
    for region in now.regions:
        if region.name not in stuck or region.drawn is None:
            continue
        epoch, last = arrived.ends.get(region.name, (region.epoch, region.drawn))
        if region.last is not None:
            epoch, last = region.epoch, region.last
        if epoch == region.epoch and region.drawn > last:
            found.add(region.name)
    return found


def held(now: NetworkState, stuck: AbstractSet[str], arrived: Arrived) -> Held:
    """Return who holds which regions.

    Takes time in proportion to the atoms of the regions of those who have a stuck one.
    """
    missing = owing(now, stuck, arrived)
    if not missing or now.plan is None:
        return Held()
    atoms_of = now.plan.atoms_of
    moved = {
        region.name
        for region in now.regions
        if region.drawn is not None
        and arrived.drawn.get(region.name, (region.epoch, 0)) != (region.epoch, region.drawn)
    }
    by_wanted: dict[frozenset[str], tuple[frozenset[str], tuple[str, ...]]] = {}
    counts, because = Counter[str](), dict[str, set[str]]()
    subscribers: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    for each in now.connections:
        granted = each.wanted - each.waiting
        if not each.alive or not (begin := granted & missing):
            continue
        if granted not in by_wanted:
            waits = _reached(atoms_of, granted, begin, moved) - stuck
            by_wanted[granted] = waits, tuple(sorted(begin)[:BY_SHOWN])
        waits, by = by_wanted[granted]
        if waits:
            subscribers[each.name] = waits, by
            counts.update(waits)
            for region in waits:
                because.setdefault(region, set()).update(by)
    return Held(
        {region: (count, tuple(sorted(because[region])[:BY_SHOWN])) for region, count in counts.items()}, subscribers
    )


def _reached(
    atoms_of: Mapping[str, tuple[Atom, ...]],
    granted: frozenset[str],
    begin: AbstractSet[str],
    moved: AbstractSet[str],
) -> frozenset[str]:
    """Return the regions that a subscriber holds. One of which nothing was published since holds no others."""
    reached, open_ends = set(begin), [*begin]
    while open_ends:
        region = open_ends.pop()
        for atom in atoms_of.get(region, ()):
            if granted.issuperset(atom.regions):
                new = set(atom.regions) - reached
                reached |= new
                open_ends += new & moved
    return frozenset(reached)
