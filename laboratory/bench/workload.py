"""What every peer of the bench is asked to carry: the grid, its events, and the phases of one trial."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from itertools import combinations
from typing import Any

Payload = dict[str, Any]

FAN_OUT = 3
PUBLISHERS = 2


@dataclass(frozen=True, slots=True)
class Grid:
    """`size` subscribers on as many regions: subscriber i has the regions i, i+1 and i+2, modulo `size`."""

    size: int

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(f"region-{index:03d}" for index in range(self.size))

    @property
    def subscribers(self) -> tuple[str, ...]:
        return tuple(f"server-{index:03d}" for index in range(self.size))

    def regions_of(self, subscriber: int) -> tuple[int, ...]:
        return tuple((subscriber + step) % self.size for step in range(FAN_OUT))

    def sharing_pairs(self) -> list[tuple[int, int, frozenset[int]]]:
        """Every two subscribers that have a region in common, with those regions."""
        regions = [frozenset(self.regions_of(subscriber)) for subscriber in range(self.size)]
        return [
            (one, other, regions[one] & regions[other])
            for one, other in combinations(range(self.size), 2)
            if regions[one] & regions[other]
        ]


@dataclass(frozen=True, slots=True)
class Phases:
    """One trial: a warm-up, then `events` as fast as the peer allows, then `paced_s` seconds of `rate_per_s` events/s.

    In the fast phases at most `window_events` events are under way, so that a peer that would rather lose than wait, or
    buffer without a limit, is neither helped nor harmed; once there are as many, publishers wait until half of them
    have been delivered to all. The first 0.2 s of the paced phase are not measured.

    Before they begin, both processes freeze what they have imported: else every full garbage collection walks the bench
    itself (70,000 objects, 45 ms), and more often for a peer that has more events under way.
    """

    events: int
    paced_s: float
    rate_per_s: int
    window_events: int
    seed: int

    @property
    def warm_up(self) -> range:
        return range(max(1, self.events // 10))

    @property
    def fast(self) -> range:
        return range(self.warm_up.stop, self.warm_up.stop + self.events)

    @property
    def paced(self) -> range:
        return range(
            self.fast.stop, self.fast.stop + self._paced_warm_up + max(1, round(self.paced_s * self.rate_per_s))
        )

    @property
    def measured_from(self) -> int:
        """The first event whose delay counts."""
        return self.paced.start + self._paced_warm_up

    @property
    def _paced_warm_up(self) -> int:
        return self.rate_per_s // 5

    def regions(self, grid: Grid) -> list[int]:
        """The region of each event; the same in every process and for every peer."""
        return random.Random(self.seed).choices(range(grid.size), k=self.paced.stop)


def payload_of(event: int) -> Payload:
    """About 190 bytes of JSON, stamped with the clock that all processes of a machine share."""
    return {
        "id": event,
        "sent_at_ns": time.monotonic_ns(),
        "kind": "ability_cast",
        "actor": "player-0417",
        "target": "player-1138",
        "ability": "frost-nova",
        "position": [1043.25, -221.5, 12.75],
        "damage": 37,
        "critical": False,
    }
