"""Latency stretch: how much longer events take through the network than straight from publisher to destination."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.topologies.distances import Standing

Arrival = tuple[str, float]
"""(who published an event, how long it took to be delivered, in ms), as its destination saw it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Of each destination: the time that its events took, over the time that they would have taken directly.

    That is the sum of the one over the sum of the other, over all events from other publishers: a publisher's own
    events have no direct way. A destination that all its events reach in no time is left out.
    """

    by_destination: Mapping[str, float]
    deliveries: int
    delay_ms: float
    """The mean of all these deliveries."""
    direct_ms: float

    @property
    def mean(self) -> float:
        """The mean of the destinations'; not a number when there are none."""
        found = self.by_destination.values()
        return sum(found) / len(found) if found else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; the quantiles are those of destinations."""
        ascending = sorted(self.by_destination.values())

        def quantile(part: float) -> float | None:
            return ascending[max(0, math.ceil(part * len(ascending)) - 1)] if ascending else None

        return {
            "mean": self.mean if ascending else None,
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "max": quantile(1.0),
            "ratio_of_means": self.delay_ms / self.direct_ms if self.direct_ms else None,
            "deliveries": self.deliveries,
            "delay_ms": self.delay_ms,
            "direct_ms": self.direct_ms,
            "by_destination": dict(self.by_destination),
        }


def stretch_of(arrivals: Mapping[str, Iterable[Arrival]], standing: Standing) -> Stretch:
    """Return the stretch of each destination's deliveries."""
    by_destination: dict[str, float] = {}
    deliveries, all_ms, all_direct_ms = 0, 0.0, 0.0
    for destination, seen in arrivals.items():
        others = [(sender, ms) for sender, ms in seen if sender != destination]
        took_ms = sum(ms for _, ms in others)
        direct_ms = sum(standing.ms(sender, destination) for sender, _ in others)
        if direct_ms:
            by_destination[destination] = took_ms / direct_ms
        deliveries += len(others)
        all_ms += took_ms
        all_direct_ms += direct_ms
    count = max(1, deliveries)
    return Stretch(by_destination, deliveries, all_ms / count, all_direct_ms / count)
