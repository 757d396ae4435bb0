"""``gamecast capacity``: find the highest rate at which delays and hold times stay within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from adapters.memory import NODES_MAX
from gamecast import blocking
from gamecast.client.networks import require_reachable
from laboratory.bench.workload import FAN_OUT
from laboratory.commands.bench_options import json_option
from launcher.ending import BROKEN


@click.command()
@click.argument("url", required=False)
@click.option("--p99-ms", default=50.0, show_default=True, type=click.FloatRange(0.1), help="Bound of the delays' p99.")
@click.option(
    "--hold-ms", default=20.0, show_default=True, type=click.FloatRange(0.1), help="Bound of hold times' p99."
)
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, NODES_MAX), help="Nodes, without a URL.")
@click.option(
    "--size", default=8, show_default=True, type=click.IntRange(FAN_OUT, 1_000), help="Subscribers, and regions."
)
@click.option("--start", default=2_000.0, show_default=True, type=click.FloatRange(1), help="Events/s to begin with.")
@click.option(
    "--rate-max", default=200_000.0, show_default=True, type=click.FloatRange(1), help="Events/s to try at most."
)
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.2, 600), help="Length of each run.")
@click.option(
    "--repeats",
    default=3,
    show_default=True,
    type=click.IntRange(1, 99),
    help="Runs at each rate, an odd number: the majority decides.",
)
@click.option(
    "--max-seconds",
    default=240.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Length of the whole search, about.",
)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the knee: .png, .svg or .pdf.")
@json_option
@click.pass_context
def capacity(
    context: click.Context,
    *,
    url: str | None,
    p99_ms: float,
    hold_ms: float,
    nodes: int,
    size: int,
    start: float,
    rate_max: float,
    seconds: float,
    repeats: int,
    max_seconds: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Find the highest rate at which delays stay within bounds. Hold times have a bound, too.

    It measures the network at URL or, without one, a network that it starts on this machine. Rates double until the
    bounds are exceeded or something is lost; then the step is narrowed to 10%. The load is that of `gamecast bench`:
    two publishers keep to a schedule, each subscriber has three regions, and delays count from when an event was due.
    Each publisher, each subscriber and, on this machine, the network is a process. The result is the capacity of all of
    them together. The report names the process that was the bottleneck.

    Exit status: 0 when a rate was found, 1 when none stays within the bounds or a promise was broken, 2 for wrong use,
    3 if the network is unavailable.
    """
    from laboratory.capacity.knee import draw_knee, report
    from laboratory.capacity.measuring import find_capacity
    from laboratory.capacity.search import Bounds, Search
    from placement.planning.picture import require_drawable

    if repeats % 2 == 0:
        raise click.BadParameter("an even number of runs can end in a tie: give an odd one", param_hint="--repeats")
    if plot is not None:
        require_drawable(plot)
    if url is not None:
        require_reachable(url)
        with blocking.connect(url):
            pass  # Fail here if the network is unavailable: otherwise two processes would.
    search = Search(Bounds(p99_ms, hold_ms), min(start, rate_max), rate_max, repeats=repeats)
    console = Console(stderr=True)
    with console.status("starting") as status:

        def begin(rate: float, known: Mapping[str, Any]) -> None:
            passed, failed = (f"{known[name]:,.0f}" if known[name] else "?" for name in ("passed", "failed"))
            status.update(f"{rate:,.0f} events/s (passed {passed}, failed {failed})")

        if not console.is_terminal:
            status.stop()
        found = find_capacity(
            url, search, nodes=nodes, size=size, seconds=seconds, seconds_max=max_seconds, begin=begin
        )
    result = found.as_dict()
    if plot is not None:
        draw_knee(result, plot)
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console(highlight=False).print(report(result))
    if found.rate_per_s is None or found.broken:
        context.exit(BROKEN)
