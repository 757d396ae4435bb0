"""Expected overlaps: declared before any subscriber has them, so that walking into them needs no new epoch.

Two things make a network whose subscribers walk different from one whose subscribers stay.

*Order beforehand.* Each expected pair of regions is ordered, by place or by an atom, as if a subscriber had both. (A
pair that a subscriber has is ordered in any case; with ``overlap``, once any overlap is expected.) So there is no pair
that a single subscriber orders as it likes.

*Leaving in place.* In an epoch, membership otherwise only grows: a subscriber that has left a region still counts as
its member, since its deliveries there are part of the order. A subscriber that walks from a over b to c would end as a
member of all three, which is not an expected overlap. So a subscriber is removed from a region that it left, after a
*sweep*. A sweep has as many rounds as the longest chain of nodes has links. In each round, all links are emptied of the
frames that they held when the round began.

Why that is enough. Let a subscriber deliver x of region a, leave a, and join c after the sweep that began when it had
left. All other orders are those of nodes, by their own numbers or an atom's: one event passes a node before another.
Suppose that a chain of such orders leads from an event y of c, published after the join, back to x. Shortened, it
visits no node twice, and follows the tree of the nodes. x was out of the network when the sweep began. Consider the
event that precedes x in the chain at a node: it had passed that node by then. If the chain continues down the tree from
there, along the path of that event, the event has been accepted at the next node, too, a round later. If the chain goes
up, the event had been there before. So y passed a node before the sweep ended: it was published before the join, a
contradiction. With several walking subscribers, each order from a left region to a joined one goes forward in time,
over the end of its sweep, and so does each chain of atoms behind it: no cycle can close. If a pair were not ordered, a
subscriber that reads slowly could order it late, against this argument; so every pair is ordered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sequencing.node import Node
from sequencing.plan import Ordering, Plan
from sequencing.record import Members, Pair


def orders_all(ordering: Ordering, expected: Collection[Pair]) -> bool:
    """Return whether each pair of regions that any subscriber has is ordered, and not only pairs that two have."""
    return ordering != "overlap" or bool(expected)


def observers(members: Members, expected: Collection[Sequence[str]], ordering: Ordering) -> Members:
    """Return the members to count: the subscribers, and one with a made-up name for each expected pair or joint set.

    There are two of each where an ordering requires two, and overlaps are expected.
    """
    if not expected:
        return members
    copies = (1, 2) if ordering == "overlap" else (1,)
    wanted = [*members.values(), *map(frozenset, expected)]
    return {f"{number}.{copy}": regions for number, regions in enumerate(wanted) for copy in copies}


@dataclass(frozen=True, slots=True)
class Tails:
    """Ask how full the links to some targets are. The answer: target → link sequence, for links that hold anything.

    ``round``: the round of the sweep.
    """

    node: str
    targets: tuple[str, ...]
    round: int

    def perform(self, node: Node) -> dict[str, int]:
        """Perform the task at a node in memory."""
        return {target: tail for target in self.targets if (tail := node.link_tail(target))}


@dataclass(frozen=True, slots=True)
class Emptied:
    """Ask whether links, (target, link sequence) each, are emptied up to there. Repeat while the answer is False."""

    node: str
    links: tuple[tuple[str, int], ...]
    round: int

    def perform(self, node: Node) -> bool:
        """Perform the task at a node in memory."""
        return all(node.is_acknowledged(target, tail) for target, tail in self.links)


def links_to_sweep(plan: Plan, regions: Iterable[str]) -> tuple[dict[str, tuple[str, ...]], int]:
    """Return node → link ends, for all links connected to the paths of some regions; and the number of rounds."""
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
    """Return the nodes connected to one: itself, then those one link away, and so on."""
    rings, seen = [{node}], {node}
    while ring := set[str]().union(*(neighbours[each] for each in rings[-1])) - seen:
        rings.append(ring)
        seen |= ring
    return rings
