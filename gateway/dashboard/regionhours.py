"""The last hour of each region, minute by minute: how many events were published, and how many were on their way."""

from __future__ import annotations

import math
from array import array
from collections import deque

from adapters.redis.networkstate import RegionState
from gateway.dashboard.snapshot import Row, Snapshot

STEP_MS = 60_000
MINUTES = 60
REGIONS_MAX = 20_000
"""The curves of a region take 600 bytes. Of a larger network, those that came first have curves."""
UNKNOWN = math.nan


class RegionHours:
    """Takes a look a minute; a look between two costs nothing."""

    def __init__(self) -> None:
        self._times: deque[int] = deque(maxlen=MINUTES)
        self._minute = 0
        """How many minutes there were; minute m is at place m modulo `MINUTES` of each curve."""
        self._rates: dict[str, array[float]] = {}
        self._behind: dict[str, array[float]] = {}
        self._then: dict[str, RegionState] = {}

    def add(self, snapshot: Snapshot) -> None:
        """Note a look, if the last one that was noted is a minute ago."""
        at_ms = snapshot.at_ms
        if self._times and 0 <= at_ms - self._times[-1] < STEP_MS:
            return
        if self._times and at_ms < self._times[-1]:  # the clock was set back
            self._times.clear()
        place = self._minute % MINUTES
        for curves in (self._rates, self._behind):
            for curve in curves.values():
                curve[place] = UNKNOWN
        now, rows = {region.name: region for region in snapshot.now.regions}, snapshot.regions
        for name in [name for name in self._rates if name not in now]:
            del self._rates[name], self._behind[name]
        for name, region in now.items():
            if name not in self._rates:
                if len(self._rates) >= REGIONS_MAX:
                    continue
                self._rates[name], self._behind[name] = (array("f", [UNKNOWN]) * MINUTES for _ in range(2))
            self._rates[name][place] = _rate(self._then.get(name), region)
            behind = rows[name]["behind"]
            self._behind[name][place] = UNKNOWN if behind is None else behind
        self._then = now
        self._times.append(at_ms)
        self._minute += 1

    def of(self, name: str) -> Row:
        """Return the curves of a region, oldest minute first; None where nothing is known."""
        if name not in self._rates:
            return {"at_ms": [], "events_per_s": [], "behind": []}
        places = [minute % MINUTES for minute in range(self._minute - len(self._times), self._minute)]
        return {
            "at_ms": list(self._times),
            "events_per_s": [_known(self._rates[name][place]) for place in places],
            "behind": [_known(self._behind[name][place]) for place in places],
        }


def _rate(then: RegionState | None, now: RegionState) -> float:
    """Return the events/s that the ingress numbered between two minutes."""
    if then is None or then.drawn is None or now.drawn is None or then.drawn_at_s is None or now.drawn_at_s is None:
        return UNKNOWN
    apart_s = now.drawn_at_s - then.drawn_at_s
    if then.epoch != now.epoch or now.drawn < then.drawn or apart_s <= 0:
        return UNKNOWN
    return (now.drawn - then.drawn) / apart_s


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.3g}")
