"""``gamecast bench gateway``: many clients that drop and reconnect, compared with python-socketio."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console
from rich.table import Table

from laboratory.commands.bench_options import json_option
from launcher.ending import BROKEN

KINDS = "lost", "duplicated", "out_of_place", "gaps", "inversions", "cycles", "refused", "unanswered"
MEMORY_CHANGE_MAX = 0.05


@click.command("gateway")
@click.option("--clients", default=100, show_default=True, type=click.IntRange(2, 10_000), help="WebSockets.")
@click.option(
    "--regions", default=0, type=click.IntRange(min=0), help="Regions in a ring.  [default: one per 10 clients]"
)
@click.option("--overlap", default=2, show_default=True, type=click.IntRange(1, 50), help="Regions of each client.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(min=1))
@click.option("--events-per-s", default=50.0, show_default=True, type=click.FloatRange(min=0.1), help="Of all.")
@click.option(
    "--churn",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of clients that drop each second.",
)
@click.option(
    "--judged", default=100, show_default=True, type=click.IntRange(2), help="Clients whose orders are compared."
)
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
    console = Console(stderr=True)
    with console.status(f"{plan.clients:,} clients") if console.is_terminal else nullcontext():
        result = soak(plan)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(_table(result))
    ours = result["peers"]["gamecast"]
    broken = [f"{ours[kind]} {kind.replace('_', ' ')}" for kind in KINDS if ours[kind]]
    if ours["memory"] is not None and abs(ours["memory"]["change"]) > MEMORY_CHANGE_MAX and plan.seconds >= 60:
        broken.append(f"memory changed by {ours['memory']['change']:.1%}")
    if broken:
        click.echo(f"the gateway did not keep its promises: {'; '.join(broken)}", err=True)
        context.exit(BROKEN)


def _table(result: dict[str, dict[str, dict[str, object]]]) -> Table:
    peers = result["peers"]
    table = Table("", *peers)
    for row in next(iter(peers.values())):
        table.add_row(row, *(str(figures[row]) for figures in peers.values()))
    return table
