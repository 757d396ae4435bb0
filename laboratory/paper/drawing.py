"""The figures of Lumezanu 2006 drawn again, beside the paper's own values; matplotlib is the extra ``plots``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from laboratory.drawing import plain, require_matplotlib
from laboratory.paper.curves import ALONE, CLAIMED_WORST, LEVELLING, OCCUPANCY_GROUPS, PEAK, Curve
from laboratory.paper.experiment import Run
from laboratory.paper.summary import pooled
from laboratory.placing.baselines import vector_bytes
from placement.planning.picture import draw_all
from placement.topology import IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "ours": "#0072B2",
    "unlimited": "#56B4E9",
    "paper": "#D55E00",
    "well_placed": "#E69F00",
    "central": "#009E73",
    "random": "#CC79A7",
    "lower_bound": "#000000",
}
"""Okabe and Ito's, which the colour-blind tell apart; dashes and marks tell them apart in grey."""
DASHES = {
    "ours": "-",
    "unlimited": (0, (8, 2)),
    "paper": "--",
    "well_placed": (0, (3, 1, 1, 1)),
    "central": "-.",
    "random": (0, (1, 1)),
    "lower_bound": (0, (5, 1, 1, 1, 1, 1)),
}
MARKS = {
    "ours": "o",
    "unlimited": "P",
    "paper": "s",
    "well_placed": "v",
    "central": "^",
    "random": "D",
    "lower_bound": "x",
}
LABELS = {
    "ours": "gamecast",
    "unlimited": "gamecast without a load limit",
    "paper": "the paper's heuristic",
    "well_placed": "the paper's nodes, well placed",
    "central": "one central sequencer",
    "random": "gamecast's network on random hosts",
    "lower_bound": "lower bound: each group's 1-median",
}
STRETCH_SHOWN_MAX = 6.0
CLAIM = "#666666"


def draw(runs: Sequence[Run], curves: Mapping[str, Curve], subscribers: int, directory: Path) -> list[Path]:
    """Draw all figures into a directory and return the files. Raises `UsageError` if one cannot be written."""
    require_matplotlib()

    drawings: Mapping[str, Callable[[Figure], None]] = {
        "stretch": lambda figure: _stretch(figure, runs),
        "nodes": lambda figure: _nodes(figure, runs, curves["groups"], subscribers),
        "occupancy": lambda figure: _occupancy(figure, curves["occupancy"], subscribers),
        "load": lambda figure: _load(figure, runs),
        "stamps": lambda figure: _stamps(figure, runs, subscribers),
    }
    return draw_all(drawings, directory)


def _stretch(figure: Figure, runs: Sequence[Run]) -> None:
    numbers = sorted({run.groups for run in runs})
    figure.set_size_inches(4.6 * min(2, len(numbers)), 3.2 * ((len(numbers) + 1) // 2) + 0.9)
    grid = figure.subplots((len(numbers) + 1) // 2, min(2, len(numbers)), squeeze=False, sharex=True, sharey=True)
    for axes, groups in zip(grid.flat, numbers, strict=False):
        of_groups = [run for run in runs if run.groups == groups]
        for scheme, colour in COLOURS.items():
            values = np.sort(pooled(of_groups, scheme))
            axes.step(
                values,
                np.arange(1, len(values) + 1) / len(values),
                where="post",
                color=colour,
                linestyle=DASHES[scheme],
                linewidth=2.2 if scheme == "ours" else 1.4,
                label=LABELS[scheme],
            )
        if (claimed := CLAIMED_WORST.get(groups)) is not None:
            is_left = claimed < STRETCH_SHOWN_MAX / 2
            where = (4, "left") if is_left else (-4, "right")
            _claim(axes, claimed, f"the paper's worst: {claimed:g}", 0.06 if is_left else 0.66, where, va="baseline")
        axes.set_title(f"{groups} groups", loc="left", fontsize=10)
        axes.set_xlim(1, STRETCH_SHOWN_MAX)
        axes.set_ylim(0, 1.02)
        plain(axes)
    for axes in list(grid.flat)[len(numbers) :]:
        axes.set_visible(False)
    seeds = len({run.seed for run in runs})
    figure.suptitle(f"Latency stretch of destinations (Lumezanu 2006, Figure 2); {seeds} networks", x=0.01, ha="left")
    for axes in grid[-1]:
        axes.set_xlabel("latency stretch: mean sequenced over mean direct delay")
    for axes in grid[:, 0]:
        axes.set_ylabel("part of destinations at or below")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)


def _nodes(figure: Figure, runs: Sequence[Run], curve: Curve, subscribers: int) -> None:
    axes = _single(
        figure, f"Sequencing nodes by the number of groups, {subscribers} subscribers (Lumezanu 2006, Figure 3)"
    )
    _spread(
        axes,
        curve.at,
        curve.nodes.T,
        color=COLOURS["paper"],
        linestyle="--",
        marker="s",
        markersize=4,
        label=f"{LABELS['paper']}: mean, 10th to 90th percentile of {len(curve.nodes)} runs",
    )
    numbers = sorted({run.groups for run in runs})
    ours = [[run.schemes["ours"].nodes for run in runs if run.groups == groups] for groups in numbers]
    _spread(axes, numbers, ours, color=COLOURS["ours"], marker="o", label=f"{LABELS['ours']}: the same")
    top = 1.35 * float(np.percentile(curve.nodes, 90, axis=0).max())
    _claim(axes, LEVELLING, f"the paper: slower growth\nbeyond {LEVELLING} groups", 0.78 * top, (6, "left"))
    axes.set_xlabel("groups")
    axes.set_ylabel("sequencing nodes with an atom")
    axes.set_xlim(0, max(curve.at) * 1.03)
    axes.set_ylim(0, top)
    axes.legend(loc="upper left", frameon=False)


def _occupancy(figure: Figure, curve: Curve, subscribers: int) -> None:
    axes = _single(
        figure,
        f"Nodes and overlaps by occupancy, {subscribers} subscribers, {OCCUPANCY_GROUPS} groups "
        "(Lumezanu 2006, Figure 4)",
    )
    [nodes] = axes.plot(
        curve.at, curve.mean, color=COLOURS["paper"], linestyle="--", marker="s", markersize=4, label="sequencing nodes"
    )
    axes.set_xlabel("expected occupancy: probability that a subscriber is in a group")
    axes.set_ylabel("sequencing nodes (the paper's heuristic)", color=COLOURS["paper"])
    axes.set_xlim(0, 1)
    top = 1.45 * float(curve.mean.max())
    axes.set_ylim(0, top)
    right = axes.twinx()
    [overlaps] = right.plot(
        curve.at, curve.overlaps.mean(axis=0), color=COLOURS["ours"], marker="o", markersize=4, label="double overlaps"
    )
    right.set_ylabel("double overlaps", color=COLOURS["ours"])
    right.set_ylim(0, 1.45 * float(curve.overlaps.mean(axis=0).max()))
    right.spines["top"].set_visible(False)
    _claim(axes, PEAK, f"the paper: most nodes\nat {PEAK}", 0.86 * top, (5, "left"))
    _claim(axes, ALONE, "one node\nabove 0.9", 0.86 * top, (-5, "right"))
    axes.legend(handles=[nodes, overlaps], loc="upper center", ncols=2, frameon=False)


def _load(figure: Figure, runs: Sequence[Run]) -> None:
    axes = _single(figure, "What the busiest node handles and orders, in parts of the busiest receiver")
    numbers = sorted({run.groups for run in runs})
    places = np.arange(len(numbers))
    for shift, scheme in zip((-0.27, 0.0, 0.27), ("ours", "paper", "central"), strict=True):
        for what, filled in (("handled", False), ("ordered", True)):
            values = [
                [getattr(run.schemes[scheme], what) for run in runs if run.groups == groups] for groups in numbers
            ]
            _spread(
                axes,
                places + shift + (-0.05 if filled else 0.05),
                values,
                color=COLOURS[scheme],
                marker=MARKS[scheme],
                markerfacecolor=COLOURS[scheme] if filled else "white",
                linestyle="none",
                label=f"{LABELS[scheme]}: {'gets a number there' if filled else 'passes'}",
            )
    cliques = [float(np.mean([run.clique for run in runs if run.groups == groups])) for groups in numbers]
    axes.hlines(
        cliques,
        places - 0.42,
        places + 0.42,
        color="black",
        linewidth=1.2,
        label="what some node of any network passes",
    )
    axes.axhline(1, color=CLAIM, linewidth=1, linestyle=":")
    axes.set_xticks(places, [str(groups) for groups in numbers])
    axes.set_xlabel("groups")
    axes.set_ylabel("busiest node's events/s\nover the busiest receiver's")
    axes.set_xlim(-0.55, len(numbers) - 0.45)
    axes.set_ylim(0, None)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def _stamps(figure: Figure, runs: Sequence[Run], subscribers: int) -> None:
    axes = _single(figure, "Bytes of sequence numbers that an event carries, mean")
    numbers = sorted({run.groups for run in runs})
    for scheme in ("ours", "paper"):
        means = [np.mean([run.schemes[scheme].stamp_bytes or 0.0 for run in runs if run.groups == n]) for n in numbers]
        # Both have an atom for each overlap, so their lines may be one: the lower one shows around the upper.
        axes.plot(
            numbers,
            means,
            color=COLOURS[scheme],
            marker=MARKS[scheme],
            markersize=9 if scheme == "ours" else 4,
            linewidth=4 if scheme == "ours" else 1.4,
            linestyle=DASHES[scheme],
            label=LABELS[scheme],
        )
    vector = vector_bytes(subscribers)
    axes.axhline(vector, color="black", linewidth=1.2, label=f"vector timestamp of {subscribers} publishers")
    axes.set_xlabel("groups")
    axes.set_ylabel("bytes, 4 a number")
    axes.set_xlim(0, max(numbers) * 1.05)
    axes.set_ylim(0, vector * 1.4)
    axes.legend(loc="upper left", frameon=False)


def _spread(axes: Axes, at: Any, values: Sequence[Any] | IntArray, **style: Any) -> None:
    """Draw the mean of the values at each place, and their 10th to 90th percentile."""
    means = np.array([np.mean(one) for one in values])
    low, high = np.array([np.percentile(one, [10, 90]) for one in values]).T
    axes.errorbar(at, means, yerr=[np.maximum(means - low, 0), np.maximum(high - means, 0)], capsize=3, **style)


def _claim(axes: Axes, at: float, text: str, height: float, where: tuple[int, str], va: str = "top") -> None:
    """Draw what the paper says of a place; ``where``: the distance of the text in points, and its side at the line."""
    axes.axvline(at, color=CLAIM, linewidth=1, linestyle=":")
    offset, side = where
    place: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": va}
    axes.annotate(text, (at, height), (offset, 0), color=CLAIM, **place)


def _single(figure: Figure, title: str) -> Axes:
    figure.set_size_inches(7.2, 4.4)
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontsize=10)
    plain(axes)
    return axes
