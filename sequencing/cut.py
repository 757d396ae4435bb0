"""Cuts: how much of what was read at a node is complete, so that the node's own order applies.

A node is single-threaded, and numbers every frame that ends there. So a read in one moment of all egress streams that a
subscriber wants at a node is a consistent cut of the node's order: nothing that comes later has a smaller number than
what was read. Sorted by number, the frames are in the order of the node. This holds for every reader and any number of
streams, now or years later, so no atom is needed for it.

A read does not always include everything. Streams that were left out, or cut short, may hide numbers above the last one
that they showed. Up to the smallest of these last numbers the order is known; frames above it wait for another read.

A blocked read is woken by one stream, and a Redis before 7.2 answers with that stream alone. The frame that it brings
is still the next that the node numbered in all streams of the read, with one exception: the step that woke the read may
have appended to another stream before. `sequencing.node` marks such numbers by their sign, and a reader that finds a
marked number reads again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from sequencing.frames import StampedFrame, node_number

KEPT_MAX = 256
"""So many frames of the last read may be kept until the next one."""

Item = TypeVar("Item")
Numbered = tuple[float, Item]
"""A node's number, and the item that has it."""


class Streams(dict[Any, int]):
    """Stream → epoch, of what is read together, and by what it differs from an earlier one.

    Who knows the earlier one need not look at all of them. It is not changed any more. A stream is a region, or a
    region and an epoch.
    """

    __slots__ = ("before", "changed", "number")
    _numbers = count(1)

    def __init__(
        self, streams: Mapping[Any, int], before: Streams | None = None, changed: AbstractSet[Any] = frozenset()
    ) -> None:
        super().__init__(streams)
        self.number = next(self._numbers)
        self.before = before.number if before is not None else 0
        """The number of the earlier one, 0 for none."""
        self.changed = changed

    def with_changes(self, changes: Mapping[Any, int | None]) -> Streams:
        """Return the next one, in which some streams have another epoch, or, with None, are not read."""
        following = Streams(self, self, changes.keys())
        for stream, epoch in changes.items():
            if epoch is None:
                following.pop(stream, None)
            else:
                following[stream] = epoch
        return following


class ReadResult(NamedTuple):
    """The frames found at one node; ``whole``: region → epoch, of the streams that were read completely, in one moment.

    All frames found earlier at the node were numbered before that moment.
    """

    frames: Sequence[StampedFrame]
    whole: Mapping[str, int]


def without_cut_short(
    streams: Mapping[str, int], frames: Collection[StampedFrame], frames_max: int
) -> Mapping[str, int]:
    """Return those of ``streams`` (region → epoch) that a read reached the end of; the same object if it reached all.

    ``frames_max``: the limit of frames for each stream in that read.
    """
    if len(frames) < frames_max:
        return streams
    counts: dict[str, int] = {}
    for frame in frames:
        counts[frame.region] = counts.get(frame.region, 0) + 1
    short = [region for region, number in counts.items() if number >= frames_max]
    if not short:
        return streams
    return (streams if isinstance(streams, Streams) else Streams(streams)).with_changes(dict.fromkeys(short))


class NodeReads:
    """One reader's successive reads of a node."""

    def __init__(self) -> None:
        self._whole: Mapping[str, int] | None = None
        self._latest: Sequence[StampedFrame] = ()
        """The frames of the last read that found any; of many, the one with the largest number."""

    def may_wait(self, streams: Mapping[str, int]) -> bool:
        """Return whether the next read of these streams (region → epoch) may block until something new arrives.

        It may not if the last read was of other streams or incomplete: frames found then may wait for a complete read.
        """
        return streams is self._whole or streams == self._whole

    @property
    def is_whole(self) -> bool:
        """Whether the last read was complete."""
        return self._whole is not None

    def are_next(self, frames: Sequence[StampedFrame]) -> bool:
        """Return whether frames of one stream, which woke a blocked read, are certainly the next of all streams."""
        return are_next(frames, max(map(_number, self._latest), default=0))

    def result(self, streams: Mapping[str, int], frames: Sequence[StampedFrame], frames_max: int) -> ReadResult:
        """Return the result of a read; ``frames_max``: the most frames that it was to return of each stream."""
        if frames:
            self._latest = frames if len(frames) <= KEPT_MAX else [max(frames, key=_number)]
        if streams is not self._whole and streams != self._whole:
            self._whole = streams
        whole = without_cut_short(self._whole or streams, frames, frames_max)
        if whole is not self._whole:
            self._whole = None
        return ReadResult(frames, whole)


def are_next(frames: Sequence[StampedFrame], last: int = 0) -> bool:
    """Return whether frames of one stream, which woke a blocked read, are certainly the next of all streams.

    ``last``: the largest number that was read before, 0 where that is not known.
    """
    if not any(frame.stamp.startswith(b"0,-") for frame in frames):
        return True
    for frame in frames:
        number = node_number(frame.stamp)
        if number < 0 and -number != last + 1:
            return False
        last = abs(number)
    return True


def let_through(ahead: list[Numbered[Item]], cut: float) -> list[Numbered[Item]]:
    """Take all entries up to a cut from ``ahead``, and return them in the order of their numbers."""
    ahead.sort(key=itemgetter(0))
    count = len(ahead)
    while count and ahead[count - 1][0] > cut:
        count -= 1
    through = ahead[:count]
    del ahead[:count]
    return through


def _number(frame: StampedFrame) -> int:
    return abs(node_number(frame.stamp))
