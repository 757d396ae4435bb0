"""Latency stretch: how much longer deliveries took than the direct way from publisher to subscriber would have taken.

For a set of deliveries it is the sum of (delivered − sent) over the sum of the direct delays of the same deliveries.
Deliveries of a subscriber's own events have no direct way and are left out, as in ``gamecast demo --wan``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.spark import kept

NS_PER_MS = 1e6
VAGUE = 1.5
"""Multiple of the direct delay: with probes alone, the uncertainty is half their round trip, which is 1."""
FINE_BUCKETS = 16
"""Buckets of the delays' histogram per doubling: a bucket is 4.4% wide."""
DIRECT = "publisher string, subscriber string, direct_ms double, offset_ns double, uncertainty_ms double"
"""Columns of the direct ways.

``offset_ns``: how far the subscriber's clock is ahead of the publisher's; it is subtracted. ``uncertainty_ms``: the
error of the offset and the direct delay, 0 if both are given.
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The stretch of destinations, and of other sets.

    Each DataFrame has deliveries, delay_ms, direct_ms, stretch and uncertainty (of the stretch), after the columns by
    which it is grouped.
    """

    trips: DataFrame
    """timed, and the sums sum_ms and sum_direct_ms, by session, subscriber, region and publisher."""
    by_destination: DataFrame
    by_region: DataFrame
    by_pair: DataFrame
    by_path_nodes: DataFrame | None
    left_out: Mapping[str, int]
    """Deliveries that are left out here, and the reasons."""


def measure_stretch(
    cells: DataFrame, direct: DataFrame, *, path_nodes: DataFrame | None = None, stepped: Sequence[str] = ()
) -> Stretch:
    """Return the stretch of the cells of `analytics.jobs.cells`, given the ``direct`` ways (columns `DIRECT`).

    ``path_nodes``: session, region and nodes, the number of nodes on the region's path. ``stepped``: connections whose
    clock was set back, so that their times are unreliable. Unknown ways, and ways with an uncertainty clearly larger
    than the delay, are left out and counted.
    """
    others = cells.where("publisher <> subscriber").withColumn("stepped", is_of_any(stepped))
    joined = others.join(fn.broadcast(direct), ["publisher", "subscriber"], "left")
    vague = fn.col("uncertainty_ms") > VAGUE * fn.coalesce("direct_ms", fn.lit(0.0))
    why = (
        fn.when(fn.col("stepped"), "a clock was set back")
        .when(fn.col("direct_ms").isNull(), "no direct way is known")
        .when(vague, "the clocks' skew is known less well than the direct way is long")
    )
    judged = joined.withColumn("why", why)
    untimed = fn.sum(fn.col("deliveries") - fn.col("timed")).alias("untimed")
    excluded = judged.groupBy("why").agg(fn.sum("timed").alias("timed"), untimed).collect()
    left_out = {row["why"]: int(row["timed"]) for row in excluded if row["why"] is not None and row["timed"]}
    no_times = sum(int(row["untimed"]) for row in excluded)
    if no_times:
        left_out["a time is missing"] = no_times
    good = judged.where("why IS NULL AND timed > 0").select(
        "session",
        "subscriber",
        "region",
        "publisher",
        "timed",
        ((fn.col("delay_ns") - fn.col("offset_ns") * fn.col("timed")) / NS_PER_MS).alias("sum_ms"),
        (fn.col("direct_ms") * fn.col("timed")).alias("sum_direct_ms"),
        (fn.col("uncertainty_ms") * fn.col("timed")).alias("sum_uncertainty_ms"),
    )
    # Few rows, which each of the tables below reads.
    good = kept(good)
    by_path_nodes = None
    if path_nodes is not None:
        by_path_nodes = _ratio(good.join(fn.broadcast(path_nodes), ["session", "region"]), "nodes")
    return Stretch(
        trips=good,
        by_destination=_ratio(good, "subscriber"),
        by_region=_ratio(good, "session", "region"),
        by_pair=_ratio(good, "publisher", "subscriber"),
        by_path_nodes=by_path_nodes,
        left_out=left_out,
    )


def is_of_any(names: Sequence[str]) -> Column:
    """Return the expression of whether some connections published or delivered it."""
    return fn.col("subscriber").isin(list(names)) | fn.col("publisher").isin(list(names))


def _ratio(rows: DataFrame, *by: str) -> DataFrame:
    summed = rows.groupBy(*by).agg(
        fn.sum("timed").alias("deliveries"),
        (fn.sum("sum_ms") / fn.sum("timed")).alias("delay_ms"),
        (fn.sum("sum_direct_ms") / fn.sum("timed")).alias("direct_ms"),
        _over(fn.sum("sum_ms"), fn.sum("sum_direct_ms")).alias("stretch"),
        _over(fn.sum("sum_uncertainty_ms"), fn.sum("sum_direct_ms")).alias("uncertainty"),
    )
    return summed.where("stretch IS NOT NULL")


def _over(above: Column, below: Column) -> Column:
    return fn.when(below > 0, above / below)


def direct_from(
    cells: DataFrame, hosts: Sequence[str], delays_ms: Any, host_of: Mapping[str, str] | None = None
) -> DataFrame:
    """Return the direct ways (columns `DIRECT`) between all publishers and subscribers, from a square matrix.

    ``delays_ms[a][b]`` is from ``hosts[a]`` to ``hosts[b]``. A name that is not in ``host_of`` is on the host of the
    same name.
    """
    place = {host: number for number, host in enumerate(hosts)}
    standing = host_of or {}
    rows = []
    for row in cells.select("publisher", "subscriber").distinct().collect():
        origin, target = (place.get(standing.get(name, name)) for name in (row["publisher"], row["subscriber"]))
        if origin is not None and target is not None:
            rows.append((row["publisher"], row["subscriber"], float(delays_ms[origin][target]), 0.0, 0.0))
    return cells.sparkSession.createDataFrame(rows, DIRECT)


def bucket_of(delay_ns: Column) -> Column:
    """Return the bucket of a delay above zero, null for null."""
    return fn.floor(fn.log2(delay_ns.cast("double")) * FINE_BUCKETS).cast("int")


def up_to_ms(bucket: Column) -> Column:
    """Return the upper bound of a bucket."""
    return fn.pow(fn.lit(2.0), (bucket + 1) / FINE_BUCKETS) / NS_PER_MS


def path_nodes_of(epochs: DataFrame) -> DataFrame | None:
    """Return session, region and nodes, of the last plan that has the region; None if no plan was recorded."""
    nodes: dict[tuple[str, str], int] = {}
    for row in epochs.select("session", "epoch", "version", "plan").distinct().orderBy("epoch", "version").collect():
        try:
            regions = json.loads(row["plan"])["regions"]
            nodes |= {(row["session"], region): len(each["path"]) for region, each in regions.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    if not nodes:
        return None
    rows = [(*key, count) for key, count in sorted(nodes.items())]
    return epochs.sparkSession.createDataFrame(rows, "session string, region string, nodes int")


def quantile(ascending: Sequence[float], part: float) -> float | None:
    """Return the smallest of the numbers that this part of them does not exceed; None for no numbers."""
    return ascending[max(0, math.ceil(part * len(ascending)) - 1)] if ascending else None
