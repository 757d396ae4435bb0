"""Pictures of how a network grows with its world; matplotlib is the extra ``plots``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laboratory.drawing import plain, require_matplotlib
from laboratory.scale.figures import JOINS_MANAGER, JOINS_ONE_PROCESS, JOINS_REDIS, PlanCost, WorldFigures
from placement.planning.picture import draw_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Mapping[str, tuple[str, str]] = {
    "spread": ("#0072B2", "o"),
    "flocks": ("#009E73", "^"),
    "event": ("#D55E00", "s"),
    "boss": ("#CC79A7", "D"),
}
"""Okabe and Ito's colours, which the colour-blind tell apart, and marks."""
LIMIT = "#444444"


def draw(found: Sequence[WorldFigures], directory: Path) -> list[Path]:
    """Draw what the worlds allow into a directory, and return the files. Raises `UsageError` for a file.

    Nodes and stamps by world; joins and planning by players, where these differ; what walking changes, where that does.
    """
    require_matplotlib()

    drawings: dict[str, Callable[[Figure], None]] = {}
    if len({one.spec.walked_s for one in found}) > 1:
        drawings["walked"] = lambda figure: _walked(figure, found)
    else:
        drawings["busiest"] = lambda figure: _by_nodes(
            figure, found, lambda plan: plan.busiest_cores, "cores that the busiest node needs", limit=1.0
        )
        drawings["stamps"] = lambda figure: _by_nodes(
            figure, found, lambda plan: plan.stamp_bytes, "bytes of a stamp, mean over frames"
        )
        if len({one.spec.players for one in found}) > 1:
            drawings["joins"] = lambda figure: _joins(figure, found)
            drawings["planning"] = lambda figure: _planning(figure, found)
    return draw_all(drawings, directory)


def _by_nodes(
    figure: Figure,
    found: Sequence[WorldFigures],
    value: Callable[[PlanCost], float],
    label: str,
    *,
    limit: float | None = None,
) -> None:
    """A panel for each size of world, a line for each way to gather."""
    sizes = list(dict.fromkeys((one.spec.cells, one.spec.servers, one.spec.players) for one in found))
    figure.set_size_inches(3.3 * len(sizes) + 0.6, 3.6)
    panels = figure.subplots(1, len(sizes), squeeze=False, sharey=True)[0]
    for axes, size in zip(panels, sizes, strict=True):
        for one in found:
            if (one.spec.cells, one.spec.servers, one.spec.players) == size and one.plans:
                colour, mark = STYLE[one.spec.gather]
                nodes = [plan.nodes for plan in one.plans]
                axes.plot(nodes, list(map(value, one.plans)), color=colour, marker=mark, label=one.spec.gather)
        if limit is not None:
            _limit(axes, limit, "all that a node has" if axes is panels[0] else "", (0.98, -10), ha="right", zorder=0)
        axes.set_title("{:,} regions, {:,} servers,\n{:,} players".format(*size), loc="left", fontsize=9)
        _logarithmic(axes)
        axes.set_xscale("log", base=2)
        axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
        axes.set_xlabel("nodes")
    panels[0].set_ylabel(label)
    panels[0].legend(frameon=False, fontsize=8)


def _joins(figure: Figure, found: Sequence[WorldFigures]) -> None:
    figure.set_size_inches(6.6, 4.2)
    axes = figure.subplots()
    _lines(axes, found, lambda one: one.joins_per_s)
    for limit, what in (
        (JOINS_ONE_PROCESS, "measured, all servers in one process"),
        (JOINS_REDIS, "one control Redis"),
        (JOINS_MANAGER, "one manager"),
    ):
        _limit(axes, limit, f"{what}: {limit:,.0f}/s", (0.02, 3))
    axes.set_ylabel("joins/s that walking causes")
    axes.legend(frameon=False, loc="lower right")


def _planning(figure: Figure, found: Sequence[WorldFigures]) -> None:
    figure.set_size_inches(8.4, 3.4)
    left, right = figure.subplots(1, 2)
    planned = [one for one in found if one.plans]
    _lines(left, planned, lambda one: one.plans[-1].seconds)
    nodes = max((one.plans[-1].nodes for one in planned), default=0)
    left.set_ylabel(f"seconds of a plan for {nodes} nodes")
    _lines(right, planned, lambda one: max(plan.peak_mib for plan in one.plans))
    for axes in (left, right):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    right.set_ylabel("peak MiB, with the players' arrays")
    left.legend(frameon=False, fontsize=8)


def _walked(figure: Figure, found: Sequence[WorldFigures]) -> None:
    """How overlaps, joins and stamps grow with the time since the players were shared out."""
    figure.set_size_inches(12.0, 3.8)
    kinds: tuple[tuple[str, Callable[[WorldFigures], float]], ...] = (
        ("double overlaps", lambda one: one.overlaps),
        ("pushes/s", lambda one: one.pushes_per_s),
        ("joins/s", lambda one: one.joins_per_s),
    )
    for axes, (what, value) in zip(figure.subplots(1, 3), kinds, strict=True):
        for (gather, (colour, mark)), hand in product(STYLE.items(), ("never", "place")):
            of = [one for one in found if (one.spec.gather, one.spec.handover) == (gather, hand)]
            if of:
                minutes = [one.spec.walked_s / 60 for one in of]
                label = gather if hand == "never" else f"{gather}, handed over"
                dashes = "-" if hand == "never" else ":"
                axes.plot(minutes, list(map(value, of)), dashes, color=colour, marker=mark, label=label)
        plain(axes)
        axes.set_yscale("log")
        axes.set_xlabel("minutes since players were assigned by place")
        axes.set_ylabel(what)
        axes.set_ylim(axes.get_ylim()[0] / 3, None)
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center")


def _limit(axes: Axes, limit: float, text: str, where: tuple[float, float], **style: Any) -> None:
    """Draw a limit and what it is; ``where``: the text's part of the width, and its points above the line."""
    axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1)
    across, above = where
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate(text, (across, limit), (0, above), color=LIMIT, **place, **style)


def _lines(axes: Axes, found: Sequence[WorldFigures], value: Callable[[WorldFigures], float]) -> None:
    for gather, (colour, mark) in STYLE.items():
        of = [one for one in found if one.spec.gather == gather]
        if of:
            axes.plot([one.spec.players for one in of], list(map(value, of)), color=colour, marker=mark, label=gather)
    _logarithmic(axes)
    axes.set_xlabel("players")


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain(axes)
