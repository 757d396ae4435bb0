"""``gamecast bench borders``: measure what several nodes bring a world with events over borders."""

from __future__ import annotations

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import json_option

NODES_MAX = 8


@click.command("borders")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(2, NODES_MAX), help="Nodes, beside one.")
@click.option("--side", default=6, show_default=True, type=click.IntRange(3, 30), help="Cells of a side of the world.")
@click.option("--sees", is_flag=True, help="Each server also has the first cells beyond its borders.")
@click.option(
    "--share",
    default=0.06,
    show_default=True,
    type=click.FloatRange(0.01, 1),
    help="Share of a core that each redis-server may use.",
)
@click.option(
    "--seconds", default=8.0, show_default=True, type=click.FloatRange(0.1, 600), help="Seconds at full speed."
)
@json_option
def bench_borders(*, nodes: int, side: int, sees: bool, share: float, seconds: float, as_json: bool) -> None:
    """Measure what several nodes bring a world whose servers shoot and hand over across borders, beside one node.

    Three servers have a third of a square world each. Events of two neighbouring cells are a tenth as frequent, for
    each border, as events of a cell. The network on several nodes has the plan of `gamecast plan --from URL --apply`.
    Each redis-server is held to a share of a core, so that it is what limits the world and not the machine.

    Exit status: 0, 2 for wrong use, 3 if a network could not be run.
    """
    from laboratory.bench.borders import Borders, measure_borders, report

    world = Borders(side, sees, share)
    result = measure_borders(world, nodes, seconds=seconds, begin=lambda what: click.echo(f"{what} …", err=True))
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
