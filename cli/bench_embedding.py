"""``gamecast bench embedding``: what a game server pays for having gamecast in it."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from cli.bench_options import json_option


@click.command("embedding")
@click.option("--runs", default=9, show_default=True, type=click.IntRange(1, 100), help="Of which medians are taken.")
@json_option
def bench_embedding(*, runs: int, as_json: bool) -> None:
    """Measure what it costs to embed gamecast: CPU, memory and modules of the import and of a connection.

    Beside them its foundations (asyncio, orjson and redis.asyncio), and --version and --help beside click. Each is
    a process of its own, by turns, so that what else the machine does concerns all of them.
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
