"""``gamecast up``: a network on this machine, ready to use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import get_args

import click
import orjson

from adapters.embedded.network import EmbeddedNetwork
from adapters.memory import NODES_MAX
from adapters.planning import planner_over  # noqa: F401 - imports scipy now, so that no plan waits for it
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.survey import survey
from adapters.urls import without_user
from cli.daemons import Stop, overlaps_option, run_until_stopped, unless_stopped
from cli.reporting import counted
from cli.token import key_document, write_keys
from gamecast.client.configuration import Limits
from placement.planning.reading import read_overlaps
from sequencing.extras import first_missing
from sequencing.plan import Ordering
from sequencing.record import Pair

DASHBOARD = "/dashboard/"
"""Where the gateway serves it."""

ENDED_S = 1.0
"""How often to look whether servers have ended."""


@click.command()
@click.option(
    "--nodes", type=click.IntRange(1, NODES_MAX), default=3, show_default=True, help="Sequencing nodes, a Redis each."
)
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="The order that plans guarantee: see `gamecast plan size`.",
)
@click.option(
    "--replicas",
    type=click.IntRange(0, 3),
    default=0,
    show_default=True,
    help="Replicas of each Redis, for which receipts wait; three sentinels promote one when its master dies, and what "
    "has died comes back as a replica.",
)
@overlaps_option
@click.option("--secure", is_flag=True, help="Give each role a Redis user with a password, and admit no other client.")
@click.option(
    "--gateway/--no-gateway", "with_gateway", default=None, help="Also run a gateway.  [default: where it is installed]"
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the gateway.  [default: a free one]")
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    help="Key file for the tokens that gateway clients need, see `gamecast token`.  [default: with --secure a new one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in one line, when it is ready.")
def up(
    *,
    nodes: int,
    replicas: int,
    ordering: Ordering,
    overlaps_file: Path | None,
    secure: bool,
    with_gateway: bool | None,
    port: int,
    keys: Path | None,
    as_json: bool,
) -> None:
    """Run a network on this machine: servers, manager and gateway. Private redis-servers, with relays between them.

    With --replicas, kill a redis-server and see: nothing that was acknowledged is lost.

    Prints its URL when it is ready, and runs until SIGINT or SIGTERM. However it ends, it keeps no data and leaves no
    process running.

    With --json the line has these fields. `url`: URL of the control Redis, to which clients connect. `nodes`: name →
    URL. `pids`: name → process ID of its redis-server, and "up" → that of this process. `gateway` and `dashboard`:
    their URLs, or null. `keys`: the key file, if there is one. `users`, with --secure: role → its URL. Then `url` is
    the subscriber's, and the URLs in `nodes` have no user.

    Exit status: 0 when SIGTERM stopped it, 130 for SIGINT, 2 for wrong use, 3 if a server did not start or stopping
    timed out.
    """
    missing = first_missing("gateway", "the gateway")
    if missing is not None:
        if with_gateway:
            raise missing
        if with_gateway is None:
            click.echo(f"without a gateway: {missing}", err=True)
    starts_gateway = missing is None and with_gateway is not False
    overlaps = read_overlaps(overlaps_file) if overlaps_file is not None else frozenset[Pair]()
    gateway_port = port if starts_gateway else None
    run_until_stopped(lambda stop: _run(nodes, replicas, ordering, overlaps, secure, gateway_port, keys, as_json, stop))


async def _run(
    nodes: int,
    replicas: int,
    ordering: Ordering,
    overlaps: frozenset[Pair],
    secure: bool,
    port: int | None,
    keys: Path | None,
    as_json: bool,
    stop: Stop,
) -> None:
    limits = Limits()
    network = EmbeddedNetwork(
        f"embedded://?nodes={nodes}",
        ordering=ordering,
        retention_events=limits.retention_events,
        secure=secure,
        replicas=replicas,
    )
    stack = AsyncExitStack()
    try:
        if await unless_stopped(_open(network, overlaps), stop) is None:
            return
        servers = (await survey(network.url)).nodes
        places = {node.name: node.url for node in servers}
        pids = {node.name: node.server.pid for node in servers if node.server is not None}
        url = network.url_of("subscriber")
        users = {role: network.url_of(role) for role in network.users}
        if users:
            places = {name: without_user(place) for name, place in places.items()}
        gateway = None
        if port is not None:
            keys = _new_keys(network.directory) if secure and keys is None else keys
            gateway = await _gateway(network, ordering, port, keys, stack)
        if not stop.is_set():
            told = _line(url, places, pids, gateway, keys, users) if as_json else _text(url, places, gateway, keys)
            click.echo(told)
        await _tell_what_ends(network, stop)
    finally:
        try:
            await stack.aclose()
        finally:
            await network.close()


async def _tell_what_ends(network: EmbeddedNetwork, stop: Stop) -> None:
    """Return when stopped; say until then which servers have ended."""
    told = frozenset[str]()
    while True:
        ended = network.ended
        for name in sorted(ended - told):
            what = "nothing works any more" if name == "n1" else "what passes through it waits"
            click.echo(f"the redis-server of {name} has ended, and {what}: start this again", err=True)
        told = ended
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), ENDED_S)
            return


async def _open(network: EmbeddedNetwork, overlaps: frozenset[Pair]) -> bool:
    await network.open()
    await network.declare_overlaps(overlaps)
    network.stand(LeaderControl(network.url))
    return True


def _new_keys(directory: Path) -> Path:
    from gateway.tokens import new_key

    file = directory / "keys.json"
    write_keys(file, key_document([new_key("EdDSA")]), 0o600)
    return file


async def _gateway(
    network: EmbeddedNetwork, ordering: Ordering, port: int, keys: Path | None, stack: AsyncExitStack
) -> str:
    """Start a gateway and return its URL."""
    from gateway.local import local_gateway

    url, watch_url = network.url_of("gateway"), network.url_of("watcher")
    return await stack.enter_async_context(
        local_gateway(url, watch_url=watch_url, ordering=ordering, port=port, keys=keys, is_trial=True)
    )


def _line(
    url: str,
    nodes: Mapping[str, str],
    pids: Mapping[str, int],
    gateway: str | None,
    keys: Path | None,
    users: Mapping[str, str],
) -> str:
    ready = {
        "url": url,
        "gateway": gateway,
        "dashboard": f"{gateway}{DASHBOARD}" if gateway is not None else None,
        "nodes": nodes,
        "pids": {"up": os.getpid(), **pids},
    }
    ready |= {"keys": str(keys)} if gateway is not None and keys is not None else {}
    return orjson.dumps(ready | ({"users": users} if users else {})).decode()


def _text(url: str, nodes: Mapping[str, str], gateway: str | None, keys: Path | None) -> str:
    minting = f"gamecast token mint --keys {keys} --subject alice --read '**' --write '**'"
    watching = f"gamecast token mint --keys {keys} --subject operator --watch"
    return "\n".join(
        (
            f"A network of {counted(len(nodes), 'node')} is ready at {url}, until it is interrupted. Try",
            f"  gamecast tail {url} forest",
            f"  gamecast publish {url} forest hello",
            f"  gamecast status {url}",
            f'or in a program: gamecast.connect("{url}")',
            *([f"Browsers and other languages reach it at {gateway}: see docs/gateway.md."] if gateway else []),
            *([f"They need tokens:\n  {minting}"] if gateway and keys is not None else []),
            *([f"The dashboard shows its state and problems: {gateway}{DASHBOARD}"] if gateway else []),
            *([f"The dashboard needs a token, too:\n  {watching}"] if gateway and keys is not None else []),
        )
    )
