"""From what a tap noted, a note a frame, to the columns of a session's tables, a row an event.

Everything that is done for each event is done by numpy and Arrow; Python sees frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from analytics.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, STAMPS, TABLE_OF, Table
from gamecast.recording.files import writable_schema

IntArray = npt.NDArray[np.int64]

_NAME = pa.dictionary(pa.int32(), pa.string())
_STAMP = pa.struct([pa.field("atom", pa.int64(), False), pa.field("number", pa.int64(), False)])


NOT_STAMPS = (ValueError, TypeError, OverflowError)
"""What `frames` raises for stamps that are none."""


class DeliveredFrame(NamedTuple):
    """A frame as it was handed to an application: ``events`` of it, numbered from ``first``."""

    subscriber: str
    incarnation: int
    region: str
    publisher: str
    epoch: int
    first: int
    events: int
    place: int
    sent_at_ns: Sequence[int]
    received_at_ns: int | None
    delivered_at_ns: int


class ReceivedFrame(NamedTuple):
    """A frame as it was read."""

    subscriber: str
    incarnation: int
    region: str
    epoch: int
    last: int
    received_at_ns: int
    body_bytes: int


class NotedFrame(NamedTuple):
    """A frame of events, and its stamp as it travels."""

    region: str
    epoch: int
    last: int
    events: int
    publisher: str
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


class PublishedFrame(NamedTuple):
    """The events of a frame and their fate; ``first`` and ``epoch`` None where they were not acknowledged."""

    publisher: str
    region: str
    epoch: int | None
    first: int | None
    sizes: Sequence[int]
    sent_at_ns: Sequence[int]
    outcome: str
    error: str | None
    answered_at_ns: int


def deliveries(host: str, frames: Sequence[DeliveredFrame]) -> pa.Table:
    """Return rows of `DELIVERIES`."""
    names, incarnation, region, publisher, epoch, first, events, place, sent, received, delivered = zip(
        *frames, strict=True
    )
    counts = np.array(events, np.int64)
    rows = int(counts.sum())
    of_frame = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(rows)
    # Less the row at which its frame begins, which is done once a frame.
    begins = np.cumsum(counts) - counts
    known = np.array([at or 0 for at in received], np.int64)
    return _table(
        DELIVERIES,
        subscriber=_names(names, of_frame),
        incarnation=np.array(incarnation, np.int64)[of_frame],
        host=_same(host, rows),
        index=places + (np.array(place, np.int64) - begins)[of_frame],
        region=_names(region, of_frame),
        publisher=_names(publisher, of_frame),
        epoch=np.array(epoch, np.int64)[of_frame],
        sequence=places + (np.array(first, np.int64) - begins)[of_frame],
        event=pa.nulls(rows, _NAME),
        sent_at_ns=np.fromiter(chain.from_iterable(sent), np.int64, count=rows),
        received_at_ns=_of_rows(known, of_frame, nothing=known == 0),
        delivered_at_ns=np.array(delivered, np.int64)[of_frame],
    )


def receives(host: str, frames: Sequence[ReceivedFrame]) -> pa.Table:
    """Return rows of `RECEIVES`."""
    names, incarnation, region, epoch, last, received, size = zip(*frames, strict=True)
    return _table(
        RECEIVES,
        subscriber=_names(names),
        incarnation=np.array(incarnation, np.int64),
        host=_same(host, len(frames)),
        region=_names(region),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(last, np.int64),
        received_at_ns=np.array(received, np.int64),
        bytes=np.array(size, np.int64),
    )


def frames(noted: Sequence[NotedFrame]) -> pa.Table:
    """Return rows of `FRAMES`; raises one of `NOT_STAMPS`."""
    region, epoch, last, events, publisher, stamp, size, at, first_sent = zip(*noted, strict=True)
    lists: list[list[int]] = orjson.loads(b"[[%b]]" % b"],[".join(stamp))
    lengths = np.fromiter(map(len, lists), np.int64, count=len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.int64, count=int(lengths.sum()))
    if (lengths % 2).any() or len(lists) != len(noted):
        raise ValueError("a stamp holds pairs of atom and number")
    offsets = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int32)
    pairs = pa.StructArray.from_arrays([pa.array(flat[::2]), pa.array(flat[1::2])], fields=list(_STAMP))
    return _table(
        FRAMES,
        region=_names(region),
        epoch=np.array(epoch, np.int64),
        sequence=np.array(last, np.int64),
        events=np.array(events, np.int64),
        publisher=_names(publisher),
        stamps=pa.ListArray.from_arrays(pa.array(offsets), pairs),
        bytes=np.array(size, np.int64),
        noted_at_ns=np.array(at, np.int64),
        first_sent_at_ns=pa.array(first_sent, pa.int64()),
    )


def stamps(host: str, noted: Sequence[NotedStamp]) -> pa.Table:
    """Return rows of `STAMPS`."""
    node, region, epoch, last, hop, hops, at, not_before, atom, number = zip(*noted, strict=True)
    return _table(
        STAMPS,
        node=_names(node),
        host=_same(host, len(noted)),
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


def publishes(host: str, published: Sequence[PublishedFrame]) -> pa.Table:
    """Return rows of `PUBLISHES`."""
    names, region, epoch, first, sizes, sent, outcome, error, answered = zip(*published, strict=True)
    counts = np.fromiter(map(len, sizes), np.int64, count=len(sizes))
    rows = int(counts.sum())
    of_frame = np.repeat(np.arange(len(counts)), counts)
    unknown = np.array([each is None for each in first], bool)
    # The number of the first, less its place among the rows.
    ahead = np.array([each or 0 for each in first], np.int64) - (np.cumsum(counts) - counts)
    sequence = np.arange(rows) + ahead[of_frame]
    return _table(
        PUBLISHES,
        publisher=_names(names, of_frame),
        host=_same(host, rows),
        region=_names(region, of_frame),
        epoch=_of_rows(np.array([each or 0 for each in epoch], np.int64), of_frame, nothing=unknown),
        sequence=pa.array(sequence, mask=unknown[of_frame] if unknown.any() else None),
        event=pa.nulls(rows, _NAME),
        bytes=np.fromiter(chain.from_iterable(sizes), np.int64, count=rows),
        published_at_ns=np.fromiter(chain.from_iterable(sent), np.int64, count=rows),
        acknowledged_at_ns=_of_rows(np.array(answered, np.int64), of_frame, nothing=unknown),
        outcome=_names(outcome, of_frame),
        error=_names(error, of_frame),
    )


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows that were noted one by one; a column that a row leaves out is null."""
    listed = list(rows)
    schema = _schema_of(table.name)
    return pa.table([pa.array([row.get(field.name) for row in listed], field.type) for field in schema], schema=schema)


def _table(table: Table, **columns: Any) -> pa.Table:
    schema = _schema_of(table.name)
    arrays = [columns[name] for name in schema.names]
    return pa.table([pa.array(each) if isinstance(each, np.ndarray) else each for each in arrays], schema=schema)


@cache
def _schema_of(name: str) -> pa.Schema:
    return writable_schema(TABLE_OF[name])


def _of_rows(of_frames: IntArray, of_frame: IntArray, *, nothing: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a number for each row; ``nothing``: of which frames there is none."""
    return pa.array(of_frames[of_frame], mask=nothing[of_frame] if nothing.any() else None)


def _same(name: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([name]))


def _names(names: Sequence[str | None], of_row: IntArray | None = None) -> pa.DictionaryArray:
    """Return names as a dictionary; ``of_row``: which of them each row has, when not one after the other."""
    places: dict[str | None, int] = {}
    codes = np.fromiter((places.setdefault(name, len(places)) for name in names), np.int32, count=len(names))
    if of_row is not None:
        codes = codes[of_row]
    if list(places) == [None]:
        return pa.nulls(len(codes), _NAME)
    nothing = codes == places[None] if None in places else None
    known = pa.array([name or "" for name in places], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=nothing), known)
