"""The report's charts, each made of what an analysis found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analytics.report.axes import Axis, axis_from_zero, duration_text, log_axis, number_text, percent_text
from analytics.report.charts import (
    Bar,
    Panel,
    Tone,
    bar_chart,
    drawing,
    figure,
    hover_bands,
    hover_text,
    isolated,
    line,
    percent,
    steps,
    stretched,
    x_axis,
)

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis

BARS_MAX = 24
POINTS_MAX = 400
"""More points of a line than a screen shows only make the file larger."""
HIGH_STRETCH, BAD_STRETCH = 1.5, 1.25
"""Multiples of the median: bars above the second are warm, and above the first hot."""
PLOT_PX = 260
PARTS = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
NO_TIMES = "<p>No delivery has times.</p>"


def tones(values: Sequence[float]) -> list[Tone]:
    """Return the tones of bars; values far above the median stand out."""
    median = sorted(values)[len(values) // 2] if values else 0.0
    return [
        "hot" if value > HIGH_STRETCH * median else "warm" if value > BAD_STRETCH * median else "cool"
        for value in values
    ]


def delay_curve(analysis: Analysis) -> tuple[list[float], list[float]]:
    """Return delays in ms, and the part of deliveries that took at most that long."""
    counts: dict[float, int] = {}
    for row in analysis.tables["delays"]:
        counts[row["up_to_ms"]] = counts.get(row["up_to_ms"], 0) + row["deliveries"]
    total, running = sum(counts.values()), 0
    delays, parts = [], []
    for delay in sorted(counts):
        running += counts[delay]
        delays.append(delay)
        parts.append(running / total)
    return delays, parts


def delay_percentiles(analysis: Analysis) -> dict[str, float]:
    """Return upper bounds of p50, p95 and p99 in ms, at most 4.4% too high; nothing if no delivery has times."""
    return analysis.delay_ms() or {}


def at_most(ms: float) -> str:
    """Return an upper bound with three digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(ms)) - 2)
    return f"≤ {duration_text(math.ceil(ms / unit - 1e-9) * unit)}"


def hurts_chart(analysis: Analysis) -> str:
    """Return the servers with the most stretch, or the longest delays if no direct way is known to be long enough."""
    rows = list(analysis.tables["by_destination"])
    if not rows or analysis.nearness():
        return server_delays_chart(analysis)
    rows = sorted(rows, key=lambda row: -row["stretch"])[:BARS_MAX]
    values = [row["stretch"] for row in rows]
    bars = [
        Bar(
            row["subscriber"], row["stretch"], f"× {row['stretch']:.2f}",
            f"{duration_text(row['delay_ms'])} on average, {duration_text(row['direct_ms'])} directly", tone,
        )
        for row, tone in zip(rows, tones(values), strict=True)
    ]  # fmt: skip
    label = _listed("Bar chart of times the direct way, by server", bars)
    return figure(bar_chart(bars, label=label, mark=(1.0, "× 1: the direct way")), _tones_text(bars))


def server_delays_chart(analysis: Analysis) -> str:
    """Return the servers whose deliveries took longest, on average."""
    rows = sorted(analysis.tables["subscriber_delays"], key=lambda row: -row["delay_ms"])[:BARS_MAX]
    if not rows:
        return NO_TIMES
    bars = [
        Bar(
            row["subscriber"],
            row["delay_ms"],
            duration_text(row["delay_ms"]),
            f"{row['deliveries']:,} deliveries",
            tone,
        )
        for row, tone in zip(rows, tones([row["delay_ms"] for row in rows]), strict=True)
    ]
    return figure(bar_chart(bars, label=_listed("Bar chart of mean delays, by server", bars)), _tones_text(bars))


def regions_chart(analysis: Analysis) -> str:
    """Return the regions with the most events a second."""
    rows = [row for row in analysis.load.regions if row["events_per_s"]][:BARS_MAX]
    if not rows:
        return "<p>The duration is not known, so the rates are not known either.</p>"
    bars = [
        Bar(
            row["region"], row["events_per_s"], f"{number_text(row['events_per_s'])}/s",
            f"{row['subscribers']:,} subscribers, {row['publishers']:,} publishers",
        )
        for row in rows
    ]  # fmt: skip
    return figure(bar_chart(bars, label=_listed("Bar chart of events a second, by region", bars)))


def inversions_chart(analysis: Analysis) -> str:
    """Return the pairs of regions whose events came in different orders; nothing if there are none."""
    pairs = sorted((pair for pair in analysis.audit.order.pairs if pair.inversions), key=lambda pair: -pair.inversions)
    if not pairs:
        return ""
    bars = [
        Bar(" – ".join(pair.regions), pair.inversions, f"{pair.inversions:,}", f"{pair.subscribers:,} servers", "hot")
        for pair in pairs[:BARS_MAX]
    ]
    label = _listed("Bar chart of inversions, by pair of regions", bars)
    return figure(bar_chart(bars, label=label), "Inversions by pair of regions.")


def delays_chart(analysis: Analysis) -> str:
    """Return the part of deliveries over the time that they took."""
    delays, parts = delay_curve(analysis)
    if not delays:
        return NO_TIMES
    x = log_axis(delays[0], delays[-1], duration_text)
    texts = [
        (delay, f"{percent_text(part)} within {duration_text(delay)}")
        for delay, part in zip(delays, parts, strict=True)
    ]
    percentiles = delay_percentiles(analysis)
    label = "Line chart of the part of deliveries over their delay: " + ", ".join(
        f"{name} {at_most(ms)}" for name, ms in percentiles.items()
    )
    contents = _rising(list(zip(delays, parts, strict=True)), x, texts) + _percentile_marks(percentiles, x)
    return figure(
        drawing(contents, PLOT_PX + 34, label, kind="plot"),
        "Time from publish to delivery of others' events.",
        above="Part of deliveries",
    )


def stretch_chart(analysis: Analysis) -> str:
    """Return the part of destinations over their stretch."""
    rows = sorted(analysis.tables["by_destination"], key=lambda row: row["stretch"])
    every = math.ceil(len(rows) / POINTS_MAX)
    kept = [number for number in range(len(rows)) if number % every == 0 or number == len(rows) - 1]
    points = [(rows[number]["stretch"], (number + 1) / len(rows)) for number in kept]
    x = axis_from_zero(max(points[-1][0], 1.0), number_text)
    texts = [
        (value, f"{isolated(rows[number]['subscriber'])}: × {value:.2f}")
        for number, (value, _) in zip(kept, points, strict=True)
    ]
    mark = (
        f'<line class="mark" x1="{percent(x, 1)}" x2="{percent(x, 1)}" y1="10" y2="{PLOT_PX}"/>'
        f'<text class="soft" x="{percent(x, 1)}" dx="6" y="24">directly</text>'
    )
    middle = rows[(len(rows) - 1) // 2]["stretch"]
    label = (
        f"Line chart of the part of {len(rows):,} destinations over their stretch: {middle:.2f} in the median, "
        f"{points[-1][0]:.2f} at most"
    )
    contents = mark + _rising(points, x, texts)
    return figure(
        drawing(contents, PLOT_PX + 34, label, kind="plot"),
        "Latency stretch: times the direct way.",
        above="Part of destinations",
    )


def _rising(points: Sequence[tuple[float, float]], x: Axis, texts: Sequence[tuple[float, str]]) -> str:
    y = Axis(0.0, 1.0, tuple((part, percent_text(part)) for part in (0.0, 0.25, 0.5, 0.75, 1.0)))
    panel = Panel(y, 10, PLOT_PX - 10)
    corners = [*steps(points), (x.high, points[-1][1])]
    return (
        panel.grid()
        + x_axis(x, 10, PLOT_PX)
        + stretched(line([corners], x, panel, "cool"), PLOT_PX)
        + hover_bands(texts, x, PLOT_PX)
    )


def _percentile_marks(percentiles: Mapping[str, float], x: Axis) -> str:
    """Return dots on the curve; p95 has its text on the other side, where p99 has none."""
    marks = ""
    for part, name in PARTS:
        at, height = percent(x, percentiles[name]), 10 + (PLOT_PX - 10) * (1 - part)
        shift = 'dx="-8" text-anchor="end"' if name == "p95" else 'dx="8"'
        marks += (
            f'<circle class="dot" cx="{at}" cy="{height:.1f}" r="4">'
            f"{hover_text(f'{name}: {at_most(percentiles[name])}')}</circle>"
            f'<text class="strong" x="{at}" y="{height + (-7 if name == "p95" else 16):.1f}" {shift}>{name}</text>'
        )
    return marks


def _listed(what: str, bars: Sequence[Bar]) -> str:
    """Return what a screen reader says of bars: the three longest, and how many there are."""
    first = ", ".join(f"{isolated(bar.name)} {bar.text}" for bar in bars[:3])
    return f"{what}: {first}" + (f", and {len(bars) - 3:,} shorter ones" if len(bars) > 3 else "")


def _tones_text(bars: Sequence[Bar]) -> str:
    if all(bar.tone == "cool" for bar in bars):
        return ""
    return f"Amber: over {BAD_STRETCH} times the median of these bars. Red: over {HIGH_STRETCH} times."
