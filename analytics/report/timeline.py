"""The picture of a session over time: delays, joins and gaps, and events a second, on one axis."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from analytics.report.axes import Axis, axis_from_zero, delay_axis, duration_text, number_text, time_axis
from analytics.report.charts import (
    Panel,
    dash,
    drawing,
    hover_bands,
    hover_text,
    legend,
    legible,
    line,
    percent,
    stretched,
    x_axis,
)

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis

POINTS_MAX = 360
"""Longer sessions have several minutes to a point."""
PERCENTILES = ("p50_ms", "p95_ms", "p99_ms")
DELAYS_PX, MARKS_PX, RATE_PX, TOP_PX = 190, 44, 90, 18


@dataclass(frozen=True, slots=True)
class Point:
    """One or more minutes: the highest percentiles, the mean rate, and the sums of the rest."""

    time: datetime
    percentiles: Mapping[str, float | None]
    events_per_s: float
    deliveries: int
    joins: int
    gaps: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Points in order of time, and how many minutes are in each; parts of one in a short session."""

    points: Sequence[Point]
    minutes: float

    @property
    def clock(self) -> str:
        """How a time of day is written."""
        return "%H:%M" if self.minutes >= 1 else "%H:%M:%S"

    @property
    def x(self) -> Axis:
        """The axis of time."""
        return time_axis(self.points[0].time, self.points[-1].time)

    def at(self, time: datetime) -> float:
        """Return a time as the axis has it."""
        return (time - self.points[0].time).total_seconds() / 60


def timeline_of(analysis: Analysis) -> Timeline | None:
    """Return the session over time; None if it is not known, or has one span only."""
    rows = [(time, row) for row in analysis.tables.get("timeline", ()) if (time := _time(row["minute"])) is not None]
    if len(rows) < 2:
        return None
    rows.sort(key=lambda each: each[0])
    first = rows[0][0]
    apart = [(after - before).total_seconds() for (before, _), (after, _) in pairwise(rows)]
    span_s = min(60.0, min((each for each in apart if each > 0), default=60.0))
    last = (rows[-1][0] - first).total_seconds() // span_s
    spans = math.ceil((last + 1) / POINTS_MAX)
    pooled: dict[int, list[tuple[datetime, Mapping[str, Any]]]] = {}
    for time, row in rows:
        pooled.setdefault(int((time - first).total_seconds() // span_s // spans), []).append((time, row))
    return Timeline([_point(each) for each in pooled.values()], spans * span_s / 60)


def timeline_figure(analysis: Analysis) -> str:
    """Return the picture with its legend; nothing if the session over time is not known."""
    timeline = timeline_of(analysis)
    if timeline is None:
        return ""
    x = timeline.x
    rates_top = TOP_PX + DELAYS_PX + MARKS_PX
    bottom = rates_top + RATE_PX
    known = [value for point in timeline.points for value in point.percentiles.values() if value is not None]
    delays = Panel(delay_axis(known), TOP_PX, DELAYS_PX)
    busiest = max(point.events_per_s for point in timeline.points)
    rates = Panel(axis_from_zero(busiest, number_text), rates_top, RATE_PX)
    lines = "".join(line(_pieces(timeline, name), x, delays, name[:3]) for name in PERCENTILES)
    lines += line(_pieces(timeline, "events_per_s"), x, rates, "cool")
    contents = delays.grid() + rates.grid() + x_axis(x, TOP_PX, bottom) + stretched(lines, bottom)
    contents += f'<text class="soft" x="0" y="{rates_top - 6}">events/s</text>'
    contents += hover_bands(
        [(timeline.at(point.time) - timeline.minutes / 2, _hover(point, timeline.clock)) for point in timeline.points],
        x,
        bottom,
    )
    contents += "".join(_marks(timeline, x)) + "".join(_turn_lines(analysis, timeline, x, bottom))
    chart = drawing(contents, bottom + 34, _label(timeline, analysis), kind="plot")
    return f"<figure>{_legend(timeline)}{chart}{_caption(timeline, analysis)}</figure>"


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).replace(tzinfo=None)
    except ValueError:
        return None


def _point(rows: Sequence[tuple[datetime, Mapping[str, Any]]]) -> Point:
    highest = {
        name: max((row[name] for _, row in rows if row.get(name) is not None), default=None) for name in PERCENTILES
    }
    summed = {name: sum(row.get(name) or 0 for _, row in rows) for name in ("deliveries", "joins", "gaps")}
    rate = sum(row.get("events_per_s") or 0.0 for _, row in rows) / len(rows)
    return Point(rows[0][0], highest, rate, summed["deliveries"], summed["joins"], summed["gaps"])


def _pieces(timeline: Timeline, name: str) -> Iterator[list[tuple[float, float]]]:
    """Return the pieces of a line: it breaks where a value is not known, and over minutes without a row."""
    piece: list[tuple[float, float]] = []
    for point in timeline.points:
        value = point.events_per_s if name == "events_per_s" else point.percentiles[name]
        at = timeline.at(point.time)
        if piece and (value is None or at - piece[-1][0] > 2 * timeline.minutes):
            yield piece
            piece = []
        if value is not None:
            piece.append((at, value))
    if piece:
        yield piece


def _marks(timeline: Timeline, x: Axis) -> Iterator[str]:
    for name, height in (("joins", TOP_PX + DELAYS_PX + 10), ("gaps", TOP_PX + DELAYS_PX + 22)):
        for point in timeline.points:
            if count := getattr(point, name):
                at = percent(x, timeline.at(point.time))
                text = hover_text(f"{point.time:{timeline.clock}}: {name} {count:,}")
                yield f'<circle class="{name}" cx="{at}" cy="{height}" r="3.5">{text}</circle>'


def _turn_lines(analysis: Analysis, timeline: Timeline, x: Axis, bottom: float) -> Iterator[str]:
    for number, turn in enumerate(analysis.turns, start=1):
        if (time := _time(turn.minute)) is None:
            continue
        at = percent(x, timeline.at(time))
        yield (
            f'<g>{hover_text(legible(turn.describe()))}<line class="turn" x1="{at}" x2="{at}" y1="{TOP_PX - 2}" '
            f'y2="{bottom}"/><text class="strong" x="{at}" y="12" text-anchor="middle">{number}</text></g>'
        )


def _hover(point: Point, clock: str) -> str:
    delays = [
        f"{name[:3]} {duration_text(value)}" for name, value in point.percentiles.items() if value is not None
    ] or ["no delays"]
    rest = f"{number_text(point.events_per_s)} events/s, {point.deliveries:,} deliveries"
    at = f"{point.time:%d %b} {point.time:{clock}}"
    return f"{at}: {', '.join(delays)}; {rest}; joins {point.joins:,}, gaps {point.gaps:,}"


def _label(timeline: Timeline, analysis: Analysis) -> str:
    points = timeline.points
    highest = max(
        (point for point in points if point.percentiles["p99_ms"] is not None),
        key=lambda point: point.percentiles["p99_ms"] or 0.0,
        default=None,
    )
    said = f"Line chart over time, {points[0].time:%d %b %H:%M} to {points[-1].time:%d %b %H:%M}: delays and events/s"
    if highest is not None:
        p99 = duration_text(highest.percentiles["p99_ms"] or 0.0)
        said += f"; p99 is highest at {highest.time:{timeline.clock}}, {p99}"
    busiest = max(points, key=lambda point: point.events_per_s)
    said += f"; {number_text(busiest.events_per_s)} events/s at most, at {busiest.time:{timeline.clock}}"
    joins, gaps = sum(point.joins for point in points), sum(point.gaps for point in points)
    return said + f"; {joins:,} joins, {gaps:,} gaps, {len(analysis.turns):,} turns"


def _legend(timeline: Timeline) -> str:
    shown = [(dash(name[:3]), f"{name[:3]} delay") for name in PERCENTILES]
    shown += [
        (f'<circle class="{name}" cx="14" cy="6" r="3.5"/>', name)
        for name in ("joins", "gaps")
        if any(getattr(point, name) for point in timeline.points)
    ]
    return legend(shown)


def _caption(timeline: Timeline, analysis: Analysis) -> str:
    first, last = timeline.points[0].time, timeline.points[-1].time
    said = [f"From {first:%d %b %Y, %H:%M} to {last:%d %b, %H:%M}."]
    if timeline.minutes > 1:
        said.append(f"Each point is {timeline.minutes:g} minutes, with the highest percentiles of them.")
    if analysis.turns:
        said.append("The numbered lines are the turns at the top of the page.")
    return f"<figcaption>{html.escape(' '.join(said))}</figcaption>"
