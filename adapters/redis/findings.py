"""Judge a network by two surveys of it: what is wrong, and what to do about each finding."""

from __future__ import annotations

from collections.abc import Iterator

from adapters.redis.control import SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.examination import Examination, Finding
from adapters.redis.networkstate import NetworkState, NodeState, RegionState
from adapters.redis.probe import ServerState
from adapters.redis.serverfindings import (
    access_findings,
    refused_findings,
    replica_findings,
    server_findings,
    size_text,
    unread_findings,
)
from adapters.wording import counted, installed_plan, named, natural
from sequencing.node import TRIM_EVERY_EVENTS
from sequencing.plan import GIVEN_UP, Plan

WEIGHED_EVENTS_MIN = 100
"""With fewer events, the memory per event cannot be estimated."""

EPOCHS_MIN, EPOCH_EVERY_MS_MIN = 30, 10_000
"""So many epochs, more often than so, are worth a warning: servers walk, and nothing says where."""

REGIONS_MIN = 20
"""With fewer, all of them on one node may well be the best plan."""

IS_HANGING = "is overloaded"
"""Ends the trouble of a server that accepts connections and does not answer; see `adapters.redis.connection.HANGS`."""

HANGING = (
    "its process is there: see its CPU (top); if it is stopped (state T), kill -CONT its pid; if it is busy, SLOWLOG "
    "GET says with what, when it answers again. If it does not come back, restart it with its files"
)

BEGIN_ANEW = (
    "stop all programs that use the network, empty its Redis servers, and start it again; and turn persistence on, so "
    "that this does not happen again"
)


def judge(examined: Examination) -> Iterator[Finding]:
    """Yield the findings: servers first, then nodes, then traffic."""
    network = examined.second
    for names, server in network.servers:
        yield from server_findings(", ".join(names), server)
    refusing = {name for names, server in network.servers if server.refuses for name in names}
    for name, may in examined.accesses.items():
        if name not in refusing or may.refused is None:  # else it refuses everybody, which is said
            yield access_findings(name, may)
    for name, replicas in examined.locked_out.items():
        yield replica_findings(name, replicas)
    for name, refused in examined.refused.items():
        yield from refused_findings(name, refused)
    yield from _leading(examined)
    yield from _changing(examined)
    yield from unread_findings("control", network.unread)
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
    yield from _layout(examined)


def under_way(network: NetworkState) -> bool:
    """Return whether a state was seen that may end in a moment."""
    plan = network.plan
    return (
        network.transition is not None
        or bool(network.unplaced)
        or any(each.alive and (each.waiting or not network.leader) for each in network.connections)
        or any(link.frames for node in network.nodes for link in node.links)
        or any(region.drawn != region.last for region in network.regions)
        or any(
            node.lacking or node.is_carried is False or _ahead(node, plan) or _restarted(node, plan)
            for node in network.nodes
        )
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
    if network.trouble:
        advice = "its log (gamecast.manager) has more; a key that it names has something that another program wrote"
        yield Finding("problem", "leader", f"it fails: {network.trouble}", advice)
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
        if network.control.refuses:
            advice = "mend that the control Redis refuses writes: no leader can begin without one"
        yield Finding("problem", "leader", seen, advice)


def _layout(examined: Examination) -> Iterator[Finding]:
    """Yield findings about what several nodes are used for."""
    network = examined.second
    plan, registered = network.plan, [node for node in network.nodes if node.registered]
    if plan is None or len(registered) < 2:
        return
    epochs, age_ms = plan.epoch - plan.first_epoch, examined.at_ms - plan.first_epoch
    if epochs >= EPOCHS_MIN and 0 < age_ms < epochs * EPOCH_EVERY_MS_MIN:
        yield Finding(
            "warning",
            "plan",
            f"{epochs:,} epochs have begun in {age_ms / 60_000:,.0f} minutes: each keeps joins waiting, and changes "
            "the streams of all regions around",
            "declare the overlaps that servers walk into (`gamecast manager --overlaps FILE`, or declare_overlaps), or "
            "run the network on one node, where a join takes no epoch",
        )
    used = {node for path in plan.paths.values() for node in path}
    if len(plan.paths) >= REGIONS_MIN and len(used) == 1:
        yield Finding(
            "warning",
            "plan",
            f"all {len(plan.paths):,} regions are on node {min(used)}, of {len(registered)} that are registered: "
            "overlaps, those that servers have or declared ones, connect all regions",
            "run the network on one node, which grants joins without a leader; or declare only overlaps of neighbours, "
            "so that regions fall into parts",
        )


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
        f"{each.name} ({named(sorted((region for region, _ in asks), key=natural))})"
        for each in network.connections
        if each.alive and (asks := each.asks & before.get((each.name, each.incarnation), frozenset()))
    ]
    if waiting:
        seen = f"subscriptions have waited for more than {examined.apart_s:g} s for regions: {named(waiting)}"
        yield Finding("problem", "connections", seen, advice)
    if unplaced := sorted(first.unplaced & network.unplaced, key=natural):
        seen = f"events have waited for more than {examined.apart_s:g} s for regions without a path: {named(unplaced)}"
        yield Finding("problem", "connections", seen, advice)


def _node(node: NodeState, before: NodeState, network: NetworkState, *, steady: bool) -> Iterator[Finding]:
    plan, server = network.plan, node.server
    if server is None:
        advice = (
            HANGING if IS_HANGING in (node.trouble or "") else "start the server, or correct what the message names"
        )
        if not node.planned:
            advice += f", or take the node out of the network: gamecast node retire {node.name} --control URL"
        seen = f"{node.trouble or 'cannot be asked'}{affected_by(node.name, network)}"
        if plan is not None and node.name in plan.given_up:
            seen += "; it is given up, and its regions are at other nodes"
        yield Finding("problem", node.name, seen, advice)
        return
    yield from unread_findings(node.name, node.unread)
    if plan is not None and not node.planned:
        yield Finding("ok", node.name, "is registered and not in the plan: the next plan may use it")
    if steady:
        yield from _installed(node, before, network)
    # Without the control Redis, the whole network is down.
    elsewhere = server.run != network.control.run
    is_unread = server.append_only and server.appendfsync is None  # this user may not ask
    if elsewhere and node.registered and not (node.may_lose or server.keeps_all or server.loading or is_unread):
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
    is_visited = plan is not None and node.name in plan.visits
    is_left = is_visited and not node.registered and any(other.registered for other in network.nodes)
    if is_left and node.retired:
        yield Finding(
            "warning",
            node.name,
            "was retired, and regions are still there",
            f"unless it is running, repeat `gamecast node retire {node.name} --control URL`; keep its server running "
            "until it has said that no region is there any more",
        )
    elif is_left:
        again = "if the node should stay, start `gamecast node` for it again"
        if node.name == SOLE_NODE:
            again = (
                "to keep it in use, start `gamecast node --name n1` for this Redis, or under another name that is free"
            )
        yield Finding(
            "warning",
            node.name,
            "is in the plan and not registered: it gets no new regions, and those that it has stay until their next "
            "epoch begins",
            f"keep its server running; {again}; `gamecast plan improve URL --apply` moves what is there",
        )


def affected_by(node: str, network: NetworkState) -> str:
    """Return the end of a sentence that names what cannot be published or read while a node is unreachable."""
    plan = network.plan
    regions = frozenset(region for region, path in plan.paths.items() if node in path) if plan is not None else ()
    if not regions:
        return ""
    subscribers = [each.name for each in network.connections if each.alive and not each.wanted.isdisjoint(regions)]
    stand = "stands" if len(regions) == 1 else "stand"
    seen = f"; {counted(len(regions), 'region')} {stand} still ({named(sorted(regions, key=natural))})"
    return f"{seen}, subscribed to by {named(subscribers)}" if subscribers else seen


def _installed(node: NodeState, before: NodeState, network: NetworkState) -> Iterator[Finding]:
    plan, transition = network.plan, network.transition
    published = installed_plan((plan.epoch, plan.version) if plan is not None else (0, 0))
    if plan is None and network.unread:
        return  # an unread plan is not one that is lost
    if _restarted(node, plan):
        if plan is not None and node.name in plan.given_up:
            seen = "had not answered for too long, and was given up: its regions are at other nodes"
            if node.server is not None and plan.runs[node.name] == GIVEN_UP + node.server.run:
                yield Finding("warning", node.name, seen, "restart its server, so that plans use it again")
        elif _restarted(before, plan):
            advice = "the leader readmits it within seconds: check that a leader is running"
            yield Finding(
                "problem", node.name, "its server was restarted, and the plan does not include it again yet", advice
            )
    elif lacking := sorted(node.lacking & before.lacking, key=natural):
        seen = f"does not know {named(lacking)}, which plan {published} requires: its server has lost its data"
        yield Finding("problem", node.name, seen, BEGIN_ANEW)
    elif _ahead(node, plan):
        seen = f"has plan {installed_plan(node.installed)} installed, published is {published}"
        # A node may have prepared a plan that was abandoned for the one in transition.
        if transition is not None and (node.installed or (0, 0)) <= (transition.epoch, transition.version):
            yield Finding("ok", node.name, f"{seen}, and it is on the way")
        elif node.installed == before.installed:
            advice = "a leader begins another network by itself, which ends all connections: check that one is running"
            yield Finding("problem", node.name, f"{seen}: the control Redis has lost its data", advice)
    elif node.planned and node.installed is not None:
        yield Finding("ok", node.name, f"has its part of the published plan {published} installed")


def _links(examined: Examination) -> Iterator[Finding]:
    plan = examined.second.plan
    uncarried = {node.name for node in examined.first.nodes if node.is_carried is False}
    for node in examined.second.nodes:
        if node.is_carried is False and node.name in uncarried and node.server is not None:
            advice = f"start it on the machine of its Redis: gamecast node --name {node.name} --redis URL --control URL"
            seen = "no `gamecast node` runs for it: events that go on from there to other nodes wait"
            yield Finding("problem", node.name, seen, advice)
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
    unknown = [name for name, region in second.items() if region.last is None or region.drawn is None]
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
    if unknown:
        seen = f"{named(sorted(unknown))}: it is unknown whether accepted events have reached the egress"
        yield Finding("warning", "regions", seen, "see what the nodes on their paths lack: gamecast status --regions")
    if second and not (behind or stuck or slow or unknown):
        yield Finding(
            "ok", "regions", f"all accepted events of {counted(len(second), 'region')} have reached the egress"
        )


def _growth(examined: Examination) -> Iterator[Finding]:
    for node in examined.second.nodes:
        regions = [region for region in examined.second.regions if region.path[-1] == node.name]
        if node.server is not None and node.installed is not None and regions:  # else what it keeps is unread
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
        f"{counted(len(regions), 'egress stream')} of up to {kept:,} events: about {size_text(full_bytes)} when full, "
        f"at {event_bytes:,.0f} bytes an event"
    )
    limit = server.memory_bytes_max or server.machine_bytes
    if limit and full_bytes > limit:
        advice = "set a smaller retention_events at the leader, or give it more memory"
        yield Finding("warning", node.name, f"{seen}; there are {size_text(limit)}", advice)
    else:
        yield Finding("ok", node.name, seen)
