"""Whose deliveries wait for a region that is stuck, although their own regions are well: order holds them back.

A subscriber delivers the frames of an atom by its numbers. While numbers of a stuck region are missing, it holds the
frames of every region that shares an atom with it, and then of those that share an atom with these. So a region whose
path is well stands still for some of its subscribers, and a server may stand still as a whole. Frames that are stuck
before the node of an atom have no number of it yet, so nothing waits for them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise

from adapters.redis.networkstate import NetworkState
from gateway.dashboard.rates import target_of
from gateway.dashboard.trouble import Trouble, arrow
from sequencing.plan import Atom

BY_SHOWN = 5
"""How many stuck regions are named that hold another one."""


BUDGET_S = 0.5
"""For how long a look searches; a world in which that is not enough has so many held subscribers that all are not
needed."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What is known of regions from former looks.

    ``ends``: region → epoch, and the last number known to have reached its egress; ``drawn``: the last number of its
    ingress at the last look at which no region was stuck; ``owed``: region → epoch, where numbers were on their way.
    """

    ends: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    drawn: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    owed: Mapping[str, int] = field(default_factory=dict)

    def after(self, now: NetworkState, stuck: AbstractSet[str]) -> Arrived:
        """Return it with another look, at which these regions were stuck."""
        ends, drawn = dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
        for region in now.regions:
            if region.last is not None:
                ends[region.name] = region.epoch, region.last
            elif (end := self.ends.get(region.name)) is not None:
                ends[region.name] = end
            if not stuck and region.drawn is not None:
                drawn[region.name] = region.epoch, region.drawn
        missing = owing(now, stuck, self) if stuck else frozenset[str]()
        owed = {region.name: region.epoch for region in now.regions if region.name in missing}
        return Arrived(ends, self.drawn if stuck else drawn, owed)


@dataclass(frozen=True, slots=True)
class Held:
    """``regions``: region → how many subscribers hold its events, and for which stuck regions; ``subscribers``: name →
    which regions it holds, and for which; ``unexamined``: how many subscribers there was no time for."""

    regions: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    subscribers: Mapping[str, tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=dict)
    unexamined: int = 0

    def of(self, subscriber: str) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return which regions a subscriber holds, and for which; both empty if it holds none."""
        return self.subscribers.get(subscriber, (frozenset(), ()))


def owing(now: NetworkState, stuck: AbstractSet[str], arrived: Arrived) -> AbstractSet[str]:
    """Return the stuck regions of which numbers are known to be on their way: others have to wait for these.

    If it is not known what has reached an egress, frames that wait on a link of the path say it.
    """
    waiting = {(node.name, target_of(link)) for node in now.nodes for link in node.links if link.frames}
    found = set()
    for region in now.regions:
        if region.name not in stuck:
            continue
        end = (region.epoch, region.last) if region.last is not None else arrived.ends.get(region.name)
        if region.drawn is None:
            is_owing = arrived.owed.get(region.name) == region.epoch
        elif end is not None and end[0] == region.epoch:
            is_owing = region.drawn > end[1]
        else:
            is_owing = region.drawn > 0 and any(link in waiting for link in pairwise(region.path))
        if is_owing:
            found.add(region.name)
    return found


def held(
    now: NetworkState, stuck: Mapping[str, Trouble], arrived: Arrived, clock: Callable[[], float] = lambda: 0.0
) -> Held:
    """Return who holds which regions; ``stuck``: these regions, and where they are.

    Takes time in proportion to the atoms of the regions of those who have a stuck one, and `BUDGET_S` by the ``clock``
    at most.
    """
    missing = owing(now, stuck.keys(), arrived)
    if not missing or now.plan is None:
        return Held()
    until_s = clock() + BUDGET_S
    atoms_of = now.plan.atoms_of
    passed = {
        region.name: _passed(region.path, stuck[region.name].at) for region in now.regions if region.name in missing
    }
    moved = {
        region.name
        for region in now.regions
        if region.drawn is not None
        and arrived.drawn.get(region.name, (region.epoch, 0)) != (region.epoch, region.drawn)
    }
    by_granted: dict[frozenset[str], tuple[frozenset[str], tuple[str, ...]]] = {}
    counts, because = Counter[str](), dict[str, set[str]]()
    subscribers: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    unexamined = 0
    for each in now.connections:
        granted = each.wanted - each.waiting
        if not each.alive or not (begin := granted & missing):
            continue
        if granted not in by_granted:
            if clock() > until_s:
                unexamined += 1
                continue
            waits = _reached(atoms_of, granted, {region: passed[region] for region in begin}, moved) - stuck.keys()
            by_granted[granted] = waits, tuple(sorted(begin)[:BY_SHOWN])
        waits, by = by_granted[granted]
        if waits:
            subscribers[each.name] = waits, by
            counts.update(waits)
            for region in waits:
                because.setdefault(region, set()).update(by)
    regions = {region: (count, tuple(sorted(because[region])[:BY_SHOWN])) for region, count in counts.items()}
    return Held(regions, subscribers, unexamined)


def _passed(path: tuple[str, ...], at: tuple[str, ...]) -> frozenset[str]:
    """Return the nodes of a path that frames have passed which are stuck at these nodes or links."""
    for place, node in enumerate(path):
        if node in at:
            return frozenset(path[:place])
        if place + 1 < len(path) and arrow((node, path[place + 1])) in at:
            return frozenset(path[: place + 1])
    return frozenset(path)


def _reached(
    atoms_of: Mapping[str, tuple[Atom, ...]],
    granted: frozenset[str],
    begin: Mapping[str, frozenset[str]],
    moved: AbstractSet[str],
) -> frozenset[str]:
    """Return the regions that a subscriber holds. ``begin``: the stuck ones, and which nodes' numbers they have.

    A region in which nothing was published since holds no others.
    """
    reached, open_ends = set(begin), [*begin]
    while open_ends:
        region = open_ends.pop()
        numbered_at = begin.get(region)
        for atom in atoms_of.get(region, ()):
            if (numbered_at is None or atom.node in numbered_at) and granted.issuperset(atom.regions):
                new = set(atom.regions) - reached
                reached |= new
                open_ends += new & moved
    return frozenset(reached)
