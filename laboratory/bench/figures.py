"""Medians over runs, percentiles, and ratios between peers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the ascending values do not exceed; NaN where there is none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """The median and the 99th percentile of values in any order."""
    ordered = sorted(values)
    return {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99)}


def median(values: Sequence[float]) -> float:
    """NaN as soon as one value is: a run that measured nothing must not pass for a good one."""
    if not values or any(math.isnan(value) for value in values):
        return math.nan
    return statistics.median(values)


def ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float]:
    """Ours over theirs, for each key that both have and where theirs is not zero."""
    return {
        key: ours[key] / theirs[key]
        for key in ours
        if key in theirs and theirs[key] and not math.isnan(ours[key]) and not math.isnan(theirs[key])
    }


def exponent(values: Sequence[float], sizes: Sequence[int]) -> float:
    """Return e of the growth between the last two sizes: value ~ size^e; not a number for one size, or no cost."""
    if len(sizes) < 2 or min(values[-2:]) <= 0:
        return math.nan
    return math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])
