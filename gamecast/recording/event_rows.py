"""Rows of events: gathered by the frame, and spread, a row an event, for a whole row group at a time.

All that is done for each event is done by numpy and Arrow, most of it without the interpreter's lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from analytics.schema import DELIVERIES, PUBLISHES, Table
from gamecast.recording.columns import NAME, Columns, IntArray, codes_of, named, table_of


class DeliveredFrame(NamedTuple):
    """A frame as it was handed to an application: the last ``events`` of it, numbered from ``first``.

    ``times``: the frame's body as far as it tells when each event was sent, without the bracket that ends that.
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


class PublishedFrame(NamedTuple):
    """The events of a frame and their fate; ``first`` and ``epoch`` None where they were not acknowledged.

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


class EventRows:
    """Rows of events, gathered by the frame until they are taken.

    The numbers of what is taken are in memory that is used again: fresh memory for each costs as much as filling it.
    """

    table: Table

    def __init__(self, host: str) -> None:
        self.rows = 0
        self._host = host
        self._frames: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)
        self._events: defaultdict[str, list[IntArray]] = defaultdict(list)
        self._names: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
        self._room: dict[str, npt.NDArray[Any]] = {}
        self._places = np.arange(0)
        self._zeros = np.zeros(0, np.int32)

    def _gather(self, events: IntArray, names: Mapping[str, Sequence[str | None]], **numbers: IntArray) -> None:
        self.rows += int(events.sum())
        self._frames["events"].append(events)
        for column, each in names.items():
            self._frames[column].append(codes_of(each, self._names[column]))
        for column, number in numbers.items():
            self._frames[column].append(number)

    def take(self) -> pa.Table:
        """Return what was gathered; it is good until the next call."""
        try:
            return self._spread_out()
        finally:
            self.rows = 0
            for parts in (self._frames, self._events, self._names):
                parts.clear()

    def _spread_out(self) -> pa.Table:
        frames = {column: np.concatenate(parts) for column, parts in self._frames.items()}
        events = frames["events"]
        if self.rows > len(self._places):  # and there are no more frames than rows
            self._places, self._zeros = np.arange(self.rows), np.zeros(self.rows, np.int32)
        of_frame = np.repeat(self._places[: len(events)], events)
        # Less the row at which its frame begins, which is done once a frame.
        begins = np.cumsum(events) - events
        return table_of(self.table, **self._columns(frames, begins, of_frame))

    def _columns(self, frames: Mapping[str, IntArray], begins: IntArray, of_frame: IntArray) -> dict[str, Any]:
        raise NotImplementedError

    def _named(self, column: str, frames: Mapping[str, IntArray], of_frame: IntArray) -> pa.DictionaryArray:
        return named(self._spread(column, frames[column], of_frame), self._names[column])

    def _spread(self, column: str, of_frames: npt.NDArray[Any], of_frame: IntArray) -> npt.NDArray[Any]:
        """Return for each row what is known of its frame."""
        room = self._room_of(column, of_frames.dtype, len(of_frame))
        return np.take(of_frames, of_frame, out=room, mode="clip")  # by any other mode it would be copied once more

    def _numbered(self, column: str, of_frames: IntArray, of_frame: IntArray) -> npt.NDArray[Any]:
        """Return for each row its place among all rows and what is known of its frame, added."""
        numbers = self._spread(column, of_frames, of_frame)
        numbers += self._places[: len(of_frame)]
        return numbers

    def _joined(self, column: str) -> npt.NDArray[Any]:
        parts = self._events[column]
        room = self._room_of(column, parts[0].dtype, sum(map(len, parts)))
        return np.concatenate(parts, out=room)

    def _room_of(self, column: str, kind: np.dtype[Any], rows: int) -> npt.NDArray[Any]:
        room = self._room.get(column)
        if room is None or len(room) < rows:
            room = self._room[column] = np.empty(rows, kind)
        return room[:rows]


class DeliveryRows(EventRows):
    """Rows of `DELIVERIES`."""

    table = DELIVERIES

    def add(self, frames: Columns) -> None:
        """Gather the events of some frames, columns of `DeliveredFrame`.

        Raises one of `UNREADABLE`, and has then gathered none.
        """
        names, incarnation, region, publisher, epoch, first, events, place, times, received, delivered = frames
        counts = np.array(events, np.int64)
        sent = sent_times(times, counts)
        self._gather(
            counts,
            {"subscriber": names, "region": region, "publisher": publisher},
            incarnation=np.array(incarnation, np.int64),
            epoch=np.array(epoch, np.int64),
            first=np.array(first, np.int64),
            place=np.array(place, np.int64),
            received=_or_zero(received),
            delivered=np.array(delivered, np.int64),
        )
        self._events["sent_at_ns"].append(sent)

    def _columns(self, frames: Mapping[str, IntArray], begins: IntArray, of_frame: IntArray) -> dict[str, Any]:
        unknown = frames["received"] == 0
        received = self._spread("received", frames["received"], of_frame)
        return {
            "subscriber": self._named("subscriber", frames, of_frame),
            "incarnation": self._spread("incarnation", frames["incarnation"], of_frame),
            "host": named(self._zeros[: len(of_frame)], {self._host: 0}),
            "index": self._numbered("index", frames["place"] - begins, of_frame),
            "region": self._named("region", frames, of_frame),
            "publisher": self._named("publisher", frames, of_frame),
            "epoch": self._spread("epoch", frames["epoch"], of_frame),
            "sequence": self._numbered("sequence", frames["first"] - begins, of_frame),
            "event": pa.nulls(len(of_frame), NAME),
            "sent_at_ns": self._joined("sent_at_ns"),
            "received_at_ns": _masked(received, unknown, of_frame),
            "delivered_at_ns": self._spread("delivered", frames["delivered"], of_frame),
        }


class PublishRows(EventRows):
    """Rows of `PUBLISHES`."""

    table = PUBLISHES

    def add(self, frames: Sequence[PublishedFrame]) -> None:
        """Gather the events of some frames."""
        names, region, epoch, first, sizes, sent, outcome, error, answered = zip(*frames, strict=True)
        counts = np.fromiter(map(len, sizes), np.int64, count=len(sizes))
        self._gather(
            counts,
            {"publisher": names, "region": region, "outcome": outcome, "error": error},
            epoch=_or_zero(epoch),
            first=_or_zero(first),
            answered=np.array(answered, np.int64),
        )
        self._events["bytes"].append(np.fromiter(chain.from_iterable(sizes), np.int64, count=int(counts.sum())))
        self._events["sent"].append(np.frombuffer(b"".join(sent), np.int64))

    def _columns(self, frames: Mapping[str, IntArray], begins: IntArray, of_frame: IntArray) -> dict[str, Any]:
        unknown = frames["epoch"] == 0
        epoch = self._spread("epoch", frames["epoch"], of_frame)
        answered = self._spread("answered", frames["answered"], of_frame)
        return {
            "publisher": self._named("publisher", frames, of_frame),
            "host": named(self._zeros[: len(of_frame)], {self._host: 0}),
            "region": self._named("region", frames, of_frame),
            "epoch": _masked(epoch, unknown, of_frame),
            "sequence": _masked(self._numbered("sequence", frames["first"] - begins, of_frame), unknown, of_frame),
            "event": pa.nulls(len(of_frame), NAME),
            "bytes": self._joined("bytes"),
            "published_at_ns": self._joined("sent"),
            "acknowledged_at_ns": _masked(answered, unknown, of_frame),
            "outcome": self._named("outcome", frames, of_frame),
            "error": self._named("error", frames, of_frame),
        }


def _masked(numbers: npt.NDArray[Any], nothing: npt.NDArray[np.bool_], of_frame: IntArray) -> pa.Array:
    """Return numbers of rows; ``nothing``: of which frames there is none."""
    return pa.array(numbers, mask=nothing[of_frame] if nothing.any() else None)


def _or_zero(numbers: Sequence[int | None]) -> IntArray:
    found: IntArray = pa.array(numbers, pa.int64()).fill_null(0).to_numpy()
    return found


def sent_times(times: Sequence[bytes], events: IntArray) -> IntArray:
    """Return when each event was sent, of the last ``events`` of each frame; see `DeliveredFrame`.

    Raises one of `UNREADABLE`.
    """
    try:
        return _sent_times_as_written(times, events)
    except ValueError:  # it may be JSON, but not as gamecast writes it
        found = [_sent_times_of(*each) for each in zip(times, events.tolist(), strict=True)]
        return np.array(list(chain.from_iterable(found)), np.int64)


def _sent_times_as_written(times: Sequence[bytes], events: IntArray) -> IntArray:
    """Read ``[base,[delay,delay`` of each frame, all at once, and without the interpreter's lock."""
    text = b",".join(times) + b","
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord(","))  # of each number
    lengths = np.fromiter(map(len, times), np.int64, count=len(times))
    frames_end = np.searchsorted(ends, np.cumsum(lengths + 1) - 1) + 1  # among the numbers
    bases = np.concatenate([[0], frames_end[:-1]])
    if (frames_end - bases <= events).any():
        raise ValueError("fewer numbers than events")
    # The text is cut into what is between numbers, a number, what is between numbers, …; the former counts as null.
    cuts = np.zeros(2 * len(ends) + 1, np.int32)
    cuts[2::2] = ends
    cuts[3::2] = ends[:-1] + 1
    is_binary = np.fromiter((each.startswith(b"\0") for each in times), np.int32, count=len(times))
    cuts[2 * bases + 1] += 1 + is_binary
    cuts[2 * bases + 3] += 1
    is_number = np.full(len(cuts) // 8 + 1, 0b10101010, np.uint8)
    buffers = (pa.py_buffer(each) for each in (cuts, text, is_number))
    pieces = pa.StringArray.from_buffers(2 * len(ends), *buffers, len(ends))
    numbers = np.frombuffer(pc.cast(pieces, pa.int64()).buffers()[1], np.int64)[1 : 2 * len(ends) : 2]
    last = np.repeat(frames_end - np.cumsum(events), events)
    last += np.arange(len(last))
    sent: IntArray = numbers[last]
    sent += np.repeat(numbers[bases], events)
    return sent


def _sent_times_of(text: bytes, events: int) -> list[int]:
    base, delays = orjson.loads(text.removeprefix(b"\0") + b"]]")
    if len(delays) < events:
        raise ValueError("fewer times than events")
    return [int(base + delay) for delay in delays[-events:]]
