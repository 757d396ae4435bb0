"""``gamecast bench embedding``: measure the cost of gamecast in a game server."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import json_option


@click.command("embedding")
@click.option("--runs", default=9, show_default=True, type=click.IntRange(1, 100), help="Runs to take medians of.")
@json_option
def bench_embedding(*, runs: int, as_json: bool) -> None:
    """Measure the cost of embedding gamecast: CPU, memory and modules of the import and of a connection.

    Its foundations (asyncio, orjson and redis.asyncio) are measured too, and click beside --version and --help. Each
    has its own process. They take turns, so that other load on the machine affects all alike.

    Exit status: 0, or 2 for wrong use, 3 if a process did not finish.
    """
    from laboratory.bench.embedding import measure_embedding, report

    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def begin(name: str, run: int) -> None:
            if status is not None:
                status.update(f"run {run + 1}: {name}")

        result = measure_embedding(runs=runs, begin=begin)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result))
