"""The direct ways between servers, and their clock offsets, from the probes that they sent each other.

A probe has four times, as in NTP. Half of its round trip, without the stay at the target, is the direct delay.
`analytics.session.clocks` estimates the offset of two hosts' clocks, and its uncertainty, from all probes between the
two. If a clock was set in between, the offset differs before and after, and the uncertainty grows by as much. Hosts
with one clock need no estimate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.spark import is_little, quiet_imports
from analytics.session.clocks import estimate_offsets

if TYPE_CHECKING:
    import pyarrow as pa

NS_PER_MS = 1e6
OFFSETS = "one string, other string, offset_ns double, off_by_ns double, steps int"
FIELDS = ("one", "other", "offset_ns", "off_by_ns", "steps")
TIMES = ("sent_at_ns", "reached_at_ns", "answered_at_ns", "returned_at_ns")


def direct_from_probes(probes: DataFrame, cells: DataFrame) -> DataFrame:
    """Return the direct ways (columns `analytics.jobs.stretch.DIRECT`) between connections that probed each other.

    ``direct_ms`` is half of the median round trip of both ends' probes.
    """
    round_trip = (fn.col("returned_at_ns") - fn.col("sent_at_ns")) - (
        fn.col("answered_at_ns") - fn.col("reached_at_ns")
    )
    direct = probes.where("kind = 'direct'").withColumn("rtt", round_trip)
    there = direct.select("origin", "target", "origin_host", "target_host", "rtt")
    back = direct.select(
        fn.col("target").alias("origin"),
        fn.col("origin").alias("target"),
        fn.col("target_host").alias("origin_host"),
        fn.col("origin_host").alias("target_host"),
        "rtt",
    )
    ways = (
        there.unionByName(back)
        .where("rtt > 0")
        .groupBy("origin", "target")
        .agg(
            (fn.percentile_approx("rtt", 0.5, 10_000) / 2 / NS_PER_MS).alias("direct_ms"),
            fn.first("origin_host").alias("one"),
            fn.first("target_host").alias("other"),
        )
    )
    timed = ways.join(clock_offsets(probes), ["one", "other"], "left")
    needed = cells.select("publisher", "subscriber").distinct()
    known = timed.withColumnsRenamed({"origin": "publisher", "target": "subscriber"})
    one_clock = fn.col("one").eqNullSafe(fn.col("other"))
    return needed.join(known, ["publisher", "subscriber"]).select(
        "publisher",
        "subscriber",
        "direct_ms",
        fn.when(one_clock, 0.0).otherwise(fn.coalesce("offset_ns", fn.lit(0.0))).alias("offset_ns"),
        # Hosts without a path of estimates get an uncertainty beyond all delays.
        fn.when(one_clock, 0.0)
        .otherwise(fn.coalesce(fn.col("off_by_ns") / NS_PER_MS, fn.lit(float("inf"))))
        .alias("uncertainty_ms"),
    )


def is_one_machine(probes: DataFrame) -> bool:
    """Return whether all who probed each other directly were on one host: a busy process makes such ways look long."""
    return probes.where("kind = 'direct' AND NOT origin_host <=> target_host").isEmpty()


def clock_offsets(probes: DataFrame) -> DataFrame:
    """Return one, other, offset_ns, off_by_ns and steps, in both directions, of hosts that probed each other.

    The other's clock is ahead by ``offset_ns`` ± ``off_by_ns``. These are the mean of the estimates of
    `analytics.session.clocks` over the session, and their largest uncertainty plus half of their range.
    """
    pair = [fn.least("origin_host", "target_host").alias("a"), fn.greatest("origin_host", "target_host").alias("b")]
    rows = probes.where("origin_host <> target_host").select(*pair, "origin_host", "target_host", *TIMES)
    if is_little(probes.sparkSession):
        import pyarrow.compute as pc

        # To start a worker of Python takes longer than to estimate so little.
        few = rows.toArrow()
        pairs = few.select(["a", "b"]).group_by(["a", "b"]).aggregate([]).to_pylist()
        parts = [_estimate(few.filter((pc.field("a") == pair["a"]) & (pc.field("b") == pair["b"]))) for pair in pairs]
        offsets = [each for part in parts for each in part.to_pylist()]
        named = [tuple(each[name] for name in FIELDS) for each in offsets]
        return probes.sparkSession.createDataFrame(named, OFFSETS)
    with quiet_imports():
        return rows.groupBy("a", "b").applyInArrow(_estimate, OFFSETS)


def _estimate(table: pa.Table) -> pa.Table:
    """Estimate for one pair of hosts: runs in a worker."""
    import pyarrow as pa

    schema = pa.schema([("one", pa.string()), ("other", pa.string())])
    schema = schema.append(pa.field("offset_ns", pa.float64())).append(pa.field("off_by_ns", pa.float64()))
    schema = schema.append(pa.field("steps", pa.int32()))
    columns = (table[name].to_pylist() for name in ("origin_host", "target_host", *TIMES))
    report = estimate_offsets(zip(*columns, strict=True))
    estimates = report.offsets
    if not estimates:
        return schema.empty_table()
    offsets = [each.offset_ns for each in estimates]
    mean = sum(each.offset_ns * each.probes for each in estimates) / sum(each.probes for each in estimates)
    off_by = max(each.uncertainty_ns for each in estimates) + (max(offsets) - min(offsets)) / 2
    one, other = estimates[0].origin, estimates[0].target
    columns_of = ([one, other], [other, one], [mean, -mean], [off_by, off_by], [report.steps, report.steps])
    return pa.table([pa.array(column, field.type) for column, field in zip(columns_of, schema, strict=True)], schema)
