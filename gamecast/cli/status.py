"""``gamecast status``: what a network looks like now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adapters.redis_survey import NetworkState, NodeState, survey
from gamecast.cli.reporting import counted, installed_plan, printable, require_reachable

UNREACHABLE = 1


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--regions", is_flag=True, help="List the regions: path, what their streams keep, the last number.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def status(context: click.Context, url: str, *, regions: bool, as_json: bool) -> None:
    """Show what the network of a control Redis looks like, without joining it and without changing anything.

    Exit status: 0 if all nodes answer, 1 if one does not, 2 for wrong use, 3 if the control Redis is not there.
    """
    network = asyncio.run(survey(require_reachable(url), regions=regions))
    if as_json:
        click.echo(orjson.dumps(_document(network, with_regions=regions), option=orjson.OPT_INDENT_2))
    else:
        _tell(network, with_regions=regions)
    if any(node.server is None for node in network.nodes):
        context.exit(UNREACHABLE)


def _document(network: NetworkState, *, with_regions: bool) -> dict[str, Any]:
    plan = network.plan
    found: dict[str, Any] = {
        "url": network.where,
        "control": {
            "version": network.control.version,
            "memory_bytes": network.control.memory_bytes,
            "memory_bytes_max": network.control.memory_bytes_max or None,
        },
        "membership": {"epoch": network.epoch, "settled": network.settled},
        "plan": None
        if plan is None
        else {
            "epoch": plan.epoch,
            "version": plan.version,
            "ordering": plan.ordering,
            "regions": len(plan.paths),
            "atoms": len(plan.atoms),
        },
        "nodes": [_node(node) for node in network.nodes],
        "connections": [
            {
                "name": each.name,
                "regions": each.regions,
                "alive": each.alive,
                "takes_part": each.takes_part,
                "heard_ms_ago": each.heard_ms_ago,
            }
            for each in network.connections
        ],
        "lease": {"held": network.lease_held, "ends_in_ms": network.lease_ms},
        "unread": list(network.unread),
    }
    if with_regions:
        found["regions"] = [
            {
                "name": region.name,
                "path": list(region.path),
                "epoch": region.epoch,
                "egress_frames": region.frames,
                "last": region.last,
                "drawn": region.drawn,
            }
            for region in network.regions
        ]
    return found


def _node(node: NodeState) -> dict[str, Any]:
    server = node.server
    return {
        "name": node.name,
        "url": node.where,
        "reachable": server is not None,
        "trouble": node.trouble,
        "registered": node.registered,
        "planned": node.planned,
        "version": server.version if server is not None else None,
        "epoch": node.installed[0] if node.installed is not None else None,
        "plan_version": node.installed[1] if node.installed is not None else None,
        "memory_bytes": server.memory_bytes if server is not None else None,
        "memory_bytes_max": (server.memory_bytes_max or None) if server is not None else None,
        "steps": node.steps,
        "links": {link.target: link.frames for link in node.links},
        "unread": list(node.unread),
    }


def _tell(network: NetworkState, *, with_regions: bool) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in _summary(network):
        console.print(line)
    tables = [_nodes(network)]
    if network.connections:
        tables.append(_connections(network))
    if with_regions and network.regions:
        tables.append(_regions(network))
    for table in tables:
        for column in table.columns:
            column.overflow = "fold"
        console.print(table)
    if not network.connections:
        console.print("No connections.")
    for node in network.nodes:
        if node.trouble is not None:
            console.print(Text(printable(f"{node.name}: {node.trouble}"), style="red"))
    for unread in (*network.unread, *(f"{node.name}: {text}" for node in network.nodes for text in node.unread)):
        console.print(Text(f"Cannot be read: {printable(unread)}", style="yellow"))


def _summary(network: NetworkState) -> Iterator[str]:
    yield f"Control {network.where}: Redis {network.control.version or '?'}, {_memory(network.control.memory_bytes)}"
    plan = network.plan
    if plan is None:
        yield "No plan can be read." if network.unread else "No plan yet: the first publish makes it."
    else:
        regions, atoms = counted(len(plan.paths), "region"), counted(len(plan.atoms), "atom")
        yield f"Plan {plan.epoch}.{plan.version}, {plan.ordering} order: {regions}, {atoms}"
    if network.epoch is None:
        yield "Membership: cannot be read"
    else:
        how = "settled, traffic has begun" if network.settled else "open, subscriptions are welcome"
        yield f"Membership of epoch {network.epoch}: {how}"
    if network.lease_ms is None:
        yield "Lease: free" if network.lease_held is False else "Lease: cannot be read"
    elif network.lease_ms < 0:
        yield "Lease: held, without an end"
    else:
        yield f"Lease: held, somebody is planning (ends in {network.lease_ms / 1000:.1f} s)"


def _nodes(network: NetworkState) -> Table:
    table = Table("node", "at", "plan", "memory", "steps", "waiting on links")
    for column in table.columns[2:5]:
        column.justify = "right"
    for node in network.nodes:
        if node.server is None:
            table.add_row(
                printable(node.name), printable(node.where), Text("not reachable", style="bold red"), "", "", ""
            )
            continue
        installed = installed_plan(node.installed)
        current = network.plan is None or node.installed == (network.plan.epoch, network.plan.version)
        waiting = ", ".join(f"{link.frames:,} → {printable(link.target)}" for link in node.links if link.frames)
        table.add_row(
            printable(node.name),
            printable(node.where),
            Text(installed, style="" if current or not node.planned else "yellow"),
            _memory(node.server.memory_bytes),
            f"{node.steps:,}",
            waiting or "none",
        )
    return table


def _connections(network: NetworkState) -> Table:
    table = Table("connection", "regions", "last heard of")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in network.connections:
        heard = "left" if each.heard_ms_ago is None else f"{each.heard_ms_ago / 1000:.1f} s ago"
        shown = Text(heard, style="green") if each.alive else Text(f"{heard}, gone", style="yellow")
        table.add_row(printable(each.name), f"{each.regions:,}", shown if each.heard_ms_ago is not None else heard)
    return table


def _regions(network: NetworkState) -> Table:
    table = Table("region", "path", "frames kept", "last number")
    for column in table.columns[2:]:
        column.justify = "right"
    for region in network.regions:
        frames = "?" if region.frames is None else f"{region.frames:,}"
        last = "?" if region.last is None else f"{region.epoch}-{region.last}" if region.last else "none"
        table.add_row(printable(region.name), " → ".join(region.path), frames, last)
    return table


def _memory(size: int | None) -> str:
    return "?" if size is None else f"{size / 1_000_000:,.1f} MB"
