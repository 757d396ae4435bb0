"""``gamecast node``: one sequencing node of a deployment."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import get_args

import click

from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.probe import ServerProbe
from adapters.redis.relays import RedisRelays
from adapters.redis.running import empty
from adapters.redis.survey import survey
from adapters.urls import Durability, OwnOptions, as_user_of, own_options, redacted, stored_for_all, with_own_options
from adapters.wording import counted
from cli.commands import Group
from cli.daemons import Stop, TellingControl, leading_options, once_there, run_until_stopped, wait_option
from cli.logs import LogFormat, daemon_logger, log_as, log_option
from gamecast.client.networks import require_reachable
from gamecast.errors import NoLeader, OtherSideError, UnknownScheme, Unreachable, UsageError
from sequencing.extras import first_missing, require

logger = daemon_logger("node")

RETIRES_MAX = 10
"""How often the regions of a retired node are looked for: some may be placed while others move."""

REGISTERED_S = 1.0
"""How often to look whether the control Redis still has the node."""

UNREAD = (
    "%s: this user may not read whether its Redis syncs each write, so the node counts as one that may lose data; "
    "say --keeps-all if it has appendfsync always"
)


@click.group(cls=Group, invoke_without_command=True)
@click.option("--name", help="The node's name in plans, e.g. n1. Nodes are laid out in name order.")
@click.option("--redis", "redis_url", help="URL of the Redis that hosts this node: see below.")
@click.option("--control", "control_url", help="URL of the control Redis, to which clients connect.")
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
@click.option(
    "--lead/--no-lead",
    "leads",
    default=None,
    help="Whether to be a leader candidate, too, so that the network needs no `gamecast manager`.  [default: where the "
    "planner is installed]",
)
@leading_options
@wait_option
@log_option
@click.pass_context
def node(
    context: click.Context,
    name: str | None,
    redis_url: str | None,
    control_url: str | None,
    *,
    may_lose: bool | None,
    replicas: int,
    durability: Durability | None,
    give_up_s: float | None,
    leads: bool | None,
    retention_events: int,
    resume_s: float,
    wait_s: float,
    log_format: LogFormat,
) -> None:
    """Register a sequencing node, and carry its frames onward.

    Needs --name, --redis and --control. Runs until SIGINT or SIGTERM. You can add nodes at any time. Later plans
    use them, for new regions and for regions that begin their next epoch. A node stays registered after this
    command ends, but no frames move on its links until it runs again. Clients find the URLs in the control Redis
    and use them unchanged, so they must be able to reach them. If the control URL names a user, the stored URL
    names none: each client connects to this Redis as its own user.

    A node may be on one server (redis://, rediss://, unix://), on whichever one Sentinel names
    (redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/SERVICE; the sentinels' own password is the option
    ?sentinel_password=), or in a Redis Cluster (redis+cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]). A replica that
    takes over may lack what was written last, so nodes with Sentinel or in a Cluster count as ones that may lose data.
    If you have made sure that they do not, give --keeps-all.

    With --replicas K, a receipt is given, and an event delivered, when K replicas have it, too (the URL is stored with
    the option ?replicas=K). Count all replicas: then one that takes over lacks nothing, and the node counts as one that
    keeps all. With fewer, any failover may lose what was acknowledged. While fewer are there, nothing is acknowledged.

    One of the network's leader candidates plans: where the planner is installed, this command is one. Give all
    candidates the same --retention-events and --resume-s.

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
    if context.invoked_subcommand is not None:
        return
    if name is None or redis_url is None or control_url is None:
        raise click.UsageError("a node needs --name, --redis and --control; `gamecast node retire --help` ends one")
    try:
        _, own = own_options(redis_url)
    except ValueError as error:
        raise UnknownScheme(f"{redacted(redis_url)!r} is not a Redis URL: {error}") from error
    wanted = OwnOptions(replicas or own.replicas, give_up_s or own.give_up_s, durability or own.durability)
    redis_url = with_own_options(redis_url, wanted)
    if replicas:
        may_lose = bool(may_lose)
    log_as(log_format)
    missing = first_missing("planner", "gamecast node --lead")
    if leads and missing is not None:
        raise missing
    network = RedisNetwork(control_url, ordering="acyclic", retention_events=retention_events, resume_s=resume_s)
    of, is_candidate = (name, redis_url), missing is None and leads is not False
    run_until_stopped(lambda stop: _run(*of, network, may_lose, is_candidate, wait_s, stop))


@node.command()
@click.argument("name")
@click.option("--control", "control_url", required=True, help="URL of the control Redis, as the user `manager`.")
def retire(name: str, control_url: str) -> None:
    """Move a node's regions to the other nodes, and take it out of the network, for good.

    Events go on meanwhile: nothing is lost, and the order stays. Also for a node that was given up, or whose name was a
    mistake. Its `gamecast node` ends by itself; stop its Redis when this command has said that you may: the control
    Redis stays. If it is interrupted, or a leader refuses a move, repeat it. A retired name is not used again. Needs
    the extra planner.

    Exit status: 0 when nothing is there any more, 2 for wrong use (no such node, or it is the only one), 3 if the
    control Redis, the node, all others, or a leader does not answer.

    \b
    Example:
      gamecast node retire n3 --control redis://manager:PASSWORD@10.0.0.1
    """
    require("planner", "to plan where the regions of a node go")
    asyncio.run(_retire(name, require_reachable(control_url)))


async def _retire(name: str, url: str) -> None:
    control = LeaderControl(url)
    try:
        state = await survey(url)
        known = {each.name: each for each in state.nodes}
        others = [each for each in state.nodes if each.registered and each.name != name]
        if name not in known and not await control.is_retired(name):
            raise UsageError(f"there is no node {name!r}: {', '.join(sorted(known))} are registered")
        if not others:
            raise UsageError(f"{name} is the only node that is registered: nothing could take its regions over")
        is_visited = state.plan is not None and name in state.plan.visits
        if is_visited and known[name].server is None:
            raise Unreachable(
                f"{name} does not answer, so its regions cannot leave it: start its Redis, or an empty one at its "
                "address; with --give-up-s it would be given up"
            )
        if all(each.server is None for each in others):
            raise Unreachable(
                f"of the other nodes ({', '.join(each.name for each in others)}) none answers: nothing could take "
                f"over what is at {name}"
            )
        if is_visited and state.leader == "":
            raise NoLeader(
                f"no leader is running, and the regions of {name} cannot leave it without one: run `gamecast manager`"
            )
        await control.retire_node(name)
        for number in range(RETIRES_MAX):
            plan = (await survey(url)).plan
            if plan is None or name not in plan.visits:
                break
            moved = await empty(url, name)
            click.echo(f"{counted(moved, 'region')} moved{'' if number == 0 else ', that came meanwhile'}", err=True)
        else:
            raise OtherSideError(f"new regions keep coming to {name}: repeat this when fewer servers join")
    finally:
        await control.close()
    may_stop = f", and its Redis may be stopped{'' if name in known else ', unless it is the control Redis'}"
    if name in known and (server := known[name].server) is not None and server.run == state.control.run:
        may_stop = "; its Redis is the control Redis, too: keep it running"
    click.echo(f"{name} is retired: no region is there any more{may_stop}", err=True)


async def _run(
    name: str,
    redis_url: str,
    network: RedisNetwork,
    may_lose: bool | None,
    is_candidate: bool,
    wait_s: float,
    stop: Stop,
) -> None:
    reached_url = as_user_of(redis_url, network.url)
    stored_url = stored_for_all(redis_url, network.url)
    server = ServerProbe(reached_url, name)
    loses, is_leaving = may_lose, False

    async def register() -> None:
        nonlocal loses, is_leaving
        described = await server.describe()
        if described.loading:
            raise Unreachable(f"Redis at {redacted(redis_url)} is still loading its data.")
        await network.open()
        loses = not described.keeps_all if may_lose is None else may_lose
        if may_lose is None and described.append_only and described.appendfsync is None:
            logger.warning(UNREAD, name)
        is_leaving = await _is_leaving(name, network)
        if not is_leaving:
            await network.register_node(name, stored_url, may_lose=loses)

    relays: RedisRelays | None = None
    try:
        await once_there(register, wait_s=wait_s, stop=stop)
        if stop.is_set():
            return
        await server.close()
        relays = RedisRelays(network.url, frozenset({name}))
        relays.start()
        if is_candidate:
            network.stand(TellingControl(network.url))
        counts = "; it counts as one that may lose data in a restart" if loses else ""
        stands = f"is registered and relays{counts}"
        if is_leaving:
            stands = "was retired, and relays until its regions have gone"
        logger.info("node %s at %s %s", name, redacted(redis_url), stands)
        await _stay_registered(name, stored_url, network, may_lose=bool(loses), stop=stop)
    finally:
        if relays is not None:
            await relays.stop()
        await server.close()
        await network.close()


async def _is_leaving(name: str, network: RedisNetwork) -> bool:
    """Return whether a node was retired, and regions are still there: its links are carried until they have gone."""
    control = network.way_to_leading()
    try:
        return await control.is_retired(name) and await _is_used(name, control)
    finally:
        await control.close()


async def _is_used(name: str, control: LeaderControl) -> bool:
    """Return whether a region is at a node, or may be: while epochs end somewhere."""
    plan, ending = await control.latest_plan(), await control.ending()
    return bool(ending) or (plan is not None and name in plan.visits)


async def _stay_registered(name: str, url: str, network: RedisNetwork, *, may_lose: bool, stop: Stop) -> None:
    """Register the node again where the control Redis has come back without it, until stopped."""
    control = network.way_to_leading()
    try:
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), REGISTERED_S)
                return
            with suppress(Unreachable, OtherSideError):  # where it is away, relays say so
                if await control.is_registered(name):
                    continue
                if await control.is_retired(name):  # its links are carried until nothing is there
                    if not await _is_used(name, control):
                        logger.info("node %s was retired, and no region is there any more", name)
                        return
                else:
                    await control.register_node(name, url, may_lose=may_lose)
                    logger.warning("node %s is registered again: the control Redis came back without it", name)
    finally:
        await control.close()
