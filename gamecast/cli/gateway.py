"""``gamecast gateway``: the way in for browsers, other languages, and everybody over HTTP."""

from __future__ import annotations

import asyncio
from typing import get_args

import click

from adapters.redis_connection import redacted
from gamecast.cli.daemons import stopping
from gamecast.cli.reporting import require_reachable
from gamecast.errors import UsageError
from sequencing.plan import Ordering


@click.command()
@click.argument("url", envvar="GAMECAST_URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="What the network orders, see `gamecast manager`.",
)
def gateway(url: str, *, host: str, port: int, ordering: Ordering) -> None:
    """Serve a network by WebSocket and HTTP: see docs/gateway.md.

    Runs until SIGINT or SIGTERM. Says its URL on standard error when it listens.

    Exit status: 0 when it is stopped, 1 when that took too long and it was broken off, 2 for wrong use (a port that is
    taken, too), 3 if the network is not there.
    """
    require_reachable(url)
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise UsageError("the gateway needs aiohttp: pip install 'gamecast[gateway]'") from error
    asyncio.run(_run(url, host, port, ordering))


async def _run(url: str, host: str, port: int, ordering: Ordering) -> None:
    from adapters.gateway.application import make_application
    from adapters.gateway.guard import Guard
    from adapters.gateway.serving import serving
    from adapters.gateway.settings import GatewaySettings
    from adapters.gateway.shelf import RedisShelf
    from gamecast.gateway import CastDoor, extensions

    stop = stopping()
    settings = GatewaySettings(host=host, port=port)
    shelf = RedisShelf(url)
    guard = Guard(settings, shelf)
    door = CastDoor(url, ordering=ordering)
    application = make_application(door, settings, guard=guard, shelf=shelf, extensions=extensions(url))
    async with serving(application) as where:
        click.echo(f"the gateway of {redacted(url)} listens at {where}", err=True)
        await stop.wait()
