"""``gamecast status``: show the present state of a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adapters.redis.findings import affected_by
from adapters.redis.networkstate import NetworkState, NodeState
from adapters.redis.refusals import BECAUSE
from adapters.redis.survey import survey
from adapters.wording import natural
from cli.reporting import counted, installed_plan, named, printable
from gamecast.client.networks import require_reachable
from gateway.dashboard.rates import link_rates, node_rates, region_rates
from launcher.ending import INFRASTRUCTURE

PIPED_WIDTH = 10_000
"""Width without a terminal. Lines are not wrapped then: a program that reads them would have to rejoin URLs."""


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--regions", is_flag=True, help="List the regions: path, frames kept, last number.")
@click.option(
    "--rates",
    "rates_s",
    type=click.FloatRange(0.1, 60.0),
    metavar="SECONDS",
    help="Survey twice, so long apart, and show events per second, by node, link and (with --regions) region.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def status(context: click.Context, url: str, *, regions: bool, rates_s: float | None, as_json: bool) -> None:
    """Show a network, without joining it or changing anything.

    Exit status: 0 if all nodes answer and accept writes, 2 for wrong use, 3 if a node or the control Redis is
    unavailable or refuses writes.
    """
    network, rates = asyncio.run(_surveyed(require_reachable(url), regions=regions, rates_s=rates_s))
    if as_json:
        click.echo(orjson.dumps(_document(network, rates, with_regions=regions), option=orjson.OPT_INDENT_2))
    else:
        _tell(network, rates, with_regions=regions)
    if any(node.server is None for node in network.nodes) or any(_refusing(network)):
        context.exit(INFRASTRUCTURE)


@dataclass(frozen=True, slots=True)
class _Rates:
    """Events or frames per second between two surveys; what was not measured is missing."""

    nodes: Mapping[str, float]
    links: Mapping[tuple[str, str], float]
    regions: Mapping[str, float]


async def _surveyed(url: str, *, regions: bool, rates_s: float | None) -> tuple[NetworkState, _Rates | None]:
    if rates_s is None:
        return await survey(url, regions=regions), None
    before = await survey(url, regions=True)
    await asyncio.sleep(rates_s)
    now = await survey(url, regions=True)
    by_region = region_rates(before, now)
    return now, _Rates(node_rates(before, now, by_region), link_rates(before, now), by_region)


def _document(network: NetworkState, rates: _Rates | None, *, with_regions: bool) -> dict[str, Any]:
    plan, transition = network.plan, network.transition
    document: dict[str, Any] = {
        "url": network.where,
        "control": {
            "version": network.control.version,
            "memory_bytes": network.control.memory_bytes,
            "memory_bytes_max": network.control.memory_bytes_max or None,
            "refuses_writes": list(network.control.refuses),
        },
        "plan": None
        if plan is None
        else {
            "epoch": plan.epoch,
            "version": plan.version,
            "ordering": plan.ordering,
            "regions": len(plan.paths),
            "atoms": len(plan.atoms),
        },
        "transition": None
        if transition is None
        else {
            "epoch": transition.epoch,
            "version": transition.version,
            "published": transition.published,
            "plans_behind": transition.plans_behind,
            "old_epochs": transition.old_epochs,
        },
        "leader": {
            "token": network.leader or None,
            "lease_ends_in_ms": network.lease_ms,
            "trouble": network.trouble or None,
        },
        "unplaced": sorted(network.unplaced, key=natural),
        "nodes": [_node(node, rates) for node in network.nodes],
        "connections": [
            {
                "name": each.name,
                "incarnation": each.incarnation,
                "regions": sorted(each.wanted, key=natural),
                "waiting": sorted(each.waiting, key=natural),
                "alive": each.alive,
                "heard_ms_ago": each.heard_ms_ago,
            }
            for each in network.connections
        ],
        "unread": list(network.unread),
    }
    if with_regions:
        document["regions"] = [
            {
                "name": region.name,
                "path": list(region.path),
                "epoch": region.epoch,
                "egress_frames": region.frames,
                "last": region.last,
                "drawn": region.drawn,
                **({} if rates is None else {"events_per_s": rates.regions.get(region.name)}),
            }
            for region in network.regions
        ]
    return document


def _node(node: NodeState, rates: _Rates | None) -> dict[str, Any]:
    server = node.server
    measured: dict[str, Any] = {}
    if rates is not None:
        links = {target: rate for (source, target), rate in rates.links.items() if source == node.name}
        measured = {"events_per_s": rates.nodes.get(node.name), "links_frames_per_s": links}
    return {
        "name": node.name,
        "url": node.where,
        "reachable": server is not None,
        "trouble": node.trouble,
        "registered": node.registered,
        "planned": node.planned,
        "may_lose": node.may_lose,
        "version": server.version if server is not None else None,
        "epoch": node.installed[0] if node.installed is not None else None,
        "plan_version": node.installed[1] if node.installed is not None else None,
        "memory_bytes": server.memory_bytes if server is not None else None,
        "memory_bytes_max": (server.memory_bytes_max or None) if server is not None else None,
        "refuses_writes": list(server.refuses) if server is not None else None,
        "steps": node.steps,
        "lacking": sorted(node.lacking, key=natural),
        "links": {link.target: link.frames for link in node.links},
        "unread": list(node.unread),
        **measured,
    }


def _tell(network: NetworkState, rates: _Rates | None, *, with_regions: bool) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for line in _summary(network):
        console.print(line)
    tables = [_nodes(network, rates)]
    if network.connections:
        tables.append(_connections(network))
    if with_regions and network.regions:
        tables.append(_regions(network, rates))
    for table in tables:
        for column in table.columns:
            column.overflow = "fold"
        console.print(table)
    if not network.connections:
        console.print("Connections: cannot be read" if network.connections_unread else "No connections.")
    for node in network.nodes:
        if node.trouble is not None:
            console.print(Text(printable(f"{node.name}: {node.trouble}{affected_by(node.name, network)}"), style="red"))
    for refusing in _refusing(network):
        console.print(Text(printable(refusing), style="red"))
    for unread in (*network.unread, *(f"{node.name}: {text}" for node in network.nodes for text in node.unread)):
        console.print(Text(f"Cannot be read: {printable(unread)}", style="yellow"))


def _refusing(network: NetworkState) -> Iterator[str]:
    """Yield what refuses writes, and why: servers, each with its names in the network."""
    for names, server in network.servers:
        if server.refuses:
            yield f"{', '.join(names)} refuses writes: {', and '.join(BECAUSE[why] for why in server.refuses)}"


def _summary(network: NetworkState) -> Iterator[str]:
    yield f"Control {network.where}: Redis {network.control.version or '?'}, {_memory(network.control.memory_bytes)}"
    plan = network.plan
    if plan is None:
        yield "No plan can be read." if network.unread else "No plan yet: the first subscription or publish makes it."
    else:
        regions, atoms = counted(len(plan.paths), "region"), counted(len(plan.atoms), "atom")
        yield f"Plan {plan.epoch}.{plan.version}, {plan.ordering} order: {regions}, {atoms}"
    if (transition := network.transition) is not None:
        ending = f"{counted(transition.old_epochs, 'old epoch')} of regions to end"
        how = "published" if transition.published else "not published yet"
        yield f"On the way to plan {transition.epoch}.{transition.version}, {how}: {ending}"
    if network.unplaced:
        regions = counted(len(network.unplaced), "region")
        unplaced = sorted(network.unplaced, key=natural)
        yield f"No path yet for {regions} that events wait for: {printable(named(unplaced))}"
    if network.trouble:
        yield f"The leader fails: {printable(network.trouble)}"
    if network.leader is None:
        yield "Leader: cannot be read"
    elif not network.leader:
        yield "Leader: none"
    elif network.lease_ms is None or network.lease_ms < 0:
        yield f"Leader: {printable(network.leader)}, whose lease has no end"
    else:
        yield f"Leader: {printable(network.leader)} (the lease ends in {network.lease_ms / 1000:.1f} s)"


def _nodes(network: NetworkState, rates: _Rates | None) -> Table:
    table = Table("node", "at", "plan", "memory", "steps", "waiting on links")
    if rates is not None:
        table.add_column("events/s")
        table.add_column("frames/s on links")
    for column in (*table.columns[2:5], *table.columns[6:7]):
        column.justify = "right"
    for node in network.nodes:
        if node.server is None:
            table.add_row(printable(node.name), printable(node.where), Text("not reachable", style="bold red"))
            continue
        waiting = ", ".join(f"{link.frames:,} → {printable(link.target)}" for link in node.links if link.frames)
        measured = []
        if rates is not None:
            links = {target: rate for (source, target), rate in rates.links.items() if source == node.name}
            carried = (f"{_rate(links[target])} → {printable(target)}" for target in sorted(links, key=natural))
            measured = [_rate(rates.nodes.get(node.name)), ", ".join(carried) or "none"]
        table.add_row(
            printable(node.name),
            printable(node.where),
            Text(installed_plan(node.installed), style="yellow" if node.lacking else ""),
            _memory(node.server.memory_bytes),
            "?" if node.steps is None else f"{node.steps:,}",
            waiting or "none",
            *measured,
        )
    return table


def _rate(per_s: float | None) -> str:
    return "?" if per_s is None else f"{per_s:,.1f}"


def _connections(network: NetworkState) -> Table:
    table = Table("connection", "regions", "not granted yet", "last heard of")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in network.connections:
        heard = "never" if each.heard_ms_ago is None else f"{each.heard_ms_ago / 1000:.1f} s ago"
        shown = Text(heard, style="green") if each.alive else Text(f"{heard}, disconnected", style="yellow")
        waiting = Text(f"{len(each.waiting):,}", style="yellow" if each.waiting else "")
        table.add_row(printable(each.name), f"{len(each.wanted):,}", waiting, shown)
    return table


def _regions(network: NetworkState, rates: _Rates | None) -> Table:
    table = Table("region", "path", "frames kept", "last number")
    if rates is not None:
        table.add_column("events/s")
    for column in table.columns[2:]:
        column.justify = "right"
    for region in network.regions:
        frames = "?" if region.frames is None else f"{region.frames:,}"
        last = "?" if region.last is None else f"{region.epoch}-{region.last}" if region.last else "none"
        measured = [] if rates is None else [_rate(rates.regions.get(region.name))]
        table.add_row(printable(region.name), " → ".join(region.path), frames, last, *measured)
    return table


def _memory(size: int | None) -> str:
    return "?" if size is None else f"{size / 1_000_000:,.1f} MB"
