"""How long events took to reach sessions of this gateway, and how long frames were held: the last minutes of both."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gamecast.event import Event
from gamecast.holding import HOLD_BOUNDS_MS

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
TURNS = 150
"""The number of the poller's turns that are kept: five minutes while the dashboard is watched."""

Counts = list[int]


class Durations:
    """Two histograms over the last turns. ``tap`` gets the delivered batches; `turn` is called at each survey."""

    def __init__(self, on_gap: Callable[[Any], None]) -> None:
        self._on_gap = on_gap
        self._latencies: deque[Counts] = deque([self._no_latencies()], maxlen=TURNS)
        self._holds: deque[Counts] = deque(maxlen=TURNS)
        self._counted: Sequence[int] = (0,) * (len(HOLD_BOUNDS_MS) + 1)

    def tap(self, batch: Sequence[Any]) -> None:
        """Count a batch; see `Gateway.taps`."""
        counts = self._latencies[-1]
        for item in batch:
            if isinstance(item, Event):
                took_ms = (item.delivered_at_ns - item.sent_at_ns) / 1e6
                counts[bisect_left(LATENCY_BOUNDS_MS, took_ms)] += 1
            else:
                self._on_gap(item)

    def turn(self, hold_counts: Sequence[int]) -> None:
        """Begin the next turn. ``hold_counts``: of all frames held until now, see `Connections.hold_counts`."""
        self._holds.append([now - then for now, then in zip(hold_counts, self._counted, strict=True)])
        self._counted = hold_counts
        self._latencies.append(self._no_latencies())

    def document(self) -> dict[str, Any]:
        """Return both histograms as JSON values; the last bucket has no upper bound."""
        return {
            "latency": {"of": "event", "up_to_ms": LATENCY_BOUNDS_MS, "counts": _summed(self._latencies)},
            "hold": {"of": "frame", "up_to_ms": HOLD_BOUNDS_MS, "counts": _summed(self._holds)},
        }

    @staticmethod
    def _no_latencies() -> Counts:
        return [0] * (len(LATENCY_BOUNDS_MS) + 1)


def _summed(turns: Iterable[Counts]) -> Counts:
    return [sum(each) for each in zip(*turns, strict=True)]
