"""Cuts: how far what was read at a node is all of what passed it, so that its own order can be taken as it is.

A node is single-threaded, and numbers every frame that ends there. So all egress streams that a subscriber wants at a
node, looked at in one moment, are a consistent cut of its order: nothing that comes later has a smaller number than
what is there. Sorted by number, that is the order of the node, whoever reads it, however many streams, now or years
later. No atom needs to buy it back.

A look is not always one of everything. Streams that were left out, or cut short, may hide numbers behind the last that
they showed; up to the smallest of these the order is known, and what is above waits for another look.

A read that waits is woken by one stream, and a Redis before 7.2 answers with that one alone. Still, what it brings is
the next that the node numbered of all that is waited for, unless the step that woke it had appended to another stream
before: `sequencing.node` marks such numbers by their sign, and whoever reads one looks once more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from sequencing.frames import StampedFrame, node_number

Item = TypeVar("Item")
Numbered = tuple[float, Item]
"""A node's number, and what has it."""


class ReadResult(NamedTuple):
    """What was found at one node; ``whole``: region → epoch, of the streams of which all was found, in one moment.

    Nothing that was found earlier at the node is later than that moment.
    """

    frames: Sequence[StampedFrame]
    whole: Mapping[str, int]


def without_cut_short(
    streams: Mapping[str, int], frames: Collection[StampedFrame], frames_max: int
) -> Mapping[str, int]:
    """Return the streams, region → epoch, of which a look at all of them has found all; the very same if that is all.

    ``frames_max``: as many frames as were returned of each stream at most.
    """
    if len(frames) < frames_max:
        return streams
    found: dict[str, int] = {}
    for frame in frames:
        found[frame.region] = found.get(frame.region, 0) + 1
    short = {region for region, count in found.items() if count >= frames_max}
    return {region: epoch for region, epoch in streams.items() if region not in short} if short else streams


class Looks:
    """One reader's looks at a node, one after the other."""

    def __init__(self) -> None:
        self._whole: Mapping[str, int] | None = None
        self._latest: Sequence[StampedFrame] = ()
        """What the last look that found anything has found."""

    def may_wait(self, streams: Mapping[str, int]) -> bool:
        """Return whether the next look, at these streams, region → epoch, may wait until there is something new.

        Not if the last one was of others, or left something out: what it found may wait for a look at all.
        """
        return streams is self._whole or streams == self._whole

    def are_next(self, frames: Sequence[StampedFrame]) -> bool:
        """Return whether frames of one stream, with which a read that waited was woken, are surely the next of all."""
        if not any(frame.stamp.startswith(b"0,-") for frame in frames):
            return True
        last = max((abs(node_number(frame.stamp)) for frame in self._latest), default=0)
        for frame in frames:
            number = node_number(frame.stamp)
            if number < 0 and -number != last + 1:
                return False
            last = abs(number)
        return True

    def found(self, streams: Mapping[str, int], frames: Sequence[StampedFrame], frames_max: int) -> ReadResult:
        """Return what a look has found; ``frames_max``: as many frames as it was to return of each stream."""
        self._latest = frames or self._latest
        if streams != self._whole:
            self._whole = streams
        whole = without_cut_short(self._whole or streams, frames, frames_max)
        if whole is not self._whole:
            self._whole = None
        return ReadResult(frames, whole)


def let_through(ahead: list[Numbered[Item]], cut: float) -> list[Numbered[Item]]:
    """Take from what is ahead all up to a cut, and return it in the order of its numbers."""
    ahead.sort(key=itemgetter(0))
    count = len(ahead)
    while count and ahead[count - 1][0] > cut:
        count -= 1
    through = ahead[:count]
    del ahead[:count]
    return through
