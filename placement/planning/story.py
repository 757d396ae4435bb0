"""A plan's figures for a person: a short account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from placement.planning.figures import CONDITIONS, PlanFigures
from placement.planning.reading import MembershipFile

NODES_SHOWN = 8
BAR_CELLS = 28
BAR = "█"


def tell(
    console: Console,
    figures: PlanFigures,
    source: MembershipFile,
    why: Sequence[str],
    seconds: Mapping[str, float],
    written: Sequence[Path] = (),
) -> None:
    """Print what the membership is like, what the plan costs, and whether it is sound; ``why`` it is as it is."""
    console.print(Group(*_story(figures, source, why, seconds, written)))


def _story(
    figures: PlanFigures,
    source: MembershipFile,
    why: Sequence[str],
    seconds: Mapping[str, float],
    written: Sequence[Path],
) -> Iterator[RenderableType]:
    plan, lengths = figures.plan, figures.path_nodes
    answer, *reasons = why or ("",)
    if answer:
        yield Text(answer, style="bold")
    subscriptions = figures.membership.incidence.nnz
    yield Text.assemble(
        (_count(len(figures.membership.subscribers), "subscriber"), "bold"),
        f" in {_count(len(plan.paths), 'region')}, by {_count(subscriptions, 'subscription')}"
        f"{f' ({source.duplicates:,} more said twice)' if source.duplicates else ''}.",
    )
    if source.skipped.count:
        yield Text(
            f"Skipped {_count(source.skipped.count, 'malformed row')}, the first: {source.skipped.first}", "yellow"
        )
    yield Text(f"{_count(figures.overlaps, 'pair')} of regions with subscribers in common who could disagree on order.")
    components = _count(figures.components, "component")
    if plan.atoms:
        yield Text(
            f"{_count(len(plan.atoms), 'atom')}, in {components}, for the order that '{plan.ordering}' promises "
            "between regions that end at different nodes."
        )
    elif figures.components:
        yield Text(f"No atom is needed, in {components}: what needs order ends at one node, and has that node's.")
    else:
        yield Text("No atom is needed: no subscriber could see the order of any two regions.")
    if len(lengths):
        yield Text(f"Paths visit {lengths.mean():.2f} nodes on average, {lengths.max()} at most.")
    yield from map(Text, reasons)
    yield Padding(_loads(figures), (1, 0, 0, 0))
    yield Padding(_conditions(figures), (1, 0))
    yield Text("seconds: " + ", ".join(f"{stage} {spent:.2g}" for stage, spent in seconds.items()), style="dim")
    for file in written:
        yield Text(f"written: {file}", style="dim")


def _loads(figures: PlanFigures) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="dim")
    table.add_column("node", no_wrap=True)
    table.add_column("events/s", justify="right")
    table.add_column("", no_wrap=True)
    loads = sorted(figures.load_of_node.items(), key=lambda item: -item[1])
    highest = max(loads[0][1], figures.busiest_receiver) or 1.0
    shown = loads if len(loads) <= NODES_SHOWN else loads[:NODES_SHOWN]
    for node, load in sorted(shown, key=lambda item: list(figures.load_of_node).index(item[0])):
        table.add_row(Text(node), _rate(load), Text(BAR * round(BAR_CELLS * load / highest), style="blue"))
    if len(loads) > len(shown):
        rest = [load for _, load in loads[NODES_SHOWN:]]
        table.add_row(Text(f"{len(rest)} more", style="dim"), Text(f"≤ {_rate(rest[0])}", style="dim"), "")
    receiver = figures.busiest_receiver
    bar = Text(BAR * round(BAR_CELLS * receiver / highest), style="magenta")
    table.add_row(Text("busiest receiver", style="magenta"), Text(_rate(receiver), style="magenta"), bar)
    return table


def _conditions(figures: PlanFigures) -> RenderableType:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for condition, promise in CONDITIONS.items():
        wrong = figures.violations.get(condition)
        mark = Text("✓", style="bold green") if wrong is None else Text("✗", style="bold red")
        says = promise if wrong is None else f"{promise}: no, {wrong}"
        table.add_row(mark, Text(condition, style="bold"), Text(says))
    return table


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate == int(rate) else f"{rate:,.2f}"


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"
