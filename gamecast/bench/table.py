"""The bench's figures for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table


def report(document: Mapping[str, Any], ours: str) -> Group:
    """A table for each number of subscribers, 80 columns wide, and what the columns mean."""
    workload = document["workload"]
    note = (
        f"{workload['events']:,} events at full speed, then {workload['rate_per_s']:,} events/s; "
        f"medians of {workload['runs']}.\n"
        f"x: {ours}'s figure in multiples of this peer's.  ms: from publish call to callback.\n"
        "order: pairs of subscribers that share regions and delivered their events in different orders."
    )
    return Group(*_tables(document, ours), note)


def _tables(document: Mapping[str, Any], ours: str) -> Iterator[Table]:
    for size in map(str, document["workload"]["sizes"]):
        table = Table(
            title=f"{size} subscribers, {size} regions",
            title_justify="left",
            box=box.SIMPLE,
            padding=(0, 1, 0, 0),
        )
        table.add_column("", no_wrap=True)
        for heading in ("deliveries\nper s", "\nx", "p50\nms", "\nx", "p99\nms", "\nx", "\nlost"):
            table.add_column(heading, justify="right")
        table.add_column("one\norder")
        for peer in sorted(document["peers"], key=lambda peer: peer != ours):
            table.add_row(*_row(document, peer, size), style="bold" if peer == ours else None)
        yield table


def _row(document: Mapping[str, Any], peer: str, size: str) -> list[str]:
    figures = document["peers"][peer][size]

    def ratio(measure: str) -> str:
        value = document["ratios"].get(measure, {}).get(peer, {}).get(size)
        return "" if value is None else f"{value:.2f}"

    broken = figures["pairs_out_of_order"]
    return [
        peer,
        f"{figures['deliveries_per_s']:,.0f}",
        ratio("deliveries_per_s"),
        f"{figures['p50_ms']:.2f}",
        ratio("p50_ms"),
        f"{figures['p99_ms']:.2f}",
        ratio("p99_ms"),
        f"{figures['lost']:,}",
        "yes" if not broken else f"no: {broken}/{figures['sharing_pairs']}",
    ]
