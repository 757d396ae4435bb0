"""Which nodes, links and regions of a network are stuck or behind, from two surveys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from adapters.redis.networkstate import NetworkState, RegionState
from gateway.dashboard.rates import Link, target_of

WAITING_FRAMES_MAX = 100
"""A link with more waiting frames is behind."""

Condition = Literal["stuck", "behind"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a node, link or region; ``at``: the nodes and links where it is stuck, if that is known."""

    condition: Condition
    at: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Return the fields of a row of the dashboard."""
        return {"condition": self.condition, "stuck_at": list(self.at)}


NO_TROUBLE: dict[str, Any] = {"condition": None, "stuck_at": []}


def urgency(row: Mapping[str, object]) -> int:
    """Return a key that sorts rows that are stuck first, then those that order holds, then those that are behind."""
    return ("stuck", "held", "behind", None).index(row.get("condition"))


def silent_nodes(now: NetworkState) -> AbstractSet[str]:
    """Return the nodes that did not answer."""
    return {node.name for node in now.nodes if node.server is None}


def forgotten(before: NetworkState, now: NetworkState) -> Mapping[str, AbstractSet[str]]:
    """Return node → regions that it answered not to know in both surveys: it accepts no event of them.

    One survey alone may be one of a plan that is just being installed.
    """
    earlier = {node.name: node.lacking for node in before.nodes} if before is not now else {}
    unknown = {node.name: node.lacking & earlier.get(node.name, frozenset()) for node in now.nodes}
    return {name: regions for name, regions in unknown.items() if regions}


def link_troubles(before: NetworkState, now: NetworkState) -> Mapping[Link, Trouble]:
    """Return the links that cannot deliver, whose first frame did not leave between the surveys, or that are long."""
    silent = silent_nodes(now)
    troubles: dict[Link, Trouble] = {}
    for region in now.regions:
        for link in pairwise(region.path):
            if at := tuple(name for name in link if name in silent):
                troubles[link] = Trouble("stuck", at)
    heads = {(node.name, link.target): link.head for node in before.nodes for link in node.links}
    for node in now.nodes:
        for each in node.links:
            link = node.name, target_of(each)
            if before is not now and each.frames and heads.get((node.name, each.target)) == each.head:
                troubles.setdefault(link, Trouble("stuck", (arrow(link),)))
            elif each.frames > WAITING_FRAMES_MAX:
                troubles.setdefault(link, Trouble("behind"))
    return troubles


def arrow(link: Link) -> str:
    """Return a link as people read it."""
    return f"{link[0]} → {link[1]}"


def region_troubles(
    before: NetworkState, now: NetworkState, links: Mapping[Link, Trouble]
) -> Iterator[tuple[str, Trouble]]:
    """Yield the regions that are stuck or behind. ``links``: see `link_troubles`."""
    silent, unknown_at = silent_nodes(now), forgotten(before, now)
    earlier = {region.name: region for region in before.regions} if before is not now else {}
    ending = _ending_at(before, now, links)
    for region in now.regions:
        if dead := tuple(n for n in region.path if n in silent or region.name in unknown_at.get(n, ())):
            yield region.name, Trouble("stuck", dead)
            continue
        at = [arrow(link) for link in pairwise(region.path) if link in links and links[link].condition == "stuck"]
        if at:
            yield region.name, Trouble("stuck", tuple(at))
        elif ending and now.plan is not None and now.plan.epoch_of(region.name) == now.plan.epoch:
            yield region.name, Trouble("stuck", ending)
        elif (late := _late(earlier.get(region.name), region)) is not None:
            yield region.name, late


def _ending_at(before: NetworkState, now: NetworkState, links: Mapping[Link, Trouble]) -> tuple[str, ...]:
    """Return where the end of old epochs is stuck: what began with the published plan is not delivered before it."""
    then, transition = before.transition, now.transition
    if before is now or then is None or transition is None or not (transition.published and transition.old_epochs):
        return ()
    if (then.epoch, then.version, then.old_epochs) != (transition.epoch, transition.version, transition.old_epochs):
        return ()
    silent = tuple(sorted(silent_nodes(now)))
    return silent or tuple(sorted(arrow(link) for link, trouble in links.items() if trouble.condition == "stuck"))


def _late(then: RegionState | None, now: RegionState) -> Trouble | None:
    """Return the trouble of a region whose events of the first survey have not reached the egress at the second."""
    if then is None or then.epoch != now.epoch or then.drawn is None or now.last is None or now.last >= then.drawn:
        return None
    return Trouble("stuck" if now.last == then.last else "behind")
