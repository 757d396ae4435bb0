"""The report's pictures, as PNG, for places that cannot show HTML."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analytics.report.charts import shortened
from analytics.report.figures import BARS_MAX, delay_curve, tones

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analytics.jobs.analysis import Analysis

DPI = 110
COOL = "#3d7ea6"
COLOUR_OF = {"cool": COOL, "warm": "#e0a33e", "hot": "#c8473a"}


def draw_pictures(directory: Path, analysis: Analysis) -> list[Path]:
    """Draw the worst destinations, the busiest regions, the delays, and the stretch's CDF if known.

    Needs matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return []
    # A name may hold a dollar sign, and characters that no font here has: those are drawn as boxes.
    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph ")
        return list(_drawn(directory, analysis, Figure))


def _drawn(directory: Path, analysis: Analysis, figure_type: type[Figure]) -> Iterator[Path]:
    for name, draw in (("who_hurts", _hurts), ("hot_regions", _hot), ("delays", _delays), ("stretch_cdf", _cdf)):
        figure = figure_type(figsize=(7.2, 4.2), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        if draw(axes, analysis):
            axes.spines[["top", "right"]].set_visible(False)
            figure.savefig(directory / f"{name}.png")
            yield directory / f"{name}.png"


def worst_destinations(analysis: Analysis) -> tuple[list[str], list[float], str]:
    """Return the worst destinations, worst last, as a bar chart needs them: names, values, and their unit."""
    rows: Sequence[Mapping[str, Any]] = analysis.tables["by_destination"]
    column, unit = "stretch", "times the direct way"
    if not rows or analysis.nearness():
        rows, column, unit = analysis.tables["subscriber_delays"], "delay_ms", "ms from publish to delivery"
    worst = sorted(rows, key=lambda row: row[column])[-BARS_MAX:]
    return [row["subscriber"] for row in worst], [row[column] for row in worst], unit


def _hurts(axes: Axes, analysis: Analysis) -> bool:
    names, values, unit = worst_destinations(analysis)
    axes.barh(range(len(names)), values, color=[COLOUR_OF[tone] for tone in tones(values)])
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", labelsize=8)
    return bool(names)


def _hot(axes: Axes, analysis: Analysis) -> bool:
    rows = [row for row in analysis.load.regions if row["events_per_s"]][:20][::-1]
    axes.barh(range(len(rows)), [row["events_per_s"] for row in rows], color=COOL)
    axes.set_yticks(range(len(rows)), [shortened(row["region"]) for row in rows])
    axes.set_xlabel("events a second")
    axes.tick_params(axis="y", labelsize=8)
    return bool(rows)


def _delays(axes: Axes, analysis: Analysis) -> bool:
    delays, parts = delay_curve(analysis)
    axes.step(delays, parts, where="post", color=COOL)
    axes.set_xscale("log")
    axes.set_xlabel("ms from publish to delivery, of others' events")
    axes.set_ylabel("part of deliveries")
    axes.set_ylim(0, 1.01)
    return bool(delays)


def _cdf(axes: Axes, analysis: Analysis) -> bool:
    values = sorted(row["stretch"] for row in analysis.tables["by_destination"])
    axes.step(values, [(number + 1) / len(values) for number in range(len(values))], where="post", color=COOL)
    axes.axvline(1, linestyle=":", color="black", linewidth=1)
    axes.set_xlabel("latency stretch of destinations")
    axes.set_ylabel("part of destinations")
    axes.set_ylim(0, 1.01)
    return bool(values) and not analysis.nearness()
