"""Deliveries cut into slices such that every cycle of delivery orders is within one slice, which can be judged alone.

The union of all delivery orders may be acyclic although no order is known that shows it. Less is needed: a number for
each event, its *slice*, that never falls along any subscriber's order. Then every cycle lies within one slice, and the
slices are judged exactly and in parallel, each in linear time (`analytics.jobs.order`).

The first guess is by time: the slice of the earliest delivery of the event. It falls only for events that were in
flight around a boundary. There, an event is raised to the slice of an event that some subscriber delivered before it.
This may raise others, until nothing changes. The only state is, for each subscriber, where the events of each slice
begin. A round reads the deliveries near the boundaries, and shuffles only the raised events. Times are only a hint:
wrong ones cost rounds and balance, never a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from analytics.jobs.numbering import Numbering
from analytics.jobs.spark import kept
from sequencing.errors import GamecastError

IntArray = npt.NDArray[np.int64]

LIVE = "nth = 1 AND NOT replayed"
"""The deliveries whose order is judged. History comes late on purpose, beside live events of other regions."""

DELIVERIES_PER_SLICE = 1_000_000
"""How many deliveries one Python task holds at a time: some 150 MB."""
BINS = 8192
"""Bins of the histogram by which the slices get equal sizes."""
LOCAL_MAX = 50_000
"""So many deliveries may go along with every job."""
NEAR_PART = 0.1
ROUNDS_MAX = 200
NEVER = int(np.iinfo(np.int64).max)


class NotSettled(GamecastError):
    """The delivery orders are so far from the recorded times that no slices were found within the limit of rounds."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The first deliveries of each event and viewer, with their slice.

    ``deliveries`` has the columns of `Numbering.deliveries`, nth (1 for the first delivery of an event to a viewer,
    more for repetitions, which have the slice of their first one), guess (the slice by time) and slice.
    """

    deliveries: DataFrame
    count: int
    rounds: int
    raised: int
    """Events that were moved to a later slice than that of their time."""
    _persisted: tuple[DataFrame, ...]

    def release(self) -> None:
        """Release the data that was kept on disk."""
        for each in self._persisted:
            each.unpersist()


def cut(numbering: Numbering, *, deliveries: int, deliveries_per_slice: int = DELIVERIES_PER_SLICE) -> Slices:
    """Cut the numbered deliveries into slices. Raises `NotSettled`."""
    wanted = max(1, -(-deliveries // deliveries_per_slice))
    by_event = Window.partitionBy("event")
    by_viewer = Window.partitionBy("event", "viewer").orderBy("index")
    marked = numbering.deliveries.withColumn("nth", fn.row_number().over(by_viewer))
    if wanted == 1:
        whole = marked.withColumn("slice", fn.lit(0)).withColumn("guess", fn.lit(0))
        whole = kept(whole) if deliveries <= LOCAL_MAX else whole.persist(StorageLevel.DISK_ONLY)
        return Slices(whole, 1, 0, 0, (whole,))
    low, high = _span(numbering.deliveries)
    width = max(1, (high - low) // BINS + 1)
    place = ((fn.min("hint").over(by_event) - fn.lit(low)) / fn.lit(width)).cast("int")
    marked = marked.withColumn("bin", fn.least(fn.greatest(place, fn.lit(0)), fn.lit(BINS - 1))).drop("hint")
    marked = marked.persist(StorageLevel.DISK_ONLY)
    counts = np.zeros(BINS, np.int64)
    for row in marked.groupBy("bin").agg(fn.count("*").alias("n")).collect():
        counts[row["bin"]] = row["n"]
    slice_of_bin = np.minimum((np.cumsum(counts) - counts) * wanted // max(1, counts.sum()), wanted - 1)
    guessed = marked.withColumn("guess", _look_up(slice_of_bin, "bin")).withColumn("slice", fn.col("guess"))
    near = guessed.where(_look_up(_near_the_next(slice_of_bin), "bin") == 1)
    raised, rounds, count = _settle(guessed, near, viewers=len(numbering.viewers), slices=wanted)
    guessed = guessed.drop("bin")
    if raised is None:
        return Slices(guessed, wanted, rounds, 0, (marked,))
    settled = guessed.join(fn.broadcast(raised), "event", "left")
    settled = settled.withColumn("slice", fn.coalesce(fn.col("to"), fn.col("slice"))).drop("to")
    return Slices(settled, wanted, rounds, count, (marked, raised))


def _look_up(values: IntArray, place: str) -> Column:
    # As one text, which Spark folds into one constant: thousands of literals take seconds to plan.
    return fn.element_at(
        fn.split(fn.lit(",".join(map(str, values.tolist()))), ",").cast("array<int>"), fn.col(place) + 1
    )


def _near_the_next(slice_of_bin: IntArray) -> IntArray:
    """Return 1 for the bins at the end of their slice: most raised events are there."""
    near = np.zeros(len(slice_of_bin), np.int64)
    bounds = np.flatnonzero(np.diff(slice_of_bin)) + 1
    for start, end in zip(np.append(0, bounds[:-1]), bounds, strict=True):
        near[end - max(1, round(NEAR_PART * (end - start))) : end] = 1
    return near


def _span(deliveries: DataFrame) -> tuple[int, int]:
    """Return when most deliveries began and ended, so that a clock that was years off does no harm."""
    parts = fn.percentile_approx("hint", [0.001, 0.999], 1000).alias("parts")
    sampled = deliveries.sample(fraction=0.01, seed=1).agg(parts, fn.count("*").alias("n")).first()
    if sampled is None or sampled["n"] < 1000:
        sampled = deliveries.agg(parts).first()
    low, high = sampled["parts"]  # type: ignore[index]
    return int(low), int(high)


def _settle(guessed: DataFrame, near: DataFrame, *, viewers: int, slices: int) -> tuple[DataFrame | None, int, int]:
    """Return the raised events, columns event and to; the number of rounds; and the number of raised events.

    All rounds but the last few read only the rows ``near`` a slice's end, a tenth; the last rounds find the rest.
    """
    columns = ("viewer", "event", "index", "slice")
    begins = np.full((viewers, slices + 1), NEVER, np.int64)
    first = guessed.where(LIVE).select(*columns)
    _lower(begins, first.groupBy("viewer", "slice").agg(fn.min("index").alias("index")))
    close = near.where(LIVE).select(*columns).persist(StorageLevel.DISK_ONLY)
    raised: DataFrame | None = None
    rows = close
    for turn in range(1, ROUNDS_MAX + 1):
        now = _raise(rows, begins)
        count = now.count()
        earlier = begins.copy()
        if count:
            of_raised = rows.select("viewer", "event", "index").join(fn.broadcast(now), "event")
            _lower(begins, of_raised.groupBy("viewer", fn.col("to").alias("slice")).agg(fn.min("index").alias("index")))
        if raised is not None:
            raised.unpersist()
        raised = now
        if np.array_equal(begins, earlier):
            if rows is first:
                close.unpersist()
                return (now if count else None), turn, count
            rows = first
    raise NotSettled


def _raise(rows: DataFrame, begins: IntArray) -> DataFrame:
    """Return the events that some viewer delivered after the begin of a later slice, and the last such slice."""
    table = rows.sparkSession.createDataFrame(
        [(viewer, row.tolist()) for viewer, row in enumerate(begins)], "viewer int, begins array<long>"
    )
    placed = rows.join(fn.broadcast(table), "viewer")
    behind = placed.where(fn.col("index") > fn.element_at("begins", fn.col("slice") + 2))
    to = _last_begun(fn.col("begins"), fn.col("index"))
    return behind.groupBy("event").agg(fn.max(to).alias("to")).persist(StorageLevel.DISK_ONLY)


def _last_begun(begins: Column, index: Column) -> Column:
    """Return the last slice that begins before the index."""
    return (fn.size(fn.filter(begins, lambda at: at < index)) - 1).cast("int")


def _lower(begins: IntArray, firsts: DataFrame) -> None:
    """Lower the begins of slices: slice k of a viewer begins at the first event of slice k or a later one."""
    for row in firsts.collect():
        at = (row["viewer"], row["slice"])
        begins[at] = min(begins[at], row["index"])
    begins[:] = np.minimum.accumulate(begins[:, ::-1], axis=1)[:, ::-1]
