"""Convert a tap's notes, one for each frame, to the columns of a session's tables, which have a row for each frame,
too.

Python handles frames, and converts columns of them in C, because the game waits for the interpreter meanwhile. So
notes that are numerous are given as columns: the first fields of all frames, then all their second fields, ….
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from analytics.session.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, STAMPS, TABLE_OF, Table
from gamecast.recording.files import writable_schema
from gamecast.recording.sent_times import IntArray, sent_times
from sequencing.frames import CARRIES_EVENTS

Columns = Sequence[Sequence[Any]]

_NAME = pa.dictionary(pa.int32(), pa.string())
_STAMP = pa.struct([pa.field("atom", pa.int64(), False), pa.field("number", pa.int64(), False)])


UNREADABLE = (ValueError, TypeError, OverflowError)
"""Raised by `frames` for invalid metas and stamps, and by `deliveries` for invalid times."""


class ReceivedFrame(NamedTuple):
    """A frame as it was read."""

    subscriber: str
    incarnation: int
    region: str
    epoch: int
    last: int
    body_bytes: int
    received_at_ns: int


class NotedFrame(NamedTuple):
    """A frame, and its meta and stamp as they travel."""

    region: str
    epoch: int
    last: int
    meta: bytes
    stamp: bytes
    body_bytes: int
    noted_at_ns: int
    first_sent_at_ns: int | None


class NotedStamp(NamedTuple):
    """A frame at a node, and an atom that stamped it there, if one did."""

    node: str
    region: str
    epoch: int
    last: int
    hop: int
    hops: int
    stamped_at_ns: int
    not_before_ns: int | None
    atom: int | None
    number: int | None


class DeliveredFrame(NamedTuple):
    """A frame as it was delivered to an application: the last ``events`` of it, numbered from ``first``.

    ``times``: the part of the frame's body with the sending time of each event, without the bracket that ends it.
    """

    subscriber: str
    incarnation: int
    region: str
    publisher: str
    epoch: int
    first: int
    events: int
    place: int
    times: bytes
    received_at_ns: int | None
    delivered_at_ns: int
    replayed: int | None
    """1 if it came from history."""


class ResolvedFrame(NamedTuple):
    """The events of a frame and their fate; ``first`` and ``epoch`` are None if the events were not acknowledged.

    ``sent_at_ns``: eight bytes for each event.
    """

    publisher: str
    region: str
    epoch: int | None
    first: int | None
    sizes: Sequence[int]
    sent_at_ns: bytes
    outcome: str
    error: str | None
    answered_at_ns: int


def deliveries(host: str, frames: Columns) -> pa.Table:
    """Return rows of `DELIVERIES` from columns of `DeliveredFrame`; raises one of `UNREADABLE`."""
    names, incarnation, region, publisher, epoch, first, counts, place, times, received, delivered, replayed = frames
    events = np.array(counts, np.int64)
    sent = sent_times(times, events)
    return _table_of(
        DELIVERIES,
        subscriber=_names(names),
        incarnation=np.array(incarnation, np.int64),
        host=_same(host, len(events)),
        index=np.array(place, np.int64),
        region=_names(region),
        publisher=_names(publisher),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(first, np.int64),
        events=events,
        event=pa.nulls(len(events), _NAME),
        sent_at_ns=_firsts(sent, events),
        each_sent_at_ns=_lists(sent, events),
        received_at_ns=pa.array(received, pa.int64()),
        delivered_at_ns=np.array(delivered, np.int64),
        replayed=pa.array(replayed, pa.int64()),
    )


def publishes(host: str, frames: Columns) -> pa.Table:
    """Return rows of `PUBLISHES` from columns of `ResolvedFrame`."""
    names, region, epoch, first, sizes, sent_at_ns, outcome, error, answered = frames
    events = np.fromiter(map(len, sizes), np.int64, count=len(sizes))
    size = np.fromiter(chain.from_iterable(sizes), np.int64, count=int(events.sum()))
    sent = np.frombuffer(b"".join(sent_at_ns), np.int64)
    numbers = pa.array(epoch, pa.int64())
    return _table_of(
        PUBLISHES,
        publisher=_names(names),
        host=_same(host, len(events)),
        region=_names(region),
        epoch=numbers,
        sequence=pa.array(first, pa.int64()),
        events=events,
        event=pa.nulls(len(events), _NAME),
        bytes=_firsts(size, events),
        each_bytes=_lists(size, events),
        published_at_ns=_firsts(sent, events),
        each_published_at_ns=_lists(sent, events),
        acknowledged_at_ns=pc.if_else(pc.is_valid(numbers), pa.array(answered, pa.int64()), None),
        outcome=_names(outcome),
        error=_names(error),
    )


def receives(host: str, frames: Columns) -> pa.Table:
    """Return rows of `RECEIVES` from columns of `ReceivedFrame`."""
    names, incarnation, region, epoch, last, size, received = frames
    return _table_of(
        RECEIVES,
        subscriber=_names(names),
        incarnation=np.array(incarnation, np.int64),
        host=_same(host, len(last)),
        region=_names(region),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(last, np.int64),
        received_at_ns=np.array(received, np.int64),
        bytes=np.array(size, np.int64),
    )


def frames(noted: Columns) -> pa.Table:
    """Return rows of `FRAMES` from columns of `NotedFrame`, without markers; raises one of `UNREADABLE`."""
    region, epoch, last, meta, stamp, size, at, first_sent = noted
    kind, events, publisher = _metas(meta)
    lists: list[list[int]] = orjson.loads(b"[[%b]]" % b"],[".join(stamp))
    lengths = np.fromiter(map(len, lists), np.int64, count=len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.int64, count=int(lengths.sum()))
    if (lengths % 2).any() or len(lists) != len(stamp):
        raise ValueError("a stamp holds pairs of atom and number")
    offsets = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int32)
    # A node's own number may be negative, which shows how to read it: see `sequencing.cut`.
    pairs = pa.StructArray.from_arrays([pa.array(flat[::2]), pa.array(np.abs(flat[1::2]))], fields=list(_STAMP))
    rows = _table_of(
        FRAMES,
        region=_names(region),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(last, np.int64),
        events=events,
        publisher=publisher.dictionary_encode(),
        stamps=pa.ListArray.from_arrays(pa.array(offsets), pairs),
        bytes=np.array(size, np.int64),
        noted_at_ns=np.array(at, np.int64),
        first_sent_at_ns=pa.array(first_sent, pa.int64()),
    )
    return rows.filter(pc.is_in(kind, pa.array(sorted(map(int, CARRIES_EVENTS)), kind.type)))


def _metas(metas: Sequence[bytes]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return kind, events and publisher of each meta; as `sequencing.frames.parse_meta` does for one."""
    parts = pc.split_pattern(pa.array(metas, pa.binary()).cast(pa.string()), " ", max_splits=4)
    if pc.min(pc.list_value_length(parts)).as_py() < 5:
        raise ValueError("not the meta of a frame")
    kind, events = (pc.list_element(parts, place).cast(pa.int64()) for place in (0, 1))
    if pc.min(events).as_py() < 1:
        raise ValueError("a frame takes at least one number of its region")
    publisher = pc.list_element(parts, 4)
    if pc.any(pc.match_substring(publisher, "\n")).as_py():  # of frames of several regions, which name them behind
        publisher = pc.list_element(pc.split_pattern(publisher, "\n", max_splits=1), 0)
    return kind, events, publisher


def stamps(host: str, noted: Columns) -> pa.Table:
    """Return rows of `STAMPS` from columns of `NotedStamp`."""
    node, region, epoch, last, hop, hops, at, not_before, atom, number = noted
    return _table_of(
        STAMPS,
        node=_names(node),
        host=_same(host, len(last)),
        region=_names(region),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(last, np.int64),
        hop=np.array(hop, np.int64),
        hops=np.array(hops, np.int64),
        stamped_at_ns=np.array(at, np.int64),
        not_before_ns=pa.array(not_before, pa.int64()),
        atom=pa.array(atom, pa.int64()),
        number=pa.array(number, pa.int64()),
    )


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows that were noted one by one; a column that a row omits is null."""
    listed = list(rows)
    schema = _schema_of(table.name)
    return pa.table([pa.array([row.get(field.name) for row in listed], field.type) for field in schema], schema=schema)


def _table_of(table: Table, **columns: Any) -> pa.Table:
    schema = _schema_of(table.name)
    arrays = [columns[name] for name in schema.names]
    return pa.table([pa.array(each) if isinstance(each, np.ndarray) else each for each in arrays], schema=schema)


@cache
def _schema_of(name: str) -> pa.Schema:
    return writable_schema(TABLE_OF[name])


def _firsts(values: IntArray, events: IntArray) -> IntArray:
    """Return the first of each frame's values."""
    firsts: IntArray = values[np.cumsum(events) - events]
    return firsts


def _lists(values: IntArray, events: IntArray) -> pa.ListArray:
    """Return all values of each frame; null for one event, which the row has already."""
    several = events > 1
    listed = np.where(several, events, 0)
    offsets = np.concatenate([[0], np.cumsum(listed)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(values[np.repeat(several, events)]), mask=pa.array(~several)
    )


def _same(name: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([name]))


def _names(names: Sequence[str | None]) -> pa.DictionaryArray:
    """Return names as a dictionary."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    if list(places) == [None]:
        return pa.nulls(len(names), _NAME)
    codes = np.fromiter(map(places.__getitem__, names), np.int32, count=len(names))
    nothing = codes == places[None] if None in places else None
    known = pa.array([name or "" for name in places], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=nothing), known)
