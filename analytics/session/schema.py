"""The schema of a recorded session, version 2: its directory, its tables, and what each column means.

A session is a directory. Several recorders (processes, each with any number of connections) may write into it at once:

    SESSION/session.json                                     which session this is; written first, and at once
    SESSION/TABLE/hour=2026-11-21T23/RECORDER-000001.parquet

``hour`` is a partition of whole hours UTC, of the table's `Table.time` column; a row without that time is in
`UNKNOWN_HOUR`. A file that is being written has a name that begins with a dot, which Spark and pyarrow leave out; it is
synced to disk and renamed when it is rolled, so every file that can be seen is whole. Each carries `FILE_SCHEMA`,
`FILE_SESSION` and `FILE_RECORDER` in its Parquet key-value metadata.

All times are nanoseconds since the Unix epoch by the clock of the host that took them, and ``host`` says whose. Rows
are in no order. The pyarrow schema, the Spark schema and the documentation's tables are all made of `TABLES`.
A version may get more columns and tables: readers go by names, and take a missing column for null. In version 1 every
row of `PUBLISHES` and `DELIVERIES` was one event: it is read as version 2, whose other columns are null then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SCHEMA_VERSION = 2
READABLE_VERSIONS = (1, SCHEMA_VERSION)
READABLE = "versions " + " and ".join(map(str, READABLE_VERSIONS))

SESSION_FILE = "session.json"
PARTITION = "hour"
UNKNOWN_HOUR = "unknown"
FILE_SUFFIX = ".parquet"
LOG_SUFFIXES = (".jsonl", ".jsonl.gz")

FILE_SCHEMA = "gamecast.schema"
"""Key of a file's metadata: the version of the schema, a decimal number."""
FILE_SESSION = "gamecast.session"
"""The session's id, as in `SESSION_FILE`."""
FILE_RECORDER = "gamecast.recorder"
"""The recorder that wrote the file."""
COMPACTED = "compacted"
"""Stands for the recorder in files that were put together of others."""
FILE_EVENTS = "gamecast.events"
"""How many events a file's rows are, in a table of `Runs`; without it, each row is one event."""

EVENTS = "events"
"""The column of a table of `Runs` with the number of events of a row."""

Kind = Literal["int64", "string", "stamps", "int64s"]
"""``stamps``: a list of structs of ``atom`` and ``number``, both int64; ``int64s``: a list of numbers."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``unit`` is empty for values that are neither measured nor counted."""

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Runs:
    """How a row describes several events, one after the other; see `analytics.session.runs`.

    ``numbered``: columns with the first event's number, which grows by one from event to event. ``each``: column with
    the first event's value → the column with a list of all values, null for one event. All other columns are the same
    for all events.
    """

    numbered: tuple[str, ...]
    each: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """One table. ``row``: what one row is; ``time``: the column whose hour a row is filed under."""

    name: str
    row: str
    time: str
    columns: tuple[Column, ...]
    runs: Runs | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def event_names(self) -> tuple[str, ...]:
        """The column names after each event gets a row of its own; in a table without `Runs`, all names."""
        if self.runs is None:
            return self.names
        of_runs = {EVENTS, *self.runs.each.values()}
        return tuple(name for name in self.names if name not in of_runs)

    def arrow_schema(self, metadata: Mapping[str, str] | None = None) -> pa.Schema:
        """Return the pyarrow schema of a file, without the partition; needs pyarrow."""
        import pyarrow as pa

        stamps = pa.list_(pa.struct([pa.field("atom", pa.int64(), False), pa.field("number", pa.int64(), False)]))
        kinds: dict[Kind, pa.DataType] = {
            "int64": pa.int64(),
            "string": pa.string(),
            "stamps": stamps,
            "int64s": pa.list_(pa.int64()),
        }
        fields = [pa.field(column.name, kinds[column.kind], column.nullable) for column in self.columns]
        return pa.schema(fields, metadata=dict(metadata) if metadata is not None else None)

    def spark_schema(self) -> StructType:
        """Return the Spark schema, the partition last; needs pyspark.

        All columns are nullable, as in everything Spark reads.
        """
        from pyspark.sql import types

        stamp = types.StructType(
            [types.StructField("atom", types.LongType()), types.StructField("number", types.LongType())]
        )
        kinds: dict[Kind, types.DataType] = {
            "int64": types.LongType(),
            "string": types.StringType(),
            "stamps": types.ArrayType(stamp),
            "int64s": types.ArrayType(types.LongType()),
        }
        fields = [types.StructField(column.name, kinds[column.kind]) for column in self.columns]
        return types.StructType([*fields, types.StructField(PARTITION, types.StringType())])


def hour_of(at_ns: int | None) -> str:
    """Return the partition of a time: ``2026-11-21T23``, in UTC."""
    if at_ns is None:
        return UNKNOWN_HOUR
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H")


def _number(name: str, meaning: str, unit: str = "", *, nullable: bool = False) -> Column:
    return Column(name, "int64", meaning, unit, nullable)


def _time(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "int64", meaning, "ns", nullable)


def _list(name: str, meaning: str, unit: str) -> Column:
    return Column(name, "int64s", meaning, unit, nullable=True)


def _text(name: str, meaning: str, *, nullable: bool = False) -> Column:
    return Column(name, "string", meaning, "", nullable)


_HOST = _text("host", "whose clock the row's times are by", nullable=True)
_REGION = _text("region", "the region")
_EPOCH = _number("epoch", "the epoch of `sequence`")
_SUBSCRIBER = _text("subscriber", "the subscriber's name")
_INCARNATION = _number(
    "incarnation",
    "which connection of that name: a later one has a larger number, and its `index` begins at 0 again; null if "
    "only one is known",
    nullable=True,
)
_EVENTS = _number(EVENTS, "how many events the row is; null for one", "events", nullable=True)
_LAST = _number("sequence", "the region sequence of the frame's last event; (region, epoch, sequence) names the frame")

PUBLISHES = Table(
    "publishes",
    "events that a connection published together, or tried to; what it says of one it says of the first",
    "published_at_ns",
    (
        _text("publisher", "the name of the connection that published; null in foreign logs", nullable=True),
        _HOST,
        _REGION,
        _number("epoch", "of the event, null if not acknowledged", nullable=True),
        _number(
            "sequence",
            "of the event in its region and epoch, the others follow; null if not acknowledged",
            nullable=True,
        ),
        _EVENTS,
        _text("event", "the id that a foreign log gave the event, else null", nullable=True),
        _number("bytes", "size of the encoded payload; null in foreign logs", "bytes", nullable=True),
        _list("each_bytes", "`bytes` of each event, null for one event", "bytes"),
        _time("published_at_ns", "when publish was called; null in foreign logs", nullable=True),
        _list("each_published_at_ns", "`published_at_ns` of each event, null for one event", "ns"),
        _time("acknowledged_at_ns", "when the answer of the ingress was there", nullable=True),
        _text("outcome", "`acknowledged`, `refused` (certainly not published) or `unknown`"),
        _text("error", "the kind of error, null if acknowledged", nullable=True),
    ),
    Runs(("sequence",), {"bytes": "each_bytes", "published_at_ns": "each_published_at_ns"}),
)

STAMPS = Table(
    "stamps",
    "a frame at a node of its path, and for each atom that stamped it there; a tap's, from outside",
    "stamped_at_ns",
    (
        _text("node", "the sequencing node"),
        _HOST,
        _REGION,
        _EPOCH,
        _LAST,
        _number("hop", "the node's place on the frame's path, 0 is the ingress"),
        _number("hops", "nodes on the path: the egress has `hop` = `hops` − 1", "nodes"),
        _time(
            "stamped_at_ns",
            "when the recorder had read the frame out of the node's stream: later than the stamping by the way to the "
            "recorder and by what the recorder was busy",
        ),
        _time(
            "not_before_ns",
            "when the read before, which did not show the frame yet, was answered, less the smallest round trip to the "
            "node: the stamping is in between; null for the first read",
            nullable=True,
        ),
        _number("atom", "the atom, null if none stamped the frame at this node", nullable=True),
        _number("number", "the atom's number on the frame, null as `atom`", nullable=True),
    ),
)

FRAMES = Table(
    "frames",
    "a frame and its stamps; each recorder that saw it has a row, equal but for `noted_at_ns`: count a frame once",
    "noted_at_ns",
    (
        _REGION,
        _EPOCH,
        _LAST,
        _number("events", "events in the frame: they have the sequences up to `sequence`", "events"),
        _text("publisher", "the name of the connection that published"),
        Column(
            "stamps",
            "stamps",
            "(atom, number) in the order in which the atoms were passed; atom 0 is the node where its path ends",
        ),
        _number("bytes", "size of the frame's body", "bytes"),
        _time("noted_at_ns", "when the recorder saw it"),
        _time(
            "first_sent_at_ns",
            "when publish was called for the first of its events, by the publisher's clock; only a tap's rows have it",
            nullable=True,
        ),
    ),
)

RECEIVES = Table(
    "receives",
    "a frame that a subscriber received live, not from history; markers, which carry no event, are among them",
    "received_at_ns",
    (
        _SUBSCRIBER,
        _INCARNATION,
        _HOST,
        _REGION,
        _EPOCH,
        _LAST,
        _time("received_at_ns", "when the connection had read it"),
        _number("bytes", "size of the frame's body", "bytes"),
    ),
)

DELIVERIES = Table(
    "deliveries",
    "events of a frame that were handed to a subscriber's application one after the other; what it says of one it says "
    "of the first",
    "delivered_at_ns",
    (
        _SUBSCRIBER,
        _INCARNATION,
        _HOST,
        _number("index", "place in that connection's delivery order, from 0; the other events follow"),
        _REGION,
        _text("publisher", "the name of the connection that published"),
        _number("epoch", "of the event, null in foreign logs", nullable=True),
        _number(
            "sequence",
            "in its region and epoch, the other events follow; names an event together with them, null as `epoch`",
            nullable=True,
        ),
        _EVENTS,
        _text("event", "the id that a foreign log gave the event, else null", nullable=True),
        _time("sent_at_ns", "when publish was called, by the publisher's clock", nullable=True),
        _list("each_sent_at_ns", "`sent_at_ns` of each event, null for one event", "ns"),
        _time("received_at_ns", "when the event's frame was received", nullable=True),
        _time("delivered_at_ns", "when the application got it", nullable=True),
        _number(
            "replayed",
            "1 for an event from history, which `since` asked for: it came late on purpose, so that neither its delay "
            "nor its place among events of other regions says anything; null for a live one",
            nullable=True,
        ),
    ),
    Runs(("index", "sequence"), {"sent_at_ns": "each_sent_at_ns"}),
)

STAYS = Table(
    "stays",
    "a stay of a subscriber in a region, as far as it was known; of the rows of one (subscriber, incarnation, stay) "
    "the one with the greatest `revision` counts",
    "noted_at_ns",
    (
        _SUBSCRIBER,
        _INCARNATION,
        _HOST,
        _number(
            "stay",
            "number of that connection's stay, from 0; negative for what a tap saw from outside: that the network "
            "counted the subscriber there",
        ),
        _number("revision", "0 when it was asked for, growing with what becomes known"),
        _REGION,
        _time("asked_at_ns", "when the subscriber asked for the region", nullable=True),
        _time("joined_at_ns", "when it was told that it is in; null for never, so far", nullable=True),
        _time("left_at_ns", "when it left; null for never, so far", nullable=True),
        _number("from_index", "`index` of its first delivery behind asking; null from outside", nullable=True),
        _number("to_index", "`index` of its first delivery behind leaving; null as `left_at_ns`", nullable=True),
        _number("epoch", "in which it was in; null as `joined_at_ns` and in foreign logs", nullable=True),
        _number("since_epoch", "`since` of its call: all behind that position is due; null without", nullable=True),
        _number("since_sequence", "as `since_epoch`; 0 and 0: all that was kept", nullable=True),
        _number("begin_epoch", "without `since`: all behind that position is due; null if unknown", nullable=True),
        _number("begin_sequence", "as `begin_epoch`", nullable=True),
        _time("noted_at_ns", "when the row was written; null in foreign logs", nullable=True),
    ),
)

EPOCHS = Table(
    "epochs",
    "a plan that a recorder heard of; each recorder has a row",
    "began_at_ns",
    (
        _HOST,
        _number("epoch", "the plan's epoch"),
        _number("version", "the plan's number within the epoch: it changed in place"),
        _time("began_at_ns", "when the recorder heard of it"),
        _text("reason", "`first`: what was in force; `in place`: no new epoch; `rearranged`: a new epoch"),
        _text("plan", "the plan, JSON as `gamecast plan size --out` writes it"),
    ),
)

GAPS = Table(
    "gaps",
    "a gap that was handed to a subscriber's application",
    "announced_at_ns",
    (
        _SUBSCRIBER,
        _INCARNATION,
        _HOST,
        _REGION,
        _EPOCH,
        _number("first_sequence", "first sequence that is missing"),
        _number("last_sequence", "last one, 0 if it is unknown"),
        _text("reason", "as the application was told"),
        _number("index", "the deliveries before the gap: the `index` of the first behind it", "events"),
        _time("announced_at_ns", "when the application got it"),
    ),
)

PROBES = Table(
    "probes",
    "a probe that came back: four times as in NTP, two by each host's clock",
    "sent_at_ns",
    (
        _text("kind", "`direct`: between two recording servers; `node`: from a recorder to a sequencing node"),
        _text("origin", "who probed: the name of a connection, or of a recorder"),
        _text("target", "who answered: the name of a connection, or of a node"),
        _text("origin_host", "whose clock `sent_at_ns` and `returned_at_ns` are by"),
        _text("target_host", "whose clock `reached_at_ns` and `answered_at_ns` are by; a node's is `node NAME`"),
        _time("sent_at_ns", "when the probe left the origin"),
        _time("reached_at_ns", "when it reached the target"),
        _time("answered_at_ns", "when the answer left the target"),
        _time("returned_at_ns", "when the answer was back"),
    ),
)

CONNECTIONS = Table(
    "connections",
    "a recorded connection, as far as it was known; of the rows of one (name, incarnation) the one with the greatest "
    "`noted_at_ns` counts: without `closed_at_ns`, what it saw after that is not in the session",
    "noted_at_ns",
    (
        _text("name", "the connection's name: a subscriber, a publisher, or both"),
        _number("incarnation", "which connection of that name"),
        _text("host", "the host that it is on"),
        _text("recorder", "who recorded it"),
        _time("opened_at_ns", "when it was open"),
        _time("closed_at_ns", "when it was closed; null for not yet, or never: the process was killed", nullable=True),
        _time("noted_at_ns", "when the row was written: each time that the files were rolled"),
    ),
)

LOSSES = Table(
    "losses",
    "rows that a recorder could not keep, so far: of the rows of one (recorder, table, reason) the greatest `rows` "
    "counts",
    "noted_at_ns",
    (
        _text("recorder", "the recorder"),
        _HOST,
        _text("table", "the table that lacks rows; for an unread frame at a node `stamps`"),
        _text("reason", "why: `full`, `disk`, `unread`"),
        _number("rows", "how many so far; of `publishes` and `deliveries` events", "rows"),
        _time("noted_at_ns", "when it was counted"),
    ),
)

TABLES = (PUBLISHES, STAMPS, FRAMES, RECEIVES, DELIVERIES, STAYS, EPOCHS, GAPS, PROBES, CONNECTIONS, LOSSES)
TABLE_OF: Mapping[str, Table] = {table.name: table for table in TABLES}


_DOCUMENTED = {"stamps": "list of (atom int64, number int64)", "int64s": "list of int64"}


def documentation() -> Iterator[str]:
    """Yield the lines of the documentation's tables, in Markdown."""
    for table in TABLES:
        yield from (f"### `{table.name}`", "", f"A row is {table.row}. Filed by `{table.time}`.", "")
        yield from ("| column | type | unit | null | meaning |", "|---|---|---|---|---|")
        for column in table.columns:
            kind = _DOCUMENTED.get(column.kind, column.kind)
            null = "yes" if column.nullable else ""
            yield f"| `{column.name}` | {kind} | {column.unit} | {null} | {column.meaning} |"
        yield ""
