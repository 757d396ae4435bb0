"""From what a tap noted, a note a frame, to the columns of a session's tables, a row an event.

Everything that is done for each event is done by numpy and Arrow; Python sees frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from analytics.schema import DELIVERIES, FRAMES, PUBLISHES, RECEIVES, Table
from gamecast.recording.files import writable_schema

IntArray = npt.NDArray[np.int64]

_STAMP = pa.struct([pa.field("atom", pa.int64(), False), pa.field("number", pa.int64(), False)])


class Who(NamedTuple):
    """The connection that a tap is in."""

    name: str
    incarnation: int
    host: str


class DeliveredFrame(NamedTuple):
    """A frame as it was handed to the application: ``events`` of it, numbered from ``first``."""

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

    region: str
    epoch: int
    last: int
    body_bytes: int
    received_at_ns: int


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


class PublishedFrame(NamedTuple):
    """The events of a frame and their fate; ``first`` and ``epoch`` None where they were not acknowledged."""

    region: str
    epoch: int | None
    first: int | None
    sizes: Sequence[int]
    sent_at_ns: Sequence[int]
    outcome: str
    error: str | None
    answered_at_ns: int


def deliveries(who: Who, frames: Sequence[DeliveredFrame]) -> pa.Table:
    """Return rows of `DELIVERIES`."""
    region, publisher, epoch, first, events, index, sent, received, delivered = zip(*frames, strict=True)
    counts = np.array(events, np.int64)
    rows = int(counts.sum())
    numbers = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    return _table(
        DELIVERIES,
        subscriber=_same(who.name, rows),
        incarnation=np.full(rows, who.incarnation),
        host=_same(who.host, rows),
        index=numbers + np.repeat(np.array(index, np.int64), counts),
        region=_names(region, counts),
        publisher=_names(publisher, counts),
        epoch=np.repeat(np.array(epoch, np.int64), counts),
        sequence=numbers + np.repeat(np.array(first, np.int64), counts),
        event=_same(None, rows),
        sent_at_ns=np.fromiter(chain.from_iterable(sent), np.int64, count=rows),
        received_at_ns=pa.array(received, pa.int64()).take(pa.array(np.repeat(np.arange(len(counts)), counts))),
        delivered_at_ns=np.repeat(np.array(delivered, np.int64), counts),
    )


def receives(who: Who, frames: Sequence[ReceivedFrame]) -> pa.Table:
    """Return rows of `RECEIVES`."""
    region, epoch, last, size, received = zip(*frames, strict=True)
    rows = len(frames)
    return _table(
        RECEIVES,
        subscriber=_same(who.name, rows),
        incarnation=np.full(rows, who.incarnation),
        host=_same(who.host, rows),
        region=_names(region),
        epoch=epoch,
        sequence=last,
        received_at_ns=received,
        bytes=size,
    )


def frames(noted: Sequence[NotedFrame]) -> pa.Table:
    """Return rows of `FRAMES`; raises `ValueError` for a stamp that is none."""
    region, epoch, last, events, publisher, stamp, size, at = zip(*noted, strict=True)
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
        epoch=epoch,
        sequence=last,
        events=events,
        publisher=_names(publisher),
        stamps=pa.ListArray.from_arrays(pa.array(offsets), pairs),
        bytes=size,
        noted_at_ns=at,
    )


def publishes(who: Who, published: Sequence[PublishedFrame]) -> pa.Table:
    """Return rows of `PUBLISHES`."""
    region, epoch, first, sizes, sent, outcome, error, answered = zip(*published, strict=True)
    counts = np.fromiter(map(len, sizes), np.int64, count=len(sizes))
    rows = int(counts.sum())
    of_frame = pa.array(np.repeat(np.arange(len(counts)), counts))
    known = np.repeat(np.array([each is not None for each in first], bool), counts)
    numbers = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    sequence = numbers + np.repeat(np.array([each or 0 for each in first], np.int64), counts)
    return _table(
        PUBLISHES,
        publisher=_same(who.name, rows),
        host=_same(who.host, rows),
        region=_names(region, counts),
        epoch=pa.array(epoch, pa.int64()).take(of_frame),
        sequence=pa.array(sequence, mask=~known),
        bytes=np.fromiter(chain.from_iterable(sizes), np.int64, count=rows),
        published_at_ns=np.fromiter(chain.from_iterable(sent), np.int64, count=rows),
        acknowledged_at_ns=pa.array(np.repeat(np.array(answered, np.int64), counts), mask=~known),
        outcome=_names(outcome, counts),
        error=_names(error, counts),
    )


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows that were noted one by one; a column that a row leaves out is null."""
    listed = list(rows)
    schema = writable_schema(table)
    return pa.table([pa.array([row.get(field.name) for row in listed], field.type) for field in schema], schema=schema)


def _table(table: Table, **columns: Any) -> pa.Table:
    schema = writable_schema(table)
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _same(name: str | None, rows: int) -> pa.DictionaryArray:
    if name is None:
        return pa.nulls(rows, pa.dictionary(pa.int32(), pa.string()))
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([name]))


def _names(names: Sequence[str | None], counts: IntArray | None = None) -> pa.DictionaryArray:
    """Return names as a dictionary, each as often as ``counts`` says."""
    places: dict[str | None, int] = {}
    codes = np.fromiter((places.setdefault(name, len(places)) for name in names), np.int32, count=len(names))
    if counts is not None:
        codes = np.repeat(codes, counts)
    if None not in places:
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(places), pa.string()))
    nothing = codes == places[None]
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=nothing), pa.array([name or "" for name in places], pa.string())
    )
