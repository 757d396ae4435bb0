"""``gamecast node``: one sequencing node of a deployment."""

from __future__ import annotations

from typing import get_args

import click

from adapters.redis.network import RedisNetwork
from adapters.redis.probe import ServerProbe
from adapters.redis.relays import RedisRelays
from adapters.urls import Durability, OwnOptions, as_user_of, own_options, redacted, stored_for_all, with_own_options
from cli.daemons import Stop, once_there, run_until_stopped, wait_option
from gamecast.errors import UnknownScheme, Unreachable

UNREAD = (
    "{name}: this user may not read whether its Redis syncs each write, so the node counts as one that may lose data; "
    "say --keeps-all if it has appendfsync always"
)


@click.command()
@click.option("--name", required=True, help="The node's name in plans, e.g. n1. Nodes are laid out in name order.")
@click.option("--redis", "redis_url", required=True, help="URL of the Redis that hosts this node: see below.")
@click.option("--control", "control_url", required=True, help="URL of the control Redis, to which clients connect.")
@click.option(
    "--may-lose/--keeps-all",
    default=None,
    help="Whether this Redis may lose data in a restart. If so, events in flight through it are reported as gaps "
    "then. A node that plans treat so stays so in this network.  [default: asks the server; it keeps all with "
    "appendonly yes and appendfsync always, and where no replica takes over from it]",
)
@click.option(
    "--replicas",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="How many replicas of this Redis must have an event before its receipt is given: see below.",
)
@click.option(
    "--durability",
    type=click.Choice(get_args(Durability)),
    default=None,
    help="disk: a receipt waits until this Redis, and the replicas that receipts wait for, have the event on disk. "
    "Needs Redis 7.2 or Valkey, with appendonly yes.  [default: memory]",
)
@click.option(
    "--give-up-s",
    type=click.FloatRange(1, 86_400),
    metavar="SECONDS",
    help="After so long without an answer, move the regions of this node to other nodes: see below.  [default: never]",
)
@wait_option
def node(
    name: str,
    redis_url: str,
    control_url: str,
    *,
    may_lose: bool | None,
    replicas: int,
    durability: Durability | None,
    give_up_s: float | None,
    wait_s: float,
) -> None:
    """Register a sequencing node, and carry its frames onward.

    Runs until SIGINT or SIGTERM. You can add nodes at any time. Later plans use them, for new regions and for regions
    that begin their next epoch. A node stays registered after this command ends, but no frames move on its links until
    it runs again. Clients find the URLs in the control Redis and use them unchanged, so they must be able to reach
    them. If the control URL names a user, the stored URL names none: each client connects to this Redis as its own
    user.

    A node may be on one server (redis://, rediss://, unix://), on whichever one Sentinel names
    (redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE; the sentinels' own password is the option
    ?sentinel_password=), or in a Redis Cluster (redis+cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]). A replica that
    takes over may lack what was written last, so nodes with Sentinel or in a Cluster count as ones that may lose data.
    If you have made sure that they do not, give --keeps-all.

    With --replicas K, a receipt is given, and an event delivered, when K replicas have it, too (the URL is stored with
    the option ?replicas=K). Count all replicas: then one that takes over lacks nothing, and the node counts as one that
    keeps all. With fewer, any failover may lose what was acknowledged. While fewer are there, nothing is acknowledged.

    With --give-up-s, a node that does not answer the leader for so long is given up: its regions begin a new epoch at
    other nodes, and what only it had becomes a gap (the URL is stored with the option ?give_up_s=SECONDS). When its
    Redis is restarted, it starts empty. The node at the control Redis cannot be given up.

    Exit status: 0 when SIGTERM stopped it, 130 for SIGINT, 2 for wrong use (including a name in use), 3 if a Redis was
    unavailable for --wait-s at the start, or stopping timed out.

    \b
    Example, three nodes whose first Redis is also the control:
      gamecast node --name n1 --redis redis://10.0.0.1 --control redis://10.0.0.1 &
      gamecast node --name n2 --redis redis://10.0.0.2 --control redis://10.0.0.1 &
      gamecast node --name n3 --redis redis://10.0.0.3 --control redis://10.0.0.1 &
    """
    try:
        _, own = own_options(redis_url)
    except ValueError as error:
        raise UnknownScheme(f"{redacted(redis_url)!r} is not a Redis URL: {error}") from error
    wanted = OwnOptions(replicas or own.replicas, give_up_s or own.give_up_s, durability or own.durability)
    redis_url = with_own_options(redis_url, wanted)
    if replicas:
        may_lose = bool(may_lose)
    run_until_stopped(lambda stop: _run(name, redis_url, control_url, may_lose, wait_s, stop))


async def _run(name: str, redis_url: str, control_url: str, may_lose: bool | None, wait_s: float, stop: Stop) -> None:
    reached_url = as_user_of(redis_url, control_url)
    stored_url = stored_for_all(redis_url, control_url)
    server = ServerProbe(reached_url, name)
    network = RedisNetwork(control_url, ordering="acyclic", retention_events=1)
    loses = may_lose

    async def register() -> None:
        nonlocal loses
        described = await server.describe()
        if described.loading:
            raise Unreachable(f"Redis at {redacted(redis_url)} is still loading its data.")
        await network.open()
        loses = not described.keeps_all if may_lose is None else may_lose
        if may_lose is None and described.append_only and described.appendfsync is None:
            click.echo(UNREAD.format(name=name), err=True)
        await network.register_node(name, stored_url, may_lose=loses)

    try:
        await once_there(register, wait_s=wait_s, stop=stop)
    finally:
        await server.close()
        await network.close()
    if stop.is_set():
        return
    relays = RedisRelays(control_url, frozenset({name}))
    relays.start()
    counts = "; it counts as one that may lose data in a restart" if loses else ""
    click.echo(f"node {name} at {redacted(redis_url)} is registered and relays{counts}", err=True)
    await stop.wait()
    await relays.stop()
