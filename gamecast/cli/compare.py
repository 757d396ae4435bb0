"""`gamecast compare`: the classic protocols and ours on one topology and one workload."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from gamecast.comparison.atoms import Atoms
from gamecast.comparison.measure import measure
from gamecast.comparison.page import write_page
from gamecast.comparison.workload import draw_workload
from sequencing.errors import UsageError
from sequencing.protocols.catalogue import PROTOCOLS
from sequencing.protocols.process import Process

COMPARED: dict[str, type[Process]] = {"atoms": Atoms, **PROTOCOLS}
GROUP_SIZE = 6
"""Members of each group where there are several: small groups of neighbours, as regions of a game world are."""
COLUMNS = ("packets", "metadata_bytes", "control_bytes", "busiest", "mean_ms", "p90_ms", "stretch", "held_max")


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the comparison."""

    protocol: str
    processes: int
    groups: int
    rate: float
    seconds: float
    seed: int


@click.command("compare")
@click.option("--protocol", "names", multiple=True, type=click.Choice(list(COMPARED)), help="This one; repeat it.")
@click.option("--all", "every", is_flag=True, help="All protocols; the default if none is named.")
@click.option("--processes", "sizes", default="12", show_default=True, metavar="N,…", help="How many processes.")
@click.option("--groups", default="1,8", show_default=True, metavar="N,…", help="Groups; 1 is one group of all.")
@click.option("--rates", default="2,20", show_default=True, metavar="R,…", help="Events/s of each process.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1), help="Of publishing, simulated.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Draws places, groups and times.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the figures here, too.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="Write an HTML page here, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare(
    names: tuple[str, ...],
    every: bool,
    sizes: str,
    groups: str,
    rates: str,
    seconds: float,
    seed: int,
    jobs: int,
    csv_file: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Compare protocols on one topology and one workload, simulated: latency, packets, bytes, load, what is held.

    Processes lie on a plane as wide as a continent; groups are of neighbours; everyone publishes at random times.
    Packets take their time and nothing is lost. What a protocol assumes and the workload does not offer is said in the
    place of its figures; and each run is judged by the guarantees that the protocol declares. The exit status is 1 if
    one is broken or something is not delivered.
    """
    chosen = list(COMPARED) if every or not names else list(names)
    cases = [
        Case(name, int(size), int(group), rate, seconds, seed)
        for size in _numbers(sizes, "--processes")
        for group in _numbers(groups, "--groups")
        for rate in _numbers(rates, "--rates")
        for name in chosen
    ]
    rows = list(_progress(_run(cases, jobs), len(cases)))
    if csv_file is not None:
        with csv_file.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
    if page is not None:
        page.write_text(write_page(rows, title="Ordering protocols side by side"), encoding="utf-8")
    if as_json:
        click.echo(orjson.dumps({"seed": seed, "seconds": seconds, "rows": rows}))
    else:
        _tell(rows)
    sys.exit(1 if any(row.get("undelivered") or row.get("broken") for row in rows) else 0)


def _numbers(text: str, option: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes numbers with commas between them, not {text!r}") from None
    if not all(number > 0 for number in numbers):
        raise UsageError(f"{option} takes positive numbers, not {text!r}")
    return numbers


def _measure(case: Case) -> dict[str, Any]:
    row = {"protocol": case.protocol, "processes": case.processes, "groups": case.groups, "rate": case.rate}
    workload = draw_workload(
        processes=case.processes,
        groups=case.groups,
        group_size=GROUP_SIZE,
        rate=case.rate,
        seconds=case.seconds,
        seed=case.seed,
    )
    try:
        return row | measure(COMPARED[case.protocol], workload).as_dict()
    except UsageError as error:
        return row | {"not_applicable": str(error)}


def _run(cases: list[Case], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1 or len(cases) == 1:
        yield from map(_measure, cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_measure, cases)


def _progress(rows: Iterable[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    columns = TextColumn("protocols compared"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(rows, total=count)


def _tell(rows: list[dict[str, Any]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for case in dict.fromkeys((row["processes"], row["groups"], row["rate"]) for row in rows):
        size, groups, rate = case
        table = Table("protocol", *(column.removesuffix("_ms") for column in COLUMNS), title_justify="left")
        table.title = f"{size} processes, {groups} group{'s' if groups > 1 else ''}, {rate:g} events/s each"
        table.columns[0].no_wrap = True
        refused = []
        for row in rows:
            if (row["processes"], row["groups"], row["rate"]) != case:
                continue
            if "not_applicable" in row:
                refused.append(row["protocol"])
                continue
            wrong = " [red]broken[/red]" if row["broken"] or row["undelivered"] else ""
            table.add_row(row["protocol"] + wrong, *(f"{row[column]:.3g}" for column in COLUMNS))
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
        if refused:
            console.print(f"not for this workload, by their assumptions: {', '.join(refused)}")
