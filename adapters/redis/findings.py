"""Judge a network by two surveys of it: what is wrong, and what to do about each finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from adapters.redis.access import AccessState, LeftoverState
from adapters.redis.control import SOLE_NODE, ControlKeys
from adapters.redis.probe import ServerState
from adapters.redis.survey import NetworkState, NodeState, RegionState
from adapters.wording import counted, installed_plan, named
from sequencing.node import TRIM_EVERY_EVENTS
from sequencing.plan import Plan

CLOCK_MS_MAX = 100.0
MEMORY_WARNING, MEMORY_PROBLEM = 0.8, 0.95
WEIGHED_EVENTS_MIN = 100
"""With fewer events, the memory per event cannot be estimated."""

BEGIN_ANEW = (
    "stop all programs that use the network, empty its Redis servers, and start it again; and turn persistence on, so "
    "that this does not happen again"
)

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``subject``: the examined part; ``seen``: its state; ``advice``: what to do, empty if all is well."""

    level: Level
    subject: str
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The input of the judgement: two surveys, the same one twice if the first was fine, and the results of trials.

    ``apart_s``: the time between the surveys. Work in progress moves in that time; what does not move is stuck.
    ``accesses``: by where they were tried, ``control`` or a node's name. ``leftovers``: by the node's name.
    """

    first: NetworkState
    second: NetworkState
    apart_s: float
    accesses: Mapping[str, AccessState] = field(default_factory=dict)
    leftovers: Mapping[str, LeftoverState] = field(default_factory=dict)


def judge(examined: Examination) -> Iterator[Finding]:
    """Yield the findings: servers first, then nodes, then traffic."""
    network = examined.second
    servers: dict[str, tuple[list[str], ServerState]] = {network.control.run: ([SOLE_NODE], network.control)}
    for node in network.nodes:
        if node.server is not None:
            names, _ = servers.setdefault(node.server.run, ([], node.server))
            names += [node.name] if node.name not in names else []
    for names, server in servers.values():
        yield from _server(", ".join(names), server)
    for name, may in examined.accesses.items():
        yield _access(name, may)
    yield from _leading(examined)
    yield from _changing(examined)
    yield from _unread("control", network.unread)
    before = {node.name: node for node in examined.first.nodes}
    steady = not (examined.first.has_moved or network.has_moved)
    if not steady:
        seen = "a new plan was published during each survey, so nodes, links and regions are not compared with it"
        yield Finding("warning", "plan", seen, "repeat this when fewer servers join, leave or move")
    for node in network.nodes:
        yield from _node(node, before.get(node.name, node), network, steady=steady)
    if steady:
        yield from _links(examined)
        yield from _regions(examined)
    yield from _growth(examined)


def under_way(network: NetworkState) -> bool:
    """Return whether a state was seen that may end in a moment."""
    plan = network.plan
    return (
        network.transition is not None
        or bool(network.unplaced)
        or any(each.alive and (each.waiting or not network.leader) for each in network.connections)
        or any(link.frames for node in network.nodes for link in node.links)
        or any(region.drawn != region.last for region in network.regions)
        or any(node.lacking or _ahead(node, plan) or _restarted(node, plan) for node in network.nodes)
    )


def _ahead(node: NodeState, plan: Plan | None) -> bool:
    """Return whether a node knows a plan that is not published."""
    return node.installed is not None and node.installed > ((plan.epoch, plan.version) if plan is not None else (0, 0))


def _restarted(node: NodeState, plan: Plan | None) -> bool:
    """Return whether a node's server is in another run than the plan names."""
    runs = plan.runs if plan is not None else {}
    return node.server is not None and runs.get(node.name, node.server.run) != node.server.run


def _leading(examined: Examination) -> Iterator[Finding]:
    network = examined.second
    if network.lease_ms == -1:
        yield Finding(
            "problem",
            "leader",
            "the lease never expires, so no other candidate can become the leader",
            f"delete it in the control Redis: DEL {ControlKeys.lease}",
        )
    elif network.leader:
        yield Finding("ok", "leader", f"{network.leader} leads")
    there = sum(each.alive for each in network.connections)
    if there and examined.first.leader == network.leader == "":
        seen = f"no leader is running, although {counted(there, 'connection')} {'is' if there == 1 else 'are'} open"
        if waiting := sum(each.alive and bool(each.waiting) for each in network.connections):
            seen += f", {waiting:,} of which {'waits' if waiting == 1 else 'wait'} for regions"
        advice = (
            "start `gamecast manager --control URL`, or install the planner where game servers run (pip install "
            "'gamecast[planner]'): connections are leader candidates then. Their logs (gamecast.manager) say what "
            "prevents that"
        )
        yield Finding("problem", "leader", seen, advice)


def _changing(examined: Examination) -> Iterator[Finding]:
    """Yield findings about plans that are not published yet."""
    first, network = examined.first, examined.second
    if network.plan is None and network.transition is None and not network.unread:
        yield Finding("ok", "plan", "none yet: the first subscription or publish makes it")
    transition = network.transition
    if transition is not None:
        epochs = counted(transition.old_epochs, "old epoch")
        on_the_way = f"on the way to plan {transition.epoch}.{transition.version}, {epochs} of regions to end"
        if first.transition != transition:
            yield Finding("ok", "plan", on_the_way)
            return
        if transition.published:
            advice = (
                "frames in flight there do not arrive: check that `gamecast node` runs for each node, and that all "
                "nodes answer"
            )
        else:
            advice = "not all nodes know it: check that every node of the plan answers, and that a leader is running"
        yield Finding("problem", "plan", f"{on_the_way}, for more than {examined.apart_s:g} s", advice)
        return
    if not network.leader:
        return
    advice = "the leader cannot plan this: its log (gamecast.manager) says why, and `gamecast manager` shows it"
    before = {(each.name, each.incarnation): each.asks for each in first.connections}
    waiting = [
        f"{each.name} ({named(sorted(region for region, _ in asks))})"
        for each in network.connections
        if each.alive and (asks := each.asks & before.get((each.name, each.incarnation), frozenset()))
    ]
    if waiting:
        seen = f"subscriptions have waited for more than {examined.apart_s:g} s for regions: {named(waiting)}"
        yield Finding("problem", "connections", seen, advice)
    if unplaced := sorted(first.unplaced & network.unplaced):
        seen = f"events have waited for more than {examined.apart_s:g} s for regions without a path: {named(unplaced)}"
        yield Finding("problem", "connections", seen, advice)


def _server(subject: str, server: ServerState) -> Iterator[Finding]:
    if not server.version:
        yield Finding("problem", subject, "does not answer INFO, which gamecast needs", "let the user run INFO")
        return
    yield Finding("ok", subject, f"Redis {server.version}")
    if server.role == "slave":
        yield Finding("problem", subject, "is a replica, which accepts no writes", "use the URL of its primary")
    policy = server.memory_policy
    if policy == "noeviction":
        yield Finding("ok", subject, "maxmemory-policy noeviction: nothing is dropped to make room")
    elif policy:
        dropped = "anything, counters and streams too" if policy.startswith("allkeys") else "the lease"
        yield Finding(
            "problem" if policy.startswith("allkeys") else "warning",
            subject,
            f"maxmemory-policy {policy}: when it is full, Redis drops {dropped}",
            "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        )
    yield _memory(subject, server)
    yield _persistence(subject, server)
    if server.clock_ahead_ms is not None and server.round_trip_ms is not None:
        off, unsure = abs(server.clock_ahead_ms), server.round_trip_ms / 2
        if off - unsure > CLOCK_MS_MAX:
            seen = f"its clock is {off:,.0f} ms {'ahead of' if server.clock_ahead_ms > 0 else 'behind'} this machine's"
            yield Finding("warning", subject, seen, "run NTP on both machines: delays are measured by clocks")
        else:
            yield Finding("ok", subject, f"its clock agrees with this machine's to {off + unsure:.1f} ms")


def _memory(subject: str, server: ServerState) -> Finding:
    used = server.memory_bytes or 0
    if not server.memory_bytes_max:
        return Finding("ok", subject, f"{_size(used)} in use, without a limit (maxmemory 0)")
    full = used / server.memory_bytes_max
    seen = f"{_size(used)} of {_size(server.memory_bytes_max)} in use ({full:.0%})"
    if full < MEMORY_WARNING:
        return Finding("ok", subject, seen)
    advice = "raise maxmemory, or keep fewer events (retention_events): a full Redis refuses publishes"
    return Finding("problem" if full >= MEMORY_PROBLEM else "warning", subject, seen, advice)


def _persistence(subject: str, server: ServerState) -> Finding:
    if server.loading:
        seen = "is still loading its data: it accepts no command, and does not report what it keeps"
        return Finding("warning", subject, seen, "wait until it has finished, and repeat this")
    advice = "where that matters: CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in redis.conf"
    if not server.append_only:
        lost = "everything" if server.save == "" else "everything since the last snapshot"
        return Finding("warning", subject, f"appendonly no: when it restarts, {lost} is lost", advice)
    match server.appendfsync:
        case "always":
            return Finding("ok", subject, "appendonly yes, appendfsync always: nothing acknowledged is lost")
        case "everysec":
            seen = "appendfsync everysec: when its machine fails, the last second may be lost"
        case "no":
            seen = "appendfsync no: when its machine fails, what the system had not written yet (half a minute) is lost"
        case _:
            seen = "appendonly yes, but it does not report appendfsync (CONFIG is refused): see its configuration"
    return Finding("warning", subject, seen, advice)


_LIMITED = "publisher", "subscriber", "relay", "gateway", "watcher", "operator"
"""Users that `adapters.redis.users` makes: each may do its part only."""
_FORBIDDEN = ("NOPERM", "can't run this command", "can't access", "ACL failure")
"""What servers say, in scripts the second and third up to Redis 7.0 and the last since 7.2."""


def _access(name: str, may: AccessState) -> Finding:
    who = f"user {may.user}" if may.user is not None else "the user"
    if may.refused is None:
        return Finding("ok", name, f"{who} may run the scripts and the commands that gamecast needs")
    if may.user in _LIMITED:
        seen = f"{who} may not do all that gamecast does: {may.refused}"
        return Finding("warning", name, seen, "this is as `gamecast users` makes it: repeat this as the user `manager`")
    if any(words in may.refused for words in _FORBIDDEN):
        advice = f"grant it: ACL SETUSER {may.user or 'NAME'} ~gamecast:* +@all -@admin -@dangerous +info"
    else:
        advice = "see the server's message: until this is fixed, nothing can be published through it"
    return Finding("problem", name, f"{who} is refused: {may.refused}", advice)


def _unread(name: str, unread: Sequence[str]) -> Iterator[Finding]:
    advice = "keys under gamecast: belong to gamecast: give it a Redis of its own, or remove the keys of other programs"
    hidden = [text for text in unread if "NOPERM" in text]
    for text in unread:
        if text not in hidden:
            yield Finding("problem", name, f"cannot be read: {text}", advice)
    if hidden:
        seen = f"refuses to show some things to this user, so they are not examined: {hidden[0]}"
        if len(hidden) > 1:
            seen += f", and {len(hidden) - 1:,} more"
        yield Finding("warning", name, seen, "repeat this as a user who may read them")


def _node(node: NodeState, before: NodeState, network: NetworkState, *, steady: bool) -> Iterator[Finding]:
    plan, server = network.plan, node.server
    if server is None:
        advice = "start the server, or correct what the message names"
        if not node.planned:
            advice += f", or remove the node from the registry: HDEL {ControlKeys.nodes} {node.name}"
        seen = f"{node.trouble or 'cannot be asked'}{affected_by(node.name, network)}"
        yield Finding("problem", node.name, seen, advice)
        return
    yield from _unread(node.name, node.unread)
    if plan is not None and not node.planned:
        yield Finding("ok", node.name, "is registered and not in the plan: the next plan may use it")
    if steady:
        yield from _installed(node, before, network)
    # Without the control Redis, the whole network is down.
    elsewhere = server.run != network.control.run
    if elsewhere and node.registered and not (node.may_lose or server.keeps_all or server.loading):
        yield Finding(
            "warning",
            node.name,
            "is registered as a node that loses nothing, but its server may: then it would assign numbers twice",
            "turn full persistence on at its server, or start `gamecast node` for it again, which asks the server",
        )
    if node.has_lost:
        yield Finding(
            "warning",
            node.name,
            "has lost acknowledged events in a restart, although it is registered to keep all; it counts as one that "
            "may lose something since then",
            "check its disk, its append-only file, and what its log says about a truncated file at its start",
        )
    if node.planned and not node.registered and any(other.registered for other in network.nodes):
        yield Finding(
            "warning",
            node.name,
            "is in the plan and no longer registered: its regions stay there until their next epoch begins",
            "keep its server running; if the node should stay, start `gamecast node` for it again",
        )


def affected_by(node: str, network: NetworkState) -> str:
    """Return the end of a sentence that names what cannot be published or read while a node is unreachable."""
    plan = network.plan
    regions = frozenset(region for region, path in plan.paths.items() if node in path) if plan is not None else ()
    if not regions:
        return ""
    subscribers = [each.name for each in network.connections if each.alive and not each.wanted.isdisjoint(regions)]
    stand = "stands" if len(regions) == 1 else "stand"
    seen = f"; {counted(len(regions), 'region')} {stand} still ({named(sorted(regions))})"
    return f"{seen}, subscribed to by {named(subscribers)}" if subscribers else seen


def _installed(node: NodeState, before: NodeState, network: NetworkState) -> Iterator[Finding]:
    plan, transition = network.plan, network.transition
    published = installed_plan((plan.epoch, plan.version) if plan is not None else (0, 0))
    if _restarted(node, plan):
        if _restarted(before, plan):
            advice = "the leader readmits it within seconds: check that a leader is running"
            yield Finding(
                "problem", node.name, "its server was restarted, and the plan does not include it again yet", advice
            )
    elif lacking := sorted(node.lacking & before.lacking):
        seen = f"does not know {named(lacking)}, which plan {published} requires: its server has lost its data"
        yield Finding("problem", node.name, seen, BEGIN_ANEW)
    elif _ahead(node, plan):
        seen = f"has plan {installed_plan(node.installed)} installed, published is {published}"
        # A node may have prepared a plan that was abandoned for the one in transition.
        if transition is not None and (node.installed or (0, 0)) <= (transition.epoch, transition.version):
            yield Finding("ok", node.name, f"{seen}, and it is on the way")
        elif node.installed == before.installed:
            yield Finding("problem", node.name, f"{seen}: the control Redis has lost its data", BEGIN_ANEW)
    elif node.planned and node.installed is not None:
        yield Finding("ok", node.name, f"has its part of the published plan {published} installed")


def _links(examined: Examination) -> Iterator[Finding]:
    plan = examined.second.plan
    heads = {(node.name, link.target): link.head for node in examined.first.nodes for link in node.links}
    waiting = 0
    for node in examined.second.nodes:
        planned = {plan.link_end(end) for source, end in plan.links if source == node.name} if plan is not None else ()
        for link in node.links:
            waiting += link.frames
            if not link.frames or heads.get((node.name, link.target)) != link.head:
                continue
            subject = f"link {node.name} → {link.target}"
            seen = (
                f"{counted(link.frames, 'frame')} waiting; the first, {link.head}, for more than {examined.apart_s:g} s"
            )
            if link.target in planned or examined.second.transition is not None:
                advice = (
                    f"check that `gamecast node --name {node.name}` runs (it carries the link) and the target answers"
                )
                yield Finding("problem", subject, seen, advice)
            else:
                key = f"gamecast:{{{node.name}}}:link:{link.target}"
                advice = f"it belongs to an earlier plan and only takes memory. To see its frames: XRANGE {key} - +"
                yield Finding("warning", subject, seen, advice)
    if plan is not None and plan.links:
        yield Finding("ok", "links", f"{len(plan.links):,} in the plan, {counted(waiting, 'frame')} in flight")


def _regions(examined: Examination) -> Iterator[Finding]:
    second = {region.name: region for region in examined.second.regions}
    stuck: list[str] = []
    slow: list[str] = []
    behind: list[str] = []
    for before in examined.first.regions:
        after = second.get(before.name)
        if after is None or after.epoch != before.epoch or before.last is None or before.drawn is None:
            continue
        if after.drawn is not None and before.last > after.drawn:
            behind.append(before.name)
        if after.last is not None and after.last < before.drawn:
            late = f"{before.name} ({counted(before.drawn - after.last, 'event')})"
            (stuck if after.last == before.last else slow).append(late)
    if behind:
        yield Finding(
            "problem",
            "regions",
            f"{named(behind)}: the ingress assigns numbers that were assigned before, so it has lost its data",
            BEGIN_ANEW,
        )
    if stuck:
        seen = f"{named(stuck)}: events are accepted, and none has reached the egress for {examined.apart_s:g} s"
        yield Finding("problem", "regions", seen, "check the nodes and links on their paths: gamecast status --regions")
    if slow:
        seen = f"{named(slow)}: events take more than {examined.apart_s:g} s to reach the egress"
        yield Finding("warning", "regions", seen, "the nodes or relays cannot keep up: publish less, or use more nodes")
    if second and not (behind or stuck or slow):
        yield Finding(
            "ok", "regions", f"all accepted events of {counted(len(second), 'region')} have reached the egress"
        )


def _growth(examined: Examination) -> Iterator[Finding]:
    for node in examined.second.nodes:
        regions = [region for region in examined.second.regions if region.path[-1] == node.name]
        if node.server is not None and regions:
            yield from _streams(node, node.server, regions)
        left = examined.leftovers.get(node.name)
        if left is not None and left.streams and examined.second.transition is None:
            number = f"{'' if left.complete else 'at least '}{counted(left.streams, 'egress stream')}"
            seen = f"{number} of earlier epochs, which nothing removes, e.g. {left.example}"
            pattern = f"'gamecast:{{{node.name}}}:egress:*'"
            advice = (
                f"they only take memory: all plans in use begin with epoch {left.first_epoch} or later. "
                f"redis-cli --scan --pattern {pattern} lists the streams, each with its epoch"
            )
            yield Finding("warning", node.name, seen, advice)


def _streams(node: NodeState, server: ServerState, regions: list[RegionState]) -> Iterator[Finding]:
    kept = node.retention_events
    allowed = kept + 2 * TRIM_EVERY_EVENTS
    if endless := [f"{each.name} ({each.frames:,})" for each in regions if (each.frames or 0) > allowed]:
        yield Finding(
            "warning",
            node.name,
            f"egress streams keep more frames than the {kept:,} events that they should: {named(endless)}",
            "another program writes into them, or the script is not gamecast's: see XINFO STREAM",
        )
    weighed = [each for each in regions if each.stream_bytes and each.last and each.first]
    events = sum((each.last or 0) - (each.first or 0) + 1 for each in weighed)
    if events < WEIGHED_EVENTS_MIN:
        return
    event_bytes = sum(each.stream_bytes or 0 for each in weighed) / events
    full_bytes = event_bytes * kept * len(regions)
    seen = (
        f"{counted(len(regions), 'egress stream')} of up to {kept:,} events: about {_size(full_bytes)} when full, at "
        f"{event_bytes:,.0f} bytes an event"
    )
    limit = server.memory_bytes_max or server.machine_bytes
    if limit and full_bytes > limit:
        advice = "set a smaller retention_events at the leader, or give it more memory"
        yield Finding("warning", node.name, f"{seen}; there are {_size(limit)}", advice)
    else:
        yield Finding("ok", node.name, seen)


def _size(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
