"""The report's tables: in the page with captions, as CSV with all rows."""

from __future__ import annotations

import csv
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.report.charts import legible
from sequencing.names import guarded_cell

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis

Rows = Sequence[Mapping[str, Any]]
ROWS_SHOWN = 15
_HEADS = {
    "deliveries_per_s": "deliveries/s",
    "events_per_s": "events/s",
    "delay_ms": "delay ms",
    "direct_ms": "direct ms",
    "held_ms": "held ms",
    "held_events": "events waiting",
    "mean_ms": "mean ms",
    "p50_ms": "median ms",
    "p99_ms": "99% ms",
}


def write_tables(directory: Path, analysis: Analysis) -> list[Path]:
    """Write the tables as CSV; membership.csv and rates.csv are inputs of `gamecast plan`."""
    tables: dict[str, Rows] = {
        **{f"stretch_{name}": rows for name, rows in analysis.tables.items() if name.startswith("by_")},
        "delays": analysis.tables["delays"],
        "stages": analysis.tables["stages"],
        **{name: rows for name, rows in analysis.tables.items() if name.startswith("timeline")},
        "regions": analysis.load.regions,
        "subscribers": analysis.load.subscribers,
        "nodes": analysis.load.nodes,
        "order_by_region_pairs": list(region_pairs(analysis)),
        "advice": [{**each.as_dict(), "regions": " ".join(each.regions)} for each in analysis.advice],
        "quarantine": [
            {**each, "examples": " ".join(map(str, each["examples"]))} for each in analysis.quarantine.as_dicts()
        ],
        "membership": [{"subscriber": who, "region": region} for who, region in analysis.membership],
        "rates": [{"region": row["region"], "rate": row["events_per_s"] or 0.0} for row in analysis.load.regions],
    }
    written = []
    for name, rows in tables.items():
        if not rows:
            continue
        file = directory / f"{name}.csv"
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(
                {name: guarded_cell(cell) if type(cell) is str else cell for name, cell in row.items()} for row in rows
            )
        written.append(file)
    return written


def region_pairs(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Return rows of the pairs of regions whose order was compared."""
    for pair in analysis.audit.order.pairs:
        first = pair.first.describe() if pair.first is not None else ""
        yield {
            "regions": " – ".join(pair.regions),
            "subscribers": pair.subscribers,
            "inversions": pair.inversions,
            "first": first,
        }


class Tables:
    """Makes the tables of one page, which need ids that differ."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def table(self, caption: str, rows: Rows, columns: Iterable[str], *, more: str = "in the CSV") -> str:
        """Return the first rows as a table that scrolls within its box; the first column names its row.

        ``more``: where the rows are that are not shown.
        """
        if not rows:
            return f"<p>{html.escape(caption)}: not recorded.</p>"
        columns, shown, name = list(columns), rows[:ROWS_SHOWN], f"table-{next(self._numbers)}"
        numeric = {column for column in columns if all(_is_number(row.get(column)) for row in shown)}
        head = "".join(_head(column, number=column in numeric) for column in columns)
        body = "".join(f"<tr>{_row(row, columns)}</tr>" for row in shown)
        rest = f'<p class="more">and {len(rows) - ROWS_SHOWN:,} more, {more}</p>' if len(rows) > ROWS_SHOWN else ""
        return (
            f'<div class="scroll" tabindex="0" role="group" aria-labelledby="{name}"><table>'
            f'<caption id="{name}">{html.escape(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{rest}"
        )


def text_of(value: object) -> str:
    """Return a text for HTML that neither is markup nor reorders the text around it."""
    return f"<bdi>{html.escape(legible(str(value)))}</bdi>"


def _head(column: str, *, number: bool) -> str:
    kind = ' class="number"' if number else ""
    return f'<th scope="col"{kind}>{html.escape(_HEADS.get(column, column))}</th>'


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    first, *others = columns
    kind, text = _cell(row.get(first))
    return f'<th scope="row"{kind}>{text}</th>' + "".join(
        f"<td{kind}>{text}</td>" for kind, text in (_cell(row.get(column)) for column in others)
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> tuple[str, str]:
    """Return the attribute and the HTML of a cell."""
    if value is None:
        return ' class="number"', "–"
    if not _is_number(value):
        return "", text_of(value)
    return ' class="number"', f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
