"""`gamecast lab compare`: compare the classic protocols and gamecast's on one topology and one workload."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from rich.console import Console
from rich.table import Table

from cli.outfiles import writing
from laboratory.commands.progress import tracked
from laboratory.comparison.claims import Claim, judge_claims, lessons
from laboratory.comparison.page import write_page
from laboratory.comparison.plots import figures
from laboratory.comparison.sweep import COMPARED, Row, World, run, star
from laboratory.comparison.workload import KINDS, Kind
from launcher.ending import BROKEN
from placement.planning.picture import save
from sequencing.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("packets", "metadata_bytes", "control_bytes", "busiest", "mean_ms", "p90_ms", "stretch", "held_max")


@click.command("compare")
@click.option("--protocol", "names", multiple=True, type=click.Choice(list(COMPARED)), help="A protocol; repeat it.")
@click.option("--all", "every", is_flag=True, help="All protocols; the default if none is named.")
@click.option(
    "--processes", "sizes", default="24,8,16,40", show_default=True, metavar="N,…", help="Numbers of processes."
)
@click.option("--groups", default="1,8,2,4,16,32", show_default=True, metavar="N,…", help="Groups; 1 is one of all.")
@click.option("--rates", default="3,1,8,20", show_default=True, metavar="R,…", help="Events/s of each process.")
@click.option(
    "--workload",
    "kind",
    default="zipf",
    show_default=True,
    type=click.Choice(KINDS),
    help="Groups: the paper's, sizes by Zipf's law; of neighbours; of any processes; the cells that avatars see.",
)
@click.option(
    "--group-size",
    default=6,
    show_default=True,
    type=click.IntRange(2),
    help="Size of correlated and uncorrelated groups.",
)
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where processes are: a matrix (CSV, ms), NAME_edges.csv, GraphML or GML.  [default: a transit-stub "
    "internetwork of 10,000 hosts, drawn by the seed]",
)
@click.option("--rtt", is_flag=True, help="The file has round-trip times: halve them.")
@click.option("--weight", metavar="NAME", help="The attribute or column of links' delays.")
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0.1), help="Simulated seconds of publishing."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of places, groups and times.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default="the cores", type=click.IntRange(1), help="Processes."
)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the figures here, too.")
@click.option("--plots", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Draw growth, as PNG.")
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE", help="Write an HTML page here, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare(
    names: tuple[str, ...],
    *,
    every: bool,
    sizes: str,
    groups: str,
    rates: str,
    kind: Kind,
    group_size: int,
    file: Path | None,
    rtt: bool,
    weight: str | None,
    seconds: float,
    seed: int,
    jobs: int,
    csv_file: Path | None,
    plots: Path | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Compare protocols on one topology and one workload. It reports latency, packets, bytes, load and held messages.

    With several numbers, the first is the base. The others are tried one at a time, with the rest as in the base: in
    one group of all, and in the first number of groups above 1.

    Every process publishes at random times. Packets take time and none is lost; processing takes no time. If a
    workload does not meet a protocol's assumptions, the report says so in place of figures. Each run is judged by the
    guarantees that the protocol declares; validity, that everything is delivered, is one for all but one protocol.
    The figures also test what the literature claims of the protocols. A claim that does not hold is a finding.

    Exit status: 0, or 1 if a guarantee is broken, 2 for wrong use.
    """
    if file is None and (rtt or weight is not None):
        raise UsageError("--rtt and --weight say how to read a topology: name its file with --topology")
    world = World(kind, group_size, seconds, seed, file, rtt, weight)
    world.topology()  # Report errors in the topology before the work begins.
    chosen = list(COMPARED) if every or not names else list(dict.fromkeys(names))
    cases = star(
        [int(number) for number in _numbers(sizes, "--processes", least=2)],
        [int(number) for number in _numbers(groups, "--groups", least=1)],
        _numbers(rates, "--rates"),
    )
    rows = list(tracked(run(chosen, cases, world, jobs), len(cases) * len(chosen), "protocols compared"))
    claims = judge_claims(rows)
    about = _about(world)
    if csv_file is not None:
        with writing(f"--csv {csv_file}"), csv_file.open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)
    if plots is not None:
        with writing(f"--plots {plots}"):
            plots.mkdir(parents=True, exist_ok=True)
        for name, title, figure in figures(rows):
            _save(figure, title, plots / f"{name}.png")
    if page is not None:
        text = write_page(rows, claims, title="Ordering protocols side by side", about=about)
        with writing(f"--page {page}"):
            page.write_text(text, encoding="utf-8")
    if as_json:
        document = {"seed": seed, "seconds": seconds, "workload": kind, "topology": file.name if file else None}
        said = [claim.as_dict() for claim in claims]
        click.echo(orjson.dumps(document | {"about": about, "lessons": lessons(rows), "claims": said, "rows": rows}))
    else:
        _tell(rows, claims)
    if any(row.get("broken") for row in rows):
        click.get_current_context().exit(BROKEN)


def _about(world: World) -> str:
    where = f"hosts of {world.file.name}" if world.file else "a transit-stub internetwork of 10,000 hosts, in clusters"
    groups = {
        "zipf": "sizes by Zipf's law, of any processes",
        "correlated": f"of {world.group_size} neighbours each",
        "uncorrelated": f"of any {world.group_size} processes each",
        "wandering": "the cells of a grid that wandering avatars see",
    }
    return (
        f"Simulated: processes on {where}; groups: {groups[world.kind]}; every process publishes to its groups at "
        f"random times for {world.seconds:g} s (seed {world.seed}). Nothing is lost and processing takes no time. All "
        "protocols use the same machines: gamecast's sequencing nodes (atoms) are placed by distance on the processes' "
        "machines, and the coordinator and the root are at the 1-median. Each run was judged by the guarantees that "
        "its protocol declares."
    )


def _save(figure: Figure, title: str, file: Path) -> None:
    figure.suptitle(title, fontsize=11)
    save(figure, file)


def _numbers(text: str, option: str, *, least: float = 0.0) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes numbers with commas between them, not {text!r}") from None
    if not all(number > 0 and number >= least for number in numbers):
        what = f"numbers of {least:g} or more" if least else "positive numbers"
        raise UsageError(f"{option} takes {what}, not {text!r}")
    return numbers


def _tell(rows: list[Row], claims: list[Claim]) -> None:
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
            wrong = " [red]broken[/red]" if row["broken"] else ""
            table.add_row(row["protocol"] + wrong, *(f"{row[column]:.3g}" for column in COLUMNS))
        for column in table.columns[1:]:
            column.justify = "right"
        console.print(table)
        if refused:
            console.print(f"not for this workload, by their assumptions: {', '.join(refused)}")
    for claim in claims:
        everywhere = " everywhere" if claim.figures else ""
        verdict = "[green]holds[/green]" if claim.holds else f"[red]does not hold{everywhere}[/red]"
        console.print(f"{claim.claim} ({claim.source}): {verdict}")
        for line in claim.against:
            console.print(f"  counterexample: {line}")
    for lesson in lessons(rows):
        console.print(lesson)
