"""``gamecast up``: a network on this machine, ready to use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click
import orjson

from adapters.embedded_network import EmbeddedNetwork
from adapters.memory import NODES_MAX
from adapters.planning import planner_over  # noqa: F401 - brings scipy, for which no plan should have to wait
from adapters.redis_control import RedisControl
from adapters.redis_survey import survey
from gamecast.cli.daemons import expect_option, stopping
from gamecast.cli.reporting import counted
from gamecast.configuration import Limits
from gamecast.planning.reading import read_overlaps
from sequencing.plan import Ordering
from sequencing.record import Pair


@click.command()
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), default=3, show_default=True, help="Sequencing nodes, a Redis each."
)
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="What plans order.",
)
@expect_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in one line, when it is ready.")
def up(*, nodes: int, ordering: Ordering, expect: Path | None, as_json: bool) -> None:
    """Run a network on this machine: private redis-servers, relays between them, and a manager.

    Tells its URL when it is ready, and runs until SIGINT or SIGTERM. Nothing is kept, and no process stays, however it
    ends.

    With --json the line has url (of the control Redis, by which clients connect), nodes (name → URL) and pids (name →
    process id of its redis-server, and "up" → that of this process); gateway and dashboard are null.

    Exit status: 0 when it is stopped, 1 when that took too long and it was broken off, 2 for wrong use, 3 if a server
    cannot be started.
    """
    overlaps = read_overlaps(expect) if expect is not None else frozenset[Pair]()
    asyncio.run(_run(nodes, ordering, overlaps, as_json))


async def _run(nodes: int, ordering: Ordering, overlaps: frozenset[Pair], as_json: bool) -> None:
    stop = stopping()
    limits = Limits()
    network = EmbeddedNetwork(f"embedded://?nodes={nodes}", ordering=ordering, retention_events=limits.retention_events)
    try:
        await network.open()
        await network.expect(overlaps)
        network.stand(RedisControl(network.url))
        servers = (await survey(network.url)).nodes
        places = {node.name: node.url for node in servers}
        pids = {node.name: node.server.pid for node in servers if node.server is not None}
        if not stop.is_set():
            click.echo(_line(network.url, places, pids) if as_json else _text(network.url, places))
        await stop.wait()
    finally:
        await network.close()


def _line(url: str, nodes: Mapping[str, str], pids: Mapping[str, int]) -> str:
    ready = {"url": url, "gateway": None, "dashboard": None, "nodes": nodes, "pids": {"up": os.getpid(), **pids}}
    return orjson.dumps(ready).decode()


def _text(url: str, nodes: Mapping[str, str]) -> str:
    return "\n".join(
        (
            f"A network of {counted(len(nodes), 'node')} is ready at {url}, until it is interrupted. Try",
            f"  gamecast tail {url} forest",
            f"  gamecast publish {url} forest hello",
            f"  gamecast status {url}",
            f'or in a program: gamecast.connect("{url}")',
        )
    )
