"""Axes with round ticks: from zero, logarithmic, and of time. They know no pixels: a place is a part from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

Label = Callable[[float], str]
TICKS_MAX = 5
"""As many labels fit side by side on a phone."""
NARROW_DECADES = 1.3
"""A logarithmic axis of at most so many decades has ticks at 1, 2 and 5; a longer one only at powers of ten."""
TIME_STEPS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720)
MINUTES_PER_DAY = 1440
SECONDS_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600)
LOG_FROM = 20.0
"""If the highest delay is so many times the lowest, their axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values, and the ticks in it with their texts."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Return where a value is, from 0 at the low end to 1 at the high end; values outside are at the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def axis_from_zero(highest: float, label: Label) -> Axis:
    """Return an axis from zero to a round number that is not below the highest value."""
    highest = highest if highest > 0 else 1.0
    step = _round_up(highest / (TICKS_MAX - 1))
    count = max(1, math.ceil(highest / step - 1e-9))
    return Axis(0.0, count * step, tuple((number * step, label(number * step)) for number in range(count + 1)))


def log_axis(lowest: float, highest: float, label: Label) -> Axis:
    """Return a logarithmic axis between round numbers; both values are above zero."""
    low, high = _round_down(lowest), _round_up(highest)
    if high <= low * 1.001:
        high = _round_up(low * 1.5)
    if math.log10(high / low) <= NARROW_DECADES:
        values = [low]
        while values[-1] < high * 0.999:
            values.append(_round_up(values[-1] * 1.5))
        return Axis(low, values[-1], tuple((value, label(value)) for value in values), log=True)
    first, last = math.floor(math.log10(low * 1.001)), math.ceil(math.log10(high * 0.999))
    every = math.ceil((last - first) / TICKS_MAX)
    ticks = tuple((10.0**power, label(10.0**power)) for power in range(first, last + 1, every))
    return Axis(10.0**first, 10.0**last, ticks, log=True)


def delay_axis(known_ms: Collection[float]) -> Axis:
    """Return an axis of delays: from zero, or logarithmic if they differ much."""
    above = [value for value in known_ms if value > 0]
    if above and min(known_ms) > 0 and max(above) > LOG_FROM * min(above):
        return log_axis(min(above), max(above), duration_text)
    return axis_from_zero(max(above, default=1.0), duration_text)


def elapsed_axis(seconds: float) -> Axis:
    """Return an axis of seconds since a beginning, which ends where the seconds do."""
    fits = [step for step in SECONDS_STEPS if seconds / step <= TICKS_MAX]
    step = fits[0] if fits else 86_400 * math.ceil(seconds / 86_400 / TICKS_MAX)
    ticks = tuple((float(at), elapsed_text(at)) for at in range(0, math.floor(seconds) + 1, step))
    return Axis(0.0, max(seconds, 1.0), ticks)


def elapsed_text(seconds: float) -> str:
    """Return the time since a beginning: 40 s, 2 min, 1 h 30."""
    if seconds < 120 and seconds % 60:
        return f"{seconds:g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min" if rest else f"{minutes} min" if minutes else "0"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02} h" if minutes else f"{hours} h"


def time_axis(start: datetime, end: datetime) -> Axis:
    """Return an axis of minutes since ``start``, with ticks at round times of day; the day is named where it begins."""
    minutes = max(1.0, (end - start).total_seconds() / 60)
    step = _time_step(minutes)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    into_day = (start - midnight).total_seconds() / 60
    first = math.ceil(into_day / step) * step
    ticks = []
    while first - into_day <= minutes:
        ticks.append((first - into_day, _time_text(midnight + timedelta(minutes=first), step)))
        first += step
    return Axis(0.0, minutes, tuple(ticks))


def duration_text(ms: float) -> str:
    """Return a duration with three digits at most: 0.25 ms, 12.3 ms, 4.1 s."""
    return f"{ms:.3g} ms" if ms < 999.5 else f"{number_text(ms / 1000)} s"


def number_text(value: float) -> str:
    """Return a number with three digits at least where it has them, and without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent_text(part: float) -> str:
    """Return a part as a percentage."""
    return f"{100 * part:.3g}%"


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value * (1 + 1e-9)))
    return next(factor * power for factor in (5, 2, 1) if factor * power <= value * (1 + 1e-9))


def _time_step(minutes: float) -> int:
    fits = [step for step in TIME_STEPS_MIN if minutes / step <= TICKS_MAX]
    return fits[0] if fits else MINUTES_PER_DAY * math.ceil(minutes / MINUTES_PER_DAY / TICKS_MAX)


def _time_text(time: datetime, step: int) -> str:
    if step >= MINUTES_PER_DAY or (time.hour == 0 and time.minute == 0):
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M}"
