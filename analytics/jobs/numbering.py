"""Numbers in the place of names: the audits sort, group and send these.

A *viewer* is one connection of a subscriber, with a delivery order of its own; a region and an event belong to a
session. The numbers of viewers and regions follow the names' order. Within a region and an epoch, the numbers of
recorded events grow with their sequence. Events of foreign logs are numbered in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn

from analytics.jobs.spark import kept
from sequencing.checkers import Offence

Number = TypeVar("Number", int, Column)

NUMBER_MAX = 1 << 62

CELL = ("session", "subscriber", "incarnation", "region", "publisher")


@dataclass(frozen=True, slots=True)
class Viewer:
    """A connection of a subscriber; ``incarnation`` is None if it is the only known one."""

    session: str
    subscriber: str
    incarnation: int | None

    @property
    def name(self) -> str:
        """The subscriber, and its connection if there are several."""
        return self.subscriber if self.incarnation is None else f"{self.subscriber}, connection {self.incarnation}"


@dataclass(frozen=True, slots=True)
class Numbering:
    """The numbers of one set of deliveries.

    ``deliveries``: a row for each delivery with viewer int, region int, publisher int, event long, index long, hint
    long, sent_at_ns long, replayed boolean. ``names`` has region, event and name of foreign events, None if numbers
    can be converted back.
    """

    deliveries: DataFrame
    viewers: tuple[Viewer, ...]
    regions: tuple[tuple[str, str], ...]
    publishers: tuple[str, ...]
    first_epoch: int
    epochs: int
    sequences: int
    names: DataFrame | None

    def event_number(self) -> Column:
        """Return the expression of an event's number, from columns region (a number), epoch and sequence."""
        return self.number(fn.col("region").cast("long"), fn.col("epoch"), fn.col("sequence"))

    def number(self, region: Number, epoch: Number, sequence: Number) -> Number:
        """Return an event's number, if `has_place` is true for it; from numbers, or from columns of them."""
        return (region * self.epochs + (epoch - self.first_epoch)) * self.sequences + sequence

    def has_place(self) -> Column:
        """Return the expression of whether columns epoch and sequence have numbers."""
        return (fn.col("sequence") < self.sequences) & fn.col("epoch").between(*self.epochs_between)

    @property
    def epochs_between(self) -> tuple[int, int]:
        """The first epoch and the last."""
        return self.first_epoch, self.first_epoch + self.epochs - 1

    def viewer_numbers(self) -> Callable[[str, str, int | None], int | None]:
        """Return what gives the number of a connection: of session, subscriber and incarnation."""
        numbers = {(each.session, each.subscriber, each.incarnation): n for n, each in enumerate(self.viewers)}
        several = {(each.session, each.subscriber) for each in self.viewers if each.incarnation is not None}
        return lambda session, name, n: numbers.get((session, name, n if (session, name) in several else None))

    def region_table(self, spark: SparkSession) -> DataFrame:
        """Return session, region and number of each region, to be broadcast."""
        rows = [(*region, number) for number, region in enumerate(self.regions)]
        return fn.broadcast(spark.createDataFrame(rows, "session string, region string, number int"))

    def name_events(self, numbers: Iterable[int]) -> Mapping[int, str]:
        """Return the names of a few events: ``region epoch-sequence``, or the id that a foreign log gave."""
        wanted = sorted(set(numbers))
        if self.names is not None and wanted:
            rows = self.names.where(fn.col("event").isin(wanted)).collect()
            return {row["event"]: row["name"] for row in rows}
        return {number: self._name(number) for number in wanted}

    def offence(self, kind: Literal["duplicate", "lost", "unexpected"], one: Row) -> Offence:
        """Return the offence of one event at one viewer: a row with event, viewer and region, as numbers."""
        region, viewer = self.regions[one["region"]][1], self.viewers[one["viewer"]].name
        return Offence(kind, (self.name_events([one["event"]])[one["event"]],), (region,), (viewer,))

    def _name(self, number: int) -> str:
        rest, sequence = divmod(number, self.sequences)
        region, epoch = divmod(rest, self.epochs)
        return f"{self.regions[region][1]} {self.first_epoch + epoch}-{sequence}"


@dataclass(frozen=True, slots=True)
class Owed:
    """What is owed, whether anything of it was delivered or not.

    ``stays``: (session, subscriber, incarnation, region) each; ``spans``: (session, region, first epoch, last epoch,
    last sequence) each, of what was published.
    """

    stays: frozenset[tuple[str, str, int | None, str]] = frozenset()
    spans: frozenset[tuple[str, str, int, int, int]] = frozenset()


NOTHING_OWED = Owed()


def number(deliveries: DataFrame, cells: DataFrame, *, times: bool = False, owed: Owed = NOTHING_OWED) -> Numbering:
    """Number the deliveries of ``cells`` (see `analytics.jobs.cells`), which have few rows, and what is owed besides.

    ``times``: with delivered_at_ns, which only the causal audit needs. Foreign events, which have only an id, cost one
    more shuffle.
    """
    spark = deliveries.sparkSession
    rows = cells.select(*CELL, "epoch_min", "epoch_max", "sequence_max", "foreign").collect()
    connections = {(row["session"], row["subscriber"], row["incarnation"]) for row in rows}
    connections |= {stay[:3] for stay in owed.stays}
    ordered = sorted(connections, key=lambda each: (each[0], each[1], -1 if each[2] is None else each[2]))
    subscribers: dict[tuple[str, str], int] = {}
    for session, subscriber, _ in ordered:
        subscribers[session, subscriber] = subscribers.get((session, subscriber), 0) + 1
    viewers = tuple(Viewer(s, who, i if subscribers[s, who] > 1 else None) for s, who, i in ordered)
    known = {(row["session"], row["region"]) for row in rows} | {(stay[0], stay[3]) for stay in owed.stays}
    regions = tuple(sorted(known))
    spans = [span for span in owed.spans if span[:2] in known]
    publishers = tuple(sorted({row["publisher"] for row in rows}))
    begins = [*(row["epoch_min"] for row in rows if row["epoch_min"] is not None), *(span[2] for span in spans)]
    first_epoch = min(begins, default=0)
    epochs = max([0, *(row["epoch_max"] or 0 for row in rows), *(span[3] for span in spans)]) - first_epoch + 1
    sequences = max([0, *(row["sequence_max"] or 0 for row in rows), *(span[4] for span in spans)]) + 1
    foreign = any(row["foreign"] for row in rows) or len(regions) * epochs * sequences > NUMBER_MAX

    viewer_rows = [(*each, n) for n, each in enumerate(ordered)]
    viewer_table = spark.createDataFrame(viewer_rows, "session string, subscriber string, incarnation long, viewer int")
    region_table = spark.createDataFrame(
        [(*each, n) for n, each in enumerate(regions)], "session string, region string, region_number int"
    )
    publisher_table = spark.createDataFrame(
        [(each, n) for n, each in enumerate(publishers)], "publisher string, publisher_number int"
    )
    left, right = deliveries.alias("d"), fn.broadcast(viewer_table).alias("v")
    same = [fn.col(f"d.{name}") == fn.col(f"v.{name}") for name in ("session", "subscriber")]
    same.append(fn.col("d.incarnation").eqNullSafe(fn.col("v.incarnation")))
    condition = same[0] & same[1] & same[2]
    joined = left.join(right, condition).select("d.*", "v.viewer")
    joined = joined.join(fn.broadcast(region_table), ["session", "region"])
    joined = joined.join(fn.broadcast(publisher_table), ["publisher"])
    names: DataFrame | None = None
    numbered = joined.withColumn("region", fn.col("region_number"))
    if foreign:
        id_of = fn.coalesce(fn.col("event"), fn.concat_ws("-", "epoch", "sequence"))
        keyed = numbered.withColumn("name", id_of)
        names = keyed.select("region", "name").distinct().withColumn("number", fn.monotonically_increasing_id())
        # Numbers that are computed twice may differ.
        names = kept(names)
        numbered = keyed.drop("event").join(names, ["region", "name"]).withColumnRenamed("number", "event")
        names = names.select("region", fn.col("number").alias("event"), "name")
    made = Numbering(numbered, viewers, regions, publishers, first_epoch, epochs, sequences, names)
    event = fn.col("event") if foreign else made.event_number()
    hint = fn.coalesce(fn.col("delivered_at_ns"), fn.col("sent_at_ns"), fn.col("index"))
    columns = numbered.select(
        "viewer",
        "region",
        fn.col("publisher_number").alias("publisher"),
        event.alias("event"),
        "index",
        hint.alias("hint"),
        "sent_at_ns",
        (fn.coalesce("replayed", fn.lit(0)) == 1).alias("replayed"),
        *(("delivered_at_ns",) if times else ()),
    )
    return Numbering(columns, viewers, regions, publishers, first_epoch, epochs, sequences, names)
