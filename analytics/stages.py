"""Where the time goes: to the ingress, over each hop, from the egress to the subscriber, and held there for order.

From the rows of a tap (``stamps``), of publishers and of subscribers, joined by the name of the frame. The times of a
tap are by its own clock: between hosts whose clocks differ, read the hops and the holding, not the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

FRAME = ("session", "region", "epoch", "sequence")
NS_PER_MS = 1e6


def measure_stages(tables: Mapping[str, DataFrame]) -> list[dict[str, Any]]:
    """Return stage, from, to, count, mean_ms, p50_ms, p99_ms; quantiles are approximate (1 in 1,000)."""
    passed = tables["stamps"].groupBy(*FRAME, "node", "hop").agg(
        F.min("stamped_at_ns").alias("at"), F.max("hops").alias("hops"), F.first("host").alias("host")
    )
    published = tables["publishes"].where("sequence IS NOT NULL").select(*FRAME, "published_at_ns")
    ingress = passed.where("hop = 0").join(published, [*FRAME])
    way = Window.partitionBy(*FRAME).orderBy("hop")
    hops = passed.select(
        F.lag("node").over(way).alias("from"), F.col("node").alias("to"), (F.col("at") - F.lag("at").over(way)).alias("ns")
    ).where("ns IS NOT NULL")
    received = tables["receives"].select(*FRAME, "subscriber", "received_at_ns")
    egress = passed.where("hop = hops - 1").join(received, [*FRAME])
    held = tables["deliveries"].where("received_at_ns IS NOT NULL AND delivered_at_ns IS NOT NULL")
    parts = (
        _stage("publish to ingress", ingress.select(F.lit("publishers").alias("from"), F.col("node").alias("to"), (F.col("at") - F.col("published_at_ns")).alias("ns"))),
        _stage("hop", hops),
        _stage("egress to receive", egress.select(F.col("node").alias("from"), F.lit("subscribers").alias("to"), (F.col("received_at_ns") - F.col("at")).alias("ns"))),
        _stage("held for order", held.select(F.lit("receive").alias("from"), F.lit("deliver").alias("to"), (F.col("delivered_at_ns") - F.col("received_at_ns")).alias("ns"))),
    )
    return [row.asDict() for part in parts for row in part.orderBy("from", "to").collect()]


def _stage(name: str, rows: DataFrame) -> DataFrame:
    parts = F.percentile_approx("ns", [0.5, 0.99], 1000)
    summed = rows.groupBy("from", "to").agg(F.count("*").alias("count"), F.mean("ns").alias("mean"), parts.alias("parts"))
    return summed.select(
        F.lit(name).alias("stage"),
        "from",
        "to",
        "count",
        (F.col("mean") / NS_PER_MS).alias("mean_ms"),
        (F.col("parts")[0] / NS_PER_MS).alias("p50_ms"),
        (F.col("parts")[1] / NS_PER_MS).alias("p99_ms"),
    )
