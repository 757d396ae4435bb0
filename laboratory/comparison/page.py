"""The comparison as one HTML page that needs nothing else: claims, how costs grow, a table for each case."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.process import Guarantee
from laboratory.comparison.claims import Claim, lessons
from laboratory.comparison.plots import DRAWN, as_svg, figures

Row = Mapping[str, Any]

METRICS = {
    "mean_ms": "mean time to deliver, ms",
    "p90_ms": "90th percentile, ms",
    "stretch": "time over direct delay",
    "stretch_max": "the same, of the worst destination",
    "packets": "packets a multicast",
    "metadata_bytes": "bytes on a message beyond its payload",
    "control_bytes": "bytes a multicast beyond payloads",
    "busiest": "packets of the busiest process a multicast",
    "held_max": "most messages held",
}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222 }
h2 { margin-top: 2em } table { border-collapse: collapse; margin: 1em 0; font-size: 13px }
th, td { padding: .15em .6em; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
th { font-weight: normal; color: #555; vertical-align: bottom; white-space: normal; max-width: 9em }
td:first-child, th:first-child, .order { text-align: left } tr:hover { background: #f4f4f4 }
.ours { font-weight: bold }
td { background: linear-gradient(#dbe9f3, #dbe9f3) no-repeat right / var(--bar, 0) 100% }
svg { max-width: 100%; height: auto } p.refused { color: #666 }
.yes::before { content: "holds"; color: #fff; background: #00664d }
.never::before { content: "does not hold"; color: #fff; background: #a33c00 }
.no::before { content: "does not hold everywhere"; color: #fff; background: #a33c00 }
[class]::before { border-radius: .3em; padding: .1em .5em; margin-right: .6em; font-size: 12px }
.claim { margin: .8em 0 } .claim ul { margin: .3em 0 0 0 } .claim li { font-size: 13px; color: #444 }
"""
ORDERS = (
    (Guarantee.SYNCHRONOUS, "synchronous"),
    (Guarantee.GAPS, "total, gaps"),
    (Guarantee.TOTAL, "total"),
    (Guarantee.CAUSAL, "causal"),
    (Guarantee.FIFO, "FIFO"),
)


def write_page(rows: Sequence[Row], claims: Sequence[Claim], *, title: str, about: str) -> str:
    """Return the page. Bars are relative to the largest of their column, without those over ten times the median."""
    cases = list(dict.fromkeys((row["processes"], row["groups"], row["rate"]) for row in rows))
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p>",
    ]
    if claims:
        parts.append("<h2>What it teaches</h2><ul>")
        parts += (f"<li>{escape(lesson)}</li>" for lesson in lessons(rows))
        parts.append("</ul><h2>The claims, put to the test</h2>")
        parts.extend(map(_claim, claims))
    drawn = list(figures(rows))
    if drawn:
        names = ", ".join(name for name in DRAWN if any(row["protocol"] == name for row in rows))
        parts.append(
            f"<p>Drawn below is one protocol of each idea ({escape(names)}); the tables have all. Lines "
            "that coincide hide each other: in one group atoms, central and propagation-tree are one.</p>"
        )
    parts += (f"<h2>{escape(heading)}</h2>{_apart(as_svg(figure), name)}" for name, heading, figure in drawn)
    for processes, groups, rate in cases:
        of_case = [row for row in rows if (row["processes"], row["groups"], row["rate"]) == (processes, groups, rate)]
        parts.extend(_case(of_case, processes, groups, rate))
    return "\n".join(parts) + "\n</html>\n"


def _claim(claim: Claim) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in claim.figures)
    against = "".join(f"<li><b>Not so:</b> {escape(line)}</li>" for line in claim.against)
    mark = "yes" if claim.holds else "no" if claim.figures else "never"
    counted = f"{len(claim.figures)} of {len(claim.figures) + len(claim.against)} cases"
    return (
        f"<div class='claim'><span class='{mark}'></span>{escape(claim.claim)} <small>({escape(claim.source)})</small>"
        f"<details{' open' * (not claim.holds)}><summary>{counted}</summary><ul>{against}{lines}</ul></details></div>"
    )


def _case(rows: Sequence[Row], processes: int, groups: int, rate: float) -> Iterator[str]:
    plural = "s" if groups > 1 else ""
    overlaps = f", {rows[0]['overlaps']} overlaps" if groups > 1 else ""
    yield f"<h2>{processes} processes, {groups} group{plural}{overlaps}, {rate:g} events/s each</h2>"
    yield _table([row for row in rows if "packets" in row])
    refused = [row["protocol"] for row in rows if "not_applicable" in row]
    if refused:
        names = escape(", ".join(refused))
        yield f"<p class='refused'>Not for this workload, by their assumptions: {names}.</p>"


def _table(rows: Sequence[Row]) -> str:
    largest = {metric: _scale([row[metric] for row in rows]) for metric in METRICS}
    head = "".join(f"<th>{escape(label)}</th>" for label in METRICS.values())
    lines = [f"<table><tr><th>protocol</th><th class='order'>order</th>{head}</tr>"]
    for row in rows:
        cells = "".join(
            f"<td style='--bar:{min(100, 100 * row[metric] / largest[metric]):.0f}%'>{_figure(row[metric])}</td>"
            for metric in METRICS
        )
        mark = " class='ours'" if row["protocol"] == "atoms" else ""
        name = row["protocol"]
        lines.append(f"<tr{mark}><td>{escape(name)}</td><td class='order'>{_order(name)}</td>{cells}</tr>")
    return "".join(lines) + "</table>"


def _order(protocol: str) -> str:
    if protocol == "atoms":
        return "total, FIFO"
    guarantees = PROTOCOLS[protocol].guarantees
    order = next((word for guarantee, word in ORDERS if guarantee in guarantees), "none")
    return f"{order}, causal" if {Guarantee.TOTAL, Guarantee.CAUSAL} <= guarantees else order


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _scale(values: Sequence[float]) -> float:
    """The largest that is not far out, so that one protocol that collapses does not flatten the others."""
    middle = sorted(values)[len(values) // 2] if values else 0.0
    return max([value for value in values if value <= 10 * middle] or [1.0]) or 1.0


def _apart(svg: str, name: str) -> str:
    """Make what a drawing's parts are called its own, as several are on one page."""
    return re.sub(r'(id="|xlink:href="#|url\(#)', lambda found: f"{found[0]}{name}-", svg)
