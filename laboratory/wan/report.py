"""The result of a run under a matrix's delays, as figures and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from laboratory.wan.prediction import Prediction
from laboratory.wan.stretch import Stretch
from placement.topologies.distances import Standing


@dataclass(frozen=True, slots=True)
class WanReport:
    """The hosts, and the stretch: as measured, as predicted by simulation, of the paths alone, and without gamecast.

    ``same_plan``: whether one plan held from the first publication to the last delivery.
    """

    standing: Standing
    measured: Stretch
    prediction: Prediction
    paths_alone: Stretch
    plain: Stretch
    same_plan: bool

    @property
    def error(self) -> float:
        """How far the measured mean is from the predicted one, as a part of this."""
        return self.measured.mean / self.prediction.stretch.mean - 1

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "hosts": dict(self.standing.host_of),
            "same_plan": self.same_plan,
            "measured": self.measured.as_dict(),
            "predicted": self.prediction.as_dict(),
            "paths_alone": self.paths_alone.as_dict(),
            "plain": self.plain.as_dict(),
            "measured_over_predicted": 1 + self.error,
        }

    def tell(self, console: Console) -> None:
        """Print the table, who stands where, and how far off the prediction is."""
        table = stretch_table("Far from each other")
        stretch_row(table, "measured", self.measured)
        stretch_row(table, "predicted", self.prediction.stretch)
        stretch_row(table, "paths alone", self.paths_alone)
        stretch_row(table, "plain Pub/Sub", self.plain)
        console.print(table)
        places: dict[str, list[str]] = {}
        for name, host in self.standing.host_of.items():
            places.setdefault(host, []).append(name)
        for host, names in places.items():
            console.print(f"  {host}: {', '.join(names)}")
        console.print(f"Measured is {self.error:+.1%} from predicted. {told_waits(self.prediction)}")
        if not self.same_plan:
            console.print("The plan changed while the match ran, so the prediction is for another one.", style="red")


def stretch_table(title: str) -> Table:
    """Return a table without rows, see `stretch_row`."""
    table = Table("latency stretch", "mean", "p50", "p90", "max", "delay ms", "direct ms", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def stretch_row(table: Table, name: str, stretch: Stretch) -> None:
    """Add a row: the stretch of destinations, and the means of all deliveries."""
    figures = stretch.as_dict()
    ratios = (figures[each] for each in ("mean", "p50", "p90", "max"))
    cells = ("-" if ratio is None else f"{ratio:.3f}" for ratio in ratios)
    table.add_row(name, *cells, f"{stretch.delay_ms:.1f}", f"{stretch.direct_ms:.1f}")


def told_waits(prediction: Prediction) -> str:
    """Return what a delivery waits for, in words."""
    waits = prediction.waits
    return (
        f"As predicted, a delivery waits {waits.publish_ms:.1f} ms for its publisher's request before, "
        f"{waits.links_ms:.1f} ms for relays, and {waits.read_ms:.1f} ms until it is asked for and its turn in the "
        "order comes."
    )
