"""The course of a run: what was published and delivered in each span of time, and how long deliveries took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

SPANS_MAX = 360
"""A run with more spans gets spans twice as long: its charts show no more, and a long run takes no more memory."""
LOWEST_MS, STEP = 0.05, 1.02
"""A delay is known to within 2%: the bucket with a number has delays up to ``LOWEST_MS * STEP**number``."""
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

Delays = Counter[int]
"""Bucket → how many deliveries took so long."""


@dataclass(slots=True)
class Span:
    """``delays`` count each delivery."""

    published: int = 0
    delays: Delays = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class Course:
    """Spans of ``span_s`` seconds each, by their number since the clock's zero."""

    span_s: int = 1
    spans: dict[int, Span] = field(default_factory=dict)

    def published(self, second: int) -> None:
        """Count an event in the second in which its publisher published it."""
        self._span(second).published += 1

    def delivered(self, second: int, delays: Mapping[int, int]) -> None:
        """Count the deliveries of one second."""
        self._span(second).delays.update(delays)

    def delays(self) -> Delays:
        """Return the delays of the whole run."""
        total: Delays = Counter()
        for span in self.spans.values():
            total.update(span.delays)
        return total

    def in_order(self) -> Iterator[tuple[int, Span]]:
        """Yield each span with its first second; also those between, in which nothing happened."""
        if self.spans:
            for number in range(min(self.spans), max(self.spans) + 1):
                yield number * self.span_s, self.spans.get(number, Span())

    def _span(self, second: int) -> Span:
        number = second // self.span_s
        if number not in self.spans and self.spans:
            first, last = min(number, *self.spans), max(number, *self.spans)
            while last - first >= SPANS_MAX:
                self._pool()
                first, last, number = first // 2, last // 2, number // 2
        return self.spans.setdefault(number, Span())

    def _pool(self) -> None:
        pooled: dict[int, Span] = {}
        for number, span in self.spans.items():
            both = pooled.setdefault(number // 2, Span())
            both.published += span.published
            both.delays.update(span.delays)
        self.spans, self.span_s = pooled, self.span_s * 2


def bucket_of(delay_ms: float) -> int:
    """Return the number of a delay's bucket."""
    return max(0, math.ceil(math.log(max(delay_ms, LOWEST_MS) / LOWEST_MS, STEP)))


def percentiles_ms(delays: Mapping[int, int]) -> dict[str, float]:
    """Return upper bounds of p50, p95 and p99, at most 2% too high; nothing of no deliveries."""
    total, found = sum(delays.values()), {}
    for name, part in PERCENTILES.items() if total else ():
        left = math.ceil(part * total)
        for bucket in sorted(delays):
            left -= delays[bucket]
            if left <= 0:
                found[name] = LOWEST_MS * STEP**bucket
                break
    return found
