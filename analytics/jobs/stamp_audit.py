"""The audit that uses the stamps: where do deliveries and stamps disagree?

The order audit does not use stamps, so that an error of stamps cannot hide. This audit checks for each viewer whether
it delivered every region in the order of its sequence, and the events of every atom in the order of its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from analytics.jobs.numbering import Numbering
from analytics.jobs.slices import LIVE, Slices


@dataclass(frozen=True, slots=True)
class StampAudit:
    """Adjacent first deliveries that contradict their stamps, and the first of them in words."""

    region_disagreements: int
    atom_disagreements: int | None
    """None if no frames were recorded."""
    atoms: int
    first: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "region_disagreements": self.region_disagreements,
            "atom_disagreements": self.atom_disagreements,
            "atoms": self.atoms,
            "first": self.first,
        }


def audit_stamps(slices: Slices, numbering: Numbering, frames: DataFrame) -> StampAudit | None:
    """Compare first deliveries with sequences and atoms' numbers; None for foreign events, which have none."""
    if numbering.names is not None:
        return None
    firsts = slices.deliveries.where(LIVE).select("viewer", "region", "event", "index")
    by_region = _descents(firsts, ("viewer", "region"), fn.col("event"))
    stamped = _stamped(numbering, frames)
    atoms = stamped.select("session", "atom").distinct().count()
    if not atoms:
        count, first = _told(by_region, numbering)
        return StampAudit(count, None, 0, first)
    passed = firsts.join(stamped, "event")
    by_atom = _descents(passed, ("viewer", "session", "atom"), fn.struct("epoch", "number"))
    count, first = _told(by_region, numbering)
    atom_count, atom_first = _told(by_atom, numbering)
    return StampAudit(count, atom_count, atoms, first or atom_first)


def _descents(rows: DataFrame, by: tuple[str, ...], value: Column) -> DataFrame:
    """Return the rows whose value is below that of the row before; ``before`` is that row's event."""
    order = Window.partitionBy(*by).orderBy("index")
    earlier = rows.withColumn("value", value).withColumn("_before", fn.lag(fn.struct("value", "event")).over(order))
    return earlier.where(fn.col("_before.value") > fn.col("value")).withColumn("before", fn.col("_before.event"))


def _told(descents: DataFrame, numbering: Numbering) -> tuple[int, str | None]:
    one = fn.min(fn.struct("index", "viewer", "event", "before")).alias("one")
    totals = descents.agg(fn.count("*").alias("n"), one).first()
    if totals is None or not totals["n"]:
        return 0, None
    row = totals["one"]
    names = numbering.name_events([row["event"], row["before"]])
    viewer = numbering.viewers[row["viewer"]].name
    return int(
        totals["n"]
    ), f"{viewer} delivered {names[row['before']]} before {names[row['event']]}, stamped the other way"


def _stamped(numbering: Numbering, frames: DataFrame) -> DataFrame:
    """Return event, session, epoch, atom and number of all events of stamped frames."""
    rows = [(*region, number) for number, region in enumerate(numbering.regions)]
    regions = fn.broadcast(
        frames.sparkSession.createDataFrame(rows, "session string, region string, region_number int")
    )
    known = frames.where("size(stamps) > 0").dropDuplicates(["session", "region", "epoch", "sequence"])
    known = known.where(numbering.has_place())
    each = fn.explode(fn.sequence(fn.col("sequence") - fn.col("events") + 1, fn.col("sequence")))
    events = (
        known.where("events > 0")
        .join(regions, ["session", "region"])
        .select("session", fn.col("region_number").alias("region"), "epoch", "stamps", each.alias("sequence"))
    )
    numbered = events.select("session", "epoch", "stamps", numbering.event_number().alias("event"))
    stamps = numbered.select("session", "epoch", "event", fn.explode("stamps").alias("stamp"))
    # 0 is a node's own number, of any node.
    return stamps.where("stamp.atom > 0").select(
        "session", "epoch", "event", fn.col("stamp.atom").alias("atom"), fn.col("stamp.number").alias("number")
    )
