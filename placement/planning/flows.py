"""A large plan in summary: its nodes, the flows between them, the load of each, and the most important regions.

Nodes stand from left to right as the paths run; a link is an arc as wide as the events/s that cross it. Below, each
node's load is a bar: the events that enter the network there, and on top those that pass through.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.planning.figures import PlanFigures
from placement.planning.node_order import left_to_right

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REGIONS_SHOWN = 12
NODES_LABELLED_MAX = 24
ARC_POINTS_MAX = 14.0
"""Width of the busiest link's arc, where the nodes are not too close together for it."""
ARC_NODES_HIGH = 4
"""An arc over this many nodes may be as high as the picture allows."""
ENTERS, PASSES, FLOW, INK, FAINT, LIMIT = "#2563eb", "#93c5fd", "#0f766e", "#1f2937", "#6b7280", "#dc2626"


def draw_flows(figures: PlanFigures, figure: Figure) -> None:
    """Draw the nodes, the flows between them, the lengths of paths and the regions with the most atoms."""
    order = left_to_right(figures.plan)
    figure.set_size_inches(max(9.0, min(18.0, 0.42 * len(order) + 4)), 7.6)
    heights = (0.3 + 0.95 * _highest(figures, order), 1.3, 1.5)
    grid = figure.add_gridspec(3, 2, height_ratios=heights, hspace=0.0, wspace=0.3)
    flows = figure.add_subplot(grid[0, :])
    loads = figure.add_subplot(grid[1, :], sharex=flows)
    lower = grid[2, :].subgridspec(2, 2, height_ratios=(0.34, 1), wspace=0.42)
    _title(flows, figures)
    _draw_links(flows, figures, order)
    _draw_loads(loads, figures, order)
    _draw_path_lengths(figure.add_subplot(lower[1, 0]), figures)
    _draw_regions(figure.add_subplot(lower[1, 1]), figures)


def _title(axes: Axes, figures: PlanFigures) -> None:
    plan = figures.plan
    says = (
        f"{len(plan.paths):,} regions, {len(figures.membership.subscribers):,} subscribers, "
        f"{figures.overlaps:,} overlaps: {len(plan.atoms):,} atoms on {len(plan.nodes):,} nodes"
    )
    place: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "va": "bottom",
        "annotation_clip": False,
    }
    axes.annotate("How events find their order", (0, 1), (0, 22), color=INK, fontsize=12, fontweight="bold", **place)
    axes.annotate(says, (0, 1), (0, 8), color=FAINT, **place)


def _draw_links(axes: Axes, figures: PlanFigures, order: tuple[str, ...]) -> None:
    place = {node: number for number, node in enumerate(order)}
    crossing: dict[tuple[str, str], float] = {}
    for region, path in figures.plan.paths.items():
        rate = figures.rates.get(region, 1.0)
        for link in pairwise(path):
            crossing[link] = crossing.get(link, 0.0) + rate
    busiest = max(crossing.values(), default=1.0) or 1.0
    width_max = min(ARC_POINTS_MAX, 260 / len(order))
    angle = np.linspace(0, np.pi, 60)
    for (here, there), rate in crossing.items():
        start, end = place[here], place[there]
        reach = _reach(abs(end - start))
        x, y = (start + end) / 2 - (end - start) / 2 * np.cos(angle), reach * np.sin(angle)
        width = max(0.8, width_max * rate / busiest)
        axes.plot(x, y, color=FLOW, linewidth=width, alpha=0.45, solid_capstyle="butt")
        axes.plot([x[30]], [y[30]], marker=">", markersize=4, color=FLOW)
        if len(crossing) <= NODES_LABELLED_MAX:
            axes.annotate(
                f"{rate:,.4g}", (x[30], y[30]), (0, width / 2 + 3), textcoords="offset points", ha="center",
                color=FLOW, fontsize=7.5, annotation_clip=False,
            )  # fmt: skip
    if not crossing:
        text = "no path leaves its first node" if len(order) > 1 else "one node does it all"
        axes.text(0.5, 0.45, text, transform=axes.transAxes, ha="center", color=FAINT)
    size = 46 if len(order) <= NODES_LABELLED_MAX else 12
    axes.scatter(range(len(order)), [0] * len(order), s=size, color=INK, zorder=3)
    axes.set_ylim(-0.02, 1.3 * _highest(figures, order))
    axes.set_axis_off()
    axes.text(
        1, 1, "events/s from node to node", transform=axes.transAxes, ha="right", va="bottom", color=FLOW, fontsize=8
    )  # fmt: skip


def _highest(figures: PlanFigures, order: tuple[str, ...]) -> float:
    place = {node: number for number, node in enumerate(order)}
    return max((_reach(abs(place[there] - place[here])) for here, there in figures.plan.links), default=0.5)


def _reach(nodes: int) -> float:
    """Return the height of an arc over ``nodes`` nodes, as a part of the maximum."""
    return 0.25 + 0.75 * min(1.0, nodes / ARC_NODES_HIGH)


def _draw_loads(axes: Axes, figures: PlanFigures, order: tuple[str, ...]) -> None:
    load = np.array([figures.load_of_node[node] for node in order])
    enters = np.array([figures.ingress_rate_of_node[node] for node in order])
    at = np.arange(len(order))
    axes.bar(at, -enters, width=0.72, color=ENTERS, label="enters here")
    axes.bar(at, -(load - enters), width=0.72, bottom=-enters, color=PASSES, label="passes through")
    axes.set_xlim(-0.7, len(order) - 0.3)
    highest = load.max(initial=0.0) or 1.0
    axes.set_ylim(-highest * 1.15, 0)
    _plain(axes)
    axes.spines["bottom"].set_visible(False)
    axes.spines["top"].set_visible(True)
    axes.spines["top"].set_color("#d1d5db")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}" if highest >= 10 else f"{abs(value):,.2g}")
    axes.set_ylabel("events/s of a node", color=FAINT)
    labelled = range(0, len(order), 1 + len(order) // NODES_LABELLED_MAX)
    axes.set_xticks(list(labelled), [order[number] for number in labelled], color=INK)
    axes.tick_params(axis="x", top=False, bottom=False, labelbottom=True)
    if len(order) <= NODES_LABELLED_MAX:
        for number, value in enumerate(load):
            low = -value - highest * 0.02
            label = axes.text(number, low, f"{value:,.4g}", ha="center", va="top", color=INK, fontsize=7.5, zorder=5)
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    receiver = figures.busiest_receiver
    if 0 < receiver <= highest * 1.1:
        axes.axhline(-receiver, color=LIMIT, linewidth=1, linestyle=(0, (4, 3)), label="busiest receiver")
    axes.legend(loc="upper right", bbox_to_anchor=(1, -0.1), ncols=3, frameon=False, fontsize=8, handlelength=1.4)


def _draw_path_lengths(axes: Axes, figures: PlanFigures) -> None:
    lengths, counts = np.unique(figures.path_nodes, return_counts=True)
    axes.bar(lengths, counts, width=0.72, color=ENTERS)
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        if len(lengths) <= REGIONS_SHOWN:
            axes.text(length, count, f"{count:,}", ha="center", va="bottom", color=INK, fontsize=7.5)
    _plain(axes)
    if len(lengths):
        axes.set_xlim(lengths[0] - 0.7, max(lengths[-1], lengths[0] + 2) + 0.7)
    axes.set_xticks(lengths if len(lengths) <= REGIONS_SHOWN else lengths[:: len(lengths) // REGIONS_SHOWN + 1])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_title("Nodes on a region's path", loc="left", color=INK, fontsize=9)


def _draw_regions(axes: Axes, figures: PlanFigures) -> None:
    atoms = Counter(chain.from_iterable(atom.regions for atom in figures.plan.atoms))
    top = sorted(atoms.items(), key=lambda item: (-item[1], item[0]))[:REGIONS_SHOWN]
    axes.barh(range(len(top)), [count for _, count in top], height=0.68, color=FLOW, alpha=0.6)
    for row, (_, count) in enumerate(top):
        axes.text(count, row, f" {count:,}", va="center", color=INK, fontsize=7.5)
    axes.set_yticks(range(len(top)), [_short(region) for region, _ in top], fontsize=7.5, color=INK)
    axes.set_ylim(max(len(top), 1) - 0.4, -0.6)
    _plain(axes)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    title = "Regions with the most atoms" if top else "No atoms: no order is needed between ends"
    axes.set_title(title, loc="left", color=INK, fontsize=9)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#d1d5db")
    axes.tick_params(colors=FAINT, length=0, labelsize=8)


def _short(name: str, length: int = 24) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"
