"""A scenario drawn: a lane of time for each node and subscriber, and below them the cycle that closes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

from laboratory.exploration.script import outcome_of, read_cast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6fa4", "#c2571a", "#3d7d3a", "#7a4fa3")


def draw_counterexample(script: str, file: Path) -> None:
    """Draw a played scenario into a file; needs matplotlib."""
    from matplotlib.figure import Figure

    from placement.planning.picture import quiet_style, save

    cast = read_cast(script.partition("---\n")[0])
    colour = {say.event: COLOURS[i] for i, say in enumerate(s for s in cast.says if s.kind == "event")}
    region_of = {say.event: say.region for say in cast.says}
    orders = outcome_of(script) if any(outcome_of(script).values()) else _numbered(script)
    with quiet_style():
        figure = Figure(figsize=(9.2, 3.6), facecolor="white")
        lanes, ring = figure.subplots(1, 2, width_ratios=(1.75, 1))
        _draw_lanes(lanes, script, colour)
        _draw_ring(ring, {who: events for who, events in orders.items() if len(events) > 1}, colour, region_of)
        save(figure, file)


def passages(script: str) -> dict[str, list[str]]:
    """Return which events each node has let pass, in order; a marker is there as its name."""
    steps = _steps(script)
    cast = read_cast(script.partition("---\n")[0])
    says = {say.event: say for say in cast.says}
    waiting: dict[str, list[str]] = {}
    links: dict[tuple[str, str, str], list[str]] = {}
    found: dict[str, list[str]] = {name: [] for name in cast.plan.nodes}

    def pass_on(event: str, region: str, node: str) -> None:
        found[node].append(event)
        path = cast.plan.paths[region]
        if node != path[-1]:
            links.setdefault((region, node, path[path.index(node) + 1]), []).append(event)

    for step in steps:
        match step.split():
            case [who, "says", event]:
                waiting.setdefault(who, []).append(event)
            case [who, "offers", "to", node]:
                here = [e for e in waiting.get(who, []) if cast.plan.paths[says[e].region][0] == node]
                for event in here:
                    waiting[who].remove(event)
                    pass_on(event, says[event].region, node)
            case [source, "passes", region, "to", target]:
                queue = links.get((region, source, target), [])
                if queue:
                    pass_on(queue.pop(0), region, target)
    return found


def _numbered(script: str) -> dict[str, list[str]]:
    """The orders in which the atoms numbered the events that could not be delivered."""
    cast = read_cast(script.partition("---\n")[0])
    region_of = {say.event: say.region for say in cast.says}
    passed = passages(script)
    return {
        f"atom {''.join(atom.regions)}": [e for e in passed[atom.node] if region_of[e] in atom.regions]
        for atom in cast.plan.atoms
    }


def _steps(script: str) -> list[str]:
    middle = script.partition("---\n")[2].partition("---\n")[0]
    return [line for line in middle.splitlines() if line and not line.startswith(" ")]


def _draw_lanes(axes: Axes, script: str, colour: dict[str, str]) -> None:
    """The lanes: the nodes in the order of passage, the subscribers in that of their deliveries."""
    rows = [(f"node {name}", events) for name, events in passages(script).items()]
    rows += [(name, events) for name, events in outcome_of(script).items()]
    axes.set_axis_off()
    axes.set_title("who sees what, from left to right", fontsize=9, loc="left")
    longest = max((len(events) for _, events in rows), default=1)
    for row, (name, events) in enumerate(rows):
        y = -row
        axes.text(-0.75, y, name, ha="right", va="center", weight="bold" if name.startswith("node") else "normal")
        axes.annotate(
            "", (max(longest, 3) - 0.3, y), (-0.6, y), arrowprops={"arrowstyle": "->", "color": "#bbbbbb", "lw": 0.8}
        )
        if not events:
            axes.text(0, y, "delivers nothing", va="center", style="italic", color="#777777")
        for place, event in enumerate(events):
            axes.text(
                *(place, y, event),
                ha="center",
                va="center",
                color="white" if event in colour else "#555555",
                fontsize=9 if event in colour else 7,
                bbox={"boxstyle": "round,pad=0.3", "fc": colour.get(event, "#eeeeee"), "ec": "none"},
            )
    axes.set_xlim(-1.9, max(longest, 3))
    axes.set_ylim(-len(rows) + 0.4, 0.6)


def _draw_ring(axes: Axes, orders: dict[str, list[str]], colour: dict[str, str], region_of: dict[str, str]) -> None:
    """The cycle: an arrow from each event to the next, labelled with the machine that has them in this order."""
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_title("where the cycle closes", fontsize=9, loc="left")
    place = {
        event: (cos(pi / 2 - 2 * pi * i / len(colour)), sin(pi / 2 - 2 * pi * i / len(colour)))
        for i, event in enumerate(colour)
    }
    for who, events in orders.items():
        for before, after in pairwise([event for event in events if event in place]):
            _draw_arrow(axes, place[before], place[after], who)
    for event, (x, y) in place.items():
        axes.text(
            *(x, y, f"{event} in {region_of[event]}"),
            ha="center",
            va="center",
            color="white",
            bbox={"boxstyle": "round,pad=0.4", "fc": colour[event], "ec": "none"},
        )
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.1, 1.5)


def _draw_arrow(axes: Axes, start: Sequence[float], end: Sequence[float], who: str) -> None:
    arrow = {"arrowstyle": "-|>", "color": "#333333", "lw": 1.2, "shrinkA": 19, "shrinkB": 19}
    axes.annotate("", tuple(end), tuple(start), arrowprops=arrow)  # type: ignore[arg-type]
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    axes.text(x * 1.6, y * 1.6, who, ha="center", va="center", fontsize=8, color="#333333")
