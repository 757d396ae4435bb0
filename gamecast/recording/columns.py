"""From what a tap noted, a note a frame, to the columns of a session's tables; see `event_rows` for rows of events.

Python sees frames, and what it does with them it does for columns of them, in C, for the game waits for the
interpreter meanwhile. So of what is much, columns are given: all frames' first fields, all their second ones, ….
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

from analytics.schema import FRAMES, RECEIVES, STAMPS, TABLE_OF, Table
from gamecast.recording.files import writable_schema

IntArray = npt.NDArray[np.int64]
Columns = Sequence[Sequence[Any]]

NAME = pa.dictionary(pa.int32(), pa.string())
_STAMP = pa.struct([pa.field("atom", pa.int64(), False), pa.field("number", pa.int64(), False)])


UNREADABLE = (ValueError, TypeError, OverflowError)
"""What `frames` raises for stamps that are none, and `DeliveryRows.add` for times that are none."""


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


def receives(host: str, frames: Columns) -> pa.Table:
    """Return rows of `RECEIVES` from columns of `ReceivedFrame`."""
    names, incarnation, region, epoch, last, size, received = frames
    return table_of(
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


def frames(noted: Sequence[NotedFrame]) -> pa.Table:
    """Return rows of `FRAMES`; raises one of `UNREADABLE`."""
    region, epoch, last, events, publisher, stamp, size, at, first_sent = zip(*noted, strict=True)
    lists: list[list[int]] = orjson.loads(b"[[%b]]" % b"],[".join(stamp))
    lengths = np.fromiter(map(len, lists), np.int64, count=len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.int64, count=int(lengths.sum()))
    if (lengths % 2).any() or len(lists) != len(noted):
        raise ValueError("a stamp holds pairs of atom and number")
    offsets = np.concatenate([[0], np.cumsum(lengths // 2)]).astype(np.int32)
    pairs = pa.StructArray.from_arrays([pa.array(flat[::2]), pa.array(flat[1::2])], fields=list(_STAMP))
    return table_of(
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
    return table_of(
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


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows that were noted one by one; a column that a row leaves out is null."""
    listed = list(rows)
    schema = _schema_of(table.name)
    return pa.table([pa.array([row.get(field.name) for row in listed], field.type) for field in schema], schema=schema)


def table_of(table: Table, **columns: Any) -> pa.Table:
    schema = _schema_of(table.name)
    arrays = [columns[name] for name in schema.names]
    return pa.table([pa.array(each) if isinstance(each, np.ndarray) else each for each in arrays], schema=schema)


@cache
def _schema_of(name: str) -> pa.Schema:
    return writable_schema(TABLE_OF[name])


def _same(name: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([name]))


def _names(names: Sequence[str | None]) -> pa.DictionaryArray:
    """Return names as a dictionary."""
    places: dict[str | None, int] = {}
    return named(codes_of(names, places), places)


def codes_of(names: Sequence[str | None], places: dict[str | None, int]) -> npt.NDArray[np.int32]:
    """Return each name's place; new names get one."""
    for name in dict.fromkeys(names):
        places.setdefault(name, len(places))
    return np.fromiter(map(places.__getitem__, names), np.int32, count=len(names))


def named(codes: npt.NDArray[Any], places: Mapping[str | None, int]) -> pa.DictionaryArray:
    if list(places) == [None]:
        return pa.nulls(len(codes), NAME)
    nothing = codes == places[None] if None in places else None
    known = pa.array([name or "" for name in places], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=nothing), known)
