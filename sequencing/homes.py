"""Where regions begin that no plan has placed yet, so that joining them takes no new epoch.

The regions of a subscriber need no atom where they all end at one node, in one epoch: its own order is enough. So a
region that is new goes where all others of its first subscriber end, unless that node has more than its share. (In an
epoch only regions are added that visit one node, with no atom: C1 to C3 stay true.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from sequencing.joint import regions_in
from sequencing.plan import Plan
from sequencing.record import Members

SHARE_MAX = 1.5
"""How many times as many regions as on average a node may have, and be given more for this reason. It may also have so
many times as many as the quietest, besides those of the subscriber that joins."""

FEW = 12
"""So many regions of chained sets may begin at one node in any case."""


class Home(NamedTuple):
    """The node where a region is read, and the epoch in which its numbering began."""

    node: str
    epoch: int


def homes_of(
    plan: Plan,
    members: Members,
    joining: Members,
    missing: Collection[str],
    nodes: Collection[str],
    joint: Iterable[str] = (),
) -> dict[str, Home]:
    """Return region → where it begins, of those ``missing`` regions for which it matters.

    ``members``: what the plan counts; ``joining``: subscriber → what it joins; ``nodes``: those that may get regions;
    ``joint``: sets of regions that are to begin where they meet.
    """
    homes: dict[str, Home] = {}
    new = Counter[str]()
    lacking = frozenset(missing)
    for name, regions in joining.items():
        if not (wanted := (regions & lacking) - homes.keys()):
            continue
        ends = {Home(plan.paths[region][-1], plan.epoch_of(region)) for region in members.get(name, ())}
        ends |= {Home(plan.paths[region][-1], plan.epoch_of(region)) for region in regions & plan.paths.keys()}
        own = len(members.get(name, ()))
        if len(ends) == 1 and _may_have_more(plan, home := ends.pop(), nodes, new.total(), own):
            homes |= dict.fromkeys(wanted, home)
            new[home.node] += len(wanted)
    for regions in map(frozenset, map(regions_in, sorted(joint))):
        if not (wanted := (regions & lacking) - homes.keys()):
            continue
        ends = {homes[region] for region in regions & homes.keys()}
        paths = {region: plan.paths[region] for region in regions - lacking}
        ends |= {Home(path[0], plan.epoch_of(region)) for region, path in paths.items()}
        if not ends:
            quietest = min(nodes, key=lambda node: (plan.visits.get(node, 0) + new[node], node))
            home = Home(quietest, plan.epoch)
        elif len(ends) == 1 and all(len(path) == 1 for path in paths.values()):
            [home] = ends
            if not (_may_have_more(plan, home, nodes, new.total(), 0) if paths else _may_begin(plan, home, nodes, new)):
                continue
        else:
            continue
        homes |= dict.fromkeys(wanted, home)
        new[home.node] += len(wanted)
    return homes


def _may_begin(plan: Plan, home: Home, nodes: Collection[str], new: Counter[str]) -> bool:
    """Return whether more of a chain of sets, all of whose regions are new, may begin where the others do.

    Else they begin an epoch, whose plan shares them out.
    """
    here = plan.visits.get(home.node, 0) + new[home.node]
    every = sum(plan.visits.get(node, 0) + new[node] for node in nodes)
    return here <= max(FEW, SHARE_MAX * every / len(nodes))


def _may_have_more(plan: Plan, home: Home, nodes: Collection[str], more: int, own: int) -> bool:
    # In its first epoch, a network may have refused a region: publishers go on in a later one only.
    if home.node not in nodes or home.epoch <= plan.first_epoch < plan.epoch:
        return False
    visits = [plan.visits.get(node, 0) for node in nodes]
    mean, here = (sum(visits) + more) / len(nodes), plan.visits.get(home.node, 0)
    # Where the subscriber's own regions are what is too much, they would be too much anywhere.
    return here <= SHARE_MAX * mean or here - own <= SHARE_MAX * min(visits)
