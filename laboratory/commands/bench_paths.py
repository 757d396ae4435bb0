"""``gamecast bench paths``: measure the cost of longer paths."""

from __future__ import annotations

import click
import orjson
from rich.console import Console

from laboratory.bench.workload import FAN_OUT, Phases
from laboratory.commands.bench_options import exit_if_broken, json_option, progress, trial_options

NODES_MAX = 8


@click.command("paths")
@click.option(
    "--longest", default=3, show_default=True, type=click.IntRange(1, NODES_MAX), help="Nodes of the longest path."
)
@click.option(
    "--size", default=8, show_default=True, type=click.IntRange(FAN_OUT, 1_000), help="Subscribers, and regions."
)
@trial_options
@json_option
@click.pass_context
def bench_paths(
    context: click.Context,
    *,
    longest: int,
    size: int,
    runs: int,
    events: int,
    seconds: float,
    rate: int,
    window: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure the cost of paths over several nodes, beside one node in the same run.

    The workload is that of `gamecast bench`, with a plan in which every event visits 1, 2, … nodes. The report has
    throughput, delay and CPU, and what a hop adds to them. It also has the bytes that frames carry beside their
    events, by the atoms that stamp them.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if a trial could not be run.
    """
    from laboratory.bench.campaign import violations
    from laboratory.bench.paths import measure_paths, report

    phases = Phases(events=events, paced_s=seconds, rate_per_s=rate, window_events=window, seed=seed)
    with progress(longest * runs) as begin:
        result = measure_paths(longest, size=size, runs=runs, phases=phases, begin=begin)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
    broken = [what for figures in result["paths"].values() for what in violations({str(size): figures})]
    exit_if_broken(context, broken)
