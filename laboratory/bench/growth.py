"""The growth of planning, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from laboratory.bench.planning import STAGES, PlanningCost

COLOURS = ("#6b7280", "#2563eb", "#0891b2", "#9333ea", "#ca8a04", "#dc2626", "#16a34a")


def growth_table(costs: Sequence[PlanningCost]) -> RenderableType:
    """Seconds and peak memory in MiB of each stage, a column for each size; 80 columns wide."""
    worlds, seconds, memory = _table("subscribers", costs), _table("seconds", costs), _table("peak MiB", costs)
    for name in ("regions", "subscriptions", "overlaps", "atoms"):
        worlds.add_row(name, *(f"{getattr(cost, name):,}" for cost in costs))
    for stage, does in STAGES.items():
        seconds.add_row(does, *(f"{cost.seconds[stage]:.2g}" for cost in costs))
        memory.add_row(does, *(f"{cost.peak_mib[stage]:,.0f}" for cost in costs))
    seconds.add_row("a join, µs", *(f"{cost.join_us:.1f}" for cost in costs))
    seconds.add_row("a leave, µs", *(f"{cost.leave_us:.1f}" for cost in costs))
    note = "Grid worlds: ten subscribers a region, with some 2.5 regions each. Memory is the\nwhole process's."
    return Group(worlds, seconds, memory, note)


def _table(title: str, costs: Sequence[PlanningCost]) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column(title, no_wrap=True, width=33)
    for cost in costs:
        table.add_column(f"{cost.subscribers:,}", justify="right", no_wrap=True, width=9)
    return table


def plot_growth(costs: Sequence[PlanningCost], file: Path) -> None:
    """Draw seconds over subscribers on logarithmic axes; raises `UsageError` if the file cannot be written."""
    from matplotlib.figure import Figure

    from placement.planning.picture import quiet_style, save

    with quiet_style():
        figure = Figure(figsize=(7.6, 4.6), facecolor="white")
        axes = figure.add_subplot()
        sizes = [cost.subscribers for cost in costs]
        ends = []
        for colour, stage in zip(COLOURS, STAGES, strict=True):
            seconds = [max(cost.seconds[stage], 1e-6) for cost in costs]
            bold = 2.4 if stage == "plan" else 1.4
            axes.loglog(sizes, seconds, marker="o", markersize=4, linewidth=bold, color=colour)
            ends.append((seconds[-1], f"{STAGES[stage]}: {seconds[-1]:.2g} s", colour))
        linear = [0.4 * costs[0].seconds["incidence"] * size / sizes[0] for size in sizes]
        axes.loglog(sizes, linear, color="#9ca3af", linewidth=1, linestyle=(0, (2, 3)))
        ends.append((linear[-1], "slope of linear growth", "#9ca3af"))
        _label_ends(axes, sizes[-1], ends)
        axes.set_xlabel("subscribers (regions: a tenth of them)")
        axes.set_ylabel("seconds")
        axes.set_title("Planning a grid world", loc="left", fontweight="bold")
        axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        save(figure, file)


def _label_ends(axes: object, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Write each line's name at its end, the names apart from each other."""
    from math import log10

    low = -9.0
    for seconds, text, colour in sorted(ends):
        low = max(log10(seconds), low + 0.27)
        axes.annotate(  # type: ignore[attr-defined]
            text, (x, seconds), (x * 1.35, 10**low), color=colour, fontsize=8, va="center", annotation_clip=False
        )
