"""``gamecast bench recording``: measure the cost of recording a session."""

from __future__ import annotations

import click
import orjson
from rich.console import Console

from gamecast.recording.options import require_pyarrow
from laboratory.bench.workload import FAN_OUT, Phases
from laboratory.commands.bench_options import exit_if_broken, json_option, progress, trial_options
from launcher.ending import INFRASTRUCTURE

EVENTS = 1_000_000
"""Five times as many as for other commands, so that a recorder's start-up does not count as a steady cost."""

RUNS = 9
"""Three times as many: the cost is smaller than the spread between runs of one kind."""


@click.command("recording", context_settings={"default_map": {"events": EVENTS, "runs": RUNS}})
@click.option(
    "--size", default=8, show_default=True, type=click.IntRange(FAN_OUT, 1_000), help="Subscribers, and regions."
)
@trial_options
@json_option
@click.pass_context
def bench_recording(
    context: click.Context,
    *,
    size: int,
    runs: int,
    events: int,
    seconds: float,
    rate: int,
    window: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measure the cost of `gamecast.connect(record=…)`, beside runs without it.

    The workload is that of `gamecast bench`; all publishers and all subscribers record. The overhead is the share of
    throughput that recording takes: the median over pairs of runs. If the recorder drops records, the figures do not
    count, because dropping is free.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if a trial could not be run, or
    a delivered event is missing from the session.
    """
    require_pyarrow()
    from laboratory.bench.campaign import violations
    from laboratory.bench.recording import measure_recording, report

    phases = Phases(events=events, paced_s=seconds, rate_per_s=rate, window_events=window, seed=seed)
    with progress(2 * runs) as begin:
        result = measure_recording(size=size, runs=runs, phases=phases, begin=begin)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
    if result["unrecorded"]:
        click.echo(f"{result['unrecorded']:,} deliveries of the last run were not recorded", err=True)
        context.exit(INFRASTRUCTURE)
    broken = [what for name, of_name in result["figures"].items() for what in violations({name: of_name})]
    exit_if_broken(context, broken)
