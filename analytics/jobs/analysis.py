"""The whole analysis of a session: the results that `gamecast analyze` prints, reports and writes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from analytics.jobs.advice import Advice, advise
from analytics.jobs.causal import Causality, CausalViolation, audit_causality
from analytics.jobs.cells import add_up, without_untimely
from analytics.jobs.clock_steps import find_clock_steps
from analytics.jobs.completeness import Losses, audit_losses, owed_of
from analytics.jobs.evidence import CAUSAL, NEEDED_FOR, Promise, Unknown, verdict_of, weigh
from analytics.jobs.load import Load, measure_load, read_plan, recorder_losses
from analytics.jobs.moves import DIRECT_MS_MIN, ONE_MACHINE_MS_MAX, TRIPS_MAX, Move, Trip, is_near, moves
from analytics.jobs.numbering import Numbering, number
from analytics.jobs.order import Order, audit_order, audit_publishers, audit_repetitions
from analytics.jobs.probes import direct_from_probes, is_one_machine
from analytics.jobs.skew import Skew, corrected, find_skews
from analytics.jobs.slices import DELIVERIES_PER_SLICE, Slices, cut
from analytics.jobs.spark import beside_each_other, kept, set_for
from analytics.jobs.stages import measure_stages
from analytics.jobs.stamp_audit import StampAudit, audit_stamps
from analytics.jobs.stretch import Stretch, is_of_any, measure_stretch, path_nodes_of, quantile
from analytics.jobs.timeline import PARTS, count_minutes, histogram_of, measure_timeline, span_of, text_of
from analytics.jobs.turns import Turn, find_turns
from analytics.session.quarantine import Quarantine
from analytics.session.reading import Sources, without_damaged
from sequencing.checkers import Offence
from sequencing.errors import InvalidInput

OnStage = Callable[[str], None]
MakeDirect = Callable[[DataFrame], DataFrame]
"""Makes direct ways (`analytics.jobs.stretch.DIRECT`) from cells (`analytics.jobs.cells`)."""
PAIRS_WRITTEN_MAX = 100_000
OVERLOADED = 1.05
"""A multiple of what the busiest subscriber receives; below it, a rearrangement of the network is not worth it."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether the guarantees held."""

    order: Order
    publisher_order_violations: int
    publishers_unchecked: int
    duplicated: int
    losses: Losses
    stamps: StampAudit | None
    causality: Causality | None
    """None if it was neither guaranteed nor requested."""
    examples: tuple[Offence | CausalViolation, ...]
    unknown: tuple[Unknown, ...] = ()
    """What the records cannot show."""

    @property
    def fine(self) -> bool:
        """Whether no violation of a guarantee was found."""
        return not self.examples

    @property
    def verdict(self) -> str:
        """``kept``, ``broken`` or ``unknown``: it cannot be told."""
        return verdict_of(not self.fine, self.unknown)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """What became of each promise."""
        counts: dict[str, int | None] = {
            "one order": self.order.inversions,
            "no cycles": self.order.cycles,
            "each publisher's order": self.publisher_order_violations,
            "nothing twice": self.duplicated,
            "nothing lost": self.losses.lost,
            "nothing else": self.losses.unexpected,
        }
        if self.causality is not None:
            counts[CAUSAL] = self.causality.violations
        return tuple(
            Promise(name, count, tuple(str(each) for each in self.unknown if name in each.promises))
            for name, count in counts.items()
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the value of ``order`` in the JSON output."""
        values: dict[str, Any] = {
            "inversions": self.order.inversions,
            "cycles": self.order.cycles,
            "duplicated": self.duplicated,
            "lost": self.losses.lost,
            "unexpected": self.losses.unexpected,
            "announced": self.losses.announced,
            "publisher_order_violations": self.publisher_order_violations,
            "publishers_unchecked": self.publishers_unchecked,
            "first": self.examples[0].as_dict() if self.examples else None,
            "examples": [each.as_dict() for each in self.examples],
            "disputed_events": self.order.disputed,
            "region_pairs": self.order.pairs_compared,
            "slices": self.order.slices,
        }
        if self.stamps is not None:
            values["stamps"] = self.stamps.as_dict()
        if self.causality is not None:
            values["causal"] = self.causality.as_dict()
        return values


@dataclass(frozen=True, slots=True)
class Analysis:
    """The results; tables are rows, small enough for a report."""

    subscribers: int
    regions: int
    deliveries: int
    sessions: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    """by_destination, by_region, by_pair, by_path_nodes: of the stretch; empty without direct ways. delays and stages.
    timeline, and timeline_by_server, _region, _node and _link: see `analytics.jobs.timeline`."""
    left_out: Mapping[str, int]
    audit: Audit
    load: Load
    advice: tuple[Advice, ...]
    quarantine: Quarantine
    notes: tuple[str, ...]
    membership: Sequence[tuple[str, str]] = field(default=())
    turns: tuple[Turn, ...] = ()
    """When delays rose, the largest rise first."""
    skews: tuple[Skew, ...] = ()
    """Of hosts' clocks, the reference first."""
    one_machine: bool = False
    """Whether the direct ways were probed, and all within one machine."""

    @property
    def unrecorded(self) -> Mapping[str, int]:
        """Rows, by table and reason, that recorders dropped and that the audit needs: it cannot judge those."""
        dropped = self.load.recorder_losses.items()
        return {what: rows for what, rows in dropped if rows and what.partition(":")[0] in NEEDED_FOR}

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        return {
            "subscribers": self.subscribers,
            "regions": self.regions,
            "deliveries": self.deliveries,
            "stretch": self.stretch(),
            "order": self.audit.as_dict(),
            "verdict": self.audit.verdict,
            "promises": [each.as_dict() for each in self.audit.promises],
            "unknown": [each.as_dict() for each in self.audit.unknown],
            "quarantined": self.quarantine.total,
            "quarantine": self.quarantine.as_dicts(),
            "load": asdict(self.load),
            "delay_ms": self.delay_ms(),
            "turns": [each.as_dict() for each in self.turns],
            "timeline": list(self.tables["timeline"]),
            "stages": list(self.tables["stages"]),
            "advice": [each.as_dict() for each in self.advice],
            "clocks": [each.as_dict() for each in self.skews],
            "sessions": list(self.sessions),
            "notes": list(self.notes),
            "unrecorded": dict(self.unrecorded),
        }

    def delay_ms(self) -> dict[str, float] | None:
        """Return p50, p95 and p99 of all delays of others' events, at most 4.4% above the exact ones; None without."""
        counts: dict[float, int] = {}
        for row in self.tables["delays"]:
            counts[row["up_to_ms"]] = counts.get(row["up_to_ms"], 0) + row["deliveries"]
        total = sum(counts.values())
        if not total:
            return None
        bounds = sorted(counts)
        below = list(accumulate(counts[bound] for bound in bounds))
        # Less a hair, because 0.95 × 100,000 is a hair above 95,000.
        return {
            name.removesuffix("_ms"): bounds[bisect_left(below, math.ceil(part * total - 1e-9))]
            for name, part in PARTS.items()
        }

    def stretch(self) -> dict[str, Any] | None:
        """Return the stretch of destinations, None if no direct way is known."""
        rows = self.tables["by_destination"]
        if not rows:
            return None
        ascending = sorted(row["stretch"] for row in rows)
        counted = sum(row["deliveries"] for row in rows)
        delay = sum(row["delay_ms"] * row["deliveries"] for row in rows)
        direct = sum(row["direct_ms"] * row["deliveries"] for row in rows)
        return {
            **{name: quantile(ascending, part) for name, part in (("p50", 0.5), ("p90", 0.9), ("max", 1.0))},
            "mean": sum(ascending) / len(ascending),
            "ratio_of_means": delay / direct if direct else None,
            "uncertainty_max": max(row["uncertainty"] or 0.0 for row in rows),
            "deliveries": counted,
            "delay_ms": delay / counted,
            "direct_ms": direct / counted,
            "by_destination": {row["subscriber"]: row["stretch"] for row in rows},
            "by_region": {row["region"]: row["stretch"] for row in self.tables["by_region"]},
            "left_out": dict(self.left_out),
            "note": self.nearness() or None,
        }

    def nearness(self) -> str:
        """Return why the stretch says nothing, as one sentence without a full stop: direct ways are too short to
        matter; empty if it says something, or is not known.
        """
        rows = self.tables["by_destination"]
        # Machines with one clock may share a host's name, too: then they are farther apart than processes of one.
        limit_ms = ONE_MACHINE_MS_MAX if self.one_machine else DIRECT_MS_MIN
        if not rows or not is_near((row["direct_ms"] for row in rows), limit_ms):
            return ""
        direct = sum(row["direct_ms"] * row["deliveries"] for row in rows) / sum(row["deliveries"] for row in rows)
        said = f"the direct ways of this session are {direct:.2g} ms{', on one machine' if self.one_machine else ''}"
        said += ": stretch says nothing here"
        if delays := self.delay_ms():
            said += (
                f"; delays are at most {delays['p50']:.3g} ms in the median, {delays['p99']:.3g} at the 99th percentile"
            )
        return said


def analyse(
    spark: SparkSession,
    sources: Sources,
    *,
    direct: MakeDirect | None = None,
    causal: bool | None = None,
    deliveries_per_slice: int = DELIVERIES_PER_SLICE,
    on_stage: OnStage = lambda _: None,
    cells: DataFrame | None = None,
) -> Analysis:
    """Analyse the result of `analytics.session.reading.read_sources`.

    ``direct`` makes the direct ways; without it they come from the sessions' probes. ``causal``: whether to check
    causal order; None: only if a session's ordering is causal. Raises `InvalidInput` if no delivery could be read.
    ``cells`` is the result of `add_up`, if the caller has it already.
    """
    quarantine = sources.quarantine
    set_for(spark, deliveries=sources.rows.get("deliveries", 0))
    on_stage("comparing clocks")
    stepped = find_clock_steps(sources["deliveries"]).collect()
    hosts = _hosts_of(sources["deliveries"], [row["subscriber"] for row in stepped])
    skews = find_skews(sources, hosts) if sources.rows.get("probes") else ()
    if any(skew.corrected for skew in skews):
        sources, cells = corrected(sources, skews), None
    on_stage("adding up deliveries")
    cells = kept(cells if cells is not None else add_up(sources["deliveries"]))
    totals = _totals(cells)
    if not sources.logs and totals["deliveries"] < sources.rows.get("deliveries", 0):
        on_stage("looking for damaged files")
        cells.unpersist()
        sources = without_damaged(spark, sources, ["deliveries"])
        cells = kept(add_up(sources["deliveries"]))
        totals = _totals(cells)
    sources, again = each_once(sources, cells)
    if again:
        cells.unpersist()
        cells = kept(add_up(sources["deliveries"]))
        totals = _totals(cells)
    if totals["untimely"]:
        sources.quarantine.add("row", "a time before 1970 or after 2100", count=totals["untimely"], lacks=True)
        sources = replace(sources, tables={**sources.tables, "deliveries": without_untimely(sources["deliveries"])})
        cells.unpersist()
        cells = kept(add_up(sources["deliveries"]))
    deliveries = totals["deliveries"]
    if not sources.logs:
        missing = sources.rows.get("deliveries", 0) - deliveries
        quarantine.add("row", "a delivery without an event: no sequence, and no id", count=missing, lacks=True)
    if not deliveries:
        raise InvalidInput("there are no deliveries to analyse: none could be read")
    set_for(spark, deliveries=deliveries)
    on_stage("numbering events")
    if causal is None:
        causal = any(session.get("ordering") == "causal" for session in sources.sessions.values())
    numbering = number_all(sources, cells, times=causal)
    on_stage("cutting the orders into slices")
    slices = cut(numbering, deliveries=deliveries, deliveries_per_slice=deliveries_per_slice)
    for row in stepped:
        example = f"{row['subscriber']}: by {row['worst_ms']:.0f} ms at most"
        quarantine.add("clock", "set back while it was recorded", count=row["steps"], examples=[example])
    names = [row["subscriber"] for row in stepped]
    plan = read_plan(sources["epochs"])
    with beside_each_other(deliveries) as aside:
        audited = aside(
            lambda: audit_all(sources, numbering, slices, cells, causal=causal, stepped=names, on_stage=on_stage)
        )
        timed = aside(lambda: _measure_times(sources, cells, direct, plan, stepped=names, on_stage=on_stage))
        staged = aside(lambda: measure_stages(sources.tables))
        loaded = aside(lambda: measure_load(sources.tables, sources.latest_stays, cells, plan))
    audit, times, load = audited(), timed(), loaded()
    for name in audit.losses.silent:
        quarantine.add("subscriber", "in a region, and without any delivery", examples=[name])
    tables = {**times.tables, "stages": staged(), "subscriber_delays": _subscriber_delays(cells)}
    membership = [
        (row["subscriber"], row["region"])
        for row in cells.select("subscriber", "region").distinct().orderBy("subscriber", "region").collect()
    ]
    analysis = Analysis(
        totals["subscribers"],
        totals["regions"],
        deliveries,
        sources.sessions,
        tables,
        times.left_out,
        audit,
        load,
        _advise(membership, load, times.moves, plan),
        quarantine,
        (*(str(skew) for skew in skews if skew.corrected), *_notes(sources, cells, audit)),
        membership,
        times.turns,
        skews,
        times.one_machine,
    )
    if dropped := ", ".join(f"{rows:,} of {what}" for what, rows in analysis.unrecorded.items()):
        lacking = f"recorders dropped rows ({dropped}): what they lack is not judged, or counts as lost"
        analysis = replace(analysis, notes=(lacking, *analysis.notes))
    slices.release()
    cells.unpersist()
    return analysis


def number_all(sources: Sources, cells: DataFrame, *, times: bool = False) -> Numbering:
    """Number the deliveries, and what was owed and not delivered. ``times``: see `number`."""
    owed = owed_of(sources.latest_stays, sources["publishes"], sources["frames"])
    return number(sources["deliveries"], cells, times=times, owed=owed)


def each_once(sources: Sources, cells: DataFrame) -> tuple[Sources, bool]:
    """Return the sources with each record once, and whether some stood there again, as in a file that was saved twice.

    A connection numbers its deliveries: the same event under the same number is the same record.
    """
    numbers = cells.groupBy("session", "subscriber", "incarnation").agg(
        fn.sum("deliveries").alias("rows"), (fn.max("last_index") - fn.min("first_index") + 1).alias("most")
    )
    if numbers.where("rows > most").isEmpty():
        return sources, False
    record = ("session", "subscriber", "incarnation", "index", "region", "epoch", "sequence", "event")
    deliveries = sources["deliveries"].dropDuplicates(list(record))
    again = sources["deliveries"].count() - deliveries.count()
    if not again:
        return sources, False
    rows = {**sources.rows, "deliveries": sources.rows.get("deliveries", 0) - again}
    sources.quarantine.add("row", "a delivery that another file has, too", count=again)
    return replace(sources, tables={**sources.tables, "deliveries": deliveries}, rows=rows), True


@dataclass(frozen=True, slots=True)
class _Times:
    """Tables of stretch, delays and minutes; deliveries without a direct way; turns; moves of regions that pay."""

    tables: dict[str, Sequence[Mapping[str, Any]]]
    left_out: Mapping[str, int]
    turns: tuple[Turn, ...]
    moves: Sequence[Move]
    one_machine: bool


def _measure_times(
    sources: Sources,
    cells: DataFrame,
    direct: MakeDirect | None,
    plan: Mapping[str, Sequence[str]],
    *,
    stepped: Sequence[str],
    on_stage: OnStage,
) -> _Times:
    on_stage("measuring stretch")
    ways = direct(cells) if direct is not None else direct_from_probes(sources["probes"], cells)
    stretch = measure_stretch(cells, ways, path_nodes=path_nodes_of(sources["epochs"]), stepped=stepped)
    tables = _tables(stretch)
    on_stage("measuring each minute")
    deliveries = sources["deliveries"]
    if stepped:
        told = fn.when(~is_of_any(stepped), fn.col("sent_at_ns"))
        deliveries = deliveries.withColumn("sent_at_ns", told)
    span_ns = span_of(cells)
    minutes = kept(count_minutes(deliveries, ways, span_ns=span_ns))
    tables["delays"] = _rows(histogram_of(minutes).orderBy("session", "bucket"))
    lines = measure_timeline(sources.tables, sources.latest_stays, minutes, plan, span_ns=span_ns)
    minutes.unpersist()
    turns = find_turns(lines, _epochs_by_minute(sources["epochs"], span_ns), span_s=span_ns / 1e9)
    tables["timeline"] = lines.pop("all", [])
    tables |= {f"timeline_by_{kind}": rows for kind, rows in sorted(lines.items())}
    worth_moving = moves(_trips(stretch.trips), plan) if plan else ()
    one_machine = direct is None and bool(tables["by_destination"]) and is_one_machine(sources["probes"])
    return _Times(tables, stretch.left_out, turns, worth_moving, one_machine)


def _trips(table: DataFrame) -> list[Trip]:
    """Return what publishers' events took to subscribers, by region; none of a world with very many."""
    mean = [(fn.sum(f"sum_{name}ms") / fn.sum("timed")).alias(name) for name in ("", "direct_")]
    rows = table.groupBy("region", "publisher", "subscriber").agg(fn.sum("timed"), *mean).limit(TRIPS_MAX + 1).collect()
    return [Trip(*row) for row in rows] if len(rows) <= TRIPS_MAX else []


def audit_all(
    sources: Sources,
    numbering: Numbering,
    slices: Slices,
    cells: DataFrame,
    *,
    causal: bool = False,
    stepped: Sequence[str] = (),
    on_stage: OnStage = lambda _: None,
) -> Audit:
    """Audit order, publishers' orders, repetitions and losses without stamps; then compare with the stamps.

    ``stepped``: whose clock was set back, see `analytics.jobs.clock_steps`.
    """
    doubtful = {*stepped, *_on_several_hosts(sources["connections"])}
    on_stage("weighing the evidence")
    dropped = recorder_losses(sources["losses"])
    evidence = weigh(sources, cells, sources.latest_stays, dropped)
    on_stage("auditing the order")
    order = audit_order(slices, numbering, cells)
    on_stage("auditing each publisher's order")
    published = audit_publishers(slices, numbering, cells, publishes=sources["publishes"], doubtful=doubtful)
    duplicated, repeated = audit_repetitions(slices, numbering)
    on_stage("looking for losses")
    losses = audit_losses(
        slices,
        numbering,
        publishes=sources["publishes"],
        frames=sources["frames"],
        latest=sources.latest_stays,
        gaps=sources["gaps"],
        cells=cells,
        receives=sources["receives"],
        evidence=evidence,
    )
    on_stage("comparing with the stamps")
    stamps = audit_stamps(slices, numbering, sources["frames"])
    causality = None
    if causal:
        on_stage("auditing causality")
        causality = audit_causality(slices, numbering)
    caused = causality.first if causality is not None else None
    duplicated, repeated = duplicated + losses.had_before, repeated or losses.first_had_before
    firsts = (order.first, order.cycle, published.first, repeated, losses.first, losses.first_unexpected, caused)
    examples = tuple(dict.fromkeys(each for each in firsts if each is not None))
    unknown = (
        *evidence.unknown,
        *(Unknown(("each publisher's order",), name, SET_BACK) for name in published.doubted),
        *(Unknown(("each publisher's order",), name, DAMAGED_TIMES) for name in published.damaged),
        *([Unknown(("nothing lost",), "", NOT_COMPARED)] if losses.lost is None else ()),
        *(Unknown(("nothing lost",), each.subscriber, str(each)) for each in losses.mute),
        *(Unknown(("nothing lost",), each.subscriber, str(each)) for each in losses.behind),
        *(Unknown(("nothing lost",), each.subscriber, str(each)) for each in losses.older),
    )
    return Audit(
        order, published.violations, published.unknown, duplicated, losses, stamps, causality, examples, unknown
    )


NOT_COMPARED = "what was published is not recorded, or not by the numbers of its events"
DAMAGED_TIMES = "times of sending are damaged: they are before 1970, or not those that it recorded itself"
SET_BACK = "the order in which it published is not known: its clock was set back, or it went on at another host"


def _hosts_of(deliveries: DataFrame, names: Sequence[str]) -> set[str]:
    if not names:
        return set()
    rows = deliveries.where(fn.col("subscriber").isin(*names)).select("host").distinct().collect()
    return {row["host"] for row in rows}


def _on_several_hosts(connections: DataFrame) -> set[str]:
    """Return the names whose connections were on several hosts, which have a clock each."""
    hosts = connections.groupBy("session", "name").agg(fn.countDistinct("host").alias("hosts"))
    return {row["name"] for row in hosts.where("hosts > 1").collect()}


def _totals(cells: DataFrame) -> dict[str, int]:
    row = cells.agg(
        fn.coalesce(fn.sum("deliveries"), fn.lit(0)).alias("deliveries"),
        fn.coalesce(fn.sum("untimely"), fn.lit(0)).alias("untimely"),
        fn.countDistinct("session", "subscriber").alias("subscribers"),
        fn.countDistinct("session", "region").alias("regions"),
    ).first()
    return {} if row is None else row.asDict()


def _tables(stretch: Stretch) -> dict[str, Sequence[Mapping[str, Any]]]:
    pairs = stretch.by_pair.orderBy(fn.desc("stretch"), "publisher", "subscriber").limit(PAIRS_WRITTEN_MAX)
    return {
        "by_destination": _rows(stretch.by_destination.orderBy("subscriber")),
        "by_region": _rows(stretch.by_region.orderBy("region")),
        "by_pair": _rows(pairs),
        "by_path_nodes": _rows(stretch.by_path_nodes.orderBy("nodes")) if stretch.by_path_nodes is not None else [],
    }


def _rows(table: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.collect()]


def _subscriber_delays(cells: DataFrame) -> list[dict[str, Any]]:
    others = cells.where("publisher <> subscriber AND timed > 0").groupBy("subscriber")
    mean = (fn.sum("delay_ns") / fn.sum("timed") / 1e6).alias("delay_ms")
    return _rows(others.agg(fn.sum("timed").alias("deliveries"), mean).orderBy("subscriber"))


def _advise(
    membership: Sequence[tuple[str, str]],
    load: Load,
    worth_moving: Sequence[Move],
    plan: Mapping[str, Sequence[str]],
) -> tuple[Advice, ...]:
    audience: dict[str, set[str]] = {}
    for subscriber, region in membership:
        audience.setdefault(region, set()).add(subscriber)
    return advise(
        {region: frozenset(names) for region, names in audience.items()},
        {row["region"]: row["events_per_s"] or 0.0 for row in load.regions},
        worth_moving,
        overloaded={row["node"]: row["ratio"] for row in load.nodes if row["ratio"] and row["ratio"] > OVERLOADED},
        plan=plan,
    )


def _epochs_by_minute(epochs: DataFrame, span_ns: int) -> dict[str, str]:
    """Return why a plan began in each minute in which one did, but for the plan that recorders found at the start."""
    rows = epochs.where("reason <> 'first'").groupBy("session", "epoch", "version", "reason")
    began = rows.agg(fn.min("began_at_ns").alias("at")).orderBy("at").collect()
    return {text_of(row["at"] // span_ns, span_ns): f"epoch {row['epoch']}, {row['reason']}" for row in began}


def _notes(sources: Sources, cells: DataFrame, audit: Audit) -> list[str]:
    notes = []
    if audit.publishers_unchecked:
        notes.append(
            f"the order of {audit.publishers_unchecked} publishers could not be checked, because sent_at_ns is missing"
        )
    negative = cells.where("publisher <> subscriber").agg(fn.sum("negative").alias("n")).first()
    if negative is not None and negative["n"]:
        notes.append(f"{negative['n']:,} deliveries are dated before their publishing: the hosts' clocks differ")
    if sources.unfinished:
        notes.append(f"{sources.unfinished} files were not finished: a recorder is still running, or was killed")
    return notes
