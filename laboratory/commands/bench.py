"""`gamecast bench`: measure throughput and delay of gamecast and its alternatives, in one run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cli.commands import Group
from laboratory.bench.bound import decoding_per_s
from laboratory.bench.campaign import Campaign, document, violations
from laboratory.bench.peers.registry import BY_NAME_ONLY, OTHERS, OURS
from laboratory.bench.table import report
from laboratory.bench.workload import FAN_OUT, Phases, World, dense, hot, match, ring
from laboratory.commands import bench_costs, bench_trials
from laboratory.commands.bench_all import bench_all
from laboratory.commands.bench_options import (
    against_option,
    exit_if_broken,
    json_option,
    loop_option,
    parse_sizes,
    progress,
    show,
    tick_option,
    trace_option,
    trial_options,
)


def _world(kind: str, sizes: tuple[int, ...], trace: Path | None) -> Callable[[int], World]:
    if kind == "ring" and min(sizes) < FAN_OUT:
        raise click.UsageError(f"each subscriber has {FAN_OUT} regions: give at least {FAN_OUT} of them")
    if kind != "trace" and trace is not None:
        raise click.UsageError("--trace needs --world trace")
    if kind == "trace":
        return lru_cache(partial(match, trace=trace))
    return {"ring": ring, "dense": dense, "hot": hot}[kind]


@click.group("bench", cls=Group, invoke_without_command=True)
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
@trace_option
@click.option("--sizes", default="8,32", show_default=True, callback=parse_sizes, help="Numbers of subscribers.")
@trial_options
@tick_option
@loop_option
@json_option
@click.pass_context
def bench(
    context: click.Context,
    /,
    against: tuple[str, ...],
    kind: str,
    trace: Path | None,
    sizes: tuple[int, ...],
    runs: int,
    as_json: bool,
    **phases: Any,
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
        phases=Phases(**phases),
        world=_world(kind, sizes, trace),
    )
    with progress(len(campaign.peers) * len(sizes) * runs) as begin:
        result = document(campaign.run(begin), campaign, OURS.name)
    result["decoding_per_s"] = decoding_per_s()
    if context.get_parameter_source("against") is ParameterSource.DEFAULT:
        known = ((name, peer) for name, peer in OTHERS.items() if name not in BY_NAME_ONLY)
        result["absent"] = {name: cure for name, peer in known if (cure := peer.missing()) is not None}
    show(result, lambda result: report(result, OURS.name), as_json=as_json)
    exit_if_broken(context, violations(result["peers"][OURS.name]))


for _command in (bench_all, *bench_costs.COMMANDS, *bench_trials.COMMANDS):
    bench.add_command(_command)
