"""C1–C4, checked on a finished plan without knowing how it was built.

C1  one path: the nodes that a region visits form one path, without a repeat.
C2  loop-free: the union of all paths, taken undirected, is a forest.
C3  one way: no edge of that forest is used in both directions. The seed (002 §3.2) does not ask for this, and without
    it C1 and C2 allow three atoms to see (a,b), (b,c), (c,a): each order legal, together a cycle.
C4  meeting: for each pair of regions to be ordered, and for each subscriber that could observe it, some atom that this
    subscriber can follow (it has all the atom's regions) lives on a node that both paths visit.

With C3, orders of neighbouring nodes agree on the frames that they share, and orders that agree along the edges of a
forest merge into one acyclic order (by induction over leaves): that order is what every subscriber follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import networkx as nx

from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.plan import Plan


def violations(plan: Plan, membership: Membership | None = None) -> Mapping[str, str]:
    """Return the violated conditions, each with the first thing that violates it; empty when the plan is sound.

    C4 is checked for the double overlaps of ``membership`` (all pairs, so for small and middling worlds), and needs it.
    """
    found = {"C1": _one_path(plan), "C2": _loop_free(plan), "C3": _one_way(plan)}
    if membership is not None:
        found["C4"] = _meeting(plan, membership)
    return {condition: what for condition, what in found.items() if what}


def require_sound(plan: Plan, membership: Membership | None = None) -> None:
    """Raise `PlanError` unless the plan satisfies the conditions."""
    if found := violations(plan, membership):
        raise PlanError("; ".join(f"{condition}: {what}" for condition, what in found.items()))


def _one_path(plan: Plan) -> str | None:
    for region, path in plan.paths.items():
        if not path or len(set(path)) != len(path):
            return f"region {region!r} visits {path}"
    return None


def _loop_free(plan: Plan) -> str | None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edges_from(plan.links)
    try:
        cycle = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return None
    return f"the paths close a loop: {' – '.join(edge[0] for edge in cycle)}"


def _one_way(plan: Plan) -> str | None:
    for here, there in plan.links:
        if (there, here) in plan.links:
            return f"{here} and {there} are linked in both directions"
    return None


def _meeting(plan: Plan, membership: Membership) -> str | None:
    followers: dict[tuple[str, str], list[str]] = {}
    for subscriber, regions in membership.regions_of.items():
        for pair in combinations(sorted(regions), 2):
            followers.setdefault(pair, []).append(subscriber)
    for atom in plan.atoms:
        for region in atom.regions:
            if atom.node not in plan.paths[region]:
                return f"atom {atom.id} lives on {atom.node}, which region {region!r} does not visit"
    atoms_of = {region: {atom.id: atom for atom in atoms} for region, atoms in plan.atoms_of.items()}
    for (a, b), subscribers in followers.items():
        if len(subscribers) < 2:
            continue
        if not plan.paths.keys() >= {a, b}:
            return f"regions {a!r} and {b!r} overlap, and one of them has no path"
        shared = atoms_of[a].keys() & atoms_of[b].keys()
        for subscriber in subscribers:
            if not any(membership.regions_of[subscriber].issuperset(atoms_of[a][i].regions) for i in shared):
                return f"no atom that {subscriber!r} can follow orders {a!r} and {b!r}"
    return None
