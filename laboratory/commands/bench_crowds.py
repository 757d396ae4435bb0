"""``gamecast bench crowds``: measure what a join costs as a network grows."""

from __future__ import annotations

from contextlib import nullcontext

import click
import orjson
from rich.console import Console

from laboratory.commands.bench_options import json_option


def parse_crowds(_: click.Context, __: click.Parameter, text: str) -> tuple[tuple[int, int], ...]:
    """Read ``40x1,1000x10``."""
    try:
        sizes = tuple((int(size), int(processes)) for size, processes in (each.split("x") for each in text.split(",")))
    except ValueError:
        sizes = ()
    if not sizes or any(not 1 <= processes <= size for size, processes in sizes):
        raise click.BadParameter(f"{text!r} is not a list of connections and processes, like 40x1,1000x10")
    return sizes


@click.command("crowds")
@click.option(
    "--sizes",
    default="40x1,1000x10",
    show_default=True,
    callback=parse_crowds,
    help="Connections, and processes that have them.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 26), default=1, show_default=True, help="Sequencing nodes, all in one Redis."
)
@json_option
def bench_crowds(*, sizes: tuple[tuple[int, int], ...], nodes: int, as_json: bool) -> None:
    """Measure what one more join costs as a network grows, beside SUBSCRIBE of Redis Pub/Sub.

    The connections have 10 regions each, and share the sockets of their process. Then one process joins more regions,
    one after the other; then nothing happens for some seconds; then all processes join as fast as they can. The manager
    and redis-server have a process each.

    Exit status: 0, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.crowds import crowds_report, measure_crowds

    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_trial(peer: str, connections: int, processes: int) -> None:
            if status is not None:
                status.update(f"{peer}: {connections:,} connections in {processes} processes")

        result = measure_crowds(sizes, on_trial, nodes=nodes)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(crowds_report(result))
