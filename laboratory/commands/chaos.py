"""``gamecast chaos``: inject faults into a real network."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cli.manager import manager
from cli.node import node
from cli.outfiles import writing
from cli.running import run
from gamecast.errors import UsageError
from laboratory.chaos.run import Progress as Report
from laboratory.chaos.run import run_chaos
from launcher.ending import BROKEN


@click.command()
# Longer runs could not be judged: streams of ended epochs are deleted after an hour.
@click.option(
    "--seconds", type=click.FloatRange(5, 3_000), default=60.0, show_default=True, help="How long to inject faults."
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Seed of the schedule and of the servers' actions."
)
@click.option("--servers", type=click.IntRange(2, 64), default=8, show_default=True, help="Game servers.")
@click.option(
    "--walk", is_flag=True, help="Servers only walk between neighbouring regions, and declare these overlaps."
)
@click.option("--lossy", is_flag=True, help="Two of the three Redis servers keep nothing over a restart, and say so.")
@click.option(
    "--replicas",
    type=click.IntRange(0, 3),
    default=0,
    show_default=True,
    help="Replicas of each Redis server, for which receipts wait.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep all logs in this directory.  [default: only when a promise was broken]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def chaos(
    context: click.Context,
    *,
    seconds: float,
    seed: int,
    servers: int,
    lossy: bool,
    walk: bool,
    replicas: int,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Run a real network under injected faults, and judge it. The order checkers judge the deliveries of its servers.

    Three Redis servers (appendfsync always), a proxy before each, three relays, two managers and the game servers run
    in a process each. The game servers publish all the time, and subscribe and unsubscribe at random. Meanwhile, a
    seeded schedule injects at least 20 faults a minute:

    \b
    - a process is killed and restarted, or stopped for seconds
    - a leader is stopped until another candidate leads, and then continues
    - a server stays away for so long that it is removed
    - connections are cut in the middle of a reply, or stall
    - a Redis server's memory is full, or its append-only file cannot grow
    - a Redis server's clock jumps by up to two minutes, and is put right later

    Then the faults end, and the servers publish a last round. After its delivery, the judges of the simulation and
    the order checkers judge the deliveries of each connection. Some events name keys, and most of these are published
    on a condition: what became of them must be linearizable for each key.

    With --lossy, events that a restart loses break no promise if a gap announces them in their place.

    With --replicas, three sentinels promote a replica in place of a master that is killed or stopped, or that a
    partition leaves alone with its clients; planned failovers come, too. Receipts wait for all replicas
    (`gamecast node --replicas`), so nothing may be lost. Memory, disk and clocks are left alone.

    The seed fixes the schedule, not the run: the operating system schedules the processes. Clock jumps need Debian's
    libfaketime; if it is not installed, they are left out, and the report says so. A full disk is simulated by a limit
    on the size of the append-only file, at which Redis exits. This needs prlimit.

    Exit status: 0 if every promise was kept, 1 if not, 2 for wrong use, 3 if the network could not be started.
    """
    if replicas and lossy:
        raise UsageError("--replicas and --lossy exclude each other")
    directory = _directory(keep)
    with _progress(seconds) as report:
        outcome = asyncio.run(
            run_chaos(
                seed,
                seconds,
                servers,
                directory,
                lasting=keep is not None,
                lossy=lossy,
                walk=walk,
                replicas=replicas,
                progress=report,
                command=run_daemon,
            )
        )
    if as_json:
        click.echo(orjson.dumps(outcome.as_dict(), option=orjson.OPT_INDENT_2))
    else:
        outcome.tell(Console(highlight=False, soft_wrap=False))
        if keep is not None:
            click.echo(f"All logs are in {keep}.")
    if not outcome.fine:
        context.exit(BROKEN)


def run_daemon(name: str, *arguments: str) -> None:
    """Run ``gamecast node`` or ``gamecast manager`` in this process."""
    run({"node": node, "manager": manager}[name], arguments)


def _directory(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="gamecast-chaos-"))
    with writing(f"--keep {keep}"):
        keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise UsageError(f"--keep {keep}: the directory is not empty: name another")
    return keep.absolute()


@contextmanager
def _progress(seconds: float) -> Iterator[Report]:
    """Yield a function that shows the progress of a run on the terminal, if standard error is one."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("starting", total=seconds)

        def report(passed: float, faults: int, delivered: int) -> None:
            bars.update(task, completed=passed, description=f"{faults} faults, {delivered:,} events delivered")

        yield report
