"""The search for the highest rate that a network carries within bounds: the next rate to try, and the findings.

It is pure: the result of a run at a rate is passed in. Rates double until one fails, or halve until one passes; then
the bracket is halved, by ratio, until it is narrow. Other work on the machine spoils single runs, so a rate passes or
fails by the majority of its runs. The result is the highest rate below all that fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from laboratory.bench.figures import median

RESOLUTION = 1.1
"""The bracket is narrow when its ends are within this ratio: single runs differ by more."""
STEP = 2.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a passing run: the 99th percentile of delays and that of hold times, in ms."""

    p99_ms: float
    hold_ms: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run at one rate. Delays count from when an event was due, so a publisher that is late makes them longer.

    ``hold_p99_ms`` is of all frames, those that did not wait included; ``late_ms``: how far behind the publishers were,
    at worst; ``cores``: part → cores in use, without the parts that are on other machines.
    """

    rate_per_s: float
    published_per_s: float
    deliveries_per_s: float
    p50_ms: float
    p99_ms: float
    hold_p99_ms: float
    hold_longest_ms: float
    late_ms: float
    lost: int
    duplicated: int
    pairs_out_of_order: int
    cores: dict[str, float]

    @property
    def broken(self) -> int:
        """How often a promise was broken: that is no matter of rates."""
        return self.duplicated + self.pairs_out_of_order

    def passes(self, bounds: Bounds) -> bool:
        """Return whether it kept within the bounds and everything came."""
        return not self.lost and self.p99_ms <= bounds.p99_ms and self.hold_p99_ms <= bounds.hold_ms


@dataclass(slots=True)
class Search:
    """Say `next_rate`, run at it, and `add` what came of it, until there is none; ``repeats`` is odd."""

    bounds: Bounds
    start_per_s: float
    rate_max_per_s: float
    rate_min_per_s: float = 1.0
    repeats: int = 3
    runs: list[Run] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Take what came of a run."""
        self.runs.append(run)

    def next_rate(self) -> float | None:
        """Return the rate to run at next; None when the answer is as narrow as it gets."""
        if not self.runs:
            return self.start_per_s
        if self.runs[-1].broken:
            return None
        if (open_rate := self._undecided()) is not None:
            return open_rate
        low, high = self.passed_per_s, self.failed_per_s
        if high is None:
            assert low is not None
            return min(low * STEP, self.rate_max_per_s) if low < self.rate_max_per_s else None
        if low is None:
            return max(high / STEP, self.rate_min_per_s) if high > self.rate_min_per_s else None
        return math.sqrt(low * high) if high / low > RESOLUTION else None

    @property
    def failed_per_s(self) -> float | None:
        """The lowest rate at which the majority of runs failed."""
        return min((rate for rate in self._rates() if self._decided(rate) is False), default=None)

    @property
    def passed_per_s(self) -> float | None:
        """The highest rate below all that failed at which the majority of runs passed."""
        high = self.failed_per_s
        passed = (rate for rate in self._rates() if self._decided(rate) and (high is None or rate < high))
        return max(passed, default=None)

    def at(self, rate_per_s: float) -> list[Run]:
        """Return the runs at a rate."""
        return [run for run in self.runs if run.rate_per_s == rate_per_s]

    def spread(self, name: str, rate_per_s: float) -> dict[str, float]:
        """Return the median and the extremes of a figure over the runs at a rate."""
        values = [float(getattr(run, name)) for run in self.at(rate_per_s)]
        return {"median": median(values), "min": min(values), "max": max(values)}

    def _undecided(self) -> float | None:
        """Return the rate of the last run if more of them are needed there."""
        rate = self.runs[-1].rate_per_s
        return rate if self._decided(rate) is None else None

    def _decided(self, rate_per_s: float) -> bool | None:
        """Return what the majority of runs said at a rate; None while there is none."""
        passed = [run.passes(self.bounds) for run in self.at(rate_per_s)]
        most = self.repeats // 2 + 1
        if sum(passed) >= most:
            return True
        return False if len(passed) - sum(passed) >= most else None

    def _rates(self) -> Iterable[float]:
        return sorted({run.rate_per_s for run in self.runs})
