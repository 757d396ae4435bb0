"""How long received frames waited for others, counted in buckets. Costs next to nothing while nothing waits."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from gamecast.event import HOLD_BOUNDS_MS
from sequencing.delivery import Missing, Ready
from sequencing.frames import StampedFrame

WAITING_MAX = 20_000
"""Frames whose waits are measured at a time; of more that wait, the later ones are not counted."""


class HoldTimes:
    """Counts of one connection; ``counts`` as `Statistics.hold_counts` has them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = [0] * (len(HOLD_BOUNDS_MS) + 1)
        self._clock = clock
        self._since: dict[tuple[str, int, int], float] = {}

    def note(self, received: Sequence[StampedFrame], released: Iterable[Ready | Missing], *, held_frames: int) -> None:
        """Note what came and what may be delivered now; ``held_frames``: how many wait after that."""
        if not self._since and not held_frames:
            self.counts[0] += len(received)
            return
        now = self._clock()
        fresh = {(frame.region, frame.epoch, frame.last) for frame in received}
        for item in released:
            if isinstance(item, Missing):
                continue
            key = item.frame.region, item.frame.epoch, item.frame.last
            since = self._since.pop(key, None)
            if since is not None:
                self.counts[bisect_left(HOLD_BOUNDS_MS, (now - since) * 1000)] += 1
            elif key in fresh:
                self.counts[0] += 1
                fresh.discard(key)
        if not held_frames:
            self._since.clear()  # what is left was dropped: it came before its region was joined
            return
        for key in fresh:
            if len(self._since) < WAITING_MAX:
                self._since[key] = now
