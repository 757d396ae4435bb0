"""``gamecast lab simulate paper``: the experiment of Lumezanu 2006, with gamecast's placement beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from cli.outfiles import writing
from laboratory.commands.progress import tracked
from laboratory.commands.tables import table_of, wide_console
from laboratory.processes.pool import mapped

if TYPE_CHECKING:
    from laboratory.paper.experiment import Run
    from placement.placing import Objective

OBJECTIVES = "mean", "p95", "max", "stretch"
"""`placement.placing.Objective`, without importing scipy before it is needed."""
HEADER = (
    "",
    "median",
    "p90",
    "worst",
    "worst, mean of runs",
    "mean of ratios, median",
    "nodes",
    "orders",
    "handles",
)
NAMES = {
    "ours": "ours",
    "unlimited": "ours, no limit",
    "paper": "paper's",
    "well_placed": "paper's, well placed",
    "central": "central",
    "random": "random",
    "lower_bound": "lower bound",
}


def _groups(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in value.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{value!r} is not a list of numbers of groups, like 8,64")
    return numbers


@click.command("paper")
@click.option("--runs", default=20, show_default=True, type=click.IntRange(1), help="How many networks, one per seed.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--groups", default="8,16,32,64", show_default=True, callback=_groups, help="Numbers of groups.")
@click.option("--nodes", default=10_000, show_default=True, type=click.IntRange(240), help="Hosts of the internetwork.")
@click.option("--subscribers", default=128, show_default=True, type=click.IntRange(2), help="Number of subscribers.")
@click.option("--clusters", default=16, show_default=True, type=click.IntRange(1), help="Clusters of subscribers.")
@click.option(
    "--largest",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Share of the subscribers in the largest group; other sizes follow Zipf's law.",
)
@click.option(
    "--objective",
    default="mean",
    show_default=True,
    type=click.Choice(OBJECTIVES),
    help="Delay that gamecast's placement minimises.",
)
@click.option("--csv", "csv_directory", type=click.Path(path_type=Path, file_okay=False), help="Write tables here.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), help="Draw the figures here, as PNG.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def paper(
    *,
    runs: int,
    first: int,
    groups: tuple[int, ...],
    nodes: int,
    subscribers: int,
    clusters: int,
    largest: float,
    objective: Objective,
    csv_directory: Path | None,
    plots: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Measure the latency stretch of placements in the experiment of Lumezanu 2006.

    Each run draws a transit-stub internetwork, subscribers in clusters, and groups by Zipf's law. It places a
    sequencing network in seven ways: gamecast's ("ours"), with the paper's load rule and without a limit; the paper's
    heuristic, and its nodes in a better chain on better hosts; one central sequencer at the 1-median; ours on random
    hosts; and each group at its own 1-median, a lower bound that is no network. The latency stretch of a destination
    is the mean sequenced delay of its events, divided by their mean direct delay.

    Exit status: 0, or 2 for wrong use.
    """
    from laboratory.paper.curves import by_groups, by_occupancy
    from laboratory.paper.experiment import Experiment
    from laboratory.paper.summary import document, of_figures, tables

    if plots is not None:
        from laboratory.drawing import require_matplotlib

        require_matplotlib()
    experiment = Experiment(nodes, subscribers, clusters, largest, groups, objective)
    seeds = range(first, first + runs)
    found = [one for several in tracked(_runs(experiment, seeds, jobs), runs, "networks placed") for one in several]
    summary = document(found, seeds, subscribers=subscribers)
    curves = {}
    if csv_directory is not None or plots is not None or as_json:
        curves = {
            "groups": by_groups(seeds, subscribers=subscribers, largest=largest),
            "occupancy": by_occupancy(seeds, subscribers=subscribers),
        }
        if csv_directory is not None:
            _write(csv_directory, {f"{name}.csv": text for name, text in tables(found, curves).items()})
        if plots is not None:
            from laboratory.paper.drawing import draw

            draw(found, curves, subscribers, _made(plots))
    if as_json:
        figures = of_figures(curves["groups"], curves["occupancy"])
        click.echo(orjson.dumps(summary | {"figures": figures}))
    else:
        _tell(summary)


def _runs(experiment: Any, seeds: range, jobs: int) -> Iterator[list[Run]]:
    from laboratory.paper.experiment import run

    return mapped(partial(run, experiment), seeds, jobs=jobs)


def _made(directory: Path) -> Path:
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def _write(directory: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        file = _made(directory) / name
        with writing(file):
            file.write_text(text, encoding="utf-8")


def _rows(summary: dict[str, Any]) -> list[tuple[str, ...]]:
    rows = []
    for groups, schemes in summary["groups"].items():
        for scheme, found in schemes.items():
            loads = summary["loads"][groups].get(scheme)
            row = (
                f"{groups} groups, {NAMES[scheme]}",
                *(f"{found[name]:.2f}" for name in ("p50", "p90", "max")),
                f"{found['worst_of_run']['mean']:.2f}",
                f"{found['mean_ratio']['p50']:.2f}",
                f"{found['nodes']['mean']:.1f}",
                *(f"{loads[name]['max']:.2f}" if loads else "–" for name in ("ordered", "handled")),
            )
            rows.append(row)
    return rows


def _tell(summary: dict[str, Any]) -> None:
    console = wide_console()
    console.print(table_of("Latency stretch of destinations", HEADER, _rows(summary)))
    console.print(
        "orders, handles: events/s that the busiest node of any run numbers, and that pass it, relative to the busiest "
        "receiver"
    )
    console.print(f"seeds {summary['seeds'][0]} to {summary['seeds'][-1]}")
