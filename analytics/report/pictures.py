"""The report's pictures, as PNG, for places that cannot show HTML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analytics.report.figures import COOL, colours, delay_curve, worst_destinations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analytics.jobs.analysis import Analysis

DPI = 110


def draw_pictures(directory: Path, found: Analysis) -> list[Path]:
    """Draw the worst destinations, the busiest regions, the delays, and the stretch's CDF if known.

    Needs matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    written = []
    for name, draw in (("who_hurts", _hurts), ("hot_regions", _hot), ("delays", _delays), ("stretch_cdf", _cdf)):
        figure = Figure(figsize=(7.2, 4.2), dpi=DPI, layout="constrained")
        axes = figure.add_subplot()
        if draw(axes, found):
            axes.spines[["top", "right"]].set_visible(False)
            written.append(directory / f"{name}.png")
            figure.savefig(written[-1])
    return written


def _hurts(axes: Axes, found: Analysis) -> bool:
    names, values, unit = worst_destinations(found)
    axes.barh(names, values, color=colours(values))
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", labelsize=8)
    return bool(names)


def _hot(axes: Axes, found: Analysis) -> bool:
    rows = [row for row in found.load.regions if row["events_per_s"]][:20][::-1]
    axes.barh([row["region"] for row in rows], [row["events_per_s"] for row in rows], color=COOL)
    axes.set_xlabel("events a second")
    axes.tick_params(axis="y", labelsize=8)
    return bool(rows)


def _delays(axes: Axes, found: Analysis) -> bool:
    delays, parts = delay_curve(found)
    axes.step(delays, parts, where="post", color=COOL)
    axes.set_xscale("log")
    axes.set_xlabel("ms from publish to delivery, of others' events")
    axes.set_ylabel("part of deliveries")
    axes.set_ylim(0, 1.01)
    return bool(delays)


def _cdf(axes: Axes, found: Analysis) -> bool:
    values = sorted(row["stretch"] for row in found.tables["by_destination"])
    axes.step(values, [(number + 1) / len(values) for number in range(len(values))], where="post", color=COOL)
    axes.axvline(1, linestyle=":", color="black", linewidth=1)
    axes.set_xlabel("latency stretch of destinations")
    axes.set_ylabel("part of destinations")
    axes.set_ylim(0, 1.01)
    return bool(values)
