"""How costs grow, drawn: a figure for each parameter that was varied, a panel for each measure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from laboratory.drawing import open_frame
from placement.planning.picture import quiet_style
from sequencing.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

PANELS = {
    "stretch": "time to deliver over direct delay",
    "mean_ms": "mean time to deliver, ms",
    "packets": "packets a multicast",
    "metadata_bytes": "bytes on a message beyond its payload",
    "busiest": "packets of the busiest process a multicast",
    "held_max": "most messages held by one process",
}
VARIED = {"processes": "processes", "rate": "events/s of each process", "groups": "groups"}
DRAWN: Mapping[str, tuple[str, str, str]] = {
    "atoms": ("#0072B2", "-", "o"),
    "central": ("#009E73", "-.", "^"),
    "propagation-tree": ("#D55E00", "--", "s"),
    "fifo": ("#000000", ":", "x"),
    "kshemkalyani-singhal": ("#8a6d00", "--", "P"),
    "vector-clocks": ("#8a6d00", "-", "p"),
    "isis-overlapping": ("#CC79A7", "-", "D"),
    "newtop-symmetric": ("#7a4fa3", "--", "v"),
    "arrow": ("#56B4E9", "-", "<"),
    "arrow-counting": ("#56B4E9", ":", ">"),
    "combining": ("#E69F00", "-", "*"),
    "combining-counting": ("#E69F00", ":", "h"),
    "token-ring": ("#777777", "-.", "d"),
}
"""Colour, dashes and mark of those that are drawn: one of each idea, as more would hide each other. Okabe and Ito's
colours; counting is dotted in the colour of the swap that it belongs to."""
LOGARITHMIC = 20.0
"""From this ratio of the largest to the smallest on, a linear axis shows the largest only."""


def figures(rows: Sequence[Row]) -> Iterator[tuple[str, str, Figure]]:
    """Yield a name, a title and a figure for each growth that there are rows for, of one group and of several.

    Raises `ExtraMissing` without matplotlib.
    """
    require("plots", "a plot")
    measured = [row for row in rows if "packets" in row]
    for varied in VARIED:
        for base in _bases(rows):
            fixed = {key: value for key, value in base.items() if key != varied}
            chosen = [row for row in measured if all(row[key] == value for key, value in fixed.items())]
            if varied == "groups" and base["groups"] == 1:
                continue
            if varied == "groups":
                chosen = [row for row in chosen if row["groups"] > 1]
            if len({row[varied] for row in chosen}) > 1:
                yield _figure(chosen, varied, fixed)


def _bases(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The case of one group, and the first of several, from which one number at a time is varied."""
    first = {key: rows[0][key] for key in VARIED}
    groups = list(dict.fromkeys(row["groups"] for row in rows))
    several = next((number for number in groups if number > 1), None)
    return [first | {"groups": number} for number in (1, several) if number in groups]


def _figure(rows: Sequence[Row], varied: str, fixed: Mapping[str, Any]) -> tuple[str, str, Figure]:
    from matplotlib.figure import Figure

    said = {"processes": "{:g} processes", "rate": "{:g} events/s each", "groups": "{:g} groups"}
    words = ", ".join(said[key].format(value) for key, value in fixed.items()).replace("1 groups", "one group")
    title = f"As the number of {VARIED[varied]} grows ({words})"
    with quiet_style():
        figure = Figure(figsize=(11, 6.4), facecolor="white", layout="constrained")
        panels = figure.subplots(2, 3)
        for axes, (metric, label) in zip(panels.flat, PANELS.items(), strict=True):
            _panel(axes, rows, varied, metric, label)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=7, frameon=False)
    base = "one-group" if fixed.get("groups") == 1 else "several-groups"
    return f"{varied}-{base}", title, figure


def _panel(axes: Axes, rows: Sequence[Row], varied: str, metric: str, label: str) -> None:
    drawn = [(name, style) for name, style in DRAWN.items() if any(row["protocol"] == name for row in rows)]
    values = [row[metric] for row in rows if row["protocol"] in DRAWN]
    for name, (colour, dashes, mark) in drawn:
        line = sorted((row[varied], row[metric]) for row in rows if row["protocol"] == name)
        axes.plot(
            *zip(*line, strict=True),
            color=colour,
            linestyle=dashes,
            marker=mark,
            markersize=4.5,
            linewidth=2.6 if name == "atoms" else 1.3,
            zorder=3 if name == "atoms" else 2,
            label=name,
        )
    positive = [value for value in values if value > 0]
    if positive and max(positive) > LOGARITHMIC * min(positive):
        axes.set_yscale("log" if len(positive) == len(values) else "symlog")
        shown = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in (0, *shown) if low <= tick <= high])
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    points = sorted({row[varied] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(points, [f"{point:g}" for point in points])
    axes.minorticks_off()
    axes.set_title(label, fontsize=9.5, loc="left")
    axes.set_xlabel(VARIED[varied])
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    open_frame(axes)


def as_svg(figure: Figure) -> str:
    """Return a figure as an element of an HTML page."""
    text = StringIO()
    with quiet_style():
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    return re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
