"""The comparison as one HTML page that needs nothing else: a table with bars for each case, and how costs grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

Row = Mapping[str, Any]

METRICS = {
    "mean_ms": "mean time to deliver, ms",
    "p90_ms": "90th percentile, ms",
    "stretch": "time over direct delay",
    "packets": "packets a multicast",
    "control_bytes": "bytes a multicast beyond payloads",
    "metadata_bytes": "bytes on a message beyond its payload",
    "busiest": "packets of the busiest process a multicast",
    "held_max": "most messages held",
}
GROWTH = {"processes": "processes", "rate": "events/s of each process", "groups": "groups"}
WIDTH, HEIGHT, MARGIN = 420, 230, 44
COLOURS = ("#0b6fa4", "#c2571a", "#3d7d3a", "#7a4fa3", "#a4243b", "#5a6b7b", "#b8860b", "#2a9d8f")
STYLE = """
body { font: 14px/1.45 sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .15em .6em; text-align: right; white-space: nowrap }
th { font-weight: normal; color: #666; vertical-align: bottom; white-space: normal; max-width: 9em }
td:first-child, th:first-child { text-align: left } tr:hover { background: #f4f4f4 } .ours { font-weight: bold }
td { background: linear-gradient(#cfe3ef, #cfe3ef) no-repeat right / var(--bar, 0) 100% } svg { margin: .5em }
p.refused { color: #666 }
"""


def write_page(rows: Sequence[Row], *, title: str) -> str:
    """Return the page. Bars are relative to the largest of their column, without those over ten times the median."""
    cases = list(dict.fromkeys((row["processes"], row["groups"], row["rate"]) for row in rows))
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>",
        f"<h1>{escape(title)}</h1>",
    ]
    for varied, label in GROWTH.items():
        parts.extend(_growth(rows, varied, label))
    for processes, groups, rate in cases:
        of_case = [row for row in rows if (row["processes"], row["groups"], row["rate"]) == (processes, groups, rate)]
        plural = "s" if groups > 1 else ""
        parts.append(f"<h2>{processes} processes, {groups} group{plural}, {rate:g} events/s each</h2>")
        parts.append(_table([row for row in of_case if "packets" in row]))
        refused = [row["protocol"] for row in of_case if "not_applicable" in row]
        if refused:
            names = escape(", ".join(refused))
            parts.append(f"<p class='refused'>Not for this workload, by their assumptions: {names}.</p>")
    return "\n".join(parts) + "\n</html>\n"


def _table(rows: Sequence[Row]) -> str:
    largest = {metric: _scale([row[metric] for row in rows]) for metric in METRICS}
    head = "".join(f"<th>{escape(label)}</th>" for label in METRICS.values())
    lines = [f"<table><tr><th>protocol</th>{head}</tr>"]
    for row in rows:
        cells = "".join(
            f"<td style='--bar:{min(100, 100 * row[metric] / largest[metric]):.0f}%'>{row[metric]:.3g}</td>"
            for metric in METRICS
        )
        mark = " class='ours'" if row["protocol"] == "atoms" else ""
        lines.append(f"<tr{mark}><td>{escape(row['protocol'])}</td>{cells}</tr>")
    return "".join(lines) + "</table>"


def _scale(values: Sequence[float]) -> float:
    """The largest that is not far out, so that one protocol that collapses does not flatten the others."""
    middle = sorted(values)[len(values) // 2] if values else 0.0
    return max([value for value in values if value <= 10 * middle] or [1.0]) or 1.0


def _growth(rows: Sequence[Row], varied: str, label: str) -> Iterator[str]:
    """Charts of what changes with one of the parameters, the others being what they were first."""
    fixed = {other: rows[0][other] for other in GROWTH if other != varied}
    chosen = [row for row in rows if "packets" in row and all(row[key] == value for key, value in fixed.items())]
    points = sorted({row[varied] for row in chosen})
    if len(points) < 2:
        return
    said = ", ".join(f"{value:g} {GROWTH[key]}" for key, value in fixed.items())
    yield f"<h2>As the number of {escape(label)} grows</h2><p>with {escape(said)}</p>"
    for metric in ("mean_ms", "control_bytes", "busiest"):
        yield _chart(chosen, varied, points, metric)


def _chart(rows: Sequence[Row], varied: str, points: Sequence[float], metric: str) -> str:
    top = _scale([row[metric] for row in rows])
    place = {point: MARGIN + (WIDTH - 2 * MARGIN) * i / (len(points) - 1) for i, point in enumerate(points)}
    lines = [
        f"<svg width='{WIDTH + 130}' height='{HEIGHT}' font-size='11'>",
        f"<text x='{MARGIN}' y='14'>{escape(METRICS[metric])}</text>",
        f"<path d='M{MARGIN} 24V{HEIGHT - 24}H{WIDTH - MARGIN}' fill='none' stroke='#999'/>",
        f"<text x='{MARGIN - 4}' y='34' text-anchor='end'>{top:.3g}</text>",
    ]
    lines += [f"<text x='{x:.0f}' y='{HEIGHT - 8}' text-anchor='middle'>{point:g}</text>" for point, x in place.items()]
    by_protocol: dict[str, list[Row]] = {}
    for row in rows:
        by_protocol.setdefault(row["protocol"], []).append(row)
    labels: list[tuple[float, str, str]] = []
    for number, (protocol, of_protocol) in enumerate(by_protocol.items()):
        colour = COLOURS[number % len(COLOURS)]
        height = [HEIGHT - 24 - (HEIGHT - 48) * min(1.0, row[metric] / top) for row in of_protocol]
        path = " ".join(f"{place[row[varied]]:.0f},{y:.0f}" for row, y in zip(of_protocol, height, strict=True))
        width = 3 if protocol == "atoms" else 1.2
        lines.append(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='{width}'>"
            f"<title>{escape(protocol)}</title></polyline>"
        )
        labels.append((height[-1], protocol, colour))
    lower = HEIGHT - 14.0
    for y, protocol, colour in sorted(labels, reverse=True):
        lower = min(y + 4, lower - 7.5)
        size = "font-size='8'"
        lines.append(f"<text x='{WIDTH - MARGIN + 6}' y='{lower:.0f}' fill='{colour}' {size}>{escape(protocol)}</text>")
    return "".join(lines) + "</svg>"
