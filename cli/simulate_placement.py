"""``gamecast lab simulate placement``: ours against central and random placement on topologies from files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cli.tables import markdown, put_into, table_of, wide_console
from laboratory.processes.pool import mapped

if TYPE_CHECKING:
    from laboratory.topologies.comparison import Compared
    from placement.topology import Topology

HEADER = (
    "topology, groups",
    "ours, ms",
    "central, ms",
    "random, ms",
    "lower bound, ms",
    "central / ours",
    "random / ours",
    "orders",
    "handles",
)
Job = tuple["Topology", str, int]


@click.command("placement")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--rtt", is_flag=True, help="The latency matrices among the files hold round trips: halve them.")
@click.option("--weight", metavar="NAME", help="The attribute or column of links' delays.")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="PREFIX",
    help="Compare them for a match in the demo's format, too, which 32 servers host; give it for each.",
)
@click.option("--runs", default=10, show_default=True, type=click.IntRange(1), help="How many, one a seed.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--into", type=click.Path(path_type=Path, dir_okay=False), help="Put the table into this document.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def placement(
    files: Sequence[Path],
    *,
    rtt: bool,
    weight: str | None,
    traces: Sequence[str],
    runs: int,
    first: int,
    jobs: int,
    into: Path | None,
    as_json: bool,
) -> None:
    """Compare placements on real topologies: latency matrices, node and edge tables, GraphML and GML.

    128 subscribers (fewer if there are fewer hosts) and 32 groups: of the 8 subscribers nearest to one of them, the
    same with a tenth of strays, of any 8, and the paper's by Zipf's law; and a grid of 64 cells on which the avatars of
    each subscriber wander. It reports mean delays from publisher to
    subscriber: of ours, of one central sequencer at the 1-median, and of ours on random hosts. The lower bound is each
    group's own 1-median.

    Exit status: 0, or 2 for wrong use.
    """
    from laboratory.match.trace import read_match
    from laboratory.topologies.comparison import WORKLOADS, mean_of
    from laboratory.topologies.reading import read_topology

    topologies = {file.name: read_topology(file, rtt=rtt and _is_matrix(file), weight=weight) for file in files}
    seeds = range(first, first + runs)
    names = [*WORKLOADS, *traces]
    for trace in traces:
        read_match(trace)  # what is wrong with it is said before the work begins
    work = [(topology, name, seed) for topology in topologies.values() for name in names for seed in seeds]
    found = iter(_compared(work, jobs))
    by_file: dict[str, list[Compared]] = {}
    for file in topologies:
        for _ in names:
            by_file.setdefault(file, []).append(mean_of([next(found) for _ in seeds]))
    notes = {file: list(topology.notes) for file, topology in topologies.items()}
    rows = [_row(file, one) for file, several in by_file.items() for one in several]
    if into is not None:
        put_into(into, "simulate placement", markdown(HEADER, rows))
    if as_json:
        document = {
            "topologies": {
                file: {
                    one.workload: {
                        **{name: value for name, value in asdict(one).items() if name != "workload"},
                        "against_central": one.against_central,
                        "against_random": one.against_random,
                    }
                    for one in several
                }
                for file, several in by_file.items()
            },
            "notes": notes,
            "seeds": list(seeds),
        }
        click.echo(orjson.dumps(document))
        return
    console = wide_console()
    console.print(table_of(f"Mean delay from publisher to subscriber, {runs} seeds", HEADER, rows))
    for file, lines in notes.items():
        for line in lines:
            console.print(f"{file}: {line}", markup=False)


def _is_matrix(file: Path) -> bool:
    plain = file.name.removesuffix(".gz")
    return plain.endswith(".csv") and not plain.endswith("_edges.csv")


def _compared(work: list[Job], jobs: int) -> list[Compared]:
    columns = TextColumn("placed"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        return list(progress.track(mapped(_compare, work, jobs=jobs), total=len(work)))


def _compare(job: Job) -> Compared:
    from laboratory.topologies.comparison import compare

    return compare(*job)


def _row(file: str, one: Compared) -> tuple[str, ...]:
    figures = (one.ours_ms, one.central_ms, one.random_ms, one.bound_ms)
    return (
        f"{file.split('.', 1)[0]}, {Path(one.workload).name}",
        *(f"{ms:.1f}" for ms in figures),
        f"{one.against_central:.2f}",
        f"{one.against_random:.2f}",
        f"{one.ordered:.2f}",
        f"{one.handled:.2f}",
    )
