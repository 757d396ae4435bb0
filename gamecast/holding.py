"""How long received frames waited for others before they were delivered: the price of order at a subscriber."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sequencing.frames import StampedFrame
from sequencing.ready import Missing, Ready

STEPS_PER_DECADE = 10
"""Each edge is 26% above the one before: finer than the noise of any machine, in 70 numbers."""
EDGES_MS = tuple(round(0.01 * 10 ** (step / STEPS_PER_DECADE), 6) for step in range(7 * STEPS_PER_DECADE + 1))
HOLD_BOUNDS_MS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""Coarser bounds, for people; 0 is for frames that were delivered at once. An edge counts as a bound near it."""
WAITING_MAX = 100_000
"""The most frames whose arrival is remembered. Frames that are dropped unseen, with a region that is left, are
forgotten when nothing is held any more. If that never happens, the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class HoldTimes:
    """How many frames waited, by how long: ``counts[i]`` of them up to ``EDGES_MS[i]``, the last entry beyond."""

    counts: tuple[int, ...] = (0,) * (len(EDGES_MS) + 1)
    longest_ms: float = 0.0

    @property
    def frames(self) -> int:
        """How many frames waited at all."""
        return sum(self.counts)

    def since(self, earlier: HoldTimes) -> HoldTimes:
        """Return the difference to an earlier snapshot of the same connection; ``longest_ms`` stays that of all."""
        return HoldTimes(
            tuple(now - before for now, before in zip(self.counts, earlier.counts, strict=True)), self.longest_ms
        )

    def quantile_ms(self, share: float, *, frames: int | None = None) -> float:
        """Return the time that this share of ``frames`` (None: of those that waited) did not exceed.

        If ``frames`` exceeds those that waited, the others did not wait at all. Exact to the next edge; NaN of no
        frames.
        """
        of = self.frames if frames is None else frames
        if not of:
            return math.nan
        rank = math.ceil(share * of) - (of - self.frames)
        if rank <= 0:
            return 0.0
        place = bisect_left(list(accumulate(self.counts)), rank)
        return min(EDGES_MS[place], self.longest_ms) if place < len(EDGES_MS) else self.longest_ms

    def within(self, bounds_ms: Sequence[float], *, at_once: int) -> tuple[int, ...]:
        """Return how many frames waited up to each bound, and longer; ``at_once``: how many did not wait."""
        counts = [at_once] + [0] * len(bounds_ms)
        for edge, count in zip((*EDGES_MS, math.inf), self.counts, strict=True):
            counts[bisect_left(bounds_ms, edge * 0.99)] += count
        return tuple(counts)

    def waits_ms(self) -> Iterable[float]:
        """Yield a time for each frame that waited: the upper edge of its step."""
        for edge, count in zip((*EDGES_MS, self.longest_ms), self.counts, strict=True):
            yield from [edge] * count

    @classmethod
    def together(cls, of_several: Iterable[HoldTimes]) -> HoldTimes:
        """Add up those of several connections."""
        several = [cls(), *of_several]
        counts = zip(*(each.counts for each in several), strict=True)
        return cls(tuple(map(sum, counts)), max(each.longest_ms for each in several))


NOTHING_HELD = HoldTimes()


class Holding:
    """Notes when frames arrive that are not delivered at once, and how long they waited."""

    def __init__(self) -> None:
        self.since_ns: dict[tuple[str, int, int], int] = {}
        self._counts = [0] * (len(EDGES_MS) + 1)
        self._longest_ms = 0.0

    def __bool__(self) -> bool:
        """Whether any frame is known to wait."""
        return bool(self.since_ns)

    def received(self, frames: Sequence[StampedFrame], handed_out: Iterable[Ready | Missing]) -> None:
        """Note the frames of one read that were not delivered with it. Do not call it while nothing is held."""
        now_ns = time.monotonic_ns()
        at_once = {_key(item.frame) for item in handed_out if isinstance(item, Ready)}
        for frame in frames:
            if (key := _key(frame)) not in at_once:
                self.since_ns[key] = now_ns
        while len(self.since_ns) > WAITING_MAX:
            del self.since_ns[next(iter(self.since_ns))]

    def handed_out(self, items: Iterable[Ready | Missing], *, still_held: int) -> None:
        """Count those of these frames that waited. Do not call it while none waits."""
        waiting = self.since_ns
        now_ns = time.monotonic_ns()
        for item in items:
            if isinstance(item, Ready) and (since_ns := waiting.pop(_key(item.frame), None)) is not None:
                waited_ms = (now_ns - since_ns) / 1e6
                self._counts[bisect_left(EDGES_MS, waited_ms)] += 1
                self._longest_ms = max(self._longest_ms, waited_ms)
        if not still_held:
            waiting.clear()

    @property
    def times(self) -> HoldTimes:
        """Return a snapshot."""
        return HoldTimes(tuple(self._counts), self._longest_ms)


def _key(frame: StampedFrame) -> tuple[str, int, int]:
    return frame.region, frame.epoch, frame.last
