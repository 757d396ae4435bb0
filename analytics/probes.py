"""The direct ways between servers, and how far their clocks are apart, from the probes that they sent each other.

A probe has four times, as in NTP. Half of its round trip, without the stay at the target, is the direct delay; half
the difference of the two ways is by what the target's clock is ahead, wrong by at most half of the round trip, so the
quickest probe tells best. Hosts with one clock need none of it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

NS_PER_MS = 1e6


def direct_from_probes(probes: DataFrame, cells: DataFrame) -> DataFrame:
    """Return the direct ways (columns `analytics.stretch.DIRECT`) between connections that probed each other.

    A way that was probed from its end only is taken from there. ``direct_ms`` is half of the median round trip.
    """
    round_trip = (F.col("returned_at_ns") - F.col("sent_at_ns")) - (F.col("answered_at_ns") - F.col("reached_at_ns"))
    ahead = ((F.col("reached_at_ns") - F.col("sent_at_ns")) + (F.col("answered_at_ns") - F.col("returned_at_ns"))) / 2
    one_clock = F.col("origin_host").eqNullSafe(F.col("target_host"))
    good = probes.where("kind = 'direct'").select(
        "origin", "target", round_trip.alias("rtt"), ahead.alias("ahead"), one_clock.alias("one_clock")
    )
    ways = good.where("rtt > 0").groupBy("origin", "target").agg(
        (F.percentile_approx("rtt", 0.5, 10_000) / 2 / NS_PER_MS).alias("direct_ms"),
        F.when(F.bool_and("one_clock"), 0.0).otherwise(F.min_by("ahead", "rtt")).alias("offset_ns"),
        F.when(F.bool_and("one_clock"), 0.0).otherwise(F.min("rtt") / 2 / NS_PER_MS).alias("uncertainty_ms"),
    )
    there = ways.select(
        F.col("origin").alias("publisher"), F.col("target").alias("subscriber"), "direct_ms", "offset_ns", "uncertainty_ms"
    )
    back = ways.select(
        F.col("target").alias("publisher"),
        F.col("origin").alias("subscriber"),
        "direct_ms",
        (-F.col("offset_ns")).alias("offset_ns"),
        "uncertainty_ms",
    )
    both = there.unionByName(back).groupBy("publisher", "subscriber")
    # Of a way that was probed from both ends, what is known best.
    best = both.agg(F.min_by(F.struct("direct_ms", "offset_ns", "uncertainty_ms"), "uncertainty_ms").alias("best"))
    needed = cells.select("publisher", "subscriber").distinct()
    return best.join(needed, ["publisher", "subscriber"]).select("publisher", "subscriber", "best.*")
