"""The totals of the last hour, for the curves: the newest points as they are, older ones thinned out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

RECENT_POINTS = 60
BUCKET_MS = 10_000
OLD_POINTS = 360
"""Older points are one for each bucket: an hour, while the network is surveyed at least so often."""


@dataclass(frozen=True, slots=True)
class Point:
    """Totals at ``at_ms`` (Unix time): None if nothing is known."""

    at_ms: int
    events_per_s: float | None
    behind: float | None


class History:
    """The points of the curves, oldest first."""

    def __init__(self) -> None:
        self._recent: deque[Point] = deque()
        self._old: deque[tuple[int, Point]] = deque(maxlen=OLD_POINTS)
        """Each with the number of points that it stands for."""

    def add(self, point: Point) -> None:
        """Append a point. If the clock was set back, the points that are in its future now are forgotten."""
        while self._recent and self._recent[-1].at_ms >= point.at_ms:
            self._recent.pop()
        while self._old and self._old[-1][1].at_ms >= point.at_ms:
            self._old.pop()
        self._recent.append(point)
        if len(self._recent) > RECENT_POINTS:
            self._put_away(self._recent.popleft())

    def document(self) -> dict[str, Any]:
        """Return the columns, as JSON values."""
        points = [*(point for _, point in self._old), *self._recent]
        return {
            "at_ms": [point.at_ms for point in points],
            "events_per_s": [point.events_per_s for point in points],
            "behind": [point.behind for point in points],
        }

    def _put_away(self, point: Point) -> None:
        if not self._old or self._old[-1][1].at_ms // BUCKET_MS != point.at_ms // BUCKET_MS:
            self._old.append((1, point))
            return
        number, last = self._old[-1]
        rate, behind = last.events_per_s, last.behind
        if rate is not None and point.events_per_s is not None:
            rate = round((rate * number + point.events_per_s) / (number + 1), 1)
        elif rate is None:
            rate, number = point.events_per_s, 0
        if point.behind is not None:
            behind = max(behind or 0, point.behind)
        self._old[-1] = number + 1, Point(last.at_ms, rate, behind)
