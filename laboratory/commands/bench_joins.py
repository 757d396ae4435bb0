"""``gamecast bench joins``: measure how fast servers join regions."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import exit_if_broken, json_option


@click.command("joins")
@click.option(
    "--regions", default=1_000, show_default=True, type=click.IntRange(2, 100_000), help="Regions in the network."
)
@click.option(
    "--servers", default=200, show_default=True, type=click.IntRange(1, 2_000), help="Servers that join at once."
)
@click.option("--view", default=8, show_default=True, type=click.IntRange(1, 100), help="Regions that each server has.")
@click.option(
    "--step",
    default=5,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Regions that each server joins in a turn.",
)
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1, 100), help="Turns to take the median of.")
@click.option(
    "--overlaps",
    default="both",
    show_default=True,
    type=click.Choice(["declared", "undeclared", "both"]),
    help="Declared: servers join in place and leave as many regions. Undeclared: each turn takes an epoch.",
)
@click.option("--shared", is_flag=True, help="Servers share the connections that one process can share.")
@json_option
@click.pass_context
def bench_joins(
    context: click.Context,
    *,
    regions: int,
    servers: int,
    view: int,
    step: int,
    turns: int,
    overlaps: str,
    shared: bool,
    as_json: bool,
) -> None:
    """Measure how many joins/s a network takes, and how long each join waits.

    Servers are arranged around a ring of regions. In each turn, all of them join some more regions at once. The
    manager and a redis-server have a process each; all servers together have another. At the end, an event is
    published in each region.

    Exit status: 0, or 1 if a server misses such an event or gets one of another region, 2 for wrong use, 3 if a turn
    could not be measured.
    """
    from laboratory.bench.joining import KINDS, Walk, measure_joins, report

    walk = Walk(regions, servers, view, step, turns, shared)
    kinds = KINDS if overlaps == "both" else KINDS[:1] if overlaps == "declared" else KINDS[1:]
    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_turn(kind: str, turn: int) -> None:
            if status is not None:
                status.update(f"{kind}: {f'turn {turn} of {turns}' if turn else f'{servers:,} servers join'}")

        result = measure_joins(walk, kinds, on_turn)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
    broken = [
        f"{figures[what]} {what} deliveries, {kind}"
        for kind, figures in result["kinds"].items()
        for what in ("lost", "unexpected")
        if figures[what]
    ]
    exit_if_broken(context, broken)
