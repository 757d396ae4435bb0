"""Losses: which events each stay of a subscriber in a region should have delivered, and which of them it did not.

A stay should deliver all events behind the position at which it was told to begin, or which it gave as ``since``, and
nothing up to there. Where neither is recorded, those from its first delivery on, and those published after the
subscriber's join was confirmed: by clocks of one host, or some seconds after it. It ends with its last delivery if the
subscriber left, or if its end is not recorded, otherwise with the session. A subscriber without a recorded stay should
deliver all events of the regions from which it delivered any. Losses that a `Gap` announced are counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from analytics.jobs.evidence import WHOLE, Evidence, Who
from analytics.jobs.numbering import Numbering, Owed
from analytics.jobs.slices import Slices
from analytics.jobs.spark import kept
from sequencing.checkers import Offence

ALWAYS, NEVER = -(1 << 62), 1 << 62
IN_FLIGHT_NS = 250_000_000
"""What was published so shortly before a leave may not have come by then."""
CLOCKS_APART_NS = 5_000_000_000
"""Of two hosts, clocks are taken to be at most so far apart: what was published so much after a join was due.

Where a delivery is dated before its publishing, they are farther apart, and the difference is added.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """``lost`` is None if the published events were not recorded.

    Of events that have only a name, as in foreign logs, the losses of stays are not known: those have no places.
    """

    lost: int | None
    announced: int
    """Losses that the application got as a gap in their place."""
    first: Offence | None
    silent: tuple[str, ...]
    """Subscribers with a stay and without any delivery."""
    unexpected: int = 0
    """Events that were delivered, and that their publisher never published."""
    first_unexpected: Offence | None = None
    behind: tuple[Behind, ...] = ()
    """Stays that ended long before they had all that was published."""
    mute: tuple[Mute, ...] = ()
    """Stays that ended without any delivery of what was published, or received, in them."""
    had_before: int = 0
    """Deliveries of events up to the position that was given as ``since``: the application had these."""
    first_had_before: Offence | None = None
    older: tuple[Older, ...] = ()
    """Stays that asked for all history, and did not deliver the oldest events."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A stay that ended without ``events`` events that were published more than `CLOCKS_APART_NS` before its end.

    They may be lost, or the subscriber was that slow.
    """

    subscriber: str
    region: str
    events: int

    def __str__(self) -> str:
        return (
            f"it left {self.region} without the last {self.events:,} events, which were published more than "
            f"{CLOCKS_APART_NS // 10**9} s before: it was slow, or they were lost"
        )


@dataclass(frozen=True, slots=True)
class Mute:
    """A stay that ended, and in which none of ``events`` events was delivered: published after the join, or received.

    They may be lost, or the subscriber took none.
    """

    subscriber: str
    region: str
    events: int

    def __str__(self) -> str:
        return (
            f"it was in {self.region}, and delivered none of the {self.events:,} events that were published or received"
            " meanwhile: it took none, or they were lost"
        )


@dataclass(frozen=True, slots=True)
class Older:
    """A stay that asked for all that was kept of a region, and whose first delivery has ``events`` recorded ones before
    it.

    They had expired, or were lost.
    """

    subscriber: str
    region: str
    events: int

    def __str__(self) -> str:
        return (
            f"it asked for all of {self.region}, and {self.events:,} recorded events are older than the first that it "
            "delivered: nodes did not keep them so long, or they were lost"
        )


def owed_of(stays: DataFrame, publishes: DataFrame, frames: DataFrame) -> Owed:
    """Return what some recorded stays are owed. ``stays``: the latest revisions."""
    where = ("session", "subscriber", "incarnation", "region")
    wanted = frozenset(tuple(row) for row in stays.select(*where).distinct().collect())
    place = ("session", "region", "epoch", "sequence")
    published = publishes.where("outcome = 'acknowledged' AND sequence IS NOT NULL AND epoch IS NOT NULL")
    known = published.select(*place).unionByName(frames.where("events > 0").select(*place))
    spans = known.groupBy("session", "region").agg(fn.min("epoch"), fn.max("epoch"), fn.max("sequence"))
    return Owed(wanted, frozenset(tuple(row) for row in spans.collect()))


def audit_losses(
    slices: Slices,
    numbering: Numbering,
    *,
    publishes: DataFrame,
    frames: DataFrame,
    latest: DataFrame,
    gaps: DataFrame,
    cells: DataFrame,
    receives: DataFrame | None = None,
    evidence: Evidence = WHOLE,
) -> Losses:
    """Compare the published events, from publishers' rows and taps' frames, with the delivered events.

    ``latest``: the last revision of each stay; ``evidence``: of a connection with holes, nothing counts as lost; of one
    without an end, nothing after its last delivery.
    """
    delivered_by = cells.select("session", "subscriber").distinct()
    silent = latest.join(delivered_by, ["session", "subscriber"], "left_anti").select("subscriber").distinct()
    quiet = tuple(sorted(row["subscriber"] for row in silent.limit(1000).collect()))
    if numbering.names is not None:
        if not latest.isEmpty():
            return Losses(None, 0, None, quiet)
        return _of_names(slices, numbering, publishes, evidence)
    events = _published(numbering, publishes, frames)
    if events is None:
        return Losses(None, 0, None, quiet)
    firsts = slices.deliveries.where("nth = 1").select("viewer", "region", "event", "index")
    unexpected, first_unexpected = _unexpected(slices, numbering, events, evidence)
    owing = kept(_bounds(_stays(latest, numbering, cells, evidence), firsts))
    guessed = fn.col("whole") | (fn.col("event") >= fn.col("first")) | _is_published_after_the_join()
    is_due = fn.coalesce(fn.col("event") > fn.col("behind"), guessed)
    in_regions = events.join(fn.broadcast(owing), "region")
    expected = in_regions.where(is_due)
    owed = expected.where("event <= last")
    covers = _covers(numbering, gaps, firsts)
    untold = fn.lit(True) if covers is None else ~fn.col("told")
    within = (fn.col("left_at_ns") == ALWAYS) | (fn.col("known_by_ns") + IN_FLIGHT_NS < fn.col("left_at_ns"))
    in_time = fn.col("known_by_ns") + CLOCKS_APART_NS < fn.col("left_at_ns")
    counted = (
        (expected if covers is None else _told(expected, covers))
        .groupBy("stay_number")
        .agg(
            fn.count(fn.when(fn.col("event") <= fn.col("last"), True)).alias("owed"),
            fn.count(fn.when((fn.col("event") > fn.col("last")) & in_time & untold, True)).alias("late"),
            fn.count(fn.when(within & untold, True)).alias("due"),
        )
    )
    counted = kept(counted)
    mute = tuple(_mute(counted, owing, numbering, receives, frames))
    quiet_stays = {(each.subscriber, each.region) for each in mute}
    late = _behind(counted, owing, numbering)
    behind = tuple(each for each in late if (each.subscriber, each.region) not in quiet_stays)
    short = counted.where("owed > 0").select("stay_number", "owed")
    lacking = kept(owing.join(short, "stay_number").where("owed <> delivered").select("stay_number"))
    lacking_count = lacking.count()
    missed = in_regions.where("all AND event < first").where(within)
    older = tuple(_older(missed, covers, numbering)) if asked_for_all(latest) else ()
    had_before, first_had_before = _had_before(owing, firsts, numbering)
    if not had_before:
        had_before, first_had_before = _again_in_a_stay(owing, slices.deliveries, numbering)
    try:
        losses = Losses(0, 0, None, quiet)
        if lacking_count:
            losses = _missing(owed.join(fn.broadcast(lacking), "stay_number"), firsts, numbering, covers, quiet)
        return replace(
            losses,
            unexpected=unexpected,
            first_unexpected=first_unexpected,
            behind=behind,
            mute=mute,
            had_before=had_before,
            first_had_before=first_had_before,
            older=older,
        )
    finally:
        owing.unpersist()
        counted.unpersist()
        lacking.unpersist()


def _of_names(slices: Slices, numbering: Numbering, publishes: DataFrame, evidence: Evidence) -> Losses:
    """Compare events that have only a name: each subscriber owes all of the regions of which it delivered any."""
    assert numbering.names is not None
    known = publishes.where("outcome = 'acknowledged'").withColumn(
        "name", fn.coalesce(fn.col("event"), fn.concat_ws("-", "epoch", "sequence"))
    )
    published = known.where("name <> ''").select("session", "region", "name").distinct()
    if published.isEmpty():
        return Losses(None, 0, None, ())
    regions = numbering.region_table(publishes.sparkSession)
    placed = published.join(regions, ["session", "region"]).select(fn.col("number").alias("region"), "name")
    placed = kept(placed.join(numbering.names, ["region", "name"], "left"))
    firsts = slices.deliveries.where("nth = 1").select("viewer", "region", "event", "index")
    owing = firsts.select("viewer", "region").distinct()
    partial = _numbers_of(evidence.partial, numbering)
    if partial:
        owing = owing.where(~fn.col("viewer").isin(sorted(partial)))
    missing = placed.join(fn.broadcast(owing), "region").join(firsts, ["viewer", "region", "event"], "left_anti")
    strange = firsts.join(placed.where("event IS NOT NULL"), ["region", "event"], "left_anti")
    lost = missing.agg(fn.count("*").alias("n"), fn.min(fn.struct("name", "viewer", "region")).alias("one")).first()
    more = strange.agg(
        fn.countDistinct("event").alias("n"), fn.min(fn.struct("event", "viewer", "region")).alias("one")
    ).first()
    placed.unpersist()
    first = first_unexpected = None
    if lost is not None and lost["n"]:
        one = lost["one"]
        where, who = numbering.regions[one["region"]][1], numbering.viewers[one["viewer"]].name
        first = Offence("lost", (one["name"],), (where,), (who,))
    if more is not None and more["n"]:
        first_unexpected = numbering.offence("unexpected", more["one"])
    counts = [int(each["n"]) if each is not None else 0 for each in (lost, more)]
    return Losses(counts[0], 0, first, (), counts[1], first_unexpected)


def _again_in_a_stay(owing: DataFrame, deliveries: DataFrame, numbering: Numbering) -> tuple[int, Offence | None]:
    """Count what came from history, or live and from history, twice in one stay."""
    again = deliveries.where("nth > 1 AND replayed").select("viewer", "region", "event", "index")
    again = kept(again)
    if again.isEmpty():
        return 0, None
    stays = owing.select("stay_number", "viewer", "region", "from_index", "to_index")
    within = (fn.col("index") >= fn.col("from_index")) & (fn.col("index") < fn.col("to_index"))
    placed = again.join(fn.broadcast(stays), ["viewer", "region"]).where(within)
    others = deliveries.select("viewer", "event", fn.col("index").alias("other"))
    twice = placed.join(others, ["viewer", "event"]).where("other < index AND other >= from_index")
    one = fn.min(fn.struct("index", "viewer", "event", "region")).alias("one")
    totals = twice.agg(fn.countDistinct("viewer", "index").alias("n"), one).first()
    if totals is None or not totals["n"]:
        return 0, None
    return int(totals["n"]), numbering.offence("duplicate", totals["one"])


def _numbers_of(connections: Iterable[Who], numbering: Numbering) -> set[int | None]:
    number_of = numbering.viewer_numbers()
    return {number_of(*connection) for connection in connections}


def _is_published_after_the_join() -> Column:
    apart = fn.when(fn.col("published_host") == fn.col("host"), fn.lit(0)).otherwise(fn.lit(CLOCKS_APART_NS))
    return fn.col("published_at_ns") > fn.col("joined_at_ns") + apart


def _published(numbering: Numbering, publishes: DataFrame, frames: DataFrame) -> DataFrame | None:
    """Return region, event, published_at_ns and published_host of all events that are known to have been published."""
    regions = numbering.region_table(publishes.sparkSession)
    acknowledged = publishes.where("outcome = 'acknowledged' AND sequence IS NOT NULL")
    host = fn.col("host").alias("published_host")
    own = acknowledged.select("session", "region", "epoch", "sequence", "published_at_ns", host)
    own = own.withColumn("known_by_ns", fn.col("published_at_ns"))
    seen = fn.min(fn.coalesce("first_sent_at_ns", "noted_at_ns")).alias("known_by_ns")
    carried = frames.where("events > 0").groupBy("session", "region", "epoch", "sequence", "events").agg(seen)
    each = fn.explode(fn.sequence(fn.col("sequence") - fn.col("events") + 1, fn.col("sequence")))
    tapped = carried.withColumn("each", each).select(
        *("session", "region", "epoch", fn.col("each").alias("sequence"), fn.lit(ALWAYS).alias("published_at_ns")),
        fn.lit(None).cast("string").alias("published_host"),
        "known_by_ns",
    )
    known_here, known_tapped = not own.isEmpty(), not tapped.isEmpty()
    if not known_here and not known_tapped:
        return None
    both = own.unionByName(tapped) if known_here and known_tapped else own if known_here else tapped
    numbered = both.join(regions, ["session", "region"]).drop("region").withColumnRenamed("number", "region")
    # Sequences beyond all known ones would be numbered as another epoch's.
    kept = numbered.where(numbering.has_place()).select(
        "region", numbering.event_number().alias("event"), "published_at_ns", "published_host", "known_by_ns"
    )
    if known_here and known_tapped:
        last = fn.max(fn.struct("published_at_ns", "published_host", "known_by_ns")).alias("last")
        kept = kept.groupBy("region", "event").agg(last).select("region", "event", "last.*")
    return kept


def _unexpected(
    slices: Slices, numbering: Numbering, events: DataFrame, evidence: Evidence
) -> tuple[int, Offence | None]:
    """Count the delivered events that their publisher did not publish, of publishers all of whose events are known."""
    is_known = fn.lit(False)
    for session in {session for session, _ in numbering.regions}:
        known = [n for n, name in enumerate(numbering.publishers) if (session, name) in evidence.publishers]
        regions = [n for n, (of, _) in enumerate(numbering.regions) if of == session]
        is_known |= fn.col("publisher").isin(known) & fn.col("region").isin(regions)
    theirs = slices.deliveries.where((fn.col("nth") == 1) & is_known)
    strange = theirs.join(events.select("region", "event"), ["region", "event"], "left_anti")
    one = fn.min(fn.struct("event", "viewer", "region")).alias("one")
    totals = strange.agg(fn.countDistinct("event").alias("n"), one).first()
    if totals is None or not totals["n"]:
        return 0, None
    return int(totals["n"]), numbering.offence("unexpected", totals["one"])


def _stays(latest: DataFrame, numbering: Numbering, cells: DataFrame, evidence: Evidence) -> DataFrame:
    """Return stay_number, viewer, region, from_index, to_index, joined_at_ns, whole (the whole region is due), ends
    (nothing is due after the last delivery), left_at_ns, by a publisher's clock at the latest, behind (the event behind
    which all is due, null if unknown), resumes (that was given as ``since``) and all (history was, as far as kept).

    Without those of connections with holes.
    """
    spark = cells.sparkSession
    number_of = numbering.viewer_numbers()
    regions = {region: n for n, region in enumerate(numbering.regions)}

    partial, unended = _numbers_of(evidence.partial, numbering), _numbers_of(evidence.open, numbering)
    behind, ahead = _behind_ns(cells), _ahead_ns(cells)
    rows: list[tuple[int, int, int, int, int, int, bool, bool, str | None, int, int | None, bool, bool]] = []
    stayed: set[tuple[int, int]] = set()
    columns = (
        "session",
        "subscriber",
        "incarnation",
        "region",
        "from_index",
        "to_index",
        "joined_at_ns",
        "host",
        "left_at_ns",
        "since_epoch",
        "since_sequence",
        "begin_epoch",
        "begin_sequence",
    )
    for row in latest.select(*columns).collect():
        who = (row["session"], row["subscriber"])
        viewer = number_of(*who, row["incarnation"])
        region = regions.get((row["session"], row["region"]))
        if viewer is None or region is None:
            continue
        stayed.add((viewer, region))
        if viewer in partial:
            continue
        to = NEVER if row["to_index"] is None else row["to_index"]
        joined = NEVER if row["joined_at_ns"] is None else row["joined_at_ns"] + behind.get(who, 0)
        ends = row["to_index"] is not None or viewer in unended
        left = ALWAYS if row["to_index"] is None or row["left_at_ns"] is None else row["left_at_ns"] - ahead.get(who, 0)
        since, begin = (row["since_epoch"], row["since_sequence"]), (row["begin_epoch"], row["begin_sequence"])
        told = begin if since[0] is None else since
        is_known = row["joined_at_ns"] is not None and None not in told and told != (0, 0)
        behind_event = _event_at(numbering, region, *told) if is_known else None
        resumes = is_known and since[0] is not None
        asks_all = row["joined_at_ns"] is not None and since == (0, 0)
        rest = (row["host"], left, behind_event, resumes, asks_all)
        rows.append((len(rows), viewer, region, row["from_index"], to, joined, False, ends, *rest))
    for row in cells.select("session", "subscriber", "incarnation", "region").distinct().collect():
        who = (row["session"], row["subscriber"])
        viewer = number_of(*who, row["incarnation"])
        assert viewer is not None  # it delivered
        region = regions[row["session"], row["region"]]
        if (viewer, region) not in stayed and viewer not in partial:
            rest = (None, ALWAYS, None, False, False)
            rows.append((len(rows), viewer, region, ALWAYS, NEVER, NEVER, True, viewer in unended, *rest))
    schema = (
        "stay_number long, viewer int, region int, from_index long, to_index long, joined_at_ns long, whole boolean, "
        "ends boolean, host string, left_at_ns long, behind long, resumes boolean, all boolean"
    )
    return spark.createDataFrame(rows, schema)


def _event_at(numbering: Numbering, region: int, epoch: int, sequence: int) -> int:
    """Return the number of the event at a position, or of one that is neither before it nor behind the next one."""
    first, last = numbering.epochs_between
    if epoch < first:
        return numbering.number(region, first, 0)
    if epoch > last:
        return numbering.number(region, last, numbering.sequences - 1)
    return numbering.number(region, epoch, min(sequence, numbering.sequences - 1))


def asked_for_all(latest: DataFrame) -> bool:
    """Return whether any stay asked for all that was kept of its region."""
    return not latest.where("since_epoch = 0 AND since_sequence = 0").isEmpty()


def _older(missed: DataFrame, covers: DataFrame | None, numbering: Numbering) -> Iterator[Older]:
    untold = missed if covers is None else _told(missed, covers).where("NOT told")
    for row in untold.groupBy("viewer", "region").count().orderBy("viewer", "region").collect():
        yield Older(numbering.viewers[row["viewer"]].name, numbering.regions[row["region"]][1], int(row["count"]))


def _had_before(owing: DataFrame, firsts: DataFrame, numbering: Numbering) -> tuple[int, Offence | None]:
    """Count the deliveries of events that are not behind the position that was given as ``since``."""
    resumed = owing.where("resumes").select("viewer", "region", "from_index", "to_index", "behind")
    if resumed.isEmpty():
        return 0, None
    within = (fn.col("index") >= fn.col("from_index")) & (fn.col("index") < fn.col("to_index"))
    again = firsts.join(fn.broadcast(resumed), ["viewer", "region"]).where(within).where("event <= behind")
    one = fn.min(fn.struct("index", "viewer", "event", "region")).alias("one")
    totals = again.agg(fn.count("*").alias("n"), one).first()
    if totals is None or not totals["n"]:
        return 0, None
    return int(totals["n"]), numbering.offence("duplicate", totals["one"])


def _mute(
    counted: DataFrame,
    owing: DataFrame,
    numbering: Numbering,
    receives: DataFrame | None,
    frames: DataFrame,
) -> Iterator[Mute]:
    ended = owing.where("ends AND delivered = 0").select("stay_number", "viewer", "region")
    rows = ended.join(counted.select("stay_number", "due"), "stay_number", "left").collect()
    if not rows:
        return
    number_of, regions = numbering.viewer_numbers(), {region: n for n, region in enumerate(numbering.regions)}
    arrived: dict[tuple[int | None, int | None], int] = {}
    if receives is not None:
        place = ["session", "region", "epoch", "sequence"]
        carried = frames.where("events > 0").select(*place).distinct()  # not all frames carry events
        with_events = receives.join(carried, place, "left_semi")
        for row in with_events.groupBy("session", "subscriber", "incarnation", "region").count().collect():
            viewer = number_of(row["session"], row["subscriber"], row["incarnation"])
            arrived[viewer, regions.get((row["session"], row["region"]))] = row["count"]
    # A later stay of the connection in the region may have had what was received.
    had = {(row["viewer"], row["region"]) for row in owing.where("delivered > 0").select("viewer", "region").collect()}
    counts: dict[tuple[int, int], int] = {}
    for row in rows:
        where = row["viewer"], row["region"]
        received = 0 if where in had else arrived.get(where, 0)
        if due := max(row["due"] or 0, received):
            counts[where] = max(counts.get(where, 0), due)
    for (viewer_number, region_number), due in sorted(counts.items()):
        yield Mute(numbering.viewers[viewer_number].name, numbering.regions[region_number][1], due)


def _behind(counted: DataFrame, owing: DataFrame, numbering: Numbering) -> Iterator[Behind]:
    late = counted.where("late > 0").select("stay_number", "late")
    for row in late.join(owing, "stay_number").select("viewer", "region", "late").orderBy("viewer", "region").collect():
        viewer, region = numbering.viewers[row["viewer"]], numbering.regions[row["region"]][1]
        yield Behind(viewer.name, region, int(row["late"]))


def _behind_ns(cells: DataFrame) -> dict[tuple[str, str], int]:
    """Return by how much clocks of subscribers are behind those of publishers, at least: no delay is negative."""
    least = cells.groupBy("session", "subscriber").agg(fn.min("least_delay_ns").alias("least"))
    return {(row["session"], row["subscriber"]): -row["least"] for row in least.where("least < 0").collect()}


def _ahead_ns(cells: DataFrame) -> dict[tuple[str, str], int]:
    """Return by how much subscribers' clocks may be ahead of publishers': no more than the least delay."""
    least = cells.groupBy("session", "subscriber").agg(fn.max("least_delay_ns").alias("least"))
    return {(row["session"], row["subscriber"]): row["least"] for row in least.where("least > 0").collect()}


def _bounds(stays: DataFrame, firsts: DataFrame) -> DataFrame:
    """Add first, last and delivered: of the deliveries in the stay; last is NEVER if it did not end."""
    within = (fn.col("index") >= fn.col("from_index")) & (fn.col("index") < fn.col("to_index"))
    during = firsts.join(fn.broadcast(stays), ["viewer", "region"]).where(within)
    in_stay = during.groupBy("stay_number").agg(
        fn.min("event").alias("first"), fn.max("event").alias("last_delivered"), fn.count("*").alias("delivered")
    )
    last = fn.when(~fn.col("ends"), fn.lit(NEVER)).otherwise(fn.coalesce("last_delivered", fn.lit(ALWAYS)))
    bounded = stays.join(in_stay, "stay_number", "left").withColumn("last", last).drop("last_delivered")
    return bounded.fillna({"first": NEVER, "delivered": 0})


def _missing(
    owed: DataFrame, firsts: DataFrame, numbering: Numbering, covers: DataFrame | None, silent: tuple[str, ...]
) -> Losses:
    seen = firsts.select("viewer", "event", fn.col("index").alias("at"))
    matched = (fn.col("o.viewer") == fn.col("s.viewer")) & (fn.col("o.event") == fn.col("s.event"))
    matched &= (fn.col("s.at") >= fn.col("o.from_index")) & (fn.col("s.at") < fn.col("o.to_index"))
    missing = kept(owed.alias("o").join(seen.alias("s"), matched, "left_anti"))
    told = missing.withColumn("told", fn.lit(False)) if covers is None else _told(missing, covers)
    one = fn.min(fn.struct("told", "published_at_ns", "event", "viewer", "region")).alias("one")
    totals = told.agg(fn.count("*").alias("n"), fn.sum(fn.col("told").cast("int")).alias("told"), one).first()
    missing.unpersist()
    if totals is None or not totals["n"]:
        return Losses(0, 0, None, silent)
    lost, row = int(totals["n"] - totals["told"]), totals["one"]
    first = None
    if lost:
        first = numbering.offence("lost", row)
    return Losses(lost, int(totals["told"]), first, silent)


def _resumed(gaps: DataFrame, numbering: Numbering, firsts: DataFrame) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return the deliveries (index and event) of the viewers and regions that have gaps of an unknown length."""
    endless = gaps.where("coalesce(last_sequence, 0) = 0").select("subscriber", "region").distinct().collect()
    if not endless:
        return {}
    names = {(row["subscriber"], row["region"]) for row in endless}
    pairs = [
        (n, m)
        for n, viewer in enumerate(numbering.viewers)
        for m, region in enumerate(numbering.regions)
        if region[0] == viewer.session and (viewer.subscriber, region[1]) in names
    ]
    table = firsts.sparkSession.createDataFrame(pairs, "viewer int, region int")
    resumed: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in firsts.join(fn.broadcast(table), ["viewer", "region"]).select(*firsts.columns).toLocalIterator():
        resumed.setdefault((row["viewer"], row["region"]), []).append((row["index"], row["event"]))
    return resumed


def _covers(numbering: Numbering, gaps: DataFrame, firsts: DataFrame) -> DataFrame | None:
    """Return viewer, region, gap_from and gap_to: the events that gaps announced; None without any."""
    number_of = numbering.viewer_numbers()
    regions = {region: n for n, region in enumerate(numbering.regions)}
    rows = []
    resumed = _resumed(gaps, numbering, firsts)
    for gap in gaps.where(fn.col("epoch").between(*numbering.epochs_between)).collect():
        viewer = number_of(gap["session"], gap["subscriber"], gap["incarnation"])
        region = regions.get((gap["session"], gap["region"]))
        if viewer is not None and region is not None:
            last = min(gap["last_sequence"] or numbering.sequences, numbering.sequences - 1)
            begin, end = (numbering.number(region, gap["epoch"], each) for each in (gap["first_sequence"], last))
            if not gap["last_sequence"]:
                # Of an unknown length: it ends where the region goes on.
                end = min([end, *(event - 1 for at, event in resumed.get((viewer, region), ()) if at >= gap["index"])])
            rows.append((viewer, region, begin, end))
    if not rows:
        return None
    return firsts.sparkSession.createDataFrame(rows, "viewer int, region int, gap_from long, gap_to long")


def _told(events: DataFrame, covers: DataFrame) -> DataFrame:
    """Add told: whether a gap of the same viewer and region covers the event."""
    within = fn.struct("gap_from", "gap_to").alias("gap")
    gaps = covers.groupBy("viewer", "region").agg(fn.collect_list(within).alias("gaps"))
    joined = events.join(fn.broadcast(gaps), ["viewer", "region"], "left")
    covered = fn.exists("gaps", lambda gap: fn.col("event").between(gap["gap_from"], gap["gap_to"]))
    return joined.withColumn("told", fn.coalesce(covered, fn.lit(False))).drop("gaps")
