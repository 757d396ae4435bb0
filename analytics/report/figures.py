"""The report's interactive plots, each a piece of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analytics.jobs.analysis import Analysis

BARS_MAX = 24
INK, GRID = "#1d2733", "#e4e8ee"
COOL, WARM, HOT = "#3d7ea6", "#e0a33e", "#c8473a"
HIGH_STRETCH, BAD_STRETCH = 1.5, 1.25
"""Multiples of the median: bars above the second are warm, and above the first hot."""


def figures_of(found: Analysis) -> Mapping[str, str]:
    """Return the plots by name: hurts, hot, delays, and cdf where the stretch is known."""
    drawn = {"hurts": _hurts(found), "hot": _hot(found), "delays": _delays(found)}
    if found.tables["by_destination"]:
        drawn["cdf"] = _cdf(found)
    return drawn


def worst_destinations(found: Analysis) -> tuple[list[str], list[float], str]:
    """Return the worst destinations, worst last, as a bar chart needs them: names, values, and their unit."""
    rows: Sequence[Mapping[str, Any]] = found.tables["by_destination"]
    column, unit = "stretch", "times the direct way"
    if not rows:
        rows, column, unit = found.tables["subscriber_delays"], "delay_ms", "ms from publish to delivery"
    worst = sorted(rows, key=lambda row: row[column])[-BARS_MAX:]
    return [row["subscriber"] for row in worst], [row[column] for row in worst], unit


def colours(values: Sequence[float]) -> list[str]:
    """Return colours that highlight values far above the median."""
    median = sorted(values)[len(values) // 2] if values else 0.0
    return [HOT if v > HIGH_STRETCH * median else WARM if v > BAD_STRETCH * median else COOL for v in values]


def delay_curve(found: Analysis) -> tuple[list[float], list[float]]:
    """Return delays in ms, and the part of deliveries that took at most that long."""
    counts: dict[float, int] = {}
    for row in found.tables["delays"]:
        counts[row["up_to_ms"]] = counts.get(row["up_to_ms"], 0) + row["deliveries"]
    total, running = sum(counts.values()), 0
    delays, parts = [], []
    for delay in sorted(counts):
        running += counts[delay]
        delays.append(delay)
        parts.append(running / total)
    return delays, parts


def _hurts(found: Analysis) -> str:
    import plotly.graph_objects as go

    names, values, unit = worst_destinations(found)
    if not names:
        return "<p>No delivery has times.</p>"
    bars = go.Bar(
        x=values, y=names, orientation="h", marker_color=colours(values), hovertemplate="%{y}: %{x:.2f}<extra></extra>"
    )
    figure = go.Figure(bars)
    figure.update_xaxes(title=unit, rangemode="tozero")
    return _html(figure, height=120 + 20 * len(names))


def _hot(found: Analysis) -> str:
    import plotly.graph_objects as go

    rows = [row for row in found.load.regions if row["events_per_s"]][:BARS_MAX][::-1]
    if not rows:
        return "<p>The duration is not known, so the rates are not known either.</p>"
    names = [row["region"] for row in rows]
    rates = [row["events_per_s"] for row in rows]
    hover = [f"{row['subscribers']} subscribers, {row['publishers']} publishers" for row in rows]
    bars = go.Bar(
        x=rates, y=names, orientation="h", marker_color=COOL, customdata=hover,
        hovertemplate="%{y}: %{x:.1f} events/s, %{customdata}<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(bars)
    figure.update_xaxes(title="events a second", rangemode="tozero")
    return _html(figure, height=120 + 20 * len(names))


def _delays(found: Analysis) -> str:
    import plotly.graph_objects as go

    delays, parts = delay_curve(found)
    if not delays:
        return "<p>No delivery has times.</p>"
    line = go.Scatter(
        x=delays,
        y=parts,
        mode="lines",
        line={"color": COOL, "shape": "hv"},
        hovertemplate="%{y:.1%} within %{x:.2f} ms<extra></extra>",
    )
    figure = go.Figure(line)
    figure.update_xaxes(title="ms from publish to delivery, of others' events", type="log")
    figure.update_yaxes(title="part of deliveries", range=[0, 1.01], tickformat=".0%")
    return _html(figure, height=380)


def _cdf(found: Analysis) -> str:
    import plotly.graph_objects as go

    ascending = sorted(found.tables["by_destination"], key=lambda row: row["stretch"])
    values = [row["stretch"] for row in ascending]
    parts = [(number + 1) / len(values) for number in range(len(values))]
    line = go.Scatter(
        x=values, y=parts, mode="lines+markers", line={"color": COOL, "shape": "hv"}, marker={"size": 5},
        text=[row["subscriber"] for row in ascending], hovertemplate="%{text}: %{x:.2f}<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(line)
    figure.add_vline(x=1, line_dash="dot", line_color=INK, annotation_text="direct")
    figure.update_xaxes(title="latency stretch")
    figure.update_yaxes(title="part of destinations", range=[0, 1.01], tickformat=".0%")
    return _html(figure, height=380)


def _html(figure: Any, *, height: int) -> str:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 20, "t": 16, "b": 10},
        plot_bgcolor="white",
        paper_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
    )
    figure.update_xaxes(gridcolor=GRID, automargin=True, zeroline=False)
    figure.update_yaxes(gridcolor=GRID, automargin=True, zeroline=False)
    return str(
        figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})
    )
