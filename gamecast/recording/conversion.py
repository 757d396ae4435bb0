"""Sessions to delivery logs and back, as streams: memory does not grow with the deliveries.

*To logs.* A log for each subscriber, as `gamecast audit` reads them, and a file of published events beside them. An
event is called ``REGION EPOCH-SEQUENCE`` unless the session knows its id. Columns that a log has no field for become
further fields, which readers of logs ignore, and which become columns again on the way back: ``epoch``, ``sequence``,
``received_at_ns``, ``host``, ``incarnation``. A subscriber that connected several times has one order in its log, one
connection after the other; ``connection_index`` is then the index within the connection.

*To a session.* `deliveries`, `stays` and, from a file of published events, `publishes`. Frames, stamps, receives and
probes are in no log, and are not invented.
"""

from __future__ import annotations

import secrets
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import orjson

from analytics.session.allowance import LOG_TIMES, Allowance
from analytics.session.manifest import begin_session
from analytics.session.schema import CONNECTIONS, DELIVERIES, FRAMES, LOSSES, PUBLISHES, STAYS, Table
from analytics.session.storage import stored
from gamecast.recording.columns import rows_of
from gamecast.recording.deliverylog import (
    check_delivery,
    log_file_name,
    parse_placed,
    parse_stay,
    published_within,
    read_records,
)
from gamecast.recording.files import SessionFiles
from gamecast.recording.foreign import Fields
from gamecast.recording.reading import SessionReader
from sequencing.errors import UsageError, unwritable

OPEN_LOGS_MAX = 64
ROWS_AT_ONCE = 16_384
EXTRAS = ("epoch", "sequence", "received_at_ns", "host", "incarnation", "replayed")
BEGINS = ("since_epoch", "since_sequence", "begin_epoch", "begin_sequence")
STAY_EXTRAS = ("left_at_ns", "epoch", "host", "incarnation", "stay_number", *BEGINS)


@dataclass(slots=True)
class Converted:
    """The result of a conversion.

    ``left_out``: kind of row that the other form cannot express → number of rows; ``dropped``: the same of rows that
    the recorders could not keep.
    """

    deliveries: int = 0
    stays: int = 0
    published: int = 0
    files: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)

    def leave_out(self, what: str, rows: int = 1) -> None:
        """Count rows that are not converted."""
        self.left_out[what] = self.left_out.get(what, 0) + rows


def session_to_logs(source: Path, target: Path) -> Converted:
    """Write a session's deliveries as logs into a directory that is new or empty, and the published events beside it.

    Only regular files below the source are read. Raises `InvalidInput` if the source is not a session, or if the logs
    would take far more room than its files, `UsageError` if the directory cannot be used; nothing is left in it then.
    """
    reader = SessionReader.open(source)
    done = Converted()
    _require_new(target)
    try:
        _write_logs(reader, target, done)
    except BaseException:
        shutil.rmtree(target)
        raise
    done.dropped = _dropped(reader)
    done.quarantined = dict(reader.quarantined)
    return done


def _write_logs(reader: SessionReader, target: Path, done: Converted) -> None:
    allowance = Allowance(reader.directory, reader.files, times=LOG_TIMES)
    offsets, unclosed = _offsets(reader), _unclosed(reader)
    with _Logs(target, allowance) as logs:
        for batch in reader.rows(DELIVERIES):
            lines: dict[str, list[bytes]] = {}
            for row in batch.to_pylist():
                lines.setdefault(row["subscriber"], []).append(_delivery_line(row, offsets))
            done.deliveries += batch.num_rows
            logs.write(lines)
        for row in _last_revisions(reader):
            if row["from_index"] is None:
                done.leave_out("stays that were seen from outside")
                continue
            is_open = (row["subscriber"], row["incarnation"]) in unclosed
            logs.write({row["subscriber"]: [_stay_line(row, offsets, is_open=is_open)]})
            done.stays += 1
        done.files = len(logs.names)
    done.published = _write_published(reader, published_within(target), done, allowance)


def foreign_to_logs(sources: Sequence[Path], target: Path, *, published: Path | None, fields: Fields) -> Converted:
    """Write other programs' logs as delivery logs, and what was published among them.

    Raises as `logs_to_session`.
    """
    _require_new(target)
    done = Converted()
    allowance = Allowance("the logs", map(stored, sources), times=LOG_TIMES)
    beside = published_within(target)
    try:
        with _Logs(target, allowance) as logs:
            counted: dict[str, int] = {}
            for source in sources:
                for line, record in fields.deliveries(source, counted):
                    check_delivery(record, source, line)
                    logs.write({str(record["subscriber"]): [orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)]})
                    done.deliveries += 1
            done.files = len(logs.names)
        if published is not None:
            with beside.open("wb") as stream:
                for _, record in fields.published(published):
                    stream.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
                    done.published += 1
    except BaseException:
        shutil.rmtree(target)
        beside.unlink(missing_ok=True)
        raise
    return done


def logs_to_session(
    sources: Sequence[Path], target: Path, *, published: Path | None, version: str, fields: Fields | None = None
) -> Converted:
    """Write logs into a new session; ``published``: the file of published events, if there is one; ``fields``: where
    the fields of other programs' logs are.

    Raises `InvalidInput`, naming file and line, for an invalid log, and `UsageError` if the directory cannot be used;
    nothing is left in it then.
    """
    _require_new(target)
    done = Converted()
    try:
        _write_session(sources, target, published, version, done, fields)
    except BaseException:
        shutil.rmtree(target)  # it was new, and must not be taken for a whole session
        raise
    return done


def _write_session(
    sources: Sequence[Path],
    target: Path,
    published: Path | None,
    version: str,
    done: Converted,
    fields: Fields | None,
) -> None:
    session = begin_session(target, version=version, ordering="unknown", url="")
    files = SessionFiles(target, session=session.session, recorder=f"converted-{secrets.token_hex(6)}")
    rows: dict[str, list[Mapping[str, Any]]] = {}

    def add(table: Table, row: Mapping[str, Any]) -> None:
        waiting = rows.setdefault(table.name, [])
        waiting.append(row)
        if len(waiting) >= ROWS_AT_ONCE:
            files.add(table, rows_of(table, waiting))
            waiting.clear()

    stays: dict[str, int] = {}
    counted: dict[str, int] = {}
    for source in sources:
        for line, record in fields.deliveries(source, counted) if fields is not None else read_records(source):
            if "stay" in record and "event" not in record:
                add(STAYS, _stay_row(record, source, line, stays))
                done.stays += 1
            else:
                check_delivery(record, source, line)
                add(DELIVERIES, _delivery_row(record))
                done.deliveries += 1
    if published is not None:
        for line, record in fields.published(published) if fields is not None else read_records(published):
            add(PUBLISHES, _publish_row(record, published, line))
            done.published += 1
    for table in (DELIVERIES, STAYS, PUBLISHES):
        if rows.get(table.name):
            files.add(table, rows_of(table, rows[table.name]))
    done.files = len(files.roll())
    if files.trouble is not None:
        raise UsageError(f"{target} cannot be written: {files.trouble}") from files.trouble


class _Logs:
    """The logs of a directory, appended to in any order; they get their final names when all are complete."""

    def __init__(self, directory: Path, allowance: Allowance) -> None:
        self.names: set[str] = set()
        self._allowance = allowance
        self._directory = directory
        self._open: OrderedDict[str, IO[bytes]] = OrderedDict()

    def write(self, lines: Mapping[str, Sequence[bytes]]) -> None:
        for subscriber, some in lines.items():
            stream = self._open.pop(subscriber, None)
            if stream is None:
                if len(self._open) >= OPEN_LOGS_MAX:
                    self._open.popitem(last=False)[1].close()
                stream = self._partial(subscriber).open("ab")
                self.names.add(subscriber)
            self._open[subscriber] = stream
            self._allowance.take(sum(map(len, some)))
            stream.writelines(some)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for stream in self._open.values():
            stream.close()
        if kind is None:
            for subscriber in self.names:
                self._partial(subscriber).replace(self._directory / log_file_name(subscriber))

    def _partial(self, subscriber: str) -> Path:
        return self._directory / f"{log_file_name(subscriber)}.partial"


Connection = tuple[str, int | None]


def _offsets(reader: SessionReader) -> dict[Connection, int]:
    """Return where each connection's order begins in that of its subscriber, for those that do not begin it."""
    lengths: dict[Connection, int] = {}
    for batch in reader.rows(DELIVERIES, ("subscriber", "incarnation", "index")):
        longest = batch.group_by(["subscriber", "incarnation"]).aggregate([("index", "max")])
        for row in longest.to_pylist():
            key = row["subscriber"], row["incarnation"]
            lengths[key] = max(lengths.get(key, 0), row["index_max"] + 1)
    offsets: dict[Connection, int] = {}
    before: dict[str, int] = {}
    for key in sorted(lengths, key=lambda each: (each[0], -1 if each[1] is None else each[1])):
        offsets[key] = before.get(key[0], 0)
        before[key[0]] = offsets[key] + lengths[key]
    return offsets


def _dropped(reader: SessionReader) -> dict[str, int]:
    """Return the rows that recorders could not keep, of the tables that logs are made from."""
    most: dict[tuple[str, str, str], int] = {}
    for batch in reader.rows(LOSSES):
        for row in batch.to_pylist():
            if row["table"] in ("deliveries", "publishes", "stays"):
                key = row["table"], row["reason"], row["recorder"]
                most[key] = max(row["rows"], most.get(key, 0))
    dropped: dict[str, int] = {}
    for (table, reason, _), rows in most.items():
        what = f"{table} ({reason})"
        dropped[what] = dropped.get(what, 0) + rows
    return dropped


def _delivery_line(row: Mapping[str, Any], offsets: Mapping[Connection, int]) -> bytes:
    offset = offsets[row["subscriber"], row["incarnation"]]
    line = {
        "subscriber": row["subscriber"],
        "index": row["index"] + offset,
        "event": row["event"] if row["event"] is not None else _event_id(row),
        "region": row["region"],
        "sender": row["publisher"],
    }
    known = {name: row[name] for name in ("sent_at_ns", "delivered_at_ns", *EXTRAS)}
    if offset:
        known["connection_index"] = row["index"]
    line |= {name: value for name, value in known.items() if value is not None}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _event_id(row: Mapping[str, Any]) -> str:
    return f"{row['region']} {row['epoch']}-{row['sequence']}"


def _unclosed(reader: SessionReader) -> set[Connection]:
    """Return the connections whose end is not recorded: they were killed, or were still open."""
    closed: dict[Connection, bool] = {}
    for batch in reader.rows(CONNECTIONS):
        for row in batch.to_pylist():
            key = row["name"], row["incarnation"]
            closed[key] = closed.get(key, False) or row["closed_at_ns"] is not None
    return {key for key, is_closed in closed.items() if not is_closed}


def _stay_line(row: Mapping[str, Any], offsets: Mapping[Connection, int], *, is_open: bool) -> bytes:
    offset = offsets.get((row["subscriber"], row["incarnation"]), 0)
    line = {"subscriber": row["subscriber"], "stay": row["region"], "from": row["from_index"] + offset}
    known = {
        "to": row["to_index"] + offset if row["to_index"] is not None else None,
        "asked_at_ns": row["asked_at_ns"],
        "joined_at_ns": row["joined_at_ns"],
        "left_at_ns": row["left_at_ns"],
        "epoch": row["epoch"],
        "host": row["host"],
        "incarnation": row["incarnation"],
        "stay_number": row["stay"],
        **{name: row[name] for name in BEGINS},
        "connection_from": row["from_index"] if offset else None,
        "open": True if is_open and row["to_index"] is None else None,
    }
    line |= {name: value for name, value in known.items() if value is not None}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _last_revisions(reader: SessionReader) -> Iterator[dict[str, Any]]:
    """Yield the last revision of each stay; these are as many as joins, not as deliveries."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for batch in reader.rows(STAYS):
        for row in batch.to_pylist():
            key = row["subscriber"], row["incarnation"], row["stay"]
            if key not in last or last[key]["revision"] < row["revision"]:
                last[key] = row
    yield from last.values()


def _write_published(reader: SessionReader, file: Path, done: Converted, allowance: Allowance) -> int:
    """Write the events that publishers or frames show, if any; return their number."""
    written, known = 0, _Places()
    partial = file.with_name(file.name + ".partial")
    try:
        with partial.open("wb") as stream:
            for batch in reader.rows(PUBLISHES):
                for row in batch.to_pylist():
                    if row["event"] is None and row["sequence"] is None:
                        done.leave_out(f"publishes with outcome {row['outcome']}")
                        continue
                    known.add(row["region"], row["epoch"], row["sequence"])
                    text = _publish_line(row)
                    allowance.take(len(text))
                    stream.write(text)
                    written += 1
            for batch in reader.rows(FRAMES, ("region", "epoch", "sequence", "events")):
                for row in batch.to_pylist():
                    for text in _frame_lines(row, known):
                        allowance.take(len(text))
                        stream.write(text)
                        written += 1
        if written:
            partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return written


def _publish_line(row: Mapping[str, Any]) -> bytes:
    line = {"event": row["event"] or _event_id(row), "region": row["region"]}
    if row["sequence"] is not None and row["published_at_ns"] is not None:
        line["position"] = f"{row['epoch']}-{row['sequence']}"
        line["published_at_ns"] = row["published_at_ns"]
    further = {name: row[name] for name in ("publisher", "host", "bytes", "acknowledged_at_ns")}
    line |= {name: value for name, value in further.items() if value is not None}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _frame_lines(row: Mapping[str, Any], known: _Places) -> Iterator[bytes]:
    """Yield the events of a frame that no publisher recorded, as a leave that others publish for a killed server.

    No publisher says when it published them, so nothing is owed because of their time: it is 0.
    """
    region, epoch, last = row["region"], row["epoch"], row["sequence"]
    for sequence in range(max(1, last - row["events"] + 1), last + 1):
        if known.add(region, epoch, sequence):
            place = {"region": region, "epoch": epoch, "sequence": sequence}
            yield _publish_line({**_UNTOLD, **place, "published_at_ns": NOT_TIMED})


NOT_TIMED = 0
_UNTOLD = dict.fromkeys(("event", "publisher", "host", "bytes", "acknowledged_at_ns"))


class _Places:
    """A set of places in regions: a bit for each."""

    def __init__(self) -> None:
        self._bits: dict[tuple[str, int, int], int] = {}

    def add(self, region: str, epoch: int | None, sequence: int | None) -> bool:
        """Add a place, if it is one; return whether it is new."""
        if epoch is None or sequence is None:
            return False
        block, bit = (region, epoch, sequence >> 10), 1 << (sequence & 1023)
        before = self._bits.get(block, 0)
        self._bits[block] = before | bit
        return not before & bit


def _delivery_row(record: Mapping[str, Any]) -> dict[str, Any]:
    known = _extras(record, EXTRAS)
    row: dict[str, Any] = {
        "subscriber": record["subscriber"],
        "index": record["index"],
        "region": record["region"],
        "publisher": record["sender"],
        "event": record["event"],
        "sent_at_ns": record.get("sent_at_ns"),
        "delivered_at_ns": record.get("delivered_at_ns"),
        **{name: known.get(name) for name in EXTRAS},
    }
    within = record.get("connection_index")
    if type(within) is int and 0 <= within <= row["index"]:
        row["index"] = within
    if row["sequence"] is None or row["epoch"] is None:
        row["sequence"] = row["epoch"] = None
    elif row["event"] == _event_id(row):
        row["event"] = None  # the conversion made this name itself
    return row


def _stay_row(record: dict[str, Any], file: Path, line: int, stays: dict[str, int]) -> dict[str, Any]:
    stay = parse_stay(record, file, line)
    known = _extras(record, STAY_EXTRAS)
    number = stays[stay.subscriber] = stays.get(stay.subscriber, -1) + 1
    within = record.get("connection_from")
    shift = stay.start - within if type(within) is int and 0 <= within <= stay.start else 0
    return {
        "subscriber": stay.subscriber,
        "incarnation": known.get("incarnation"),
        "host": known.get("host"),
        "stay": known.get("stay_number", number),
        "revision": 0,
        "region": stay.region,
        "asked_at_ns": stay.asked_at_ns,
        "joined_at_ns": stay.joined_at_ns,
        "left_at_ns": known.get("left_at_ns"),
        "from_index": stay.start - shift,
        "to_index": stay.end - shift if stay.end is not None else None,
        "epoch": known.get("epoch"),
        **{name: known.get(name) for name in BEGINS},
    }


def _publish_row(record: dict[str, Any], file: Path, line: int) -> dict[str, Any]:
    event, region, position, published_at_ns = parse_placed(record, file, line)
    known = _extras(record, ("publisher", "host", "bytes", "acknowledged_at_ns"))
    epoch, sequence = position if position is not None else (None, None)
    published_at_ns = None if published_at_ns == NOT_TIMED else published_at_ns
    row = {"region": region, "epoch": epoch, "sequence": sequence, "published_at_ns": published_at_ns, **known}
    is_ours = position is not None and event == _event_id(row)
    return {**row, "event": None if is_ours else event, "outcome": "acknowledged"}


def _extras(record: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the further fields that fit the columns of their names; in logs of other programs they may be anything."""
    extras: dict[str, Any] = {}
    for name in names:
        value = record.get(name)
        if name in ("host", "publisher"):
            if type(value) is str and value:
                extras[name] = value
        elif type(value) is int and -(1 << 63) <= value < 1 << 63:
            extras[name] = value
    return extras


def _require_new(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty: name a new directory")
    except OSError as error:
        raise unwritable(f"{directory} cannot be written", error) from error
