"""Where the time goes: to the ingress, over each hop, from the egress to the subscriber, and holding there for order.

The figures come from the rows of a tap (``stamps``), of publishers and of subscribers, joined by the frame's name. A
tap's times are by its own clock. Between hosts whose clocks differ, use the hops and the holding, not the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

FRAME = ("session", "region", "epoch", "sequence")
NS_PER_MS = 1e6


def measure_stages(tables: Mapping[str, DataFrame]) -> list[dict[str, Any]]:
    """Return stage, from, to, count, mean_ms, p50_ms, p99_ms; quantiles are approximate (1 in 1,000)."""
    passed = _passed(tables["stamps"])
    published = tables["publishes"].where("sequence IS NOT NULL").select(*FRAME, "published_at_ns")
    ingress = passed.where("hop = 0").join(published, [*FRAME])
    hops = _hops(passed).select("from", "to", "ns")
    received = tables["receives"].select(*FRAME, "subscriber", "received_at_ns")
    egress = passed.where("hop = hops - 1").join(received, [*FRAME])
    held = tables["deliveries"].where("received_at_ns IS NOT NULL AND delivered_at_ns IS NOT NULL")
    parts = (
        _stage(
            "publish to ingress",
            ingress.select(
                fn.lit("publishers").alias("from"),
                fn.col("node").alias("to"),
                (fn.col("at") - fn.col("published_at_ns")).alias("ns"),
            ),
        ),
        _stage("hop", hops),
        _stage(
            "egress to receive",
            egress.select(
                fn.col("node").alias("from"),
                fn.lit("subscribers").alias("to"),
                (fn.col("received_at_ns") - fn.col("at")).alias("ns"),
            ),
        ),
        _stage(
            "held for order, and in the inbox",
            held.select(
                fn.lit("receive").alias("from"),
                fn.lit("deliver").alias("to"),
                (fn.col("delivered_at_ns") - fn.col("received_at_ns")).alias("ns"),
            ),
        ),
    )
    return [row.asDict() for part in parts for row in part.orderBy("from", "to").collect()]


def hops_of(stamps: DataFrame) -> DataFrame:
    """Return what each frame took over each link: from, to, at (when it was at the link's end) and ns."""
    return _hops(_passed(stamps))


def _passed(stamps: DataFrame) -> DataFrame:
    """Return when each frame passed each node, by the tap that read it first."""
    return stamps.groupBy(*FRAME, "node", "hop").agg(
        fn.min("stamped_at_ns").alias("at"), fn.max("hops").alias("hops"), fn.first("host").alias("host")
    )


def _hops(passed: DataFrame) -> DataFrame:
    way = Window.partitionBy(*FRAME).orderBy("hop")
    return passed.select(
        fn.lag("node").over(way).alias("from"),
        fn.col("node").alias("to"),
        "at",
        (fn.col("at") - fn.lag("at").over(way)).alias("ns"),
    ).where("ns IS NOT NULL")


EXACTNESS = 100_000
"""A percentile is off by at most one in so many of the values: the 99th of a long tail changes with each of them."""


def _stage(name: str, rows: DataFrame) -> DataFrame:
    parts = fn.percentile_approx("ns", [0.5, 0.99], EXACTNESS)
    summed = rows.groupBy("from", "to").agg(
        fn.count("*").alias("count"), fn.mean("ns").alias("mean"), parts.alias("parts")
    )
    return summed.select(
        fn.lit(name).alias("stage"),
        "from",
        "to",
        "count",
        (fn.col("mean") / NS_PER_MS).alias("mean_ms"),
        (fn.col("parts")[0] / NS_PER_MS).alias("p50_ms"),
        (fn.col("parts")[1] / NS_PER_MS).alias("p99_ms"),
    )
