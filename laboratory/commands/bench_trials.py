"""The subcommands of ``gamecast bench`` that run trials of peers: paths, recording, knee, and the soak of a gateway."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from laboratory.bench.workload import Phases
from laboratory.commands.bench_options import (
    against_option,
    exit_if_broken,
    json_option,
    number,
    parse_sizes,
    progress,
    show,
    size_option,
    status,
    trial_options,
)
from launcher.ending import INFRASTRUCTURE

RECORDED_EVENTS = 1_000_000
"""Five times as many as for other commands, so that a recorder's start-up does not count as a steady cost."""

RECORDED_RUNS = 9
"""Three times as many: the cost is smaller than the spread between runs of one kind."""

WORLDS = "ring", "dense"
SOAK_FAILURES = "lost", "duplicated", "out_of_place", "gaps", "inversions", "cycles", "refused", "unanswered"
MEMORY_CHANGE_MAX = 0.05


@click.command("paths")
@number("--longest", 3, 1, 8, "Nodes of the longest path.")
@size_option
@trial_options
@json_option
@click.pass_context
def bench_paths(context: click.Context, /, *, longest: int, size: int, runs: int, as_json: bool, **phases: Any) -> None:
    """Measure the cost of paths over several nodes, beside one node in the same run.

    The workload is that of `gamecast bench`, with a plan in which every event visits 1, 2, … nodes. The report has
    throughput, delay and CPU, and what a hop adds to them. It also has the bytes that frames carry beside their
    events, by the atoms that stamp them.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if a trial could not be run.
    """
    from laboratory.bench.campaign import violations
    from laboratory.bench.paths import measure_paths, report

    with progress(longest * runs) as begin:
        result = measure_paths(longest, size=size, runs=runs, phases=Phases(**phases), begin=begin)
    show(result, report, as_json=as_json)
    broken = [what for figures in result["paths"].values() for what in violations({str(size): figures})]
    exit_if_broken(context, broken)


@click.command("recording", context_settings={"default_map": {"events": RECORDED_EVENTS, "runs": RECORDED_RUNS}})
@size_option
@trial_options
@json_option
@click.pass_context
def bench_recording(context: click.Context, /, *, size: int, runs: int, as_json: bool, **phases: Any) -> None:
    """Measure the cost of `gamecast.connect(record=…)`, beside runs without it.

    The workload is that of `gamecast bench`; all publishers and all subscribers record. The overhead is the share of
    throughput that recording takes: the median over pairs of runs. If the recorder drops records, the figures do not
    count, because dropping is free.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if a trial could not be run, or
    a delivered event is missing from the session.
    """
    from gamecast.recording.options import require_pyarrow

    require_pyarrow()
    from laboratory.bench.campaign import violations
    from laboratory.bench.recording import measure_recording, report

    with progress(2 * runs) as begin:
        result = measure_recording(size=size, runs=runs, phases=Phases(**phases), begin=begin)
    show(result, report, as_json=as_json)
    if result["unrecorded"]:
        click.echo(f"{result['unrecorded']:,} deliveries of the last run were not recorded", err=True)
        context.exit(INFRASTRUCTURE)
    exit_if_broken(context, [what for name, found in result["figures"].items() for what in violations({name: found})])


@click.command("knee")
@against_option
@number("--size", 8, 3, 1_000, "Subscribers.")
@click.option(
    "--world",
    "kinds",
    type=click.Choice(WORLDS),
    multiple=True,
    default=WORLDS,
    show_default=True,
    help="Regions of each subscriber: ring: three, around a ring; dense: 40 of 77. May be given twice.",
)
@click.option(
    "--tick",
    "ticks_hz",
    default="20,60",
    show_default=True,
    callback=parse_sizes,
    help="Ticks/s of the servers that publish.",
)
@number("--p99-ms", 20.0, 0.1, None, "Bound of the delays' p99.")
@number("--seconds", 2.0, 0.2, 600, "Seconds of each trial.")
@json_option
@click.pass_context
def bench_knee(
    context: click.Context,
    /,
    *,
    against: tuple[str, ...],
    size: int,
    kinds: tuple[str, ...],
    ticks_hz: tuple[int, ...],
    as_json: bool,
    **bounds: float,
) -> None:
    """Find the most events/s at which servers that tick still have their events in time.

    Publishers send the events of each tick together, as game servers do. Rates double until the p99 of delays exceeds
    the bound; then the step is narrowed to 10%. Each trial has fresh servers. All peers take some 20 minutes.

    Exit status: 0, or 1 if gamecast repeated or reordered anything, 2 for wrong use, 3 if a trial could not be run.
    """
    from laboratory.bench.knee import measure_knees, report
    from laboratory.bench.peers.registry import OTHERS, OURS
    from laboratory.bench.workload import dense, ring

    peers = OURS, *(OTHERS[name] for name in against)
    worlds = [{"ring": ring, "dense": dense}[kind](size) for kind in kinds]
    with status() as begin:
        result = measure_knees(peers, worlds, ticks_hz, begin=begin, **bounds)
    show(result, lambda result: report(result, OURS.name), as_json=as_json)
    ours = (knee for knee in result["knees"] if knee["peer"] == OURS.name)
    exit_if_broken(context, [f"{knee['world']}: {knee['broken']} times" for knee in ours if knee["broken"]])


@click.command("gateway")
@number("--clients", 100, 2, 10_000, "WebSockets.")
@click.option(
    "--regions", default=0, type=click.IntRange(min=0), help="Regions in a ring.  [default: one per 10 clients]"
)
@number("--overlap", 2, 1, 50, "Regions of each client.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(min=1))
@number("--events-per-s", 50.0, 0.1, None, "Of all.")
@number("--churn", 0.05, 0, 1, "Share of clients that drop each second.")
@number("--judged", 100, 2, None, "Clients whose orders are compared.")
@click.option("--seed", default=1, show_default=True)
@json_option
@click.pass_context
def bench_gateway(context: click.Context, /, *, regions: int, as_json: bool, **options: float) -> None:
    """Soak a gateway: clients publish, drop without closing, and reconnect; nothing may be lost or out of order.

    The run has its own gateway and Redis. If python-socketio is installed, it runs afterwards under the same load,
    with its Redis manager. Losses and repeats are counted for all clients; orders are compared for some. Latency is
    from publish to delivery, of events published while the client was connected.

    Exit status: 0; 1 if the gateway lost, repeated or reordered anything, or if its memory changed by more than 5%
    after the first fifth; 2 for wrong use; 3 if a server did not start.
    """
    from laboratory.bench.gateway_soak import Soak, soak

    regions = regions or max(int(options["overlap"]) + 1, int(options["clients"]) // 10)
    plan = Soak(regions=regions, **options)  # type: ignore[arg-type]
    with status(f"{plan.clients:,} clients"):
        result = soak(plan)
    show(result, _soak_table, as_json=as_json)
    ours = result["peers"]["gamecast"]
    broken = [f"{ours[kind]} {kind.replace('_', ' ')}" for kind in SOAK_FAILURES if ours[kind]]
    if ours["memory"] is not None and abs(ours["memory"]["change"]) > MEMORY_CHANGE_MAX and plan.seconds >= 60:
        broken.append(f"memory changed by {ours['memory']['change']:.1%}")
    exit_if_broken(context, broken, "the gateway")


def _soak_table(result: dict[str, dict[str, dict[str, object]]]) -> Table:
    peers = result["peers"]
    table = Table("", *peers)
    for row in next(iter(peers.values())):
        table.add_row(row, *(str(figures[row]) for figures in peers.values()))
    return table


COMMANDS = bench_gateway, bench_knee, bench_paths, bench_recording
