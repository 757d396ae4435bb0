"""Metagroups and their propagation trees: how overlapping groups are laid out so that one tree orders them all.

A metagroup is a set of processes that are members of exactly the same groups. The tree puts metagroups below each other
so that each group has a primary metagroup, the lowest one whose subtree holds all metagroups of the group. A message to
a group starts at its primary metagroup and goes down. For any two groups with a common member, one of their
primary metagroups is above the other, on the way to that member: the lower one orders the messages of both.

Construction (exercises 6.10 and 6.15). The metagroups are taken in some order, by default the ones with most groups
first, which keeps the tree low. The first one becomes a root and the primary metagroup of all its groups. Those groups
are settled; what the other metagroups are held together by is now only the groups that are not, so they fall into
parts that have no unsettled group in common. Each part with unsettled groups is laid out in the same way, as a subtree
below this root; a metagroup without any hangs below this root itself, which is the lowest primary metagroup of its
groups. Nothing is shared by two parts that is not settled above both, which is why the property holds.

Membership changes (exercise 6.11.3) need a new tree only when a process comes to have a set of groups whose primary
metagroups are not above each other, or when a primary metagroup is emptied; otherwise a metagroup is hung up or taken
off as a leaf, and no other process notices (`Forest.changed`).

Source: Kshemkalyani 2008, §6.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sequencing.errors import UsageError

Metagroup = frozenset[str]
"""The groups that its members have."""


@dataclass(frozen=True, slots=True)
class Forest:
    """A propagation forest. ``parent``: metagroup → the one above it; ``primary``: group → its primary metagroup."""

    members: Mapping[Metagroup, tuple[str, ...]]
    parent: Mapping[Metagroup, Metagroup | None]
    primary: Mapping[str, Metagroup]

    def manager(self, metagroup: Metagroup) -> str:
        """The process that acts for a metagroup: its first member."""
        return self.members[metagroup][0]

    def children(self, metagroup: Metagroup) -> list[Metagroup]:
        """The metagroups right below one."""
        return [child for child, parent in self.parent.items() if parent == metagroup]

    def above(self, metagroup: Metagroup) -> list[Metagroup]:
        """A metagroup and all those above it, up to the root."""
        line = [metagroup]
        while (parent := self.parent[line[-1]]) is not None:
            line.append(parent)
        return line

    def route(self, group: str) -> set[Metagroup]:
        """The metagroups that a message to a group goes through, from its primary metagroup on."""
        top = self.primary[group]
        found: set[Metagroup] = set()
        for metagroup in self.members:
            if group in metagroup:
                line = self.above(metagroup)
                found.update(line[: line.index(top) + 1])
        return found

    def path_length(self, metagroup: Metagroup, group: str) -> int:
        """The steps down from a group's primary metagroup to one of its metagroups."""
        return self.above(metagroup).index(self.primary[group])

    def changed(self, groups: Mapping[str, Iterable[str]]) -> tuple[Forest, bool]:
        """Return the forest for changed groups, and whether it is the same tree but for leaves that came and went."""
        members = find_metagroups(groups)
        parent = dict(self.parent)
        while bare := [m for m in parent if m not in members and m not in parent.values()]:
            for metagroup in bare:
                del parent[metagroup]
        emptied = set(parent) - set(members)
        if emptied or set(self.primary) != {group for metagroup in members for group in metagroup}:
            return build(members), False
        if not set(self.primary.values()) <= set(members):
            return build(members), False
        for metagroup in [m for m in members if m not in parent]:
            lowest = self._lowest_primary(metagroup)
            if lowest is None:
                return build(members), False
            parent[metagroup] = lowest
        return Forest(members, parent, self.primary), True

    def _lowest_primary(self, metagroup: Metagroup) -> Metagroup | None:
        """The lowest of the primary metagroups of its groups, if they are all above each other."""
        primaries = {self.primary[group] for group in metagroup}
        lowest = max(primaries, key=lambda primary: len(self.above(primary)))
        return lowest if primaries <= set(self.above(lowest)) else None


def find_metagroups(groups: Mapping[str, Iterable[str]]) -> dict[Metagroup, tuple[str, ...]]:
    """Return the metagroups and their members, both sorted."""
    groups_of: dict[str, set[str]] = {}
    for group, processes in groups.items():
        for process in processes:
            groups_of.setdefault(process, set()).add(group)
    members: dict[Metagroup, list[str]] = {}
    for process in sorted(groups_of):
        members.setdefault(frozenset(groups_of[process]), []).append(process)
    return {m: tuple(members[m]) for m in sorted(members, key=sorted)}


def build(members: Mapping[Metagroup, Sequence[str]], order: Sequence[Metagroup] = ()) -> Forest:
    """Lay metagroups out; ``order``: the sequence in which they are considered, by default the largest first.

    Raises `UsageError` where the order is not one of all metagroups.
    """
    considered = list(order) or sorted(members, key=lambda m: (-len(m), sorted(m)))
    if sorted(map(sorted, considered)) != sorted(map(sorted, members)):
        raise UsageError("the order in which metagroups are considered names each of them once")
    parent: dict[Metagroup, Metagroup | None] = {}
    primary: dict[str, Metagroup] = {}

    def lay_out(part: Sequence[Metagroup], below: Metagroup | None) -> None:
        root = next(m for m in part if not primary.keys() >= m)
        parent[root] = below
        primary.update(dict.fromkeys(root - primary.keys(), root))
        rest = [m for m in part if m != root]
        for metagroup in rest:
            if primary.keys() >= metagroup:
                parent[metagroup] = root
        for subpart in _parts([m for m in rest if not primary.keys() >= m], settled=set(primary)):
            lay_out(subpart, root)

    for part in _parts(considered, settled=set()):
        lay_out(part, None)
    return Forest({m: tuple(processes) for m, processes in members.items()}, parent, primary)


def _parts(metagroups: Sequence[Metagroup], *, settled: set[str]) -> list[list[Metagroup]]:
    """Split into parts that have no unsettled group in common, keeping the order in each."""
    parts: list[tuple[set[str], list[Metagroup]]] = []
    for metagroup in metagroups:
        touching = [part for part in parts if part[0] & metagroup]
        parts = [part for part in parts if part not in touching]
        groups = set(metagroup) - settled
        parts.append((groups.union(*(g for g, _ in touching)), [*(m for _, ms in touching for m in ms), metagroup]))
    place = {metagroup: i for i, metagroup in enumerate(metagroups)}
    return [sorted(part, key=place.__getitem__) for _, part in parts]
