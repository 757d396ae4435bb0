"""Deliveries added up by who delivered what from whom: the one pass that stretch, load and numbering draw on."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.numbering import CELL


def add_up(deliveries: DataFrame) -> DataFrame:
    """Return a row a (session, subscriber, incarnation, region, publisher).

    Columns: deliveries; timed, of which both times are known; delay_ns, the sum of these; held and held_ns, likewise
    from receiving to delivering; negative, timed ones that were delivered before they were sent; epoch_max,
    sequence_max; foreign, those with an id instead; first_at_ns and last_at_ns; first_index and last_index.
    """
    delay = F.col("delivered_at_ns") - F.col("sent_at_ns")
    held = F.col("delivered_at_ns") - F.col("received_at_ns")
    return deliveries.groupBy(*CELL).agg(
        F.count("*").alias("deliveries"),
        F.count(delay).alias("timed"),
        F.sum(delay).alias("delay_ns"),
        F.count(held).alias("held"),
        F.sum(held).alias("held_ns"),
        F.count(F.when(delay < 0, True)).alias("negative"),
        F.max("epoch").alias("epoch_max"),
        F.max("sequence").alias("sequence_max"),
        F.count(F.when(F.col("epoch").isNull() | F.col("sequence").isNull(), True)).alias("foreign"),
        F.min("delivered_at_ns").alias("first_at_ns"),
        F.max("delivered_at_ns").alias("last_at_ns"),
        F.min("index").alias("first_index"),
        F.max("index").alias("last_index"),
    )
