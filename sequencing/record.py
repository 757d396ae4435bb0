"""The data that managers and subscribers exchange: interests, and the record of the network's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from sequencing.errors import UsageError
from sequencing.identity import KeptFor
from sequencing.names import check_region
from sequencing.plan import Plan

Members = Mapping[str, frozenset[str]]
Pair = tuple[str, str]
"""Two regions, sorted."""

WIRE = 8
"""The wire version of frames and plans. Before 2, nodes did not number frames: atoms ordered those of one node. Before
3, the plan of a network of one node listed its regions. Before 4, each plan was announced as a whole. Before 8, all
regions of an event entered at one node."""

ENDED_EPOCHS_KEPT = 256
"""For this many epochs, an ended stream is ended once more when its node is restarted: for clients still reading it."""


def pair_of(one: str, other: str) -> Pair:
    """Return two regions as a pair; raises `InvalidName`, and `UsageError` for a region with itself."""
    if one == other:
        raise UsageError(f"region {one!r} does not overlap with itself")
    left, right = sorted((check_region(one), check_region(other)))
    return left, right


@dataclass(frozen=True)
class Interest:
    """The regions that a subscriber wants: of two interests of a name, that of the later ``(incarnation, said)``
    counts.

    ``since``: region → the ``said`` from which on it is wanted without a break; ``floor``: the last epoch of which the
    subscriber had anything. History goes epoch by epoch, and so does each subscriber: no region is joined in an earlier
    one.
    """

    incarnation: int
    said: int
    since: Mapping[str, int] = field(default_factory=dict)
    floor: int = 0

    def after(self, heard: Interest | None) -> frozenset[str]:
        """Return the regions that a plan which took ``heard`` into account did not know."""
        known = heard.said if heard is not None and heard.incarnation == self.incarnation else 0
        return frozenset(region for region, since in self.since.items() if since > known)


class Request(NamedTuple):
    """What a connection asks for: what has changed since it was last answered.

    ``changes``: region → since which ``said`` it is wanted, 0: not wanted any more. ``whole``: whether it is all that
    is wanted, because the network has forgotten the connection. ``floor``: as of `Interest`.
    """

    incarnation: int
    said: int
    changes: Mapping[str, int] = MappingProxyType({})
    whole: bool = False
    floor: int = 0

    def after(self, before: Interest | None) -> Interest | None:
        """Return the interest of a name that follows one, None if it is older: it was held up on its way."""
        since: dict[str, int] = {}
        if before is not None:
            if (self.incarnation, self.said) < (before.incarnation, before.said):
                return None
            if before.incarnation == self.incarnation and not self.whole:
                since.update(before.since)
        for region, wanted in self.changes.items():
            if wanted:
                since[region] = wanted
            else:
                since.pop(region, None)
        return Interest(self.incarnation, self.said, since, self.floor)


@dataclass(frozen=True, slots=True)
class OldEpoch:
    """An epoch of a region that is to end, or has ended, and its path."""

    region: str
    epoch: int
    path: tuple[str, ...]
    lost: frozenset[str]
    """The nodes of the path that were restarted since, so that data may be lost."""


@dataclass(frozen=True, slots=True)
class Record:
    """The stored state of a network, from which the next leader continues.

    ``members``: subscriber → the regions that the plan counts for it; ``heard``: the interests that it knew;
    ``behind``: the plans that are still in use during a transition, the oldest first; ``abandoned``: those that were
    given up before they were announced; ``next_atom``: ids are never used again; ``ended``: node → the streams,
    (region, epoch) each, that have ended there, of the nodes that may lose them; ``expected``: overlaps that are
    ordered whether a subscriber has them or not; ``leaving``: subscriber → regions from which it is removed in this
    transition, see `sequencing.expected`. ``born``: the regions that this record gives their first place; None: those
    that the record before does not have.
    """

    plan: Plan
    members: Members = field(default_factory=dict)
    heard: Mapping[str, Interest] = field(default_factory=dict)
    behind: tuple[Plan, ...] = ()
    abandoned: tuple[Plan, ...] = ()
    next_atom: int = 1
    ended: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    expected: frozenset[Pair] = frozenset()
    leaving: Members = field(default_factory=dict)
    born: frozenset[str] | None = None

    def old_epochs(self) -> tuple[OldEpoch, ...]:
        """Return the epochs that the transition ends, each region's in order."""
        return _old_epochs(self.plan, self.behind)

    def ending(self) -> frozenset[tuple[str, int]]:
        """Return `old_epochs` as (region, epoch) each."""
        return frozenset((old.region, old.epoch) for old in self.old_epochs())

    def left_plans(self) -> tuple[Plan, ...]:
        """Return the parts of the plans behind that readers of history need: the regions whose epochs the transition
        ends.

        Each plan has the atoms between these regions, too; oldest first.
        """
        ending: set[tuple[str, int]] = set(self.ending())
        if not ending:
            return ()
        parts: list[Plan] = []
        for plan in self.behind:
            regions = {region for region in plan.paths if (region, plan.epoch_of(region)) in ending}
            ending.difference_update((region, plan.epoch_of(region)) for region in regions)
            if regions:
                parts.append(plan.only(regions))
        return tuple(parts)

    def without_retired(self, registered: Mapping[str, str]) -> Record | None:
        """Return the record whose plan names no node that is neither registered nor used; None if there is none."""
        plan = self.plan
        used = {*plan.visits, *(atom.node for atom in plan.atoms), *registered}
        if self.behind or plan.nodes.keys() <= used:
            return None
        nodes = {name: url for name, url in plan.nodes.items() if name in used}
        runs = {name: run for name, run in plan.runs.items() if name in used}
        ended = {name: streams for name, streams in self.ended.items() if name in used}
        following = replace(plan, version=plan.version + 1, nodes=nodes, runs=runs)
        return replace(self, plan=following, behind=(plan,), ended=ended)

    def settled(self) -> Record:
        """Return the record as it is when the transition has finished."""
        ended = dict(self.ended)
        for old in self.old_epochs():
            egress = old.path[-1]
            if egress in self.plan.runs:
                ended[egress] = (*ended.get(egress, ()), (old.region, old.epoch))
        recent = self.plan.epoch - ENDED_EPOCHS_KEPT
        ended = {node: tuple(each for each in streams if each[1] > recent) for node, streams in ended.items()}
        return replace(self, behind=(), abandoned=(), ended=ended, leaving={})

    def news(self) -> Record:
        """Return the part that clients need, without what only matters to managers."""
        return replace(self, behind=self.left_plans(), abandoned=(), expected=frozenset(), leaving={})


@KeptFor
def _old_epochs(following: Plan, behind: tuple[Plan, ...]) -> tuple[OldEpoch, ...]:
    if all(following.epoch == plan.epoch for plan in behind):
        return ()  # no region moves within an epoch
    epochs: list[OldEpoch] = []
    begun: set[tuple[str, int]] = set()
    for plan in behind:
        lost = frozenset(node for node in plan.nodes if plan.runs.get(node) != following.runs.get(node))
        kept = plan.paths.keys() & following.paths.keys()
        for region in sorted((plan.paths.keys() - kept) | following.begun_after(plan.epoch, kept)):
            key = region, plan.epoch_of(region)
            if key not in begun:
                begun.add(key)
                epochs.append(OldEpoch(*key, plan.paths[region], lost.intersection(plan.paths[region])))
    return tuple(epochs)
