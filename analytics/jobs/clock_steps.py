"""Clocks that were set back during a recording: delivery times that decrease along a delivery order."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from analytics.jobs.cells import is_time

STEP_NS = 1_000_000
"""A disciplined clock is never set back by this much at once."""


def find_clock_steps(deliveries: DataFrame) -> DataFrame:
    """Return a row for each subscriber whose clock was set back: session, subscriber, steps and worst_ms.

    A step is found between two deliveries of one publisher's events of one region, which are frequent. A step forward
    looks like a pause and is not found. Takes a sort of the deliveries.
    """
    stream = Window.partitionBy("session", "subscriber", "incarnation", "region", "publisher").orderBy("index")
    back = fn.lag("delivered_at_ns").over(stream) - fn.col("delivered_at_ns")
    stepped = (
        deliveries.where("delivered_at_ns IS NOT NULL")
        .where(is_time("delivered_at_ns"))
        .withColumn("back", back)
        .where(fn.col("back") > STEP_NS)
    )
    return stepped.groupBy("session", "subscriber").agg(
        fn.count("*").alias("steps"), (fn.max("back") / 1e6).alias("worst_ms")
    )
