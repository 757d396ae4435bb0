"""Sums of deliveries by subscriber, region and publisher: the one pass that stretch, load and numbering use."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.numbering import CELL


def add_up(deliveries: DataFrame) -> DataFrame:
    """Return a row for each (session, subscriber, incarnation, region, publisher).

    Columns: deliveries; timed, live ones with both times; delay_ns, the sum of these, and least_delay_ns; unsent, those
    without the time of sending; held and held_ns, likewise from receiving to delivering; negative, timed ones that were
    delivered before they were sent; epoch_min, epoch_max, sequence_max; foreign, those with an id instead; first_at_ns
    and last_at_ns, of deliveries; first_sent_ns and last_sent_ns; first_index and last_index; untimely, those with a
    time that can be none (`is_time`), from which nothing else is taken.
    """
    live = fn.col("replayed").isNull() & is_timely()
    delay = fn.when(live, fn.col("delivered_at_ns") - fn.col("sent_at_ns"))
    held = fn.when(live, fn.col("delivered_at_ns") - fn.col("received_at_ns"))
    return deliveries.groupBy(*CELL).agg(
        fn.count("*").alias("deliveries"),
        fn.count(delay).alias("timed"),
        fn.sum(delay).alias("delay_ns"),
        fn.min(delay).alias("least_delay_ns"),
        fn.count(fn.when(fn.col("sent_at_ns").isNull(), True)).alias("unsent"),
        fn.count(held).alias("held"),
        fn.sum(held).alias("held_ns"),
        fn.count(fn.when(delay < 0, True)).alias("negative"),
        fn.min("epoch").alias("epoch_min"),
        fn.max("epoch").alias("epoch_max"),
        fn.max("sequence").alias("sequence_max"),
        fn.count(fn.when(fn.col("epoch").isNull() | fn.col("sequence").isNull(), True)).alias("foreign"),
        fn.min(fn.when(is_timely(), fn.col("delivered_at_ns"))).alias("first_at_ns"),
        fn.max(fn.when(is_timely(), fn.col("delivered_at_ns"))).alias("last_at_ns"),
        fn.min(fn.when(is_timely(), fn.col("sent_at_ns"))).alias("first_sent_ns"),
        fn.max(fn.when(is_timely(), fn.col("sent_at_ns"))).alias("last_sent_ns"),
        fn.min("index").alias("first_index"),
        fn.max("index").alias("last_index"),
        fn.count(fn.when(~is_timely(), True)).alias("untimely"),
    )


TIMES = ("sent_at_ns", "received_at_ns", "delivered_at_ns")
YEAR_2100_NS = 4_102_444_800 * 10**9


def is_time(name: str) -> Column:
    """Return the expression of whether a column of nanoseconds is a time from 1970 to 2100, or null."""
    return fn.coalesce(fn.col(name).between(1, YEAR_2100_NS), fn.lit(True))


def is_timely() -> Column:
    """Return the expression of whether all times of a delivery can be times."""
    return is_time(TIMES[0]) & is_time(TIMES[1]) & is_time(TIMES[2])


def without_untimely(deliveries: DataFrame) -> DataFrame:
    """Return deliveries whose times are null where one of them can be none."""
    return deliveries.withColumns({name: fn.when(is_timely(), fn.col(name)) for name in TIMES})


def merge(cells: DataFrame) -> DataFrame:
    """Return the cells of several parts of the same sessions, summed as if all had been added up at once."""
    least, most = (
        ("epoch_min", "first_at_ns", "first_sent_ns", "first_index", "least_delay_ns"),
        ("epoch_max", "sequence_max", "last_at_ns", "last_sent_ns", "last_index"),
    )
    return cells.groupBy(*CELL).agg(
        *(fn.sum(name).alias(name) for name in cells.columns if name not in (*CELL, *least, *most)),
        *(fn.min(name).alias(name) for name in least),
        *(fn.max(name).alias(name) for name in most),
    )
