"""``gamecast bench memory``: what frames, regions and subscribers take."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from cli.bench_options import exit_if_broken, json_option


@click.command("memory")
@click.option("--regions", default=10_000, show_default=True, type=click.IntRange(3, 100_000), help="Of one node.")
@click.option(
    "--subscribers",
    default=1_000,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Each with its part of them.",
)
@click.option(
    "--events",
    default=20_000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="To publish once all have joined.",
)
@click.option("--seed", default=1, show_default=True, help="Of the regions that events are published to.")
@json_option
@click.pass_context
def bench_memory(
    context: click.Context, *, regions: int, subscribers: int, events: int, seed: int, as_json: bool
) -> None:
    """Measure memory: a frame that is held, one that is kept, a region, a subscriber; beside plain Redis.

    Every subscriber has its part of the regions and two of its neighbour's. All connect, then join all at once; then
    events go to regions at random, and the order checkers judge what was delivered.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.crowd import World
    from laboratory.bench.memory import measure_memory, report

    world = World(regions, subscribers)
    console = Console(stderr=True)
    with console.status(f"{subscribers:,} subscribers") if console.is_terminal else nullcontext():
        result = measure_memory(world, events=events, seed=seed)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
    kinds = ("lost", "duplicated", "inversions", "cycles", "publisher_order_violations")
    broken = [f"{count} {kind.replace('_', ' ')}" for kind in kinds if (count := result["crowd"][kind])]
    exit_if_broken(context, broken)
