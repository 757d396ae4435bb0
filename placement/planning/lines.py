"""A small plan, drawn whole: nodes are columns, each region is a line through the nodes of its path, each atom a mark.

Regions are rows, and neighbours differ in colour; a row's line begins with a dot at its ingress and ends with an arrow
where its frames leave. An atom is an upright stroke in its node's column, with a ring on each region that it orders.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from placement.planning.figures import PlanFigures
from placement.planning.node_order import left_to_right
from sequencing.plan import Atom, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATOM_WIDTH = 0.22
NODE_WIDTH_MIN = 1.6
GAP = 1.1
ROW_INCHES, COLUMN_INCHES = 0.27, 0.62
HEADER_ROWS = 5.4
NODE_FILL, NODE_EDGE, INK, FAINT = "#f3f4f6", "#9ca3af", "#1f2937", "#6b7280"
COLOURS = (
    "#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#db2777", "#4d7c0f", "#7c3aed",
    "#0f766e", "#b45309",
)  # fmt: skip


def draw_lines(figures: PlanFigures, figure: Figure) -> None:
    """Draw every region and every atom."""
    plan = figures.plan
    order = left_to_right(plan)
    place = {node: number for number, node in enumerate(order)}
    atoms: dict[str, list[Atom]] = {node: [] for node in order}
    for atom in plan.atoms:
        atoms[atom.node].append(atom)
    rows = _rows(plan, place)
    row_of = {region: row for row, region in enumerate(rows)}
    colour_of = {region: COLOURS[row % len(COLOURS)] for region, row in row_of.items()}
    left, right = _spans(order, {node: len(ordered) for node, ordered in atoms.items()})
    width, height = max(right.values()), len(rows)
    name_inches = 0.075 * max(map(len, rows)) + 0.4
    figure.set_size_inches((width + 0.6) * COLUMN_INCHES + name_inches, (height + HEADER_ROWS) * ROW_INCHES)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-name_inches / COLUMN_INCHES, width + 0.6)
    axes.set_ylim(height, -HEADER_ROWS)
    for node in order:
        _draw_node(axes, node, left[node], right[node], height, figures.load_of_node[node], len(atoms[node]))
    for region in rows:
        path = plan.paths[region]
        _draw_region(axes, region, path, row_of[region], left, right, colour_of[region])
    for node in order:
        span = right[node] - left[node]
        by_row = sorted(atoms[node], key=lambda atom: sorted(row_of[region] for region in atom.regions))
        for number, atom in enumerate(by_row):
            x = left[node] + span * (number + 1) / (len(by_row) + 1)
            _draw_atom(axes, atom, x, row_of)
    _title(axes, figures)


def _rows(plan: Plan, place: dict[str, int]) -> list[str]:
    """Return the regions from top to bottom: by where they enter and leave, so that lines that meet are near."""
    return sorted(plan.paths, key=lambda region: (place[plan.paths[region][0]], place[plan.paths[region][-1]], region))


def _spans(order: tuple[str, ...], atoms: dict[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    left: dict[str, float] = {}
    right: dict[str, float] = {}
    at = 0.0
    for node in order:
        left[node] = at
        right[node] = at = at + max(NODE_WIDTH_MIN, (atoms[node] + 1) * ATOM_WIDTH)
        at += GAP
    return left, right


def _draw_node(axes: Axes, node: str, left: float, right: float, height: int, load: float, atoms: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0.05,rounding_size=0.18"
    box = FancyBboxPatch(
        (left, -0.7), right - left, height + 0.4, boxstyle=style, facecolor=NODE_FILL, edgecolor=NODE_EDGE, zorder=0
    )
    axes.add_patch(box)
    middle = (left + right) / 2
    axes.text(middle, -1.55, node, ha="center", va="bottom", color=INK, fontweight="bold")
    label = f"{load:,.3g} ev/s" if right - left < 2.6 else f"{load:,.3g} events/s · {atoms} atom{'s' * (atoms != 1)}"
    axes.text(middle, -0.95, label, ha="center", va="bottom", color=FAINT, fontsize=7)


def _draw_region(
    axes: Axes,
    region: str,
    path: tuple[str, ...],
    row: int,
    left: dict[str, float],
    right: dict[str, float],
    colour: str,
) -> None:
    begin, end = left[path[0]], right[path[-1]]
    axes.text(-0.25, row, region, ha="right", va="center", color=INK, fontsize=8)
    axes.plot([-0.15, begin], [row, row], color="#e5e7eb", linewidth=0.8, zorder=0.5)
    for node in path:
        axes.plot([left[node], right[node]], [row, row], color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
    for here, there in pairwise(path):
        # Behind the nodes that it passes by without a visit, where only dots show that it goes on.
        axes.plot([right[here], left[there]], [row, row], color=colour, linewidth=2.2, zorder=-1)
        axes.plot([right[here], left[there]], [row, row], color=colour, linewidth=1.0, zorder=1, linestyle=":")
    axes.plot([begin], [row], marker="o", markersize=5, color=colour, zorder=3)
    axes.plot([end + 0.12], [row], marker=">", markersize=5, color=colour, zorder=3)


def _draw_atom(axes: Axes, atom: Atom, x: float, row_of: dict[str, int]) -> None:
    rows = sorted(row_of[region] for region in atom.regions)
    axes.plot([x, x], [rows[0], rows[-1]], color=INK, linewidth=0.9, zorder=4, alpha=0.75)
    for region in atom.regions:
        axes.plot(
            [x], [row_of[region]], marker="o", markersize=4.2, markerfacecolor="white", markeredgecolor=INK,
            markeredgewidth=1.0, zorder=5,
        )  # fmt: skip


def _title(axes: Axes, figures: PlanFigures) -> None:
    plan = figures.plan
    place: dict[str, Any] = {"color": FAINT, "fontsize": 8, "va": "bottom"}
    axes.text(0, -4.5, "How events find their order", color=INK, fontsize=12, fontweight="bold", va="bottom")
    atoms = f"{len(plan.atoms)} atoms on {len(plan.nodes)} nodes"
    axes.text(0, -3.7, f"{len(plan.paths)} regions, {figures.overlaps} overlaps, {atoms}", **place)
    axes.text(0, -3.0, "● events enter   ▶ and leave in the order of that node   ··· pass a node by", **place)
    axes.text(0, -2.4, "○–○ an atom puts regions in order that leave at different nodes", **place)
