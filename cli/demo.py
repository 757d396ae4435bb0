"""``gamecast demo``: replay a match through a real network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from adapters.embedded.server import EmbeddedServers
from cli.outfiles import writing
from demo.journey import JOINS_PENDING_MAX
from demo.killing import KILL_SPEED, Killer, replicated, slowest_s, urls_of_masters
from demo.match.hosting import Workload, build_workload, server_names
from demo.match.roaming import LINGER_S
from demo.match.skirmish import generate_skirmish
from demo.match.trace import read_match
from demo.outcome import Outcome
from demo.plain import replay_plain
from demo.plain_roaming import replay_plain_roaming
from demo.recording import session_recording
from demo.replay import Replay, replay
from demo.replay_roaming import replay_roaming
from demo.trades import Trades, trade_over_pubsub, trade_over_regions
from demo.trades import tell as tell_trades
from gamecast.errors import PlanError, UsageError
from gamecast.recording.deliverylog import log_file_name, published_within, write_published
from gamecast.recording.deliverylogwriter import DeliveryLogWriter
from gamecast.recording.options import Recording
from launcher.ending import BROKEN
from sequencing.extras import needed_by

if TYPE_CHECKING:
    from laboratory.protocols.demo import ProtocolOutcome
    from laboratory.wan.report import WanReport
from placement.topologies.distances import Standing, read_distances, stand

Begin = Callable[[str, int], Callable[[int], None]]
"""Called with the name of a part and the number of its deliveries; what it returns is called with each that comes."""

LIST = "list"
WAN_DURATION_S = 30.0
"""The default part of a match that is replayed with ``--wan``: the replay takes as long."""


class _Servers(click.ParamType[int | None]):
    """A number of servers, or None for one per player."""

    name = "N|each"

    def convert(
        self, value: str | int | None, param: click.Parameter | None, context: click.Context | None
    ) -> int | None:
        """Return the number, or None for ``each``."""
        if value is None or value == "each":
            return None
        servers: int = click.IntRange(1, 256)(value, param, context)
        return servers


def _known_protocol(context: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """Check, before a match is read, that the laboratory is there, and has this protocol; list the names if asked."""
    if name is None:
        return None
    with needed_by("--protocol"):
        from laboratory.protocols.demo import names_of_protocols, require_protocol
    if name == LIST:
        click.echo("\n".join(names_of_protocols()))
        context.exit()
    require_protocol(name)
    return name


def _with_laboratory(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    """Check, before a match is read, that the laboratory is there, which delays the traffic."""
    if file is not None:
        with needed_by("--wan"):
            import laboratory.wan.run as _run  # noqa: F401 - its absence is what counts here
    return file


@click.command()
@click.argument("prefix", required=False)
@click.option(
    "--nodes", type=click.IntRange(1, 64), default=3, show_default=True, help="Sequencing nodes, a redis-server each."
)
@click.option(
    "--servers",
    type=_Servers(),
    default="8",
    show_default=True,
    help="Game servers that host the players: up to 256, or 'each' for one per player.",
)
@click.option("--cell-m", type=float, default=250.0, show_default=True, help="Side of a region, in metres.")
@click.option("--radius-m", type=float, default=100.0, show_default=True, help="How far a player sees, in metres.")
@click.option("--start-s", type=float, default=0.0, show_default=True, help="Where in the trace to begin, in seconds.")
@click.option("--duration-s", type=float, help="How much of the trace to replay, in seconds.  [default: all]")
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="1: as it happened, 10: ten times as fast, 0: as fast as possible.",
)
@click.option("--moves", is_flag=True, help="Publish every recorded move of a player as an event too.")
@click.option(
    "--roam",
    is_flag=True,
    help="Servers join and leave regions while the match runs. Each is in the cells that its players' views touch, and "
    f"leaves a cell {LINGER_S:g} s of the trace after the last of them. The match continues meanwhile; at --speed 0 it "
    f"waits while {JOINS_PENDING_MAX} joins are pending.  [default: in all of the window's cells, throughout]",
)
@click.option(
    "--grid",
    is_flag=True,
    help="With --roam: declare beforehand that cells overlap if one view can touch both, and leave a region at once. "
    "Then walking from cell to cell takes no new epoch. Servers with several players have other overlaps, too: see "
    "--servers each.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated skirmish.")
@click.option(
    "--wan",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    callback=_with_laboratory,
    help="Delay traffic between hosts by this latency matrix (CSV, ms), and report measured and predicted stretch. "
    f"--speed 0 counts as 1, and {WAN_DURATION_S:g} s are replayed unless you set "
    "--duration-s. It needs gamecast-lab.",
)
@click.option("--rtt", is_flag=True, help="With --wan: the matrix has round-trip times: halve them.")
@click.option(
    "--hosts", metavar="A,B,…", help="With --wan: hosts of the servers, in turn.  [default: all of the matrix]"
)
@click.option("--node-hosts", metavar="A,B,…", help="With --wan: hosts of the nodes, in turn.  [default: --hosts]")
@click.option(
    "--protocol",
    metavar="NAME",
    callback=_known_protocol,
    help="Replay over this classic protocol instead, over mailboxes in one Redis server, and judge it by its own "
    "guarantees; the first 1,000 events at most. --nodes is then the number of servers of plain Pub/Sub. It needs "
    "gamecast-lab, and `--protocol list` tells the names.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a delivery log for each server, for `gamecast audit DIR`, and the session into DIR/session, for "
    "`gamecast analyze DIR/session`. Existing logs and an existing session there are replaced. The session needs the "
    "extra 'recording'.",
)
@click.option(
    "--replicas",
    type=click.IntRange(0, 3),
    default=0,
    show_default=True,
    help="Replicas of each redis-server, for which receipts wait, and sentinels.",
)
@click.option(
    "--kill",
    is_flag=True,
    help=f"With --replicas: kill a master in the middle of the match. --speed 0 counts as {KILL_SPEED:g}.",
)
@click.option(
    "--joint",
    is_flag=True,
    help="Instead, have two players trade between two zones, and count the trades that are torn. They bid by two "
    "messages of plain Pub/Sub, by two events, and by one event in both regions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def demo(
    context: click.Context,
    prefix: str | None,
    *,
    nodes: int,
    servers: int | None,
    cell_m: float,
    radius_m: float,
    start_s: float,
    duration_s: float | None,
    speed: float,
    moves: bool,
    roam: bool,
    grid: bool,
    seed: int,
    wan: Path | None,
    rtt: bool,
    hosts: str | None,
    node_hosts: str | None,
    protocol: str | None,
    record: Path | None,
    replicas: int,
    kill: bool,
    joint: bool,
    as_json: bool,
) -> None:
    """Replay a match through real Redis servers, and check the order. That is the order that every game server saw.

    PREFIX names a recorded match: PREFIX_players.csv, PREFIX_positions.csv.gz and PREFIX_events.csv.gz. Without it, a
    skirmish is generated. The map is cut into square regions. Each game server hosts some players, subscribes to the
    regions that they see and publishes their actions. The same events are then published over plain Redis Pub/Sub on
    the same servers. The same checkers judge both; they do not use sequence numbers.

    With --roam, servers follow their players: they join and leave regions, connect and disconnect, while all others
    continue to publish. Then a server must deliver the events that are published after it has joined a region, up to
    its leaving, without a missing event in between.

    With --wan, servers and nodes are at hosts that are far from each other, and proxies delay all traffic between
    them. The stretch of a server is the time from publishing others' events to delivery there, divided by the direct
    time from the publishers' hosts to its own.

    With --protocol, a classic protocol orders the events. Its assumptions must hold in a match, where regions overlap.
    A protocol whose assumptions do not hold is refused, and one that would fit is named.

    With --replicas 1 --kill, a master is killed in the middle of the match, and a replica takes over: nothing is lost,
    and the orders stay one.

    With --joint, nothing is replayed: see there.

    Exit status: 0 if gamecast, or the protocol, kept every promise, 1 if not, 2 for wrong input, 3 if a server could
    not be started, or a connection was lost on a busy machine.
    """
    if joint:
        for param in context.command.params:
            given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
            if given and param.name not in _OF_TRADES:
                said = param.opts[0] if isinstance(param, click.Option) else "PREFIX"
                raise UsageError(f"--joint replays no match: leave out {said}")
        _trade(context, seed, as_json=as_json)
        return
    if grid and not roam:
        raise UsageError("--grid needs servers that join and leave regions: also give --roam")
    if protocol is not None and (roam or wan is not None):
        raise UsageError(
            f"--protocol {protocol} has fixed groups and no delays between hosts: leave out --roam and --wan"
        )
    if kill and not replicas:
        raise UsageError("--kill kills a master, and a replica takes over: also give --replicas 1")
    if replicas and (roam or wan is not None or protocol is not None):
        raise UsageError("--replicas goes with no --roam, --wan and --protocol")
    standing = _standing(wan, rtt, hosts, node_hosts, nodes, servers)
    if standing is not None:
        if roam:
            raise UsageError("--wan needs a plan that does not change: leave out --roam")
        speed, duration_s = speed or 1.0, WAN_DURATION_S if duration_s is None else duration_s
    match = read_match(prefix) if prefix is not None else generate_skirmish(seed)
    workload = build_workload(
        match,
        cell_m=cell_m,
        radius_m=radius_m,
        servers=servers,
        start_s=start_s,
        duration_s=duration_s,
        moves=moves,
        roam=roam,
        grid=grid,
    )
    recording = None
    if record is not None:
        _require_writable(record, workload.servers)
        recording = session_recording(record / "session", servers=len(workload.servers), probes=standing is None)
        if recording is None:
            click.echo("only logs are recorded: a session needs pyarrow (pip install 'gamecast[recording]')", err=True)
    report: WanReport | None = None
    outcome: Outcome | ProtocolOutcome
    if protocol is not None:
        from laboratory.protocols.demo import run_protocol

        with _progress() as begin:
            outcome = asyncio.run(run_protocol(workload, protocol, nodes=nodes, speed=speed, begin=begin))
    elif standing is not None:
        from laboratory.wan.run import run_wan

        with _progress() as begin:
            made = run_wan(workload, standing, nodes=nodes, speed=speed, begin=begin, record=recording)
            outcome, report = asyncio.run(made)
    elif replicas:
        outcome = asyncio.run(
            _run_replicated(
                workload,
                nodes=nodes,
                replicas=replicas,
                kill=kill,
                speed=speed or (KILL_SPEED if kill else 0.0),
                record=recording,
            )
        )
    else:
        outcome = asyncio.run(_run(workload, nodes=nodes, speed=speed, record=recording))
    if record is not None:
        with writing(f"--record {record}"):
            _write_logs(record, outcome.workload, outcome.replayed)
    if as_json:
        wanted = outcome.as_dict() | ({"wan": report.as_dict()} if report is not None else {})
        click.echo(orjson.dumps(wanted, option=orjson.OPT_INDENT_2))
    else:
        source = Path(prefix).name if prefix is not None else f"A skirmish (seed {seed})"
        outcome.tell(Console(highlight=False, soft_wrap=False), source)
        if report is not None:
            report.tell(Console(highlight=False, soft_wrap=False))
        if record is not None:
            click.echo(f"The delivery logs are in {record}: judge them with `gamecast audit {record}`.")
        if recording is not None:
            session = recording.directory
            click.echo(f"The recorded session is in {session}: analyze it with `gamecast analyze {session}`.")
    if not outcome.fine:
        context.exit(BROKEN)


_OF_TRADES = {"joint", "seed", "as_json"}
"""The parameters that go with ``--joint``."""


def _trade(context: click.Context, seed: int, *, as_json: bool) -> None:
    ways = asyncio.run(_traded(seed))
    if as_json:
        click.echo(orjson.dumps([asdict(each) for each in ways], option=orjson.OPT_INDENT_2))
    else:
        tell_trades(ways, Console(highlight=False, soft_wrap=False))
    if ways[-1].torn or any(each.differing for each in ways[1:]):
        context.exit(BROKEN)


async def _traded(seed: int) -> list[Trades]:
    async with EmbeddedServers(1) as servers:
        url = servers.urls[0]
        return [
            await trade_over_pubsub(url, seed),
            await trade_over_regions(url, seed, joint=False),
            await trade_over_regions(url, seed, joint=True),
        ]


def _standing(
    wan: Path | None, rtt: bool, hosts: str | None, node_hosts: str | None, nodes: int, servers: int | None
) -> Standing | None:
    """Return the hosts of servers and nodes, or None without a matrix."""
    if wan is None:
        for given, option in ((rtt, "--rtt"), (hosts, "--hosts"), (node_hosts, "--node-hosts")):
            if given:
                raise UsageError(f"{option} is about a latency matrix: name one with --wan")
        return None
    if servers is None:
        raise UsageError("--wan needs the number of servers at its hosts: give --servers N")
    return stand(
        read_distances(wan, rtt=rtt),
        servers=server_names(servers),
        nodes=tuple(f"n{number}" for number in range(1, nodes + 1)),
        hosts=hosts,
        node_hosts=node_hosts,
    )


async def _run(workload: Workload, *, nodes: int, speed: float, record: Recording | None) -> Outcome:
    expected = sum(workload.expected_deliveries().values())
    with _progress() as begin:
        async with AsyncExitStack() as open_casts:
            run = replay_roaming if workload.roams else replay
            bar = begin("gamecast", expected)
            ours, client = await run(open_casts, workload, nodes=nodes, speed=speed, progress=bar, record=record)
            plan = await client.plan()
            if plan is None:
                raise PlanError("the network has no plan after a replay")
            urls = [url or client.url for url in plan.nodes.values()]
            progress = begin("plain Pub/Sub", expected)
            if workload.roams:
                plain = await replay_plain_roaming(workload, urls, speed=speed, progress=progress)
            else:
                same = dict.fromkeys(workload.servers, urls)
                plain = await replay_plain(workload, same, speed=speed, progress=progress)
    return Outcome(workload, plan, ours, plain)


async def _run_replicated(
    workload: Workload, *, nodes: int, replicas: int, kill: bool, speed: float, record: Recording | None
) -> Outcome:
    expected = sum(workload.expected_deliveries().values())
    with _progress() as begin:
        async with AsyncExitStack() as opened:
            network = await opened.enter_async_context(replicated(nodes, replicas))
            servers = network.replicated
            assert servers is not None
            killer = Killer(servers, network.url, begin("gamecast", expected), expected)
            killing = asyncio.create_task(killer.kill(), name="demo kill") if kill else None
            try:
                ours, client = await replay(
                    opened,
                    workload,
                    nodes=nodes,
                    speed=speed,
                    progress=killer.progress,
                    record=record,
                    url=network.url,
                )
                killed = replace(await killing, slowest_s=slowest_s(ours)) if killing is not None else None
            finally:
                if killing is not None:
                    killing.cancel()
            plan = await client.plan()
            if plan is None:
                raise PlanError("the network has no plan after a replay")
            same = dict.fromkeys(workload.servers, await asyncio.to_thread(urls_of_masters, servers, nodes))
            plain = await replay_plain(workload, same, speed=speed, progress=begin("plain Pub/Sub", expected))
    return Outcome(workload, plan, ours, plain, killed)


@contextmanager
def _progress() -> Iterator[Begin]:
    """Yield a function that begins a progress bar on the terminal, if standard error is one."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def begin(description: str, expected: int) -> Callable[[int], None]:
            task = bars.add_task(description, total=expected)
            return lambda deliveries: bars.advance(task, deliveries)

        yield begin


def _require_writable(directory: Path, servers: Sequence[str]) -> None:
    """Make the directory, which must hold no logs of other servers: they would be judged together with these."""
    with writing(f"--record {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    ours = {log_file_name(server) for server in servers}
    strangers = sorted(file.name for file in directory.glob("*.jsonl*") if file.name not in ours)
    if strangers:
        raise UsageError(
            f"--record {directory}: the directory has other delivery logs, such as {strangers[0]}: name another"
        )


def _write_logs(directory: Path, workload: Workload, replayed: Replay) -> None:
    """Write a log for each server into the directory, and the published events, so that losses show."""
    travels = replayed.travels
    write_published(published_within(directory), travels.placed if travels is not None else workload.published())
    for server, seen in replayed.deliveries.items():
        with DeliveryLogWriter(directory / log_file_name(server), server) as log:
            for delivered in seen:
                log.write(
                    delivered.event,
                    region=delivered.region,
                    sender=delivered.sender,
                    sent_at_ns=delivered.sent_at_ns,
                    delivered_at_ns=delivered.delivered_at_ns,
                )
            for stay in travels.stays if travels is not None else ():
                if stay.subscriber == server:
                    log.write_stay(stay)
