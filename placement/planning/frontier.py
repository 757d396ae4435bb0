"""The frontier of a placement: how much delay a smaller load on the busiest node costs, from one node to many.

For each number of nodes there are two searches: for the least delay, and for the least delay at which no node carries
more than an even share of all events, or as little more as can be found. What another network equals or beats in
delay, load and number of nodes together is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from placement.placing import EFFORTS, Effort, Objective, value_of
from placement.planning.picture import quiet_style, require_drawable, save
from placement.planning.places import PlanOnHosts, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
WORTH_A_NODE = 0.02
"""Delay that is not worth more nodes, as a part of the least delay."""
SAME = 1e-6
FEW_REGIONS = 8
"""Of so few, a quick search misses nothing."""
IDLE_MAX = 2
"""After so many numbers of nodes of which not all are used, more are not tried."""


@dataclass(frozen=True)
class Frontier:
    """``points``: networks of which none is better than another in delay, load of the busiest node, and number of
    nodes, by that number; ``chosen``: which of them to take, and ``why``. ``tried``: how many were compared."""

    points: tuple[PlanOnHosts, ...]
    chosen: int
    why: str
    tried: int
    task: Task

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "points": [
                {
                    "nodes": point.used,
                    "peak": point.peak,
                    "mean_ms": point.figures.mean_ms,
                    "p95_ms": point.figures.p95_ms,
                    "worst_stretch": point.figures.worst_stretch,
                    "overload": point.overload,
                    "hosts": dict(point.host_of),
                }
                for point in self.points
            ],
            "chosen": self.chosen,
            "why": self.why,
            "tried": self.tried,
        }


def frontier(task: Task, *, nodes_max: int, effort: Effort | None, show: Callable[[str], None]) -> Frontier:
    """Search the frontier of a world, with up to so many nodes; ``show`` is told what is searched now.

    More nodes than regions, or than hosts where each has room for one, are of no use.
    """
    regions = len(task.distances.workload.regions)
    nodes_max = max(1, min(nodes_max, regions))
    if regions <= FEW_REGIONS and effort is EFFORTS["normal"]:
        effort = EFFORTS["quick"]
    networks = [*_networks(task, nodes_max, effort, show)]
    points = _undominated(networks, task.objective)
    chosen = _choice(points, task.objective)
    return Frontier(tuple(points), chosen, _why(points, chosen, task), len(networks), task)


def _networks(task: Task, nodes_max: int, effort: Effort | None, show: Callable[[str], None]) -> Iterator[PlanOnHosts]:
    total = float(task.distances.workload.region_rates.sum())
    show("placing, as many nodes as it wants")
    free = task.planned(names=None, effort=effort)
    if free.used <= nodes_max:
        yield free
    idle = 0
    for nodes in sorted({nodes_max, *(count for count in NODES if count <= nodes_max)}):
        show(f"placing {nodes} of {nodes_max} nodes")
        fast = task.planned(names=None, nodes=nodes, effort=effort, capacity=np.inf)
        yield fast
        even = task.planned(names=None, nodes=nodes, effort=effort, capacity=total / nodes)
        yield even
        idle = idle + 1 if max(fast.used, even.used) < nodes else 0
        if idle == IDLE_MAX:
            break


def delay_ms(point: PlanOnHosts, objective: Objective) -> float:
    """Return what counts: a delay in ms, or the mean stretch of destinations."""
    return value_of(point.figures, objective)


def _undominated(networks: Sequence[PlanOnHosts], objective: Objective) -> list[PlanOnHosts]:
    """Return the networks that no other one equals or beats in delay, load and number of nodes together."""
    kept: list[PlanOnHosts] = []
    for point in sorted(networks, key=lambda point: (point.used, delay_ms(point, objective), point.peak)):
        if not any(
            delay_ms(other, objective) <= delay_ms(point, objective) * (1 + SAME)
            and other.peak <= point.peak * (1 + SAME)
            for other in kept  # these have no more nodes
        ):
            kept.append(point)
    return kept


def _choice(points: Sequence[PlanOnHosts], objective: Objective) -> int:
    """Return the smallest network of those that keep the capacity, or miss it least, and have nearly the least
    delay."""
    least_excess = min(point.overload for point in points)
    allowed = [place for place, point in enumerate(points) if point.overload <= least_excess * (1 + SAME)]
    least_ms = min(delay_ms(points[place], objective) for place in allowed)
    near = [place for place in allowed if delay_ms(points[place], objective) <= least_ms * (1 + WORTH_A_NODE)]
    return min(near, key=lambda place: (points[place].used, delay_ms(points[place], objective)))


def _why(points: Sequence[PlanOnHosts], chosen: int, task: Task) -> str:
    point, delay = points[chosen], delay_ms(points[chosen], task.objective)
    kept = "" if task.limit is None else " that keeps the capacity" if not point.overload else " that misses it least"
    fastest = min(
        (other for other in points if other.overload <= point.overload * (1 + SAME)),
        key=lambda other: delay_ms(other, task.objective),
    )
    least = delay_ms(fastest, task.objective)
    nodes = f"{point.used} node{'s' if point.used > 1 else ''}"
    if fastest is point:
        return f"{nodes}, {delay:,.1f} ms: no network{kept} with less delay was found."
    return (
        f"{nodes}, {delay:,.1f} ms: {delay / least - 1:.1%} more than the fastest{kept}, which has {fastest.used} "
        f"nodes. Less than {WORTH_A_NODE:.0%} is not worth more nodes."
    )


def tell_frontier(console: Console, result: Frontier) -> None:
    """Print the networks of a frontier, and which one was chosen."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("", "nodes", "busiest node, events/s", "mean, ms", "95% within, ms", "worst stretch"):
        table.add_column(heading, justify="right")
    for place, point in enumerate(result.points):
        reached = point.figures
        figures = (f"{reached.mean_ms:,.1f}", f"{reached.p95_ms:,.1f}", f"{reached.worst_stretch:,.2f}")
        chosen = place == result.chosen
        row = "→" if chosen else "", f"{point.used}", f"{point.peak:,.6g}", *figures
        table.add_row(*row, style="bold" if chosen else "")
    console.print(table)
    console.print()


def draw_frontier(result: Frontier, file: Path) -> None:
    """Draw delay against load into a file; PNG, SVG or PDF by its name. Raises `UsageError`, also where it cannot be
    written."""
    from matplotlib.figure import Figure

    require_drawable(file)
    with quiet_style():
        figure = Figure(figsize=(7.5, 4.6), facecolor="white")
        _draw(figure.add_subplot(), result)
        save(figure, file)


def _draw(axes: Axes, result: Frontier) -> None:
    task = result.task
    loads = [point.peak for point in result.points]
    delays = [delay_ms(point, task.objective) for point in result.points]
    edge: list[tuple[float, float]] = []
    for load, delay in sorted(zip(loads, delays, strict=True)):
        if not edge or delay < edge[-1][1]:
            edge.append((load, delay))
    axes.step(*zip(*edge, strict=True), where="post", color="#0072B2", linewidth=1.5)
    axes.plot(loads, delays, "o", color="#0072B2", markersize=6)
    for point, load, delay in zip(result.points, loads, delays, strict=True):
        axes.annotate(str(point.used), (load, delay), (5, 6), textcoords="offset points", fontsize=8)
    best = result.points[result.chosen]
    axes.plot([best.peak], [delays[result.chosen]], "o", markersize=13, fillstyle="none", color="#D55E00")
    axes.annotate(
        "our choice", (best.peak, delays[result.chosen]), (10, -14), textcoords="offset points", color="#D55E00"
    )
    if task.objective in ("mean", "stretch"):
        axes.axhline(task.central.mean_ms, color="#009E73", linestyle="-.", linewidth=1)
        axes.annotate("one central sequencer", (0.5, task.central.mean_ms), (0, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right", color="#009E73")  # fmt: skip
        axes.axhline(task.bound_ms, color="black", linestyle=":", linewidth=1)
        axes.annotate("no network is below", (0.99, task.bound_ms), (0, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", ha="right")  # fmt: skip
    if task.limit is not None:
        axes.axvline(task.limit, color="#CC79A7", linestyle="--", linewidth=1)
        axes.annotate("capacity", (task.limit, 0.98), (3, 0), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", color="#CC79A7")  # fmt: skip
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("events/s through the busiest node")
    axes.set_ylabel({"p95": "95% of deliveries within, ms", "max": "slowest delivery, ms"}.get(
        task.objective, "mean delay from publisher to subscriber, ms"))  # fmt: skip
    axes.set_title("Delay against load; numbers are sequencing nodes", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
