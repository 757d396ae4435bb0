"""Turns: the minutes at which the delay of a session, or of some of its servers, regions, nodes or links, rose.

A line of 99th percentiles is cut into stretches of about one level by PELT (R. Killick et al., *Optimal detection of
changepoints with a linear computational cost*, 2012; the package ruptures). Levels are compared as logarithms, and the
penalty of a cut follows the line's own noise. A turn is a cut behind which the level is higher by a factor and by an
amount that somebody would notice. Of all that rose in one minute, the smallest part that explains it is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

Lines = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by kind, as `analytics.jobs.timeline.measure_timeline` returns them."""

TURNS_MAX = 5
MINUTES_MIN = 6
STRETCH_MIN = 3
"""Minutes before and after a cut, at least: of fewer, the median would be moved by a single minute."""
LAG_MAX = 10
"""Minutes apart of which values are compared, to tell a wandering level from a step."""
COUNTED_MIN = 20
"""Deliveries that a minute needs for a percentile."""
FACTOR_MIN, RISE_MS_MIN = 1.5, 2.0
NOISE_MIN = 0.07
"""About a bucket of the percentiles, as a binary logarithm."""
PENALTY = 6.0
"""Of a cut, in variances of the noise, times the logarithm of the line's length."""
KINDS = ("link", "node", "server", "region", "all")
"""Of equal parts, the first one is named."""
NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Rise:
    """One line's rise. ``until``: the minute of the next stretch with a lower level, empty if there is none."""

    kind: str
    key: str
    minute: str
    before_ms: float
    after_ms: float
    until: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """What rose in a minute. ``why``: what else changed then."""

    minute: str
    kind: str
    keys: tuple[str, ...]
    of: int
    """How many keys of this kind there are."""
    before_ms: float
    after_ms: float
    """The levels; of several keys, the medians."""
    until: str
    why: tuple[str, ...]

    def describe(self) -> str:
        """Return one sentence, without a full stop."""
        said = f"p99 of {self._who()} rose from {_ms(self.before_ms)} to {_ms(self.after_ms)} at "
        said += self.minute.replace("T", " ")
        if self.until:
            day, _, time = self.until.partition("T")
            said += f", until {time if self.minute.startswith(day) else f'{day} {time}'}"
        return said + (f": {'; '.join(self.why)}" if self.why else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the value for ``--json``."""
        return {
            "minute": self.minute,
            "kind": self.kind,
            "keys": list(self.keys),
            "p99_before_ms": self.before_ms,
            "p99_after_ms": self.after_ms,
            "until": self.until or None,
            "why": list(self.why),
            "text": self.describe(),
        }

    def _who(self) -> str:
        plural = {"link": "links", "node": "nodes", "server": "servers", "region": "regions"}
        if self.kind == "all":
            return "all deliveries"
        if len(self.keys) == self.of and self.of > NAMED_MAX:
            return f"all {self.of:,} {plural[self.kind]}"
        named = ", ".join(self.keys[:NAMED_MAX])
        more = len(self.keys) - NAMED_MAX
        prefix = {"link": "link ", "node": "node ", "region": "region ", "server": ""}[self.kind]
        if len(self.keys) > 1:
            prefix = plural[self.kind] + " "
        return f"{prefix}{named}" + (f" and {more:,} more" if more > 0 else "")


def find_turns(lines: Lines, epochs: Mapping[str, str] | None = None, *, span_s: float = 60.0) -> tuple[Turn, ...]:
    """Return the turns, at most `TURNS_MAX`, the largest first.

    ``epochs``: minute → why a plan began in it; ``span_s``: how long a minute is, less in a short session.
    """
    rises = [
        rise for kind in KINDS for key, rows in _by_key(lines.get(kind, ())).items() for rise in _rises(kind, key, rows)
    ]
    sizes = {kind: len({row["key"] for row in lines.get(kind, ())}) for kind in KINDS}
    # Of few deliveries, lines that rise together are cut some seconds apart.
    near_s = span_s if span_s >= 60 else STRETCH_MIN * span_s
    groups: list[list[Rise]] = []
    for rise in sorted(rises, key=lambda each: each.minute):
        if groups and _apart(groups[-1][0].minute, rise.minute) <= near_s:
            groups[-1].append(rise)
        else:
            groups.append([rise])
    turns = [_turn(group, sizes, lines, epochs or {}, near_s) for group in groups]
    return tuple(sorted(turns, key=lambda each: -each.after_ms / each.before_ms)[:TURNS_MAX])


def _by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["p99_ms"] is not None and row["deliveries"] >= COUNTED_MIN:
            by_key.setdefault(row["key"], []).append(row)
    return by_key


def _rises(kind: str, key: str, rows: Sequence[Mapping[str, Any]]) -> list[Rise]:
    if len(rows) < MINUTES_MIN:
        return []
    values = [row["p99_ms"] for row in rows]
    bounds = _cuts(np.log2(values))
    levels = [float(median(values[a:b])) for a, b in pairwise(bounds)]
    rises = []
    for place in range(1, len(levels)):
        before, after = levels[place - 1], levels[place]
        if after >= FACTOR_MIN * before and after - before >= RISE_MS_MIN:
            lower = (n for n in range(place + 1, len(levels)) if levels[n] < math.sqrt(before * after))
            until = next((rows[bounds[n]]["minute"] for n in lower), "")
            rises.append(Rise(kind, key, rows[bounds[place]]["minute"], before, after, until))
    return rises


def _cuts(values: Any) -> list[int]:
    """Return where stretches of about one level begin, from 0 to the number of values."""
    import ruptures

    lags = range(1, min(LAG_MAX, len(values) // 6) + 1)
    # Of differences of two values with noise, the median is 0.954 standard deviations of it.
    apart = [float(np.median(np.abs(values[lag:] - values[:-lag]))) / 0.954 for lag in lags]
    noise = max(*apart, NOISE_MIN)
    search = ruptures.Pelt(model="l2", min_size=STRETCH_MIN, jump=1).fit(values.reshape(-1, 1))
    return [0, *search.predict(pen=PENALTY * noise**2 * math.log(len(values)))]


def _turn(
    rises: Sequence[Rise], sizes: Mapping[str, int], lines: Lines, epochs: Mapping[str, str], near_s: float
) -> Turn:
    """Return the turn that a group of simultaneous rises makes, of the kind whose keys have risen most widely."""
    of_kind = {kind: [each for each in rises if each.kind == kind] for kind in KINDS}
    parts = {kind: len(each) / sizes[kind] for kind, each in of_kind.items() if each}
    kind = min(parts, key=lambda each: (parts[each], KINDS.index(each)))
    named = sorted(of_kind[kind], key=lambda each: (-each.after_ms / each.before_ms, each.key))
    worst = named[0]
    minute = worst.minute
    until = worst.until if all(each.until for each in named) else ""
    keys = tuple(dict.fromkeys(each.key for each in named))
    before, after = (float(median(getattr(each, name) for each in named)) for name in ("before_ms", "after_ms"))
    return Turn(minute, kind, keys, sizes[kind], before, after, until, tuple(_why(worst, lines, epochs, near_s)))


def _why(rise: Rise, lines: Lines, epochs: Mapping[str, str], near_s: float) -> list[str]:
    """Return what else changed in the minute of a rise: an epoch, gaps, joins, load, holding."""
    reasons = [f"a plan began ({reason})" for minute, reason in epochs.items() if _apart(minute, rise.minute) <= near_s]
    everything = sorted(lines.get("all", ()), key=lambda row: row["minute"])
    before = [row for row in everything if row["minute"] < rise.minute][-10:]
    after = [row for row in everything if row["minute"] >= rise.minute][:3]
    if before and after:
        for name, text in (("gaps", "gaps"), ("joins", "joins"), ("events_per_s", "events/s")):
            usual, now = median(row[name] for row in before), max(row[name] for row in after)
            if now >= max(2 * usual, 1) and (name != "events_per_s" or now >= FACTOR_MIN * usual):
                reasons.append(f"{text} rose from {usual:,.0f} to {now:,.0f}")
    own = [row for row in lines.get(rise.kind, ()) if row["key"] == rise.key and row.get("held_ms") is not None]
    held_before = [row["held_ms"] for row in own if row["minute"] < rise.minute][-10:]
    held_after = [row["held_ms"] for row in own if row["minute"] >= rise.minute][:3]
    if held_before and held_after:
        usual, now = median(held_before), median(held_after)
        if now >= 2 * usual and now - usual >= 1.0:
            reasons.append(f"events waited {_ms(now)} for their order and in the inbox, instead of {_ms(usual)}")
    return reasons


def _apart(one: str, other: str) -> float:
    return abs(float((np.datetime64(one) - np.datetime64(other)) / np.timedelta64(1, "s")))


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms"
