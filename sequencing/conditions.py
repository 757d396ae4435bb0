"""C1–C5, checked on a finished plan without knowing how it was built.

C1  one path: the nodes that a region visits form one path, without a repeat.
C2  loop-free: the union of all paths, taken undirected, is a forest.
C3  one way: no edge of that forest is used in both directions. Lumezanu 2006 (§3.2) does not require this. Without it,
    C1 and C2 allow three atoms to see (a,b), (b,c), (c,a): each order is legal, and together they form a cycle.
C4  meeting: each pair of regions to be ordered ends at one node, whose own order they have. Otherwise, for each
    subscriber that has both, some atom lives on a node that both paths visit, and the subscriber can follow it (it has
    all the atom's regions). Regions of different epochs are apart wherever they end: they were not planned together.
C5  lead: of the regions that events are in at once, one has a path that visits the ingresses of all the others; any two
    visit some node both; all are in one epoch. See `sequencing.joint`.

With C3, orders of neighbouring nodes agree on the frames that they share, and orders that agree along the edges of a
forest merge into one acyclic order (by induction over leaves): that order is what every subscriber follows.

C4 is decided at once for regions of one kind: those with the same subscribers, the same end and in the same atoms. An
atom of at most two kinds can be followed by all subscribers of both, so it settles that pair. Atoms of more kinds are
checked for each subscriber.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import networkx as nx
import numpy as np
from scipy import sparse

from sequencing.errors import PlanError
from sequencing.joint import regions_in, way_of
from sequencing.membership import Membership
from sequencing.overlaps import IntArray, TwinClasses, class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import Plan

NOWHERE = -1
"""The end of regions without a path."""


def violations(plan: Plan, membership: Membership | None = None) -> Mapping[str, str]:
    """Return the violated conditions, each with the first thing that violates it; empty when the plan is sound.

    C4 and C5 need ``membership``. C4 is checked for the pairs that the plan's ordering has to order: the double
    overlaps for ``overlap``, all observable pairs for the others. A world of 1,000,000 subscribers takes some 8 s.
    """
    violators = {"C1": _one_path(plan), "C2": _loop_free(plan), "C3": _one_way(plan)}
    if membership is not None:
        violators["C4"] = _off_path(plan) or _unmet(plan, membership)
        violators["C5"] = _apart(plan, membership)
    return {condition: what for condition, what in violators.items() if what}


def require_sound(plan: Plan, membership: Membership | None = None) -> None:
    """Raise `PlanError` unless the plan satisfies the conditions."""
    if violated := violations(plan, membership):
        raise PlanError("; ".join(f"{condition}: {what}" for condition, what in violated.items()))


def can_follow_all(plan: Plan, regions: frozenset[str]) -> bool:
    """Return whether a sound plan satisfies C4 for one subscriber of these regions, if every pair is to be ordered.

    Takes time proportional to the regions, and the pairs that atoms order between different ends. Pairs that end
    together are counted, and never enumerated.
    """
    ends = {region: _end(plan, region) for region in regions}
    together = Counter(ends.values())
    left = len(regions) * (len(regions) - 1) - sum(count * (count - 1) for count in together.values())
    if not left:
        return True
    ordered: set[tuple[str, str]] = set()
    for region, end in ends.items():
        for atom in plan.atoms_of.get(region, ()):
            if regions.issuperset(atom.regions):
                ordered.update((region, other) for other in atom.regions if ends[other] != end)
    return len(ordered) == left


def can_be_joint(plan: Plan, regions: Collection[str]) -> bool:
    """Return whether a sound plan satisfies C5 for events that are in all of some regions at once."""
    if not all(region in plan.paths for region in regions) or len({plan.epoch_of(region) for region in regions}) > 1:
        return False
    paths = {plan.paths[region] for region in regions}
    return bool(way_of(plan.paths, regions)) and not any(
        frozenset(one).isdisjoint(other) for one, other in combinations(paths, 2)
    )


def _apart(plan: Plan, membership: Membership) -> str | None:
    for regions in map(regions_in, sorted(membership.joint)):
        if not can_be_joint(plan, regions):
            return f"events are in {regions} at once, and these have no lead, do not meet, or are of several epochs"
    return None


def _end(plan: Plan, region: str) -> tuple[str, int]:
    """Return the key of the order that a region ends in: regions with the same key are ordered by their node."""
    return plan.paths[region][-1], plan.epoch_of(region)


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


def _off_path(plan: Plan) -> str | None:
    for atom in plan.atoms:
        for region in atom.regions:
            if atom.node not in plan.paths.get(region, ()):
                return f"atom {atom.id} lives on {atom.node}, which region {region!r} does not visit"
    return None


def _unmet(plan: Plan, membership: Membership) -> str | None:
    kinds = _kinds(plan, membership)
    left, right = class_pairs_to_order(membership, kinds.classes, plan.ordering)
    apart = (kinds.end[left] != kinds.end[right]) | (kinds.end[left] == NOWHERE)
    alike = twins_to_order(kinds.classes, plan.ordering)
    alike = alike[kinds.end[alike] == NOWHERE]
    for pair in kinds.unsettled(np.r_[left[apart], alike], np.r_[right[apart], alike]):
        lost = kinds.who_cannot_follow(*pair)
        if lost is not None:
            a, b = (membership.regions[region] for region in kinds.two_regions(*pair))
            if not plan.paths.keys() >= {a, b}:
                return f"regions {a!r} and {b!r} overlap, and one of them has no path"
            return f"no atom that {membership.subscribers[lost]!r} can follow orders {a!r} and {b!r}"
    return None


@dataclass(frozen=True)
class _Kinds:
    """Kinds of regions: those with the same subscribers, the same end and the same atoms.

    ``end``: of each kind, `NOWHERE` without a path. ``kind``, ``atom``: the kinds of each atom's regions, as two
    columns by atom. ``kinds_in``: of each atom, how many.
    """

    classes: TwinClasses
    end: IntArray
    subscribers_of: sparse.csc_array
    atom: IntArray
    kind: IntArray
    kinds_in: IntArray

    def unsettled(self, left: IntArray, right: IntArray) -> Iterator[tuple[int, int]]:
        """Yield the pairs (left ≤ right) without an atom that all subscribers of both can follow."""
        end = np.cumsum(self.kinds_in)
        small = (self.kinds_in == 1) | (self.kinds_in == 2)
        first, last = self.kind[end[small] - self.kinds_in[small]], self.kind[end[small] - 1]
        kinds = len(self.classes.members)
        open_ = np.flatnonzero(~np.isin(left * kinds + right, first * kinds + last))
        yield from zip(left[open_].tolist(), right[open_].tolist(), strict=True)

    def who_cannot_follow(self, one: int, other: int) -> int | None:
        """Return a subscriber with regions of both kinds (two regions, if the kinds are one) and no atom for them."""
        lost = self._having(one) & self._having(other)
        for atom in self._atoms_of.get(one, frozenset()) & self._atoms_of.get(other, frozenset()):
            lost -= self._followers(atom)
        return min(lost, default=None)

    def two_regions(self, one: int, other: int) -> tuple[int, int]:
        """Return a region of each kind."""
        return int(self.classes.members[one][0]), int(self.classes.members[other][-1])

    @cached_property
    def _atoms_of(self) -> Mapping[int, frozenset[int]]:
        """Kind → its atoms."""
        by_kind: dict[int, set[int]] = {}
        for atom, kind in zip(self.atom.tolist(), self.kind.tolist(), strict=True):
            by_kind.setdefault(kind, set()).add(atom)
        return {kind: frozenset(atoms) for kind, atoms in by_kind.items()}

    def _having(self, kind: int) -> set[int]:
        start, end = self.subscribers_of.indptr[kind : kind + 2]
        return set(self.subscribers_of.indices[start:end].tolist())

    def _followers(self, atom: int) -> set[int]:
        start, end = np.searchsorted(self.atom, [atom, atom + 1])
        return set.intersection(*map(self._having, self.kind[start:end].tolist()))


def _kinds(plan: Plan, membership: Membership) -> _Kinds:
    number_of = {region: number for number, region in enumerate(membership.regions)}
    # An atom with an unknown region can be followed by no subscriber.
    known = [atom.regions for atom in plan.atoms if all(region in number_of for region in atom.regions)]
    region = np.fromiter((number_of[name] for regions in known for name in regions), np.int64)
    atom: IntArray = np.repeat(np.arange(len(known)), [len(regions) for regions in known])
    shape = (len(membership.regions), len(known))
    atoms_of = sparse.csr_array((np.ones(len(atom), np.int8), (region, atom)), shape=shape)
    ends = {end: number for number, end in enumerate(sorted({_end(plan, region) for region in plan.paths}))}
    numbered = (ends[_end(plan, name)] if name in plan.paths else NOWHERE for name in membership.regions)
    end_of = np.fromiter(numbered, np.int64, len(membership.regions))
    twins = twin_classes(membership)
    members: list[IntArray] = []
    counts: list[int] = []
    for member, count in zip(twins.members, twins.subscribers.tolist(), strict=True):
        parts = [part for together in _by_end(member, end_of) for part in _by_atoms(together, atoms_of)]
        members += parts
        counts += [count] * len(parts)
    classes = TwinClasses(tuple(members), np.array(counts, np.int64))
    kind_of = np.empty(len(membership.regions), np.int64)
    for kind, member in enumerate(members):
        kind_of[member] = kind
    both = np.unique(atom * len(members) + kind_of[region])
    kinds = max(len(members), 1)
    subscribers_of = membership.incidence[:, classes.representatives].tocsc()
    end = end_of[classes.representatives]
    return _Kinds(
        classes, end, subscribers_of, both // kinds, both % kinds, np.bincount(both // kinds, minlength=len(known))
    )


def _by_end(member: IntArray, end_of: IntArray) -> list[IntArray]:
    """Split a class of twins into those that end at one place."""
    ends = end_of[member]
    return [member[ends == end] for end in np.unique(ends).tolist()]


def _by_atoms(member: IntArray, atoms_of: sparse.csr_array) -> list[IntArray]:
    """Split a class of twins into those that have the same atoms."""
    if len(member) == 1:
        return [member]
    parts: dict[bytes, list[int]] = {}
    for region in member.tolist():
        start, end = atoms_of.indptr[region : region + 2]
        parts.setdefault(atoms_of.indices[start:end].tobytes(), []).append(region)
    return [np.array(part, np.int64) for part in parts.values()]
