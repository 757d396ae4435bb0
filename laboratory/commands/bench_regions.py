"""``gamecast bench regions``: measure how the cost of a connection grows with its regions."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import json_option, parse_sizes


@click.command("regions")
@click.option(
    "--sizes",
    default="30,1000,10000",
    show_default=True,
    callback=parse_sizes,
    help="Numbers of regions of one connection.",
)
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(1, 600),
    help="How long servers walk in each trial.",
)
@json_option
def bench_regions(*, sizes: tuple[int, ...], seconds: float, as_json: bool) -> None:
    """Measure how the cost of a connection grows with its regions, beside Redis Pub/Sub.

    One connection subscribes to all of its regions, then to one more at a time, then gets lone events. It has a
    process of its own; so have the redis-server and the manager. Then servers walk: blocks of 3 x 3 cells move every
    0.25 s, on one node and on three, with and without the history of the cells, while events are published; servers
    take events every 50 ms. At last, a replay of 10,000 events runs beside live events.

    Exit status: 0, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.regions import measure_regions, report
    from laboratory.bench.walkers import measure_walkers, walkers_report

    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_trial(what: str, size: int) -> None:
            if status is not None:
                status.update(f"{what}: {size:,}")

        result = {
            "regions": measure_regions(sizes, on_trial),
            "walkers": measure_walkers(seconds, on_trial),
        }
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result["regions"]), walkers_report(result["walkers"]))
