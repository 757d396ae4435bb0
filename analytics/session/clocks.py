"""The clock offsets of hosts, and their uncertainty, from probes with four times each, as in NTP.

A probe leaves at t1 and is back at t4 by the origin's clock; it reaches the target at t2 and leaves it at t3 by the
target's clock. Both ways take some time, which is never negative. So the target's clock is ahead by at most t2 − t1 and
at least t3 − t4: by (t2 − t1 + t3 − t4)/2, plus or minus half the round trip (t4 − t1) − (t3 − t2). The probe with the
smallest round trip is the most precise (F. Cristian, *Probabilistic clock synchronization*, 1989; RFC 5905 §8). No
number of probes shows how the two ways differ, so the uncertainty does not shrink with more probes.

*Steps.* If no single offset agrees with all probes, a clock was set, or drifted, in between. Then each stretch of
agreeing probes has an estimate of its own. A probe during which a clock was set may show a negative round trip; it is
left out and counted. A step is found if it is larger than the round trips around it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

DRIFT_PPM = 50.0
"""How fast two undisciplined clocks may drift apart: the tolerance of probes grows by this over time."""

WINDOW_NS = 60_000_000_000
"""The longest time that one estimate covers, so that drift stays negligible."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much ``target``'s clock is ahead of ``origin``'s, from ``begins_at_ns`` to ``ends_at_ns`` by origin's.

    The truth is within ``offset_ns`` ± ``uncertainty_ns``, which is half of the smallest round trip, apart from drift
    in that time. ``after_step``: the offset was different before.
    """

    origin: str
    target: str
    begins_at_ns: int
    ends_at_ns: int
    offset_ns: float
    uncertainty_ns: float
    probes: int
    after_step: bool = False

    def reversed(self) -> ClockOffset:
        """Return the same offset as seen from the other host; the times are by its clock then."""
        shift = round(self.offset_ns)
        return ClockOffset(
            self.target,
            self.origin,
            self.begins_at_ns + shift,
            self.ends_at_ns + shift,
            -self.offset_ns,
            self.uncertainty_ns,
            self.probes,
            self.after_step,
        )


@dataclass(frozen=True, slots=True)
class ClockReport:
    """``offsets``: of each pair of hosts that probed each other, in order of time.

    The host that sorts first is the origin. ``steps``: how often clocks were set, as far as it shows. ``discarded``:
    probes that are impossible.
    """

    offsets: tuple[ClockOffset, ...]
    steps: int
    discarded: int


def estimate_offset(
    sent_at_ns: Sequence[int] | IntArray,
    reached_at_ns: Sequence[int] | IntArray,
    answered_at_ns: Sequence[int] | IntArray,
    returned_at_ns: Sequence[int] | IntArray,
    *,
    origin: str = "origin",
    target: str = "target",
    window_ns: int = WINDOW_NS,
    drift_ppm: float = DRIFT_PPM,
) -> ClockReport:
    """Estimate from the probes of one pair, in any order; O(n log n). Without probes there is no estimate."""
    times = np.array([sent_at_ns, reached_at_ns, answered_at_ns, returned_at_ns], np.int64).reshape(4, -1)
    possible = _is_possible(*times)
    sent, reached, answered, returned = times[:, possible]
    bounds = np.array([sent, returned, answered - returned, reached - sent])
    discarded = int(possible.size - possible.sum())
    return _estimate(bounds, origin, target, discarded=discarded, window_ns=window_ns, drift_ppm=drift_ppm)


def estimate_offsets(
    probes: Iterable[tuple[str, str, int, int, int, int]],
    *,
    window_ns: int = WINDOW_NS,
    drift_ppm: float = DRIFT_PPM,
) -> ClockReport:
    """Estimate from rows of `PROBES`: origin_host, target_host, and the four times.

    Probes in both directions between two hosts count together. Probes of a host to itself are ignored: it has one
    clock.
    """
    pairs: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    discarded: dict[tuple[str, str], int] = {}
    for origin, target, sent, reached, answered, returned in probes:
        pair = (origin, target) if origin < target else (target, origin)
        if origin == target:
            continue
        rows = pairs.setdefault(pair, [])
        if not _is_possible(sent, reached, answered, returned):
            discarded[pair] = discarded.get(pair, 0) + 1
        elif origin < target:
            rows.append((sent, returned, answered - returned, reached - sent))
        else:  # seen from the target, whose clock set t2 and t3
            rows.append((reached, answered, sent - reached, returned - answered))
    reports = [
        _estimate(
            np.array(rows, np.int64).reshape(-1, 4).T,
            *pair,
            discarded=discarded.get(pair, 0),
            window_ns=window_ns,
            drift_ppm=drift_ppm,
        )
        for pair, rows in sorted(pairs.items())
    ]
    return ClockReport(
        tuple(offset for report in reports for offset in report.offsets),
        sum(report.steps for report in reports),
        sum(report.discarded for report in reports),
    )


def offsets_from(host: str, offsets: Iterable[ClockOffset], at_ns: int | None = None) -> Mapping[str, ClockOffset]:
    """Return host → by how much its clock is ahead of ``host``'s, by the least uncertain way, also over other hosts.

    ``at_ns``: by ``host``'s clock, roughly; of several estimates of a pair, use the nearest to it, or the last.
    Uncertainties add up along a way. Hosts without a way are left out.
    """
    nearest: dict[tuple[str, str], ClockOffset] = {}
    for offset in offsets:
        for each in (offset, offset.reversed()):
            known = nearest.get((each.origin, each.target))
            if known is None or at_ns is None or _distance(each, at_ns) <= _distance(known, at_ns):
                nearest[each.origin, each.target] = each
    offset_of = {host: ClockOffset(host, host, at_ns or 0, at_ns or 0, 0.0, 0.0, 0)}
    heap = [(each.uncertainty_ns, each.offset_ns, other, each) for (one, other), each in nearest.items() if one == host]
    heapq.heapify(heap)
    while heap:
        uncertainty, offset_ns, reached, way = heapq.heappop(heap)
        if reached in offset_of:
            continue
        offset_of[reached] = ClockOffset(
            host, reached, way.begins_at_ns, way.ends_at_ns, offset_ns, uncertainty, way.probes, way.after_step
        )
        for (one, other), each in nearest.items():
            if one == reached and other not in offset_of:
                entry = (uncertainty + each.uncertainty_ns, offset_ns + each.offset_ns, other, each)
                heapq.heappush(heap, entry)
    return offset_of


def _is_possible(sent: Any, reached: Any, answered: Any, returned: Any) -> Any:
    return (returned >= sent) & (answered >= reached) & (returned - sent >= answered - reached)


def _estimate(
    bounds: IntArray, origin: str, target: str, *, discarded: int, window_ns: int, drift_ppm: float
) -> ClockReport:
    """``bounds``: of each probe its begin and end by the origin's clock, and the minimum and maximum of the offset."""
    begun, ended, least, most = bounds[:, np.argsort(bounds[0], kind="stable")]
    offsets: list[ClockOffset] = []
    for begin, end, after_step in _stretches(begun, least, most, window_ns=window_ns, drift_ppm=drift_ppm):
        best = begin + int(np.argmin((most - least)[begin:end]))
        low, high = int(least[best]), int(most[best])
        times = int(begun[begin]), int(ended[begin:end].max())
        offsets.append(ClockOffset(origin, target, *times, (low + high) / 2, (high - low) / 2, end - begin, after_step))
    return ClockReport(tuple(offsets), sum(offset.after_step for offset in offsets), discarded)


def _stretches(
    sent: IntArray, least: IntArray, most: IntArray, *, window_ns: int, drift_ppm: float
) -> Iterator[tuple[int, int, bool]]:
    """Yield (begin, end, whether a step is before it) of the probes that agree with one offset."""
    begin, after_step = 0, False
    low, high, before = -np.inf, np.inf, 0
    for place, (at, lowest, highest) in enumerate(zip(sent.tolist(), least.tolist(), most.tolist(), strict=True)):
        drift = (at - before) * drift_ppm * 1e-6 if place > begin else 0.0
        low, high, before = low - drift, high + drift, at
        if place > begin and (lowest > high or highest < low):
            yield begin, place, after_step
            begin, after_step, low, high = place, True, lowest, highest
        elif place > begin and at - int(sent[begin]) > window_ns:
            yield begin, place, after_step
            begin, after_step = place, False
        low, high = max(low, lowest), min(high, highest)
    if len(sent):
        yield begin, len(sent), after_step


def _distance(offset: ClockOffset, at_ns: int) -> int:
    return max(offset.begins_at_ns - at_ns, at_ns - offset.ends_at_ns, 0)
