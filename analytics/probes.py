"""The direct ways between servers, and how far their clocks are apart, from the probes that they sent each other.

A probe has four times, as in NTP. Half of its round trip, without the stay at the target, is the direct delay; half
the difference of the two ways is by what the target's clock is ahead, wrong by at most half of the round trip, so the
quickest probe tells best. Hosts with one clock need none of it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

NS_PER_MS = 1e6


def direct_from_probes(probes: DataFrame, cells: DataFrame) -> DataFrame:
    """Return the direct ways (columns `analytics.stretch.DIRECT`) between connections that probed each other.

    A way that was probed from its end only is taken from there. ``direct_ms`` is half of the median round trip.
    """
    round_trip = (fn.col("returned_at_ns") - fn.col("sent_at_ns")) - (
        fn.col("answered_at_ns") - fn.col("reached_at_ns")
    )
    ahead = (
        (fn.col("reached_at_ns") - fn.col("sent_at_ns")) + (fn.col("answered_at_ns") - fn.col("returned_at_ns"))
    ) / 2
    one_clock = fn.col("origin_host").eqNullSafe(fn.col("target_host"))
    good = probes.where("kind = 'direct'").select(
        "origin", "target", round_trip.alias("rtt"), ahead.alias("ahead"), one_clock.alias("one_clock")
    )
    ways = (
        good.where("rtt > 0")
        .groupBy("origin", "target")
        .agg(
            (fn.percentile_approx("rtt", 0.5, 10_000) / 2 / NS_PER_MS).alias("direct_ms"),
            fn.when(fn.bool_and("one_clock"), 0.0).otherwise(fn.min_by("ahead", "rtt")).alias("offset_ns"),
            fn.when(fn.bool_and("one_clock"), 0.0).otherwise(fn.min("rtt") / 2 / NS_PER_MS).alias("uncertainty_ms"),
        )
    )
    there = ways.select(
        fn.col("origin").alias("publisher"),
        fn.col("target").alias("subscriber"),
        "direct_ms",
        "offset_ns",
        "uncertainty_ms",
    )
    back = ways.select(
        fn.col("target").alias("publisher"),
        fn.col("origin").alias("subscriber"),
        "direct_ms",
        (-fn.col("offset_ns")).alias("offset_ns"),
        "uncertainty_ms",
    )
    both = there.unionByName(back).groupBy("publisher", "subscriber")
    # Of a way that was probed from both ends, what is known best.
    best = both.agg(fn.min_by(fn.struct("direct_ms", "offset_ns", "uncertainty_ms"), "uncertainty_ms").alias("best"))
    needed = cells.select("publisher", "subscriber").distinct()
    return best.join(needed, ["publisher", "subscriber"]).select("publisher", "subscriber", "best.*")
