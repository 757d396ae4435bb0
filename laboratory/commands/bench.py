"""`gamecast bench`: measure throughput and delay of gamecast and its alternatives, in one run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache, partial
from pathlib import Path

import click
import orjson
from click.core import ParameterSource
from rich.console import Console

from laboratory.bench.arrangements import arrangements
from laboratory.bench.bound import decoding_per_s
from laboratory.bench.campaign import Campaign, document, violations
from laboratory.bench.peers.registry import BY_NAME_ONLY, OTHERS, OURS
from laboratory.bench.table import report
from laboratory.bench.workload import FAN_OUT, Phases, World, dense, hot, match, ring
from laboratory.commands.bench_all import bench_all
from laboratory.commands.bench_borders import bench_borders
from laboratory.commands.bench_crowds import bench_crowds
from laboratory.commands.bench_embedding import bench_embedding
from laboratory.commands.bench_gateway import bench_gateway
from laboratory.commands.bench_joins import bench_joins
from laboratory.commands.bench_knee import bench_knee
from laboratory.commands.bench_memory import bench_memory
from laboratory.commands.bench_options import (
    against_option,
    exit_if_broken,
    json_option,
    loop_option,
    parse_sizes,
    progress,
    tick_option,
    trial_options,
)
from laboratory.commands.bench_paths import bench_paths
from laboratory.commands.bench_recording import bench_recording
from laboratory.commands.bench_regions import bench_regions
from laboratory.commands.bench_updates import bench_updates


def _world(kind: str, sizes: tuple[int, ...], trace: Path | None) -> Callable[[int], World]:
    if kind == "ring" and min(sizes) < FAN_OUT:
        raise click.UsageError(f"each subscriber has {FAN_OUT} regions: give at least {FAN_OUT} of them")
    if kind != "trace" and trace is not None:
        raise click.UsageError("--trace needs --world trace")
    if kind == "trace":
        return lru_cache(partial(match, trace=trace))
    return {"ring": ring, "dense": dense, "hot": hot}[kind]


@click.group("bench", invoke_without_command=True)
@against_option
@click.option(
    "--world",
    "kind",
    type=click.Choice(["ring", "dense", "hot", "trace"]),
    default="ring",
    show_default=True,
    help="Regions of each subscriber: ring: three, around a ring; dense: 40 of 77; hot: all the same one; "
    "trace: those of a match's server.",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="PREFIX",
    help="Prefix of the files of a recorded match; without it, a match is generated.",
)
@click.option("--sizes", default="8,32", show_default=True, callback=parse_sizes, help="Numbers of subscribers.")
@trial_options
@tick_option
@loop_option
@json_option
@click.pass_context
def bench(
    context: click.Context,
    against: tuple[str, ...],
    kind: str,
    trace: Path | None,
    sizes: tuple[int, ...],
    runs: int,
    events: int,
    seconds: float,
    rate: int,
    window: int,
    seed: int,
    tick_hz: int | None,
    loop: str,
    as_json: bool,
) -> None:
    """Measure gamecast beside its alternatives.

    The world has S subscribers. An event is about 190 bytes of JSON, which every delivery decodes and hands to a
    callback. Each publisher and each subscriber is a process, and every trial has a fresh private redis-server.

    Other benchmarks are subcommands. `paths`: the cost of paths over several nodes. `borders`:
    what several nodes bring a world with events over borders. `memory`: memory of frames,
    regions and subscribers. `joins`: how many joins/s a network takes. `regions`: how the cost of a
    connection grows with its regions. `recording`: the cost of recording a session.
    `knee`: the most events/s of servers that tick.
    `embedding`: the cost of gamecast in a game server. `plan`: how planning grows. `arrangements`: how far plans of
    small worlds are from the optimum.

    Exit status: 0, or 1 if gamecast lost, repeated or reordered anything, 2 for wrong use, 3 if a trial could not be
    run.
    """
    if context.invoked_subcommand is not None:
        return
    campaign = Campaign(
        peers=(OURS, *(OTHERS[name] for name in against)),
        sizes=sizes,
        runs=runs,
        phases=Phases(events, seconds, rate, window_events=window, seed=seed, tick_hz=tick_hz, loop=loop),
        world=_world(kind, sizes, trace),
    )
    with progress(len(campaign.peers) * len(sizes) * runs) as begin:
        result = document(campaign.run(begin), campaign, OURS.name)
    result["decoding_per_s"] = decoding_per_s()
    if context.get_parameter_source("against") is ParameterSource.DEFAULT:
        known = ((name, peer) for name, peer in OTHERS.items() if name not in BY_NAME_ONLY)
        result["absent"] = {name: cure for name, peer in known if (cure := peer.missing()) is not None}
    if as_json:
        click.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    else:
        Console().print(report(result, OURS.name))
    broken = violations(result["peers"][OURS.name])
    exit_if_broken(context, broken)


@bench.command("plan")
@click.option(
    "--max",
    "subscribers_max",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1_000, 1_000_000),
    help="Subscribers of the largest world.",
)
@click.option("--seed", default=1, show_default=True, help="Seed of the worlds.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the growth: .png, .svg or .pdf.")
@json_option
def bench_plan(*, subscribers_max: int, seed: int, plot: Path | None, as_json: bool) -> None:
    """Measure how planning grows: seconds and peak memory of each stage, from 1,000 subscribers up.

    The worlds are grids with one region for ten subscribers. A subscriber has about 2.5 regions.

    Exit status: 0, or 2 for wrong use.
    """
    from laboratory.bench.growth import growth_table, plot_growth
    from laboratory.bench.planning import measure_planning
    from placement.planning.picture import require_drawable

    if plot is not None:
        require_drawable(plot)
    console = Console(stderr=True)
    with console.status("starting") if console.is_terminal else nullcontext() as status:

        def on_size(subscribers: int) -> None:
            if status is not None:
                status.update(f"{subscribers:,} subscribers")

        costs = measure_planning(subscribers_max, seed=seed, on_size=on_size)
    if plot is not None:
        plot_growth(costs, plot)
    if as_json:
        document = {"sizes": {str(cost.subscribers): cost.as_dict() for cost in costs}, "seed": seed}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    else:
        Console().print(growth_table(costs))


bench.add_command(bench_all)
bench.add_command(arrangements)
bench.add_command(bench_borders)
bench.add_command(bench_paths)
bench.add_command(bench_joins)
bench.add_command(bench_memory)
bench.add_command(bench_embedding)
bench.add_command(bench_gateway)
bench.add_command(bench_recording)
bench.add_command(bench_crowds)
bench.add_command(bench_updates)
bench.add_command(bench_regions)
bench.add_command(bench_knee)
