"""The sending times of events, read from the frames' own text, for many frames at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

IntArray = npt.NDArray[np.int64]


def sent_times(times: Sequence[bytes], events: IntArray) -> IntArray:
    """Return when each event was sent, for the last ``events`` of each frame; see `columns.DeliveredFrame`.

    Raises one of `columns.UNREADABLE`.
    """
    try:
        return _sent_times_as_written(times, events)
    except ValueError:  # it may be JSON, but not as gamecast writes it
        per_frame = [_sent_times_of(*each) for each in zip(times, events.tolist(), strict=True)]
        return np.array(list(chain.from_iterable(per_frame)), np.int64)


def _sent_times_as_written(times: Sequence[bytes], events: IntArray) -> IntArray:
    """Read ``[base,[delay,delay`` of each frame, all at once, and without the interpreter's lock."""
    text = b",".join(times) + b","
    letters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(letters == ord(","))  # of each number
    lengths = np.fromiter(map(len, times), np.int64, count=len(times)) + 1
    texts_end = np.cumsum(lengths)
    frames_end = np.searchsorted(ends, texts_end - 1) + 1  # among the numbers
    bases = np.concatenate([[0], frames_end[:-1]])
    if (frames_end - bases <= events).any():
        raise ValueError("fewer numbers than events")
    # The text is cut into parts: between numbers, a number, between numbers, …; the parts between numbers are null.
    cuts = np.zeros(2 * len(ends) + 1, np.int32)
    cuts[2::2] = ends
    cuts[3::2] = ends[:-1] + 1
    is_binary = letters[texts_end - lengths] == 0  # by its first byte
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
