"""The order audit: did all subscribers deliver in one order? It does not use stamps.

Every slice (`analytics.jobs.slices`) has whole cycles. So the order checkers of `gamecast audit` judge the slices one
by one, in parallel, and their counts add up to those of the whole. The work is linear in the deliveries; where orders
disagree, it grows with the disputed events × regions of a subscriber.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from analytics.jobs.numbering import Numbering
from analytics.jobs.slices import LIVE, Slices
from analytics.jobs.spark import is_little, kept, quiet_imports
from sequencing.checkers import DeliverySequence, History, Offence, judge
from sequencing.checkers.cycles import find_components

if TYPE_CHECKING:
    import pyarrow as pa

IntArray = npt.NDArray[np.int64]

VERDICTS = (
    "slice int, deliveries long, events long, disputed long, inversions long, cycles long, first string, cycle string, "
    "pairs array<struct<one:int, other:int, inversions:long, first:string>>"
)
PAIRS_MAX = 400
"""How many pairs of regions of a slice are listed with their inversions; of the other pairs only the sum is known."""
OFFENCES_READ_MAX = 1000
COMPONENTS_SEARCHED_MAX = 100
LABEL_DIGITS = 10


@dataclass(frozen=True, slots=True)
class RegionPair:
    """Two regions, the subscribers that delivered events of both, and the number of event pairs in dispute."""

    session: str
    regions: tuple[str, str]
    subscribers: int
    inversions: int
    first: Offence | None


@dataclass(frozen=True, slots=True)
class Order:
    """The result of the audit; counts mean the same as those of `sequencing.checkers.Verdict`."""

    inversions: int
    cycles: int
    disputed: int
    """Events on cycles: all events about whose order subscribers disagree."""
    first: Offence | None
    cycle: Offence | None
    """A cycle without an inversion: no two subscribers disagree about any two of its events, but all together do."""
    pairs: tuple[RegionPair, ...]
    """Pairs of regions that two or more subscribers have in common, worst first; of the correct pairs only some."""
    pairs_compared: int
    slices: int
    rounds: int


def audit_order(slices: Slices, numbering: Numbering, cells: DataFrame) -> Order:
    """Judge whether there is one order that all viewers' first deliveries respect."""
    columns = ("slice", "viewer", "index", "event", "region")
    firsts = slices.deliveries.where(LIVE).select(*columns)
    spark = slices.deliveries.sparkSession
    if slices.count == 1 and is_little(spark):
        import pyarrow as pa

        # To start a worker of Python takes longer than to judge so little.
        verdicts = spark.createDataFrame(_judge_slice((pa.scalar(0),), firsts.toArrow()))
    else:
        with quiet_imports():
            verdicts = firsts.groupBy("slice").applyInArrow(_judge_slice, VERDICTS).persist()
    try:
        total = verdicts.agg(*(fn.sum(name).alias(name) for name in ("inversions", "cycles", "disputed"))).first()
        broken = verdicts.where("cycles > 0").orderBy("slice").limit(OFFENCES_READ_MAX).collect()
    finally:
        verdicts.unpersist()
    offences = [json.loads(row["first"]) for row in broken if row["first"]]
    # An inversion is easier to understand than a cycle of three.
    offences.sort(key=lambda each: each["kind"] != "inversion")
    cycles = [json.loads(row["cycle"]) for row in broken if row["cycle"]]
    pairs, compared = _region_pairs(broken, numbering, cells)
    return Order(
        inversions=int((total and total["inversions"]) or 0),
        cycles=int((total and total["cycles"]) or 0),
        disputed=int((total and total["disputed"]) or 0),
        first=_named(offences[0], numbering) if offences else None,
        cycle=_named(cycles[0], numbering) if cycles else None,
        pairs=pairs,
        pairs_compared=compared,
        slices=slices.count,
        rounds=slices.rounds,
    )


@dataclass(frozen=True, slots=True)
class PublisherOrder:
    """How often a publisher's order was broken, how many publishers are not known, and an example.

    ``doubted``: publishers that only seem to have broken it, by a clock that was set back or is another host's.
    ``damaged``: those of which times of sending are not what they recorded themselves, or before 1970.
    """

    violations: int = 0
    unknown: int = 0
    first: Offence | None = None
    doubted: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def audit_publishers(
    slices: Slices,
    numbering: Numbering,
    cells: DataFrame,
    *,
    publishes: DataFrame | None = None,
    doubtful: AbstractSet[str] = frozenset(),
) -> PublisherOrder:
    """Judge whether each publisher's events of a region were delivered in the order in which they were sent.

    Broken means: a viewer delivered an event right after one that its publisher sent to the same region later. A
    publisher is unknown if any delivery of it lacks ``sent_at_ns``. ``publishes``: what publishers recorded themselves;
    ``doubtful``: publishers whose times are not of one clock that only goes forward.
    """
    without = {row["publisher"] for row in cells.where("unsent > 0").select("publisher").distinct().collect()}
    unknown = [place for place, name in enumerate(numbering.publishers) if name in without]
    checked = slices.deliveries.where(LIVE)
    if unknown:
        checked = checked.where(~fn.col("publisher").isin(unknown))
    stream = Window.partitionBy("viewer", "region", "publisher").orderBy("index")
    before = fn.lag(fn.struct("sent_at_ns", "event")).over(stream)
    late = checked.withColumn("before", before).where(fn.col("before.sent_at_ns") > fn.col("sent_at_ns"))
    doubted: tuple[str, ...] = ()
    if places := [place for place, name in enumerate(numbering.publishers) if name in doubtful]:
        rows = late.where(fn.col("publisher").isin(places)).select("publisher").distinct().collect()
        doubted = tuple(sorted(numbering.publishers[row["publisher"]] for row in rows))
        late = late.where(~fn.col("publisher").isin(places))
    late = kept(late.select("index", "viewer", "event", "before", "region", "publisher", "sent_at_ns"))
    damaged: tuple[str, ...] = ()
    if not late.isEmpty():
        late = kept(_compared(late, publishes, numbering))
        rows = late.where("is_damaged").select("publisher").distinct().collect()
        damaged = tuple(sorted(numbering.publishers[row["publisher"]] for row in rows))
        late = late.where("NOT is_damaged")
    totals = late.agg(
        fn.count("*").alias("n"),
        fn.min(fn.struct("index", "viewer", "event", "before", "region", "publisher")).alias("one"),
    ).first()
    if totals is None or not totals["n"]:
        return PublisherOrder(unknown=len(unknown), doubted=doubted, damaged=damaged)
    one = totals["one"]
    events = (one["event"], one["before"]["event"])
    names = numbering.name_events(events)
    region = numbering.regions[one["region"]][1]
    first = Offence(
        "publisher_order",
        tuple(names[event] for event in events),
        (region, region),
        (numbering.viewers[one["viewer"]].name,),
        numbering.publishers[one["publisher"]],
    )
    return PublisherOrder(int(totals["n"]), len(unknown), first, doubted, damaged)


def _compared(late: DataFrame, publishes: DataFrame | None, numbering: Numbering) -> DataFrame:
    """Add is_damaged: whether one of both times is before 1970, or is not the one that its publisher recorded."""
    is_damaged = (fn.col("sent_at_ns") <= 0) | (fn.col("before.sent_at_ns") <= 0)
    if publishes is None or numbering.names is not None:
        return late.withColumn("is_damaged", is_damaged)
    own = publishes.where("outcome = 'acknowledged' AND sequence IS NOT NULL AND published_at_ns IS NOT NULL")
    placed = own.join(numbering.region_table(publishes.sparkSession), ["session", "region"]).drop("region")
    placed = placed.withColumnRenamed("number", "region").where(numbering.has_place())
    told = (
        placed.select(numbering.event_number().alias("number"), "published_at_ns")
        .groupBy("number")
        .agg(fn.min("published_at_ns").alias("told"))
    )
    both = late.join(told.alias("t"), fn.col("event") == fn.col("t.number"), "left").drop("number")
    both = both.withColumnRenamed("told", "told_of_it")
    both = both.join(told.alias("b"), fn.col("before.event") == fn.col("b.number"), "left").drop("number")
    differs = (fn.col("told_of_it") != fn.col("sent_at_ns")) | (fn.col("told") != fn.col("before.sent_at_ns"))
    return both.withColumn("is_damaged", is_damaged | fn.coalesce(differs, fn.lit(False)))


def audit_repetitions(slices: Slices, numbering: Numbering) -> tuple[int, Offence | None]:
    """Return how many deliveries repeat an event to the same viewer, and the first of them by index."""
    again = slices.deliveries.where("nth > 1 AND NOT replayed")
    totals = again.agg(
        fn.count("*").alias("n"), fn.min(fn.struct("index", "viewer", "event", "region")).alias("one")
    ).first()
    if totals is None or not totals["n"]:
        return 0, None
    return int(totals["n"]), numbering.offence("duplicate", totals["one"])


def _judge_slice(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    """Judge one slice: runs in a worker, on arrays."""
    import pyarrow as pa

    viewer, index, event, region = (table[name].to_numpy() for name in ("viewer", "index", "event", "region"))
    order = np.lexsort((index, viewer))
    viewer, event, region = viewer[order], event[order], region[order]
    ids, number = np.unique(event, return_inverse=True)
    bounds = np.flatnonzero(np.diff(viewer)) + 1
    components = find_components(np.split(number.astype(np.int64), bounds), events_count=len(ids))
    row: dict[str, Any] = {"slice": key[0].as_py(), "deliveries": len(viewer), "events": len(ids), "disputed": 0}
    row |= {"inversions": 0, "cycles": 0, "first": None, "cycle": None, "pairs": []}
    if components.count:
        disputed = np.zeros(len(ids), np.bool_)
        disputed[components.members] = True
        kept = disputed[number]
        row["disputed"] = len(components.members)
        row |= _count(viewer[kept], event[kept], region[kept])
        row["cycle"] = _pure_cycle(viewer[kept], event[kept], region[kept], components.label[number[kept]])
    return pa.Table.from_pylist([row], schema=_verdict_schema())


def _count(viewer: IntArray, event: IntArray, region: IntArray) -> dict[str, Any]:
    """Count among the disputed events, sorted by viewer and index."""
    verdict = judge(History.of(_sequences(viewer, event, region)))
    counts: dict[str, Any] = {"inversions": verdict.inversions, "cycles": verdict.cycles, "pairs": []}
    counts["first"] = json.dumps(verdict.first.as_dict()) if verdict.first is not None else None
    if verdict.inversions:
        for one, other in _pairs_to_compare(viewer, region):
            mine = (region == one) | (region == other)
            pair = judge(History.of(_sequences(viewer[mine], event[mine], region[mine])))
            inversions = pair.inversions
            if one != other:
                inversions -= sum(
                    judge(History.of(_sequences(viewer[same], event[same], region[same]))).inversions
                    for same in (region == one, region == other)
                )
            if inversions and pair.first is not None:
                first = json.dumps(pair.first.as_dict())
                counts["pairs"].append({"one": one, "other": other, "inversions": inversions, "first": first})
    return counts


def _pure_cycle(viewer: IntArray, event: IntArray, region: IntArray, component: IntArray) -> str | None:
    """Return a small cycle of a component in which no two viewers disagree about any two events."""
    labels, sizes = np.unique(component, return_counts=True)
    for label in labels[np.argsort(sizes, kind="stable")][:COMPONENTS_SEARCHED_MAX].tolist():
        mine = component == label
        verdict = judge(History.of(_sequences(viewer[mine], event[mine], region[mine])))
        if not verdict.inversions and verdict.first is not None:
            return json.dumps(verdict.first.as_dict())
    return None


def _pairs_to_compare(viewer: IntArray, region: IntArray) -> list[tuple[int, int]]:
    held = np.unique(np.stack([viewer, region], axis=1), axis=0)
    common: dict[tuple[int, int], int] = {}
    for regions in np.split(held[:, 1], np.flatnonzero(np.diff(held[:, 0])) + 1):
        for pair in combinations(regions.tolist(), 2):
            common[pair] = common.get(pair, 0) + 1
        for one in regions.tolist():
            common[one, one] = common.get((one, one), 0) + 1
    shared = sorted(pair for pair, viewers in common.items() if viewers > 1)
    return shared if len(shared) <= PAIRS_MAX else []


def _sequences(viewer: IntArray, event: IntArray, region: IntArray) -> Iterator[DeliverySequence]:
    bounds = np.flatnonzero(np.diff(viewer)) + 1
    for events, regions, who in zip(
        np.split(event, bounds), np.split(region, bounds), viewer[np.append(0, bounds)].tolist(), strict=True
    ):
        count = len(events)
        yield DeliverySequence(
            _label(who), [str(e) for e in events.tolist()], [str(r) for r in regions.tolist()], [""] * count
        )


def _label(number: int) -> str:
    """Return a name that sorts like the number."""
    return f"{number:0{LABEL_DIGITS}}"


def _verdict_schema() -> pa.Schema:
    import pyarrow as pa

    pair = pa.struct([("one", pa.int32()), ("other", pa.int32()), ("inversions", pa.int64()), ("first", pa.string())])
    counts = [(name, pa.int64()) for name in ("deliveries", "events", "disputed", "inversions", "cycles")]
    return pa.schema(
        [("slice", pa.int32()), *counts, ("first", pa.string()), ("cycle", pa.string()), ("pairs", pa.list_(pair))]
    )


def _region_pairs(broken: Sequence[Any], numbering: Numbering, cells: DataFrame) -> tuple[tuple[RegionPair, ...], int]:
    """Return the pairs of regions in which orders disagreed, then some others; and how many pairs there are."""
    inversions: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], dict[str, Any]] = {}
    for row in broken:
        for pair in row["pairs"]:
            both = (pair["one"], pair["other"])
            inversions[both] = inversions.get(both, 0) + pair["inversions"]
            first.setdefault(both, json.loads(pair["first"]))
    viewed = cells.select("session", "subscriber", "incarnation", "region").distinct()
    one, other = viewed.alias("a"), viewed.alias("b")
    same = fn.col("a.incarnation").eqNullSafe(fn.col("b.incarnation"))
    for name in ("session", "subscriber"):
        same &= fn.col(f"a.{name}") == fn.col(f"b.{name}")
    both_seen = one.join(other, same & (fn.col("a.region") < fn.col("b.region")))
    counted = both_seen.groupBy("a.session", fn.col("a.region").alias("one"), fn.col("b.region").alias("other")).count()
    shared = kept(counted.where("count > 1"))
    compared = shared.count()
    number = {region: n for n, region in enumerate(numbering.regions)}
    subscribers: dict[tuple[int, int], int] = {}
    listed = shared.orderBy(fn.desc("count"), "one", "other").limit(PAIRS_MAX).collect()
    for row in listed:
        subscribers[number[row["session"], row["one"]], number[row["session"], row["other"]]] = row["count"]
    shared.unpersist()
    region_pairs = [
        RegionPair(
            numbering.regions[pair[0]][0],
            (numbering.regions[pair[0]][1], numbering.regions[pair[1]][1]),
            subscribers.get(pair, 0),
            inversions.get(pair, 0),
            _named(first[pair], numbering) if pair in first else None,
        )
        for pair in {**subscribers, **inversions}
    ]
    return tuple(sorted(region_pairs, key=lambda pair: (-pair.inversions, -pair.subscribers, pair.regions))), compared


def _named(offence: dict[str, Any], numbering: Numbering) -> Offence:
    """Return the offence with names in the place of numbers."""
    names = numbering.name_events([int(event) for event in offence["events"]])
    return Offence(
        offence["kind"],
        tuple(names[int(event)] for event in offence["events"]),
        tuple(numbering.regions[int(region)][1] for region in offence["regions"]),
        tuple(numbering.viewers[int(viewer)].name for viewer in offence["subscribers"]),
    )
