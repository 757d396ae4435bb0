"""The load of regions, subscribers and nodes; holding of events, joins, gaps and epochs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.stretch import quantile

NS_PER_MS, NS_PER_S = 1e6, 1e9
JOINS_READ_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one or more sessions; lists are rows for tables, largest first."""

    seconds: float
    regions: Sequence[Mapping[str, Any]]
    """region, events, events_per_s, subscribers, publishers."""
    subscribers: Sequence[Mapping[str, Any]]
    """subscriber, deliveries, deliveries_per_s, regions, held_ms (mean), held_events (mean number that waited)."""
    nodes: Sequence[Mapping[str, Any]]
    """node, events, events_per_s, regions, ratio: to what the busiest subscriber received, the seed's rule."""
    joins: Mapping[str, Any]
    """joins, leaves, never_in, per_minute, and the milliseconds p50, p99, max."""
    gaps: Mapping[str, int]
    epochs: Mapping[str, int]
    recorder_losses: Mapping[str, int]


def measure_load(
    tables: Mapping[str, DataFrame], latest_stays: DataFrame, cells: DataFrame, plan: Mapping[str, Sequence[str]]
) -> Load:
    """Return the load; ``plan`` is each region's path of nodes, empty if unknown."""
    span = cells.groupBy("session").agg(fn.min("first_at_ns").alias("a"), fn.max("last_at_ns").alias("b")).collect()
    seconds = sum((row["b"] - row["a"]) / NS_PER_S for row in span if row["a"] is not None)
    regions = _regions(tables, cells, seconds)
    subscribers = _subscribers(cells, seconds)
    return Load(
        seconds,
        regions,
        subscribers,
        _nodes(regions, subscribers, plan, seconds),
        _joins(latest_stays, seconds),
        _counts(tables["gaps"].groupBy("reason").count()),
        _counts(tables["epochs"].select("session", "epoch", "version", "reason").distinct().groupBy("reason").count()),
        recorder_losses(tables["losses"]),
    )


def read_plan(epochs: DataFrame) -> dict[str, list[str]]:
    """Return each region's path, by the last plan that has it."""
    paths: dict[str, list[str]] = {}
    for row in epochs.select("epoch", "version", "plan").distinct().orderBy("epoch", "version").collect():
        try:
            regions = json.loads(row["plan"])["regions"]
            paths |= {region: list(each["path"]) for region, each in regions.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return paths


def _regions(tables: Mapping[str, DataFrame], cells: DataFrame, seconds: float) -> list[dict[str, Any]]:
    """Count a region's events by the rows of publishers, or by the subscriber that delivered most of it."""
    viewed = cells.groupBy("session", "subscriber", "incarnation", "region").agg(fn.sum("deliveries").alias("n"))
    most = viewed.groupBy("session", "region").agg(fn.max("n").alias("most"))
    told = (
        tables["publishes"]
        .where("outcome = 'acknowledged'")
        .groupBy("session", "region")
        .agg(fn.count("*").alias("told"))
    )
    who = cells.groupBy("session", "region").agg(
        fn.countDistinct("subscriber").alias("subscribers"),
        fn.countDistinct("publisher").alias("publishers"),
        fn.sum("deliveries").alias("deliveries"),
    )
    joined = most.join(told, ["session", "region"], "left").join(who, ["session", "region"])
    total = joined.withColumn("events", fn.greatest("most", fn.coalesce("told", fn.lit(0))))
    summed = total.groupBy("region").agg(
        *(fn.sum(name).alias(name) for name in ("events", "deliveries")),
        *(fn.max(name).alias(name) for name in ("subscribers", "publishers")),
    )
    rows = summed.orderBy(fn.desc("events"), "region").collect()
    return [{**row.asDict(), "events_per_s": _rate(row["events"], seconds)} for row in rows]


def _subscribers(cells: DataFrame, seconds: float) -> list[dict[str, Any]]:
    summed = cells.groupBy("subscriber").agg(
        fn.sum("deliveries").alias("deliveries"),
        fn.countDistinct("region").alias("regions"),
        fn.sum("held").alias("held"),
        fn.sum("held_ns").alias("held_ns"),
    )
    rows = []
    for row in summed.orderBy(fn.desc("deliveries"), "subscriber").collect():
        held_ns = row["held_ns"] or 0
        rows.append(
            {
                "subscriber": row["subscriber"],
                "deliveries": row["deliveries"],
                "deliveries_per_s": _rate(row["deliveries"], seconds),
                "regions": row["regions"],
                "held_ms": held_ns / NS_PER_MS / row["held"] if row["held"] else None,
                # Little's law: the mean number of waiting events is the sum of their waiting times, over the duration.
                "held_events": held_ns / NS_PER_S / seconds if row["held"] and seconds else None,
            }
        )
    return rows


def _nodes(
    regions: Sequence[Mapping[str, Any]],
    subscribers: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Sequence[str]],
    seconds: float,
) -> list[dict[str, Any]]:
    busiest = max((row["deliveries"] for row in subscribers), default=0)
    events: dict[str, int] = {}
    served: dict[str, int] = {}
    for row in regions:
        for node in plan.get(row["region"], ()):
            events[node] = events.get(node, 0) + row["events"]
            served[node] = served.get(node, 0) + 1
    return [
        {
            "node": node,
            "events": events[node],
            "events_per_s": _rate(events[node], seconds),
            "regions": served[node],
            "ratio": events[node] / busiest if busiest else None,
        }
        for node in sorted(events, key=lambda node: (-events[node], node))
    ]


def _joins(latest: DataFrame, seconds: float) -> dict[str, Any]:
    took = (fn.col("joined_at_ns") - fn.col("asked_at_ns")) / NS_PER_MS
    counted = latest.agg(
        fn.count("joined_at_ns").alias("joins"),
        fn.count(fn.coalesce("left_at_ns", "to_index")).alias("leaves"),
        fn.count(fn.when(fn.col("joined_at_ns").isNull(), True)).alias("never_in"),
    ).first()
    times = latest.select(took.alias("ms")).where("ms IS NOT NULL").orderBy("ms").limit(JOINS_READ_MAX).collect()
    ascending = [row["ms"] for row in times]
    counts: dict[str, Any] = counted.asDict() if counted is not None else {"joins": 0, "leaves": 0, "never_in": 0}
    moves = counts["joins"] + counts["leaves"]
    counts["moves_per_minute"] = moves / seconds * 60 if seconds else None
    return {
        **counts,
        **{f"{name}_ms": quantile(ascending, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))},
    }


def recorder_losses(losses: DataFrame) -> dict[str, int]:
    """Return how many rows recorders could not store, by table and reason."""
    kept = losses.groupBy("session", "recorder", "table", "reason").agg(fn.max("rows").alias("rows"))
    rows = kept.groupBy("table", "reason").agg(fn.sum("rows").alias("rows")).collect()
    return {f"{row['table']}: {row['reason']}": int(row["rows"]) for row in rows}


def _counts(rows: DataFrame) -> dict[str, int]:
    return {str(row["reason"]): int(row["count"]) for row in rows.orderBy(fn.desc("count")).collect()}


def _rate(number: int, seconds: float) -> float | None:
    return number / seconds if seconds else None
