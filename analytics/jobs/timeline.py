"""A session minute by minute, or by seconds if it is short: its delays, stretch and holding.

They are those of all, and of each server, region, node and link.

Deliveries are counted by minute, server, region and bucket of delays, in one pass. Everything here and the histogram of
all delays derive from these counts. So a percentile is the upper bound of its bucket, at most 4.4% above the exact one.
A delivery belongs to the minute in which it was delivered, by the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from analytics.jobs.stages import hops_of
from analytics.jobs.stretch import NS_PER_MS, bucket_of, up_to_ms

MINUTE_NS = 60_000_000_000
SHORT_NS, SHORT_SPAN_NS = 6 * MINUTE_NS, 5_000_000_000
"""Of a session shorter than this, a minute is too coarse to show when something changed: it is counted by spans."""
SHORTEST_NS, SHORTEST_SPAN_NS = MINUTE_NS, 1_000_000_000
KEYS_MAX = 200
"""So many servers, regions, nodes and links have lines of their own: those with the most deliveries."""
PARTS = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}

Row = dict[str, Any]
_COUNTS = ("deliveries", "timed", "held", "held_ns", "directed_ns", "direct_ms")


def span_of(cells: DataFrame) -> int:
    """Return how many ns are counted together: a minute, and less in a short session."""
    times = cells.agg(fn.min("first_at_ns").alias("first"), fn.max("last_at_ns").alias("last")).first()
    if times is None or times["first"] is None:
        return MINUTE_NS
    lasted = times["last"] - times["first"]
    return SHORTEST_SPAN_NS if lasted < SHORTEST_NS else SHORT_SPAN_NS if lasted < SHORT_NS else MINUTE_NS


def count_minutes(deliveries: DataFrame, ways: DataFrame | None = None, *, span_ns: int = MINUTE_NS) -> DataFrame:
    """Return counts by session, minute, subscriber, region and bucket (`analytics.jobs.stretch.bucket_of`).

    Columns: deliveries; timed, of others' live events, with both times; held and held_ns, from receiving to delivering;
    directed_ns and direct_ms, the delays of those with a direct way, and these ways (columns `DIRECT`). The bucket is
    null where there is no delay above zero.
    """
    live = fn.col("replayed").isNull()
    delay = fn.col("delivered_at_ns") - fn.col("sent_at_ns")
    timed = fn.when(live & (fn.col("publisher") != fn.col("subscriber")) & (delay > 0), delay)
    held = fn.when(live, fn.col("delivered_at_ns") - fn.col("received_at_ns"))
    if ways is not None:
        known = ways.select("publisher", "subscriber", "direct_ms", "offset_ns")
        deliveries = deliveries.join(fn.broadcast(known), ["publisher", "subscriber"], "left")
        direct = fn.when(timed.isNotNull(), fn.col("direct_ms"))
        directed = fn.when(direct.isNotNull(), timed - fn.col("offset_ns"))
    else:
        direct = directed = fn.lit(None).cast("double")
    minute = minute_of("delivered_at_ns", span_ns).alias("minute")
    return deliveries.groupBy("session", minute, "subscriber", "region", bucket_of(timed).alias("bucket")).agg(
        fn.count("*").alias("deliveries"),
        fn.count(timed).alias("timed"),
        fn.count(held).alias("held"),
        fn.sum(held).alias("held_ns"),
        fn.sum(directed).alias("directed_ns"),
        fn.sum(direct).alias("direct_ms"),
    )


def histogram_of(minutes: DataFrame) -> DataFrame:
    """Return session, bucket, up_to_ms and deliveries, of the counts of `count_minutes`."""
    counted = minutes.where("bucket IS NOT NULL").groupBy("session", "bucket").agg(fn.sum("timed").alias("deliveries"))
    return counted.select("session", "bucket", up_to_ms(fn.col("bucket")).alias("up_to_ms"), "deliveries")


def delay_histogram(deliveries: DataFrame) -> DataFrame:
    """Return how many deliveries took how long: session, bucket, up_to_ms and deliveries; buckets grow by 4.4%.

    Leaves out deliveries of a publisher's own events, and those with a time of zero or less.
    """
    return histogram_of(count_minutes(deliveries))


def measure_timeline(
    tables: Mapping[str, DataFrame],
    latest_stays: DataFrame,
    minutes: DataFrame,
    plan: Mapping[str, Sequence[str]],
    *,
    span_ns: int = MINUTE_NS,
) -> dict[str, list[Row]]:
    """Return the rows by kind: ``all``, ``server``, ``region``, ``node`` and ``link``, in order of key and minute.

    Each has key, minute (ISO text, UTC; or of ``span_ns``), deliveries, p50_ms, p95_ms, p99_ms, held_ms (mean) and
    stretch; those of all and of regions events_per_s, and those of all joins and gaps. A node's deliveries are those of
    the regions that end there; a link's are frames. None stands for what is not known.
    """
    lines = _lines(_keyed(tables, minutes, plan, span_ns))
    events = _events(tables["publishes"], minutes, span_ns)
    span_s = span_ns / 1e9
    moved = {
        "joins": _per_minute(latest_stays, "joined_at_ns", span_ns),
        "gaps": _per_minute(tables["gaps"], "announced_at_ns", span_ns),
    }
    in_minute: dict[int, int] = {}
    for (_, minute), count in events.items():
        in_minute[minute] = in_minute.get(minute, 0) + count
    present = {row["minute"] for row in lines.get("all", ())}
    blank = dict.fromkeys((*PARTS, "held_ms", "stretch"))
    for minute in {*in_minute, *moved["joins"], *moved["gaps"]} - present:
        lines.setdefault("all", []).append({"key": "", "minute": minute, "deliveries": 0, **blank})
    for row in lines.get("all", ()):
        row["events_per_s"] = in_minute.get(row["minute"], 0) / span_s
        row |= {name: counts.get(row["minute"], 0) for name, counts in moved.items()}
    for row in lines.get("region", ()):
        row["events_per_s"] = events.get((row["key"], row["minute"]), 0) / span_s
    for rows in lines.values():
        rows.sort(key=lambda row: (row["key"], row["minute"]))
        for row in rows:
            row["minute"] = text_of(row["minute"], span_ns)
    return lines


def minute_of(time: str, span_ns: int = MINUTE_NS) -> Column:
    """Return the minute, or another span, since the Unix epoch of a column of nanoseconds."""
    return fn.expr(f"CAST({time} DIV {span_ns} AS LONG)")


def text_of(minute: int, span_ns: int = MINUTE_NS) -> str:
    """Return a minute, or another span, since the Unix epoch as ISO text, UTC."""
    form = "%Y-%m-%dT%H:%M" if span_ns == MINUTE_NS else "%Y-%m-%dT%H:%M:%S"
    return datetime.fromtimestamp(minute * span_ns // 10**9, UTC).strftime(form)


def _keyed(
    tables: Mapping[str, DataFrame], minutes: DataFrame, plan: Mapping[str, Sequence[str]], span_ns: int
) -> DataFrame:
    """Return the counts once for all, and once for each server, region and node; and those of links."""
    spark = minutes.sparkSession
    ends = [(region, path[-1]) for region, path in sorted(plan.items()) if path]
    node_of = spark.createDataFrame(ends, "region string, node string")
    kinds = {"all": fn.lit(""), "server": fn.col("subscriber"), "region": fn.col("region"), "node": fn.col("node")}
    lines = fn.array(*(fn.struct(fn.lit(kind).alias("kind"), key.alias("key")) for kind, key in kinds.items()))
    split = minutes.join(fn.broadcast(node_of), "region", "left").withColumn("line", fn.explode(lines))
    split = split.select("line.kind", "line.key", "minute", "bucket", *_COUNTS).where("key IS NOT NULL")
    hops = hops_of(tables["stamps"]).where("ns > 0")
    null = fn.lit(None)
    links = hops.groupBy(
        fn.lit("link").alias("kind"),
        fn.concat_ws(" → ", "from", "to").alias("key"),
        minute_of("at", span_ns).alias("minute"),
        bucket_of(fn.col("ns")).alias("bucket"),
    ).agg(
        fn.count("*").alias("deliveries"),
        fn.count("*").alias("timed"),
        fn.lit(0).cast("long").alias("held"),
        *(null.cast(kind).alias(name) for name, kind in (("held_ns", "long"), ("directed_ns", "double"))),
        null.cast("double").alias("direct_ms"),
    )
    return split.unionByName(links).where("minute IS NOT NULL")


def _lines(keyed: DataFrame) -> dict[str, list[Row]]:
    whole = keyed.groupBy("kind", "key", "minute", "bucket").agg(*(fn.sum(name).alias(name) for name in _COUNTS))
    one = Window.partitionBy("kind", "key", "minute")
    upto = one.orderBy(fn.col("bucket").asc_nulls_first()).rowsBetween(Window.unboundedPreceding, 0)
    placed = whole.withColumn("below", fn.sum("timed").over(upto)).withColumn("of", fn.sum("timed").over(one))

    def part(share: float) -> Column:
        return fn.min(fn.when(fn.col("below") >= fn.ceil(fn.lit(share) * fn.col("of")), up_to_ms(fn.col("bucket"))))

    by_minute = placed.groupBy("kind", "key", "minute").agg(
        fn.sum("deliveries").alias("deliveries"),
        *(fn.when(fn.max("of") > 0, part(share)).alias(name) for name, share in PARTS.items()),
        (fn.sum("held_ns") / fn.sum("held") / NS_PER_MS).alias("held_ms"),
        (fn.sum("directed_ns") / NS_PER_MS / fn.sum("direct_ms")).alias("stretch"),
    )
    ranked = by_minute.withColumn("weight", fn.sum("deliveries").over(Window.partitionBy("kind", "key")))
    ranked = ranked.withColumn(
        "rank", fn.dense_rank().over(Window.partitionBy("kind").orderBy(fn.desc("weight"), "key"))
    )
    rows_by_kind: dict[str, list[Row]] = {}
    for row in ranked.where(fn.col("rank") <= KEYS_MAX).drop("rank", "weight").collect():
        rows_by_kind.setdefault(row["kind"], []).append({k: v for k, v in row.asDict().items() if k != "kind"})
    return rows_by_kind


def _events(publishes: DataFrame, minutes: DataFrame, span_ns: int) -> dict[tuple[str, int], int]:
    """Count each region's events by the rows of publishers, or by the server that delivered most of it."""
    most = minutes.groupBy("session", "minute", "subscriber", "region").agg(fn.sum("deliveries").alias("n"))
    most = most.groupBy("session", "region", "minute").agg(fn.max("n").alias("n"))
    published = publishes.where("outcome = 'acknowledged'").groupBy(
        "session", "region", minute_of("published_at_ns", span_ns).alias("minute")
    )
    rows = most.withColumn("told", fn.lit(False)).unionByName(
        published.agg(fn.count("*").alias("n")).withColumn("told", fn.lit(True))
    )
    by_session = rows.withColumn("tells", fn.max("told").over(Window.partitionBy("session", "region")))
    kept = (
        by_session.where("told = tells AND minute IS NOT NULL").groupBy("region", "minute").agg(fn.sum("n").alias("n"))
    )
    return {(row["region"], row["minute"]): int(row["n"]) for row in kept.collect()}


def _per_minute(rows: DataFrame, time: str, span_ns: int) -> dict[int, int]:
    counted = (
        rows.where(fn.col(time).isNotNull())
        .groupBy(minute_of(time, span_ns).alias("minute"))
        .agg(fn.count("*").alias("n"))
        .collect()
    )
    return {row["minute"]: int(row["n"]) for row in counted}
