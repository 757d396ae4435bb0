"""Check whether pushed events are the same as those in the streams.

Redis restricts who may send on a channel by commands and channels, and scripts send with the rights of their callers.
So each user that may publish events can also send on the channels of egress streams by hand. Such a message is in no
stream, and for listeners it takes the place of the true event with its number. Preventing that would take a request to
the server for each event, so it is detected instead. It is detected when a different push has the same number, and when
the streams are read again. Then the log reports it (``gamecast.security``), and the application gets a gap in the place
of the true events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from adapters.redis.evidence import Exchange
from sequencing.frames import StampedFrame, parse_meta
from sequencing.keyspace import NodeKeys

KEPT = 32
"""A stream with so many pushes is compared, while others are read on."""

KEPT_MAX = 4 * KEPT
"""The maximum for each stream: with more pushes, all are read again."""

ALL_KEPT_ASIDE = 2_048
"""The maximum for all streams there: beyond it, those with the oldest pushes are compared."""

ASIDE_EVERY = 16
"""Each event with such a number has the stream with the oldest pushes compared: a little at a time, for much at once
would delay what is pushed meanwhile."""

REPORTED_MAX = 1000

security = logging.getLogger("gamecast.security")


class Forged(NamedTuple):
    """Forged events of a region, in the place of the true ones: region sequences, both included."""

    region: str
    epoch: int
    first: int
    last: int


class PushedFrames:
    """The frames that were pushed to one reader at one node since the last comparison with the streams."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._frames: dict[bytes, dict[int, StampedFrame]] = {}
        self._floors: dict[bytes, int] = {}
        """The streams' state at the read before listening: later pushes of these events are late, and true."""
        self._reported: set[tuple[bytes, int]] = set()
        self.due: set[bytes] = set()
        """The streams that it is time to compare."""
        self._asked: set[bytes] = set()
        """Those that are being compared."""
        self._count = 0
        self.are_forged = False
        """Whether a push was found to be forged: then all pushes here are unreliable."""
        self.is_doubtful = False
        """Whether two pushes contradict each other, or a forged one waits for the true event."""

    def __bool__(self) -> bool:
        return bool(self._frames)

    def forget(self) -> None:
        """Forget all pushes: they were compared, or the server was restarted, see `Evidence`."""
        self._frames.clear()
        self.due.clear()
        self._asked.clear()
        self._count = 0
        self.is_doubtful = False

    def begin(self, last_of: Mapping[bytes, int]) -> None:
        """Note the last event that was read of each stream before listening: channel → last event."""
        self._floors = dict(last_of)

    def begin_also(self, key: bytes, last: int) -> None:
        """Note the last event that was read of one more stream."""
        self._floors[key] = last

    def add(self, key: bytes, frame: StampedFrame) -> None:
        """Note a frame that was pushed on the channel of a stream."""
        frames = self._frames.setdefault(key, {})
        self._count += frame.last not in frames
        frames[frame.last] = frame
        if len(frames) >= KEPT:
            self._is_due(key)
            self.is_doubtful = self.is_doubtful or len(frames) >= KEPT_MAX
        elif self._count > ALL_KEPT_ASIDE or (len(self._frames) > 1 and not frame.last % ASIDE_EVERY):
            self._is_due(next((each for each in self._frames if each not in self._asked), key))

    def _is_due(self, key: bytes) -> None:
        if key not in self._asked:
            self.due.add(key)

    def again(self, key: bytes, frame: StampedFrame) -> None:
        """Note a push with a number that was there before: if the two differ, one of them is forged."""
        if frame.last > self._floors.get(key, 0) and self._frames.get(key, {}).get(frame.last) != frame:
            self.is_doubtful = True

    def ask_oldest(self, streams: int | None = None) -> None:
        """Have so many streams compared of which something was pushed, those with the oldest first; None: all."""
        waiting = (key for key in self._frames if key not in self._asked)
        self.due.update(islice(waiting, streams))

    def take_due(self) -> list[tuple[bytes, list[StampedFrame]]]:
        """Return the streams that it is time to compare, each once, and what was pushed of each."""
        due = [(key, [*self._frames[key].values()]) for key in self.due if key in self._frames]
        self._asked |= self.due
        self.due.clear()
        return due

    def not_compared(self, keys: Iterable[bytes]) -> None:
        """Note that streams were not compared after all."""
        self._asked.difference_update(keys)

    def confirm(self, key: bytes, frames: Sequence[StampedFrame], entries: Sequence[Any]) -> bool:
        """Forget frames that were pushed if they are in their stream; return whether they are.

        ``entries``: of the stream, from the first of these frames to the last.
        """
        self._asked.discard(key)
        if any(map(partial(_is_odd, by_id=_by_id(entries)), frames)):
            self.is_doubtful = True
            return False
        known = self._frames.pop(key, {})
        for frame in frames:
            if known.get(frame.last) is frame:
                del known[frame.last]
                self._count -= 1
        if known:
            self._frames[key] = known  # behind the others: it has none of the oldest
        return True

    async def compare(self, exchange: Exchange) -> list[Forged]:
        """Compare with the streams; return the forged events that are now known to have hidden true events.

        Forged events that hide nothing yet are kept, and compared again.
        """
        if not self._frames:
            return []
        pushed = [(key, [*frames.values()]) for key, frames in self._frames.items()]
        is_there, *answers = await exchange(
            [("EXISTS", NodeKeys(self._node).node), *(range_of(key, frames) for key, frames in pushed)]
        )
        if not is_there:  # the stream was emptied, see `Evidence`
            self.forget()
            return []
        odd = [
            (key, frame)
            for (key, frames), entries in zip(pushed, answers, strict=True)
            for frame in filter(partial(_is_odd, by_id=_by_id(entries)), frames)
        ]
        hiding: list[Forged] = []
        self.forget()
        if odd:
            asked: list[tuple[Any, ...]] = []
            for key, frame in odd:
                asked += (
                    ("XRANGE", key, "-", "+", "COUNT", 1),
                    ("XRANGE", key, _id(frame, _first(frame)), "+", "COUNT", 1),
                )
            answers = await exchange(asked)
            forged: dict[bytes, list[StampedFrame]] = {}
            for (key, frame), oldest, hidden in zip(odd, answers[::2], answers[1::2], strict=True):
                if oldest and int(oldest[0][0].partition(b"-")[2]) > frame.last:
                    continue  # it was trimmed
                forged.setdefault(key, []).append(frame)
                if hidden:
                    hiding.append(Forged(frame.region, frame.epoch, _first(frame), frame.last))
                else:
                    self.add(key, frame)
                    self.is_doubtful = True
            self._report(forged)
        return sorted(hiding)

    def _report(self, forged: Mapping[bytes, Sequence[StampedFrame]]) -> None:
        self.are_forged = self.are_forged or bool(forged)
        for key, frames in forged.items():
            new = [frame for frame in frames if (key, frame.last) not in self._reported]
            if not new:
                continue
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported.update((key, frame.last) for frame in new)
            security.error(
                "node %s: %d frames of events were pushed in region %r, from number %d-%d on, that the node has not "
                "numbered: a program with a Redis user that may publish has sent them by hand; see docs/security.md",
                self._node,
                len(new),
                new[0].region,
                new[0].epoch,
                _first(new[0]),
            )


def range_of(key: bytes, frames: Sequence[StampedFrame]) -> tuple[Any, ...]:
    """Return the command that reads a stream from the first of some frames of it to the last."""
    numbers = [frame.last for frame in frames]
    return "XRANGE", key, _id(frames[0], min(numbers)), _id(frames[0], max(numbers))


def _by_id(entries: Sequence[Any]) -> dict[bytes, tuple[bytes, ...]]:
    return {name: tuple(fields[1::2]) for name, fields in entries}


def _is_odd(frame: StampedFrame, by_id: Mapping[bytes, tuple[bytes, ...]]) -> bool:
    return by_id.get(_id(frame, frame.last).encode()) != (frame.meta, frame.stamp, frame.body)


def _first(frame: StampedFrame) -> int:
    return frame.last - parse_meta(frame.meta).events + 1


def _id(frame: StampedFrame, number: int) -> str:
    return f"{frame.epoch}-{number}"
