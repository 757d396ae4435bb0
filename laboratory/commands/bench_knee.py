"""``gamecast bench knee``: the most events/s of servers that tick, beside gamecast's alternatives."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import against_option, exit_if_broken, json_option, parse_sizes

WORLDS = "ring", "dense"


@click.command("knee")
@against_option
@click.option("--size", default=8, show_default=True, type=click.IntRange(3, 1_000), help="Subscribers.")
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
@click.option("--p99-ms", default=20.0, show_default=True, type=click.FloatRange(0.1), help="Bound of the delays' p99.")
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0.2, 600), help="Seconds of each trial."
)
@json_option
@click.pass_context
def bench_knee(
    context: click.Context,
    *,
    against: tuple[str, ...],
    size: int,
    kinds: tuple[str, ...],
    ticks_hz: tuple[int, ...],
    p99_ms: float,
    seconds: float,
    as_json: bool,
) -> None:
    """Find the most events/s at which servers that tick still have their events in time.

    Publishers send the events of each tick together, as game servers do. Rates double until the p99 of delays exceeds
    the bound; then the step is narrowed to 10%. Each trial has fresh servers. All peers take some 20 minutes.

    Exit status: 0, or 1 if gamecast repeated or reordered anything, 2 for wrong use, 3 if a trial could not be run.
    """
    from laboratory.bench.knee import measure_knees, report
    from laboratory.bench.peers.registry import OTHERS, OURS
    from laboratory.bench.workload import dense, ring

    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def begin(what: str) -> None:
            if status is not None:
                status.update(what)

        result = measure_knees(
            (OURS, *(OTHERS[name] for name in against)),
            [{"ring": ring, "dense": dense}[kind](size) for kind in kinds],
            ticks_hz,
            p99_ms=p99_ms,
            seconds=seconds,
            begin=begin,
        )
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result, OURS.name))
    ours = (knee for knee in result["knees"] if knee["peer"] == OURS.name)
    exit_if_broken(context, [f"{knee['world']}: {knee['broken']} times" for knee in ours if knee["broken"]])
