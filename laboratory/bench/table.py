"""The bench's figures for a person: tables of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from laboratory.bench.campaign import CEILING, COST, PACED_COST
from laboratory.bench.cpu import cores_in_words
from laboratory.bench.figures import exponent


def report(document: Mapping[str, Any], ours: str) -> Group:
    """A table for each number of subscribers, 80 columns wide, and what the columns mean."""
    workload = document["workload"]
    note = (
        f"{workload['events']:,} events at full speed, then {workload['rate_per_s']:,} events/s; "
        f"medians of {workload['runs']}.\n"
        f"x: {ours}'s figure in multiples of this peer's.  ms: from when it was due to its callback.\n"
        "one order: or how many pairs of subscribers that share regions delivered their\n"
        "events in different orders.\n"
        "CPU: the µs that a delivery costs at full speed, of publishers, servers, subscribers.\n"
        f"allows: the deliveries/s that {cores_in_words(document['cores'])} allow at these costs, if they had nothing\n"
        "else to do; publishers, servers and subscribers have one each at most.\n"
        "paced: the µs that a paced event costs, of all processes, with all its deliveries.\n"
        f"One core decodes and calls back {document['decoding_per_s']:,.0f} deliveries/s, and does nothing else then."
    )
    absent = [f"{name} was left out, it is not installed: {cure}" for name, cure in document.get("absent", {}).items()]
    return Group(*_tables(document, ours), note, *absent)


def table_of(
    first: str, headings: Iterable[str], rows: Iterable[Iterable[str]] = (), *, title: str | None = None
) -> Table:
    """Return a table: the first column is text in one line, the others are figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def growth_rows(
    result: Mapping[str, Sequence[Mapping[str, Any]]],
    figures: Mapping[str, str],
    sizes: Sequence[int],
    shown: Callable[[float], str],
) -> Iterator[Sequence[str]]:
    """Yield each figure (key → words) of each peer: at each size, and the exponent of its growth."""
    for figure, words in figures.items():
        for place, (peer, growths) in enumerate(result.items()):
            values = [each[figure] for each in growths]
            yield ("" if place else words, peer, *map(shown, values), f"{exponent(values, sizes):.2f}")


def short(value: float) -> str:
    """Write a figure with two decimals if it is below 100, else with none."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _tables(document: Mapping[str, Any], ours: str) -> Iterator[Table]:
    columns = "pub\nµs", "server\nµs", "sub\nµs", "CPU\nµs", "\nx", "allows\nper s", "\nx", "paced\nµs", "\nx"
    for size in map(str, document["workload"]["sizes"]):
        headings = "deliveries\nper s", "\nx", "p50\nms", "\nx", "p99\nms", "\nx", "\nlost"
        speed, costs = table_of("", headings, title=document["workload"]["worlds"][size]), table_of("", columns)
        speed.add_column("one\norder")
        for peer in sorted(document["peers"], key=lambda peer: peer != ours):
            style = "bold" if peer == ours else None
            speed.add_row(*_row(document, peer, size), style=style)
            costs.add_row(*_cost_row(document, peer, size), style=style)
        yield from (speed, costs)


def _cost_row(document: Mapping[str, Any], peer: str, size: str) -> list[str]:
    figures = document["peers"][peer][size]
    return [
        peer,
        *(f"{figures[COST][part]:.2f}" for part in ("publishers", "servers", "subscribers", "all")),
        _ratio(document, COST, peer, size),
        f"{figures[CEILING]:,.0f}",
        _ratio(document, CEILING, peer, size),
        f"{figures[PACED_COST]['all']:,.0f}",
        _ratio(document, PACED_COST, peer, size),
    ]


def _ratio(document: Mapping[str, Any], measure: str, peer: str, size: str) -> str:
    value = document["ratios"].get(measure, {}).get(peer, {}).get(size)
    return "" if value is None else f"{value:.2f}"


def _row(document: Mapping[str, Any], peer: str, size: str) -> list[str]:
    figures = document["peers"][peer][size]
    broken = figures["pairs_out_of_order"]
    return [
        peer,
        f"{figures['deliveries_per_s']:,.0f}",
        _ratio(document, "deliveries_per_s", peer, size),
        f"{figures['p50_ms']:.2f}",
        _ratio(document, "p50_ms", peer, size),
        f"{figures['p99_ms']:.2f}",
        _ratio(document, "p99_ms", peer, size),
        f"{figures['lost']:,}",
        "yes" if not broken else f"no: {broken}/{figures['sharing_pairs']}",
    ]
