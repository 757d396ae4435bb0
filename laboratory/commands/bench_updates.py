"""``gamecast bench updates``: measure what updates cost, and what they do to ordered events."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import json_option


@click.command("updates")
@click.option("--servers", type=click.IntRange(1, 100), default=4, show_default=True, help="Servers that send.")
@click.option("--entities", type=click.IntRange(1, 5_000), default=500, show_default=True, help="Entities of a server.")
@click.option("--hz", type=click.FloatRange(1.0, 120.0), default=20.0, show_default=True, help="Updates of each a s.")
@click.option("--seconds", type=click.FloatRange(4.0, 600.0), default=10.0, show_default=True, help="Time of a trial.")
@json_option
def bench_updates(*, servers: int, entities: int, hz: float, seconds: float, as_json: bool) -> None:
    """Measure what updates cost, beside Redis Pub/Sub: `PUBLISH` for each value, and for all of a tick.

    One reader follows the regions of all servers. Beside that, ordered events show what the traffic does to their
    delay.

    Exit status: 0, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.updates import measure_updates, updates_report

    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_trial(peer: str) -> None:
            if status is not None:
                status.update(peer)

        result = measure_updates(servers, entities, hz, seconds, on_trial)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(updates_report(result))
