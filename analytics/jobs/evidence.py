"""What the records of a session show, and what they cannot: by the numbers of deliveries, and by who closed.

A connection counts its deliveries from 0. So its records show a hole: a number that is missing before the last
delivery, before a gap, or before the place where it left a region. What is in a hole may have been delivered, and not
recorded.
Without its closing, a connection may have gone on after its last record: its process was killed, or still runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as fn

from analytics.jobs.numbering import CELL
from analytics.session.quarantine import Quarantine
from analytics.session.reading import LOGS_SESSION, Sources

ORDER = ("one order", "no cycles", "each publisher's order", "nothing twice")
COMPLETENESS = ("nothing lost", "nothing else")
CAUSAL = "causal order"
ALL = (*ORDER, *COMPLETENESS, CAUSAL)
UNKNOWN_MAX = 1000
"""So many reasons are listed."""

Who = tuple[str, str, int | None]
"""Session, name and incarnation of a connection."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Promises that cannot be judged, of a connection or, without a name, of the session; and why."""

    promises: tuple[str, ...]
    subscriber: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Return the value for ``--json``."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.subscriber}: {self.reason}" if self.subscriber else self.reason


@dataclass(frozen=True, slots=True)
class Evidence:
    """``partial``: connections some of whose deliveries are not recorded; ``open``: those whose end is not;
    ``publishers``: (session, name) of those all of whose events are recorded."""

    unknown: tuple[Unknown, ...]
    partial: frozenset[Who]
    open: frozenset[Who]
    publishers: frozenset[tuple[str, str]]


WHOLE = Evidence((), frozenset(), frozenset(), frozenset())
"""That of records that lack nothing."""


def weigh(sources: Sources, cells: DataFrame, latest_stays: DataFrame, recorder_losses: Mapping[str, int]) -> Evidence:
    """Return what the records of some sources can show. ``cells``: see `analytics.jobs.cells`; ``latest_stays``: the
    last revision of each; ``recorder_losses``: rows that recorders dropped, by table and reason."""
    closed = _closed(sources["connections"])
    sent = ("first_sent_ns", "last_sent_ns")
    cell_rows = cells.select(*CELL, "deliveries", "first_index", "last_index", *sent).collect()
    partial = dict(_partial(cell_rows, latest_stays, sources["gaps"]))
    unclosed = frozenset(who for who, is_closed in closed.items() if not is_closed)
    lacking = _lacking(sources.quarantine, sources.unfinished, recorder_losses)
    recorded = {(session, name) for session, name, _ in closed}
    publishers = {(row["session"], row["publisher"]) for row in cell_rows}
    known = {session for session, _ in recorded}
    strange = sorted(each for each in publishers - recorded if each[0] in known)
    unmet = dict(_unmet(cell_rows, latest_stays, closed, known))
    answers = _answers(sources["publishes"])
    unseen = sorted(_unseen(sources["stays"], closed, cell_rows))
    elsewhere = sorted(_sent_elsewhere(cell_rows, sources["connections"]))
    history = sorted(_history_from_nowhere(sources["deliveries"], latest_stays), key=str)
    mute = {each for each in publishers & recorded if each not in answers}
    unknown = [
        *lacking,
        *(Unknown(("nothing lost",), name, reason) for (_, name, _), reason in sorted(unmet.items(), key=str)),
        *(Unknown(ALL, name, "a tap saw it in regions, and its recorder's files are not here") for _, name in unseen),
        *(
            Unknown(
                COMPLETENESS, name, "it published while none of its recorded connections was open: others are missing"
            )
            for _, name in elsewhere
        ),
        *(
            Unknown(("nothing lost",), name, "it delivered history, and from where it asked for it is not recorded")
            for _, name, _ in history
        ),
        *(Unknown(COMPLETENESS, name, "it published, and that is not recorded") for _, name in sorted(mute)),
        *(Unknown(ALL, name, _holes(*numbers)) for (_, name, _), numbers in sorted(partial.items(), key=str)),
        *(
            Unknown(ALL, name, "its end is not recorded: it was killed, or still runs")
            for _, name, _ in sorted(unclosed, key=str)
        ),
        *(
            Unknown(("nothing lost",), name, "it published, and its recorder's files are not here")
            for _, name in strange
        ),
    ]
    doubtful = {(session, name) for session, name, _ in unclosed} | mute | set(elsewhere)
    doubtful |= {publisher for publisher, all_known in answers.items() if not all_known}
    whole = frozenset[tuple[str, str]]() if lacking else frozenset(recorded - doubtful)
    return Evidence(tuple(unknown[:UNKNOWN_MAX]), frozenset({*partial, *unmet}), unclosed, whole)


def _holes(missing: int, of: int) -> str:
    return f"{missing:,} of its {of:,} deliveries are not recorded"


def _lacking(quarantine: Quarantine, unfinished: int, recorder_losses: Mapping[str, int]) -> list[Unknown]:
    unknown = [
        Unknown(
            ALL, "", f"{_PUT_ASIDE.get(entry.what, '')}{entry.count:,} × {entry.reason} ({', '.join(entry.examples)})"
        )
        for entry in quarantine.entries
        if entry.lacks
    ]
    if unfinished:
        unknown.append(Unknown(ALL, "", f"{unfinished:,} files are unfinished: a recorder still runs, or was killed"))
    for what, rows in recorder_losses.items():
        table = what.partition(":")[0]
        if rows and table in NEEDED_FOR:
            unknown.append(Unknown(NEEDED_FOR[table], "", f"recorders dropped {rows:,} rows of {what}"))
    return unknown


_PUT_ASIDE = {"file": "files are put aside: "}
NEEDED_FOR = {"deliveries": ALL, "publishes": COMPLETENESS, "stays": COMPLETENESS, "gaps": ("nothing lost",)}
"""Table → the promises that cannot be judged without its rows."""


def _closed(connections: DataFrame) -> dict[Who, bool]:
    """Return each recorded connection, and whether it was closed."""
    closed = fn.max("closed_at_ns").isNotNull().alias("closed")
    rows = connections.groupBy("session", "name", "incarnation").agg(closed).collect()
    return {(row["session"], row["name"], row["incarnation"]): row["closed"] for row in rows}


def _partial(cells: Sequence[Row], stays: DataFrame, gaps: DataFrame) -> Iterator[tuple[Who, tuple[int, int]]]:
    """Yield the connections with holes, how many deliveries are missing, and of how many."""
    who = ("session", "subscriber", "incarnation")
    reached = stays.select(*who, fn.greatest("from_index", "to_index").alias("upto"))
    reached = reached.unionByName(gaps.select(*who, fn.col("index").alias("upto")))
    needed: dict[Who, int] = {}
    for row in reached.groupBy(*who).agg(fn.max("upto").alias("upto")).collect():
        needed[row["session"], row["subscriber"], row["incarnation"]] = row["upto"] or 0
    there: dict[Who, int] = {}
    first: dict[Who, int] = {}
    for row in cells:
        key = row["session"], row["subscriber"], row["incarnation"]
        there[key] = there.get(key, 0) + row["deliveries"]
        first[key] = min(first.get(key, row["first_index"]), row["first_index"])
        needed[key] = max(needed.get(key, 0), row["last_index"] + 1)
    for key, upto in needed.items():
        # Foreign logs may begin with any number.
        of = upto - (first.get(key, 0) if key[0] == LOGS_SESSION else 0)
        missing = of - there.get(key, 0)
        if missing > 0:
            yield key, (missing, of)


def _unmet(
    cells: Sequence[Row], stays: DataFrame, closed: Mapping[Who, bool], known: AbstractSet[str]
) -> Iterator[tuple[Who, str]]:
    """Yield the connections that delivered, and whose rows of another table are missing; why they cannot be judged."""
    stayed = {
        (row["session"], row["subscriber"], row["incarnation"], row["region"])
        for row in stays.select("session", "subscriber", "incarnation", "region").distinct().collect()
    }
    for row in cells:
        who = row["session"], row["subscriber"], row["incarnation"]
        if row["session"] not in known:
            continue
        if who not in closed:
            yield who, "it delivered, and its connection is not recorded"
        elif (*who, row["region"]) not in stayed:
            yield who, "it delivered, and its stays in regions are not recorded"


def _unseen(stays: DataFrame, recorded: Mapping[Who, bool], cells: Sequence[Row]) -> set[tuple[str, str]]:
    """Return (session, name) of connections that a tap saw in regions, and of which nothing else is recorded."""
    known = {*recorded, *((row["session"], row["subscriber"], row["incarnation"]) for row in cells)}
    known |= {(session, name, None) for session, name, _ in known}
    seen = stays.where("from_index IS NULL").select("session", "subscriber", "incarnation").distinct().collect()
    return {who[:2] for who in map(tuple, seen) if who not in known}


OPENING_NS = 1_000_000_000
"""Nothing is published so long before a connection is open, or after it is closed."""


def _sent_elsewhere(cells: Sequence[Row], connections: DataFrame) -> set[tuple[str, str]]:
    """Return the (session, name) of recorded publishers with events from before or after all of their connections."""
    whole = connections.groupBy("session", "name", "incarnation").agg(
        fn.min("opened_at_ns").alias("opened"), fn.max("closed_at_ns").alias("closed")
    )
    open_to_the_end = fn.count(fn.when(fn.col("closed").isNull(), True)).alias("open")
    spans = whole.groupBy("session", "name").agg(
        fn.min("opened").alias("a"), fn.max("closed").alias("b"), open_to_the_end
    )
    found = set()
    of = {(row["session"], row["name"]): row for row in spans.collect()}
    for cell in cells:
        who = cell["session"], cell["publisher"]
        span, first, last = of.get(who), cell["first_sent_ns"], cell["last_sent_ns"]
        if span is None or first is None or span["a"] is None:
            continue
        is_late = not span["open"] and span["b"] is not None and last > span["b"] + OPENING_NS
        if first < span["a"] - OPENING_NS or is_late:
            found.add(who)
    return found


def _history_from_nowhere(deliveries: DataFrame, latest_stays: DataFrame) -> Iterator[Who]:
    """Yield the connections that delivered history in no stay that says where it was to begin."""
    where = ("session", "subscriber", "incarnation", "region")
    recorded = deliveries.where(fn.col("session") != LOGS_SESSION)
    replayed = recorded.where("replayed = 1").select(*where).distinct().collect()
    if not replayed:
        return
    known = {tuple(row) for row in latest_stays.where("since_epoch IS NOT NULL").select(*where).distinct().collect()}
    yield from {tuple(row)[:3] for row in replayed if tuple(row) not in known}


def _answers(publishes: DataFrame) -> dict[tuple[str, str], bool]:
    """Return the publishers with recorded events, and whether each knows of all whether they were published."""
    open_ones = fn.count(fn.when(fn.col("outcome") == "unknown", True)).alias("open")
    rows = publishes.groupBy("session", "publisher").agg(open_ones).collect()
    return {(row["session"], row["publisher"]): not row["open"] for row in rows}


@dataclass(frozen=True, slots=True)
class Promise:
    """What became of one promise. ``broken``: how often it was seen broken, None if that is not known; ``missing``: why
    it cannot be told whether it was kept."""

    name: str
    broken: int | None
    missing: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``kept``, ``broken`` or ``unknown``."""
        return "broken" if self.broken else "unknown" if self.missing or self.broken is None else "kept"

    def as_dict(self) -> dict[str, Any]:
        """Return the value for ``--json``."""
        return {"promise": self.name, "verdict": self.verdict, "broken": self.broken, "missing": list(self.missing)}


def verdict_of(broken: bool, unknown: Sequence[Unknown]) -> str:
    """Return ``broken``, ``unknown`` (it cannot be told) or ``kept``."""
    if broken:
        return "broken"
    return "unknown" if unknown else "kept"
