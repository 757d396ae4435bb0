"""Overlaps that are expected: declared before anybody has them, so that walking into them needs no new epoch.

Two things make a network whose subscribers walk different from one whose subscribers stay.

*Order beforehand.* Each expected pair of regions is ordered, by place or by an atom, as if somebody had both. (What
anybody has is ordered in any case; with ``overlap``, once anything is expected.) So there is no pair that a single
subscriber orders as it likes.

*Leaving in place.* In an epoch membership otherwise only grows: who has left a region counts as being there, since what
it has delivered there is part of the order. Walking from a over b to c would end in having all three, which nobody
expects. So who leaves is let go of after a *sweep*: rounds in each of which all links are emptied of what they held
when the round began, as many as the longest chain of nodes has links.

Why that is enough. Let a subscriber deliver x of region a, leave a, and join c after the sweep that began when it had
left. All other orders are those of nodes, by their own numbers or an atom's: one event passes a node before another.
Suppose that a chain of such orders leads from an event y of c, published after the join, back to x. Shortened, it
visits no node twice, and follows the tree of the nodes. x was out of the network when the sweep began. What precedes
it at a node had passed that node by then; if the chain goes on down the tree from there, along the path of what
precedes, a round later that has been accepted at the next node, too; if it goes up, it had been there before. So y
passed a node before the sweep ended: it was published before the join. With several subscribers that walk, each order
from a left region to a joined one goes forward in time, over the end of its sweep, and so does each chain of atoms
behind it: no cycle can come back. Where a pair were not ordered, a subscriber that reads slowly could order it late,
against all this; so there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.record import Members, Pair


def orders_all(ordering: Ordering, expected: Collection[Pair]) -> bool:
    """Return whether each pair of regions that somebody has is ordered, and not only what two subscribers have."""
    return ordering != "overlap" or bool(expected)


def observers(members: Members, expected: Collection[Pair], ordering: Ordering) -> Members:
    """Return who is to be counted: the subscribers, and somebody with made-up names for each expected pair.

    Two of each where an ordering asks for two, and overlaps are expected.
    """
    if not expected:
        return members
    copies = (1, 2) if ordering == "overlap" else (1,)
    wanted = [*members.values(), *map(frozenset, expected)]
    return {f"{number}.{copy}": regions for number, regions in enumerate(wanted) for copy in copies}


@dataclass(frozen=True, slots=True)
class Tails:
    """Ask how far the links to some targets are filled; the answer: target → link sequence, where there is anything.

    ``round``: of the sweep.
    """

    node: str
    targets: tuple[str, ...]
    round: int

    def perform(self, node: Node) -> dict[str, int]:
        """Do it at a node in memory."""
        return {target: tail for target in self.targets if (tail := node.link_tail(target))}


@dataclass(frozen=True, slots=True)
class Emptied:
    """Ask whether links, (target, link sequence) each, are emptied so far; ask again while the answer is False."""

    node: str
    links: tuple[tuple[str, int], ...]
    round: int

    def perform(self, node: Node) -> bool:
        """Do it at a node in memory."""
        return all(node.is_acknowledged(target, tail) for target, tail in self.links)


def links_to_sweep(plan: Plan, regions: Iterable[str]) -> tuple[dict[str, tuple[str, ...]], int]:
    """Return node → link ends, of all links that hang together with the paths of some regions; and how many rounds."""
    neighbours: dict[str, set[str]] = {node: set() for node in plan.nodes}
    for source, target in plan.links:
        neighbours[source].add(target)
        neighbours[target].add(source)
    swept: set[str] = set()
    for region in regions:
        if region in plan.paths and plan.paths[region][0] not in swept:
            swept.update(*_rings(neighbours, plan.paths[region][0]))
    targets: dict[str, list[str]] = {}
    for source, target in sorted(plan.links):
        if source in swept:
            targets.setdefault(source, []).append(plan.link_end(target))
    rounds = max((len(_rings(neighbours, node)) - 1 for node in swept), default=0)
    return {source: tuple(ends) for source, ends in targets.items()}, rounds


def _rings(neighbours: Mapping[str, set[str]], node: str) -> list[set[str]]:
    """Return the nodes that hang together with one: itself, then those one link away, and so on."""
    rings, seen = [{node}], {node}
    while ring := set[str]().union(*(neighbours[each] for each in rings[-1])) - seen:
        rings.append(ring)
        seen |= ring
    return rings
