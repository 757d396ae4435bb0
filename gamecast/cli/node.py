"""``gamecast node``: one sequencing node of a deployment."""

from __future__ import annotations

import asyncio
import signal

import click

from adapters.redis_connection import redacted
from adapters.redis_network import RedisNetwork
from adapters.redis_node import RedisNode
from adapters.redis_relays import RedisRelays


@click.command()
@click.option("--name", required=True, help="The node's name in plans, e.g. n1. Nodes are laid out in name order.")
@click.option("--redis", "redis_url", required=True, help="URL of the Redis server that hosts this node.")
@click.option("--control", "control_url", required=True, help="URL of the control Redis, by which clients connect.")
def node(name: str, redis_url: str, control_url: str) -> None:
    """Register a sequencing node, and carry its frames to the next ones.

    Runs until SIGINT or SIGTERM. Start all nodes before the first publish: plans use the nodes that are registered.
    The URLs are stored in the control Redis, where clients find them: they must be reachable for clients as they are.

    \b
    Example, three nodes whose first Redis is also the control:
      gamecast node --name n1 --redis redis://10.0.0.1 --control redis://10.0.0.1 &
      gamecast node --name n2 --redis redis://10.0.0.2 --control redis://10.0.0.1 &
      gamecast node --name n3 --redis redis://10.0.0.3 --control redis://10.0.0.1 &
    """
    asyncio.run(_run(name, redis_url, control_url))


async def _run(name: str, redis_url: str, control_url: str) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = RedisNode(name, redis_url)
    await server.ping()
    await server.close()
    network = RedisNetwork(control_url, ordering="acyclic", retention_events=1)
    await network.open()
    await network.register_node(name, redis_url)
    await network.close()
    relays = RedisRelays(control_url, frozenset({name}))
    relays.start()
    click.echo(f"node {name} at {redacted(redis_url)} is registered and relays", err=True)
    await stop.wait()
    await relays.stop()
