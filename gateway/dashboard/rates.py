"""Rates between two surveys: how far each counter moved, by the time between the two readings of that counter.

A rate that was not measured is missing here. That is so for a node that did not answer either survey, and for a counter
that has fallen, because its server lost data or the plan began to count again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from adapters.redis.networkstate import LinkState, NetworkState, NodeState, RegionState

Link = tuple[str, str]
"""Source and target of a link."""
REPORT_MS_MAX = 8_000
"""Two heartbeats: what was reported before that says nothing of now."""
Life = tuple[str, int]
"""A connection: name and incarnation."""


def region_rates(before: NetworkState, now: NetworkState) -> Mapping[str, float]:
    """Return region → events that its ingress numbered per second, markers included."""
    then = {region.name: region for region in before.regions}
    rates = {}
    for region in now.regions:
        earlier = then.get(region.name)
        rate = _region_rate(earlier, region) if earlier is not None else None
        if rate is not None:
            rates[region.name] = rate
    return rates


def _region_rate(then: RegionState, now: RegionState) -> float | None:
    since = then.drawn if then.epoch == now.epoch else 0  # a new epoch counts from 0
    if then.drawn is None:
        return None
    return _rate(since, now.drawn, then.drawn_at_s, now.drawn_at_s)


def link_rates(before: NetworkState, now: NetworkState) -> Mapping[Link, float]:
    """Return link → frames that left it per second, as its source counts them: sent, and no longer waiting."""
    then = {node.name: node for node in before.nodes}
    targets: dict[str, set[str]] = {}
    for source, target in links_of(now):
        targets.setdefault(source, set()).add(target)
    rates: dict[Link, float] = {}
    for node in now.nodes:
        earlier = then.get(node.name)
        if earlier is None or earlier.accepted is None or node.accepted is None:  # its counters were not read
            continue
        carried, carried_now = _carried(earlier), _carried(node)
        for target in targets.get(node.name, set()) | carried_now.keys():
            numbers = carried.get(target, 0), carried_now.get(target, 0)
            rate = _rate(*numbers, earlier.read_at_s, node.read_at_s)
            if rate is not None:
                rates[node.name, target] = rate
    return rates


def _carried(node: NodeState) -> Mapping[str, int | None]:
    """Return target → frames that have left the links to it; a target has a link for each lane."""
    carried: dict[str, int | None] = {}
    for link in node.links:
        target, number = target_of(link), carried.get(target_of(link), 0)
        carried[target] = None if number is None or link.sent is None else number + link.sent - link.frames
    return carried


def target_of(link: LinkState) -> str:
    """Return the node at the end of a link, without the lane."""
    return link.target.partition("#")[0]


def node_rates(before: NetworkState, now: NetworkState, regions: Mapping[str, float]) -> Mapping[str, float]:
    """Return node → events per second that it took in: numbered as an ingress, or accepted from other nodes.

    ``regions``: see `region_rates`. Both are counted by the node itself.
    """
    then = {node.name: node for node in before.nodes}
    entering: dict[str, float] = {}
    for region in now.regions:
        entering[region.path[0]] = entering.get(region.path[0], 0.0) + regions.get(region.name, 0.0)
    rates = {}
    for node in now.nodes:
        earlier = then.get(node.name)
        if earlier is None:
            continue
        accepted = _rate(earlier.accepted, node.accepted, earlier.read_at_s, node.read_at_s)
        if accepted is not None:
            rates[node.name] = accepted + entering.get(node.name, 0.0)
    return rates


def links_of(now: NetworkState) -> Mapping[Link, int]:
    """Return the links that paths use, and how many regions use each."""
    uses: dict[Link, int] = {}
    for region in now.regions:
        for link in pairwise(region.path):
            uses[link] = uses.get(link, 0) + 1
    return uses


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None if there are values, and none is known."""
    all_values = list(values)
    known = [value for value in all_values if value is not None]
    return sum(known) if known or not all_values else None


def _rate(then: int | None, now: int | None, then_s: float | None, now_s: float | None) -> float | None:
    if then is None or now is None or then_s is None or now_s is None or now_s <= then_s or now < then:
        return None
    return (now - then) / (now_s - then_s)


def delivered_rates(known: Mapping[Life, float], before: NetworkState, now: NetworkState) -> dict[Life, float]:
    """Return connection → events that it delivered per second between its last two reports; one that has reported
    nothing new keeps its rate."""
    earlier = {(each.name, each.incarnation): each.doing for each in before.connections}
    rates = {}
    for each in now.connections:
        life, doing = (each.name, each.incarnation), each.doing
        then = earlier.get(life)
        if doing is None or then is None:
            continue
        if doing.at_ms > then.at_ms:
            if doing.delivered >= then.delivered:
                rates[life] = (doing.delivered - then.delivered) * 1000 / (doing.at_ms - then.at_ms)
        elif life in known and (each.heard_ms_ago or 0) < REPORT_MS_MAX:
            rates[life] = known[life]
    return rates
