"""`gamecast lab explore`: explore every interleaving of small worlds."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from cli.outfiles import writing
from gamecast.errors import UsageError
from laboratory.exploration.counterexamples import SEARCHES, Counterexample
from laboratory.exploration.explorer import STATES_MAX
from laboratory.exploration.script import tell
from laboratory.exploration.worlds_surveyed import FAMILIES, Bounds, Survey, about, survey
from launcher.ending import BROKEN

_FAMILIES_HELP = "\n".join(f"  {name:<9} {about(name)}" for name in FAMILIES)


@click.command(
    help=f"""Explore every interleaving of small worlds. The protocol's own state machines run in every possible order.

A simulation draws some schedules of a large world; this command runs all schedules of small ones. Schedules differ in
the client that publishes next, the node that forwards a frame, and the region that a subscriber reads. The checkers
judge each end: no deadlock, nothing lost, one order, no cycle, each publisher's order, causes first.

FAMILY is one or more of these; the default is all of them:

\b
{_FAMILIES_HELP}

With --counterexamples it searches for the failures that each rule prevents (docs/counterexamples.md). It writes each
failure as a scenario script into the directory.

\b
  gamecast lab explore planned --every 10        a quick look
  gamecast lab explore changes                   joins and epochs, interleaved with traffic
  gamecast lab explore --counterexamples found   what the rules are for

Exit status: 0 if every promise holds at every end, 1 if one is broken, 2 for wrong use. A world with more than
--states-max states is abandoned and counted as unfinished."""
)
@click.argument("families", nargs=-1, type=click.Choice(list(FAMILIES)), metavar="[FAMILY]...")
@click.option("--subscribers", type=click.IntRange(1, 4), default=3, show_default=True, help="Subscribers, at most.")
@click.option("--regions", type=click.IntRange(1, 4), default=3, show_default=True, help="Regions, at most.")
@click.option("--nodes", type=click.IntRange(1, 3), default=3, show_default=True, help="Nodes, at most.")
@click.option("--every", type=click.IntRange(1), default=1, show_default=True, help="Explore only every Nth world.")
@click.option(
    "--states-max", type=click.IntRange(1), default=STATES_MAX, show_default=True, help="States of one world."
)
@click.option(
    "--counterexamples",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Search for the counterexamples instead, and write them there.",
)
@click.option(
    "--pictures", is_flag=True, help="With --counterexamples: draw them as well; needs matplotlib ('gamecast[plots]')."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.pass_context
def explore(
    context: click.Context,
    families: tuple[str, ...],
    *,
    subscribers: int,
    regions: int,
    nodes: int,
    every: int,
    states_max: int,
    counterexamples: Path | None,
    pictures: bool,
    as_json: bool,
) -> None:
    """Explore, and print the findings."""
    if pictures and counterexamples is None:
        raise UsageError("--pictures draws counterexamples: also give --counterexamples DIR")
    if counterexamples is not None:
        _search(counterexamples, pictures=pictures, as_json=as_json)
        return
    bounds = Bounds(subscribers, regions, nodes, every, states_max)
    progress = Console(stderr=True)
    found: list[Survey] = []
    for family in families or tuple(FAMILIES):
        with progress.status(f"exploring: {family}"):
            found.append(survey(family, bounds))
    if as_json:
        click.echo(orjson.dumps([_as_dict(each) for each in found], option=orjson.OPT_INDENT_2))
    else:
        _tell(found)
    if any(each.violations for each in found):
        context.exit(BROKEN)


def _search(directory: Path, *, pictures: bool, as_json: bool) -> None:
    from laboratory.exploration.picture import draw_counterexample

    with writing(f"--counterexamples {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    found: list[Counterexample] = []
    for name, search in SEARCHES.items():
        with Console(stderr=True).status(f"searching: {name}"):
            found.append(search())
        with writing(directory / f"{name}.txt"):
            (directory / f"{name}.txt").write_text(found[-1].script, encoding="utf-8")
        if pictures:
            draw_counterexample(found[-1].script, directory / f"counterexample-{name}.svg")
    if as_json:
        rows = [{"name": c.name, "worlds": c.worlds, "states": c.states, "seconds": c.seconds} for c in found]
        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    table = Table("counterexample", "worlds", "states", "seconds", "what goes wrong")
    for each in found:
        wrong = next(line for line in each.script.splitlines() if line.startswith("wrong: "))
        table.add_row(
            each.name, f"{each.worlds:,}", f"{each.states:,}", f"{each.seconds:.1f}", wrong.removeprefix("wrong: ")
        )
    Console().print(table)


def _tell(found: list[Survey]) -> None:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    table = Table("family", "worlds", "states", "transitions", "seconds", "unfinished", "violations")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in found:
        numbers = (each.worlds, each.states, each.transitions)
        table.add_row(
            *(each.family, *(f"{number:,}" for number in numbers)),
            *(f"{each.seconds:.1f}", f"{each.unfinished:,}", f"{each.violations:,}"),
        )
    console.print(table)
    for each in found:
        if each.first is not None:
            world, what, trace = each.first
            console.print(f"{each.family}: {world}", *what, *(f"  {tell(label)}" for label in trace), sep="\n")


def _as_dict(each: Survey) -> dict[str, object]:
    return {
        "family": each.family,
        "worlds": each.worlds,
        "states": each.states,
        "transitions": each.transitions,
        "ends": each.ends,
        "largest": each.largest,
        "seconds": each.seconds,
        "unfinished": each.unfinished,
        "violations": each.violations,
        "first": None
        if each.first is None
        else {"world": each.first[0], "what": each.first[1], "trace": [tell(label) for label in each.first[2]]},
    }
