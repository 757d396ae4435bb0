"""``gamecast lab simulate placement``: compare gamecast's, central and random placement on real topologies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from laboratory.commands.progress import progress_bar
from laboratory.commands.tables import table_of, wide_console
from laboratory.processes.pool import mapped

if TYPE_CHECKING:
    from laboratory.placing.comparison import Compared
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
@click.option("--rtt", is_flag=True, help="Latency matrices have round-trip times: halve them.")
@click.option("--weight", metavar="NAME", help="Attribute or column of the links' delays.")
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="PREFIX",
    help="Also compare with a match in the demo's format, which 32 servers host; repeatable.",
)
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1), help="How many runs, one per seed.")
@click.option("--first", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
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
    as_json: bool,
) -> None:
    """Compare placements on real topologies: latency matrices, node and edge tables, GraphML and GML.

    There are 128 subscribers, or fewer if there are fewer hosts. Four workloads have 32 groups: the 8 subscribers
    nearest to one of them; the same with a tenth of strays; any 8 subscribers; and the paper's sizes by Zipf's law. In
    another, each subscriber's avatars wander on a grid of 64 cells.

    The report has mean delays from publisher to subscriber for three placements: gamecast's ("ours"), one central
    sequencer at the 1-median, and ours on random hosts. The lower bound is each group's own best way. Each line is
    shown on standard error as soon as it is there; five runs on three topologies take some three minutes.

    Exit status: 0, or 2 for wrong use.
    """
    from demo.match.trace import read_match
    from laboratory.placing.comparison import WORKLOADS, mean_of
    from placement.topologies.reading import read_topology

    topologies = {file.name: read_topology(file, rtt=rtt and _is_matrix(file), weight=weight) for file in files}
    seeds = range(first, first + runs)
    names = [*WORKLOADS, *traces]
    for trace in traces:
        read_match(trace)  # report its errors before the work begins
    work = [(topology, name, seed) for topology in topologies.values() for name in names for seed in seeds]
    by_file: dict[str, list[Compared]] = {file: [] for file in topologies}
    with progress_bar("placed", shown=bool(work)) as progress:
        found = iter(progress.track(mapped(_compare, work, jobs=jobs), total=len(work)))
        for file, several in by_file.items():
            for name in names:
                several.append(mean_of([next(found) for _ in seeds]))
                done = zip(HEADER, _row(file, several[-1]), strict=True)
                told = ", ".join(f"{what} {figure}" for what, figure in done if what != HEADER[0])
                progress.console.print(
                    f"{file}, {Path(name).name}: {told}", markup=False, highlight=False, soft_wrap=True
                )
    notes = {file: list(topology.notes) for file, topology in topologies.items()}
    rows = [_row(file, one) for file, several in by_file.items() for one in several]
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


def _compare(job: Job) -> Compared:
    from laboratory.placing.comparison import compare

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
