"""The subcommands of ``gamecast bench`` that measure what one thing costs: joins, regions, memory, planning, …"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Group

from laboratory.commands.bench_options import exit_if_broken, json_option, number, parse_sizes, show, status


@click.command("borders")
@number("--nodes", 3, 2, 8, "Nodes, beside one.")
@number("--side", 6, 3, 30, "Cells of a side of the world.")
@click.option("--sees", is_flag=True, help="Each server also has the first cells beyond its borders.")
@number("--share", 0.06, 0.01, 1, "Share of a core that each redis-server may use.")
@number("--seconds", 8.0, 0.1, 600, "Seconds at full speed.")
@json_option
def bench_borders(*, nodes: int, side: int, sees: bool, share: float, seconds: float, as_json: bool) -> None:
    """Measure what several nodes bring a world whose servers shoot and hand over across borders, beside one node.

    Three servers have a third of a square world each. Events of two neighbouring cells are a tenth as frequent, for
    each border, as events of a cell. The network on several nodes has the plan of `gamecast plan improve URL --apply`.
    Each redis-server is held to a share of a core, so that it is what limits the world and not the machine.

    Exit status: 0, 2 for wrong use, 3 if a network could not be run.
    """
    from laboratory.bench.borders import Borders, measure_borders, report

    world = Borders(side, sees, share)
    result = measure_borders(world, nodes, seconds=seconds, begin=lambda what: click.echo(f"{what} …", err=True))
    show(result, report, as_json=as_json)


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
@number("--nodes", 1, 1, 26, "Sequencing nodes, all in one Redis.")
@json_option
def bench_crowds(*, sizes: tuple[tuple[int, int], ...], nodes: int, as_json: bool) -> None:
    """Measure what one more join costs as a network grows, beside SUBSCRIBE of Redis Pub/Sub.

    The connections have 10 regions each, and share the sockets of their process. Then one process joins more regions,
    one after the other; then nothing happens for some seconds; then all processes join as fast as they can. The manager
    and redis-server have a process each.

    Exit status: 0, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.crowds import crowds_report, measure_crowds

    with status() as begin:
        result = measure_crowds(sizes, begin, nodes=nodes)
    show(result, crowds_report, as_json=as_json)


@click.command("embedding")
@number("--runs", 9, 1, 100, "Runs to take medians of.")
@json_option
def bench_embedding(*, runs: int, as_json: bool) -> None:
    """Measure the cost of embedding gamecast: CPU, memory and modules of the import and of a connection.

    Its foundations (asyncio, orjson and redis.asyncio) are measured too, and click beside --version and --help. Each
    has its own process. They take turns, so that other load on the machine affects all alike.

    Exit status: 0, or 2 for wrong use, 3 if a process did not finish.
    """
    from laboratory.bench.embedding import measure_embedding, report

    with status() as begin:
        result = measure_embedding(runs=runs, begin=begin)
    show(result, report, as_json=as_json)


@click.command("joins")
@number("--regions", 1_000, 2, 100_000, "Regions in the network.")
@number("--servers", 200, 1, 2_000, "Servers that join at once.")
@number("--view", 8, 1, 100, "Regions that each server has.")
@number("--step", 5, 1, 100, "Regions that each server joins in a turn.")
@number("--turns", 3, 1, 100, "Turns to take the median of.")
@click.option(
    "--overlaps",
    default="both",
    show_default=True,
    type=click.Choice(["declared", "undeclared", "both"]),
    help="Declared: servers join in place and leave as many regions. Undeclared: each turn takes an epoch.",
)
@click.option("--shared", is_flag=True, help="Servers share the connections that one process can share.")
@json_option
@click.pass_context
def bench_joins(context: click.Context, /, *, overlaps: str, as_json: bool, **walk: Any) -> None:
    """Measure how many joins/s a network takes, and how long each join waits.

    Servers are arranged around a ring of regions. In each turn, all of them join some more regions at once. The
    manager and a redis-server have a process each; all servers together have another. At the end, an event is
    published in each region.

    Exit status: 0, or 1 if a server misses such an event or gets one of another region, 2 for wrong use, 3 if a turn
    could not be measured.
    """
    from laboratory.bench.joining import KINDS, Walk, measure_joins, report

    kinds = {"both": KINDS, "declared": KINDS[:1], "undeclared": KINDS[1:]}[overlaps]
    wanted = Walk(**walk)
    with status() as begin:
        result = measure_joins(wanted, kinds, begin)
    show(result, report, as_json=as_json)
    broken = [
        f"{figures[what]} {what} deliveries, {kind}"
        for kind, figures in result["kinds"].items()
        for what in ("lost", "unexpected")
        if figures[what]
    ]
    exit_if_broken(context, broken)


@click.command("memory")
@number("--regions", 10_000, 3, 100_000, "Regions on the node.")
@number("--subscribers", 1_000, 1, 10_000, "Subscribers, each with its share of the regions.")
@number("--events", 20_000, 1, 1_000_000, "Events to publish once all have joined.")
@click.option("--seed", default=1, show_default=True, help="Seed for the regions that events are published to.")
@json_option
@click.pass_context
def bench_memory(
    context: click.Context, /, *, regions: int, subscribers: int, events: int, seed: int, as_json: bool
) -> None:
    """Measure memory of a held frame, a kept frame, a region and a subscriber, beside plain Redis.

    Every subscriber has its share of the regions and two of its neighbour's. All connect, then all join at once. Then
    events are published to random regions, and the order checkers judge the deliveries.

    Exit status: 0, or 1 if anything was lost, repeated or reordered, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.crowd import World
    from laboratory.bench.memory import measure_memory, report

    world = World(regions, subscribers)
    with status(f"{subscribers:,} subscribers"):
        result = measure_memory(world, events=events, seed=seed)
    show(result, report, as_json=as_json)
    kinds = ("lost", "duplicated", "inversions", "cycles", "publisher_order_violations")
    broken = [f"{count} {kind.replace('_', ' ')}" for kind in kinds if (count := result["crowd"][kind])]
    exit_if_broken(context, broken)


@click.command("regions")
@click.option(
    "--sizes",
    default="30,1000,10000",
    show_default=True,
    callback=parse_sizes,
    help="Numbers of regions of one connection.",
)
@number("--seconds", 10.0, 1, 600, "How long servers walk in each trial.")
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

    with status() as begin:
        result = {"regions": measure_regions(sizes, begin), "walkers": measure_walkers(seconds, begin)}
    show(result, lambda found: Group(report(found["regions"]), walkers_report(found["walkers"])), as_json=as_json)


@click.command("updates")
@number("--servers", 4, 1, 100, "Servers that send.")
@number("--entities", 500, 1, 5_000, "Entities of a server.")
@number("--hz", 20.0, 1.0, 120.0, "Updates of each a s.")
@number("--seconds", 10.0, 4.0, 600.0, "Time of a trial.")
@json_option
def bench_updates(*, servers: int, entities: int, hz: float, seconds: float, as_json: bool) -> None:
    """Measure what updates cost, beside Redis Pub/Sub: `PUBLISH` for each value, and for all of a tick.

    One reader follows the regions of all servers. Beside that, ordered events show what the traffic does to their
    delay.

    Exit status: 0, 2 for wrong use, 3 if it could not be measured.
    """
    from laboratory.bench.updates import measure_updates, updates_report

    with status() as begin:
        result = measure_updates(servers, entities, hz, seconds, begin)
    show(result, updates_report, as_json=as_json)


@click.command("plan")
@number("--max", 1_000_000, 1_000, 1_000_000, "Subscribers of the largest world.", "subscribers_max")
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
    with status() as begin:
        costs = measure_planning(subscribers_max, seed=seed, begin=begin)
    if plot is not None:
        plot_growth(costs, plot)
    result = {"sizes": {str(cost.subscribers): cost.as_dict() for cost in costs}, "seed": seed}
    show(result, lambda _: growth_table(costs), as_json=as_json)


@click.command("arrangements")
@number("--worlds", 200, 1, 100_000, "How many worlds.")
@click.option("--seed", default=1, show_default=True, help="Of the worlds.")
@json_option
def bench_arrangements(*, worlds: int, seed: int, as_json: bool) -> None:
    """Measure the planner against the best plans there are, over random worlds of up to 8 regions on 2 to 5 nodes.

    Exit status: 0, or 2 for wrong use.
    """
    from laboratory.bench.arrangements import report, run

    figures = run(worlds, seed)
    click.echo(orjson.dumps(figures, option=orjson.OPT_INDENT_2) if as_json else report(figures))


COMMANDS = (
    bench_arrangements,
    bench_borders,
    bench_crowds,
    bench_embedding,
    bench_joins,
    bench_memory,
    bench_plan,
    bench_regions,
    bench_updates,
)
