"""The knee: delays and hold times over the rate, in a terminal and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laboratory.bench.figures import median
from laboratory.drawing import open_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR_LETTERS = 22
DELAY, HOLD, BOUND = "#2563eb", "#ca8a04", "#dc2626"


def report(result: Mapping[str, Any]) -> RenderableType:
    """Return a line for each rate, with a bar of its p99 on a logarithmic scale, and the result; 80 columns."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("events\nper s", "deliveries\nper s", "p50\nms", "p99\nms", "hold p99\nms", "within"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"p99, bound at │\n{'':{BAR_LETTERS}}", no_wrap=True)
    by_rate = _by_rate(result)
    longest = max((run["p99_ms"] for run in result["runs"] if math.isfinite(run["p99_ms"])), default=1.0)
    scale = _Scale(result["bounds"]["p99_ms"], longest)
    for rate, runs in by_rate.items():
        passes = sum(run["passes"] for run in runs)
        p99 = median([run["p99_ms"] for run in runs])
        good = passes * 2 > len(runs)
        table.add_row(
            f"{rate:,.0f}",
            *(f"{median([run[name] for run in runs]):{form}}" for name, form in _COLUMNS),
            f"{passes} of {len(runs)}",
            Text(scale.bar(p99), style="" if good else "red"),
        )
    return Group(table, Text("\n".join(_conclusion(result))))


_COLUMNS = (("deliveries_per_s", ",.0f"), ("p50_ms", ".2f"), ("p99_ms", ".1f"), ("hold_p99_ms", ".2f"))


class _Scale:
    """Milliseconds as letters, by their logarithm."""

    def __init__(self, bound_ms: float, longest_ms: float) -> None:
        self._top = math.log1p(max(bound_ms, longest_ms) * 1.1)
        self._bound = self._letters(bound_ms)

    def bar(self, value_ms: float) -> str:
        if not math.isfinite(value_ms):
            return "nothing came"
        filled = self._letters(value_ms)
        letters = ["█"] * filled + [" "] * (BAR_LETTERS - filled)
        letters[min(self._bound, BAR_LETTERS - 1)] = "│"
        return "".join(letters)

    def _letters(self, value_ms: float) -> int:
        return round(BAR_LETTERS * math.log1p(value_ms) / self._top)


def _conclusion(result: Mapping[str, Any]) -> Iterator[str]:
    found, bounds, machine, work = result["capacity"], result["bounds"], result["machine"], result["workload"]
    where = (
        f"{work['nodes']} node{'s' if work['nodes'] != 1 else ''} on this machine" if work["nodes"] else "the network"
    )
    if found is None:
        yield f"No rate that was tried stays within p99 {bounds['p99_ms']:g} ms and hold {bounds['hold_ms']:g} ms."
    else:
        p99, hold = found["p99_ms"], found["hold_p99_ms"]
        yield (
            f"{where} carried {found['rate_per_s']:,.0f} events/s to {work['fan_out']} subscribers each within "
            f"p99 {bounds['p99_ms']:g} ms and hold p99 {bounds['hold_ms']:g} ms:"
        )
        yield (
            f"  p99 {p99['median']:.1f} ms ({p99['min']:.1f} to {p99['max']:.1f} over {found['runs']} runs), "
            f"hold p99 {hold['median']:.2f} ms ({hold['min']:.2f} to {hold['max']:.2f})."
        )
    if result["fails_at_per_s"] is not None:
        limit = f"; most CPU there: {result['limit']}" if result["limit"] else "; no part's CPU was used up"
        yield f"It did not at {result['fails_at_per_s']:,.0f} events/s{limit}."
    if not result["finished"]:
        yield "Time ran out before the answer was as narrow as it gets: give more with --max-seconds."
    if result["promises_broken"]:
        yield f"PROMISES WERE BROKEN, {result['promises_broken']} times: that is no matter of capacity."
    yield (
        f"{work['subscribers']} subscribers and {work['publishers']} publishers in a process each, on "
        f"{machine['cores']} cores with a load of {machine['load_before']:.1f} before and {machine['load_after']:.1f} "
        "after."
    )
    if machine["load_before"] > 0.5:
        yield "The machine had other things to do: expect more of a quiet one."


def draw_knee(result: Mapping[str, Any], file: Path) -> None:
    """Draw delays and hold times over the rate; raises `UsageError` if the file cannot be written."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    from placement.planning.picture import quiet_style, save

    with quiet_style():
        figure = Figure(figsize=(7.6, 4.6), facecolor="white")
        axes = figure.add_subplot()
        _curve(axes, result, "p99_ms", DELAY, "p99 of publish → deliver")
        _curve(axes, result, "hold_p99_ms", HOLD, "p99 of hold time")
        bounds = result["bounds"]
        for bound, name in ((bounds["p99_ms"], "bound of p99"), (bounds["hold_ms"], "bound of hold")):
            axes.axhline(bound, color=BOUND, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(name, (0.01, bound), xycoords=("axes fraction", "data"), color=BOUND, fontsize=8, va="bottom")
        if (found := result["capacity"]) is not None:
            axes.axvline(found["rate_per_s"], color="#16a34a", linewidth=1.4)
            label = f"{found['rate_per_s']:,.0f} events/s "
            place, above = (found["rate_per_s"], 0.03), ("data", "axes fraction")
            axes.annotate(label, place, xycoords=above, color="#16a34a", ha="right")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(bottom=0)
        plain = FuncFormatter(lambda value, _: f"{value:,g}")
        rates = list(_by_rate(result))
        axes.set_xticks([rate for at, rate in enumerate(rates) if not at or rate / rates[at - 1] > 1.25])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_formatter(plain)
        axes.set_xlabel("events/s published")
        axes.set_ylabel("ms")
        axes.set_title("The knee: each dot a run, lines through medians", loc="left", fontweight="bold", pad=24)
        axes.grid(visible=True, which="major", color="#e5e7eb", linewidth=0.7)
        # Above the plot: below that there is no corner that the curves of every network leave free.
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=2, borderaxespad=0.2)
        open_frame(axes)
        save(figure, file)


def _curve(axes: Axes, result: Mapping[str, Any], name: str, colour: str, label: str) -> None:
    runs = [run for run in result["runs"] if math.isfinite(run[name])]
    axes.plot([run["rate_per_s"] for run in runs], [run[name] for run in runs], "o", color=colour, alpha=0.35, ms=4)
    medians = {rate: median([run[name] for run in of_rate]) for rate, of_rate in _by_rate({"runs": runs}).items()}
    axes.plot(list(medians), list(medians.values()), color=colour, linewidth=1.8, label=label)


def _by_rate(result: Mapping[str, Any]) -> dict[float, Sequence[Mapping[str, Any]]]:
    rates = sorted({run["rate_per_s"] for run in result["runs"]})
    return {rate: [run for run in result["runs"] if run["rate_per_s"] == rate] for rate in rates}
