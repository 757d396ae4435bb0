"""``gamecast bench memory``: measure the memory of frames, regions and subscribers."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import exit_if_broken, json_option


@click.command("memory")
@click.option(
    "--regions", default=10_000, show_default=True, type=click.IntRange(3, 100_000), help="Regions on the node."
)
@click.option(
    "--subscribers",
    default=1_000,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Subscribers, each with its share of the regions.",
)
@click.option(
    "--events",
    default=20_000,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="Events to publish once all have joined.",
)
@click.option("--seed", default=1, show_default=True, help="Seed for the regions that events are published to.")
@json_option
@click.pass_context
def bench_memory(
    context: click.Context, *, regions: int, subscribers: int, events: int, seed: int, as_json: bool
) -> None:
    """Measure memory of a held frame, a kept frame, a region and a subscriber, beside plain Redis.

    Every subscriber has its share of the regions and two of its neighbour's. All connect, then all join at once. Then
    events are published to random regions, and the order checkers judge the deliveries.

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
