"""How long a network took to recover from its faults, by the notes of the servers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from laboratory.chaos.faults import Struck
from laboratory.chaos.notes import Life, Notes
from laboratory.chaos.schedule import Kind

LEASE_NS = 3_000_000_000
"""A process that stays away may have led: all are affected until another one leads; then only that process."""

EXCUSE_NOBODY = {Kind.CLOCK_JUMPED}
"""Nothing waits for a time of day: a stall during such a fault counts as if there was none."""

TIME_NS = 1_500_000_000
"""A recovery this late cannot be distinguished from none."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Stall:
    """A server had regions and a connection, and was handed nothing for ``seconds`` from ``begin_ns`` on."""

    seconds: float
    begin_ns: float
    session: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """``seconds``: kind → for each fault, in the order of their ends, the time from its end (or that of the last fault
    that overlapped with its recovery) until an event published after that was delivered at each server;
    ``unrecovered``: faults after which this did not happen before the end of the traffic; ``longest_stall``: without
    any current fault but those of `EXCUSE_NOBODY`; ``longest_silence``: while others were struck; ``waits``: kind → for
    each fault, how long the slowest delivery of what was published during it took, at a server that was not struck
    meanwhile."""

    seconds: Mapping[Kind, Sequence[float]]
    waits: Mapping[Kind, Sequence[float]]
    unrecovered: int
    longest_stall: Stall
    longest_silence: Stall

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Return median and maximum of each kind, in seconds."""
        return _by_kind(self.seconds)

    def waits_by_kind(self) -> dict[str, dict[str, float]]:
        """Return the same of `waits`."""
        return _by_kind(self.waits)


def _by_kind(figures: Mapping[Kind, Sequence[float]]) -> dict[str, dict[str, float]]:
    return {
        str(kind): {"median": round(median(seconds), 3), "max": round(max(seconds), 3)}
        for kind, seconds in sorted(figures.items())
    }


def measure(notes: Notes, struck: Sequence[Struck], *, begin_ns: int, end_ns: int) -> Recovery:
    """Measure between two moments, while servers published to all regions all the time."""
    reached = {server: _Reached(notes, lives) for server, lives in _by_server(notes).items()}
    excusing = [fault for fault in struck if fault.kind not in EXCUSE_NOBODY]
    seconds: dict[Kind, list[float]] = defaultdict(list)
    unrecovered = 0
    for fault in sorted(struck, key=lambda each: each.end_ns):
        at, recovered = _recovery(fault, excusing, reached)
        if recovered <= end_ns:
            seconds[fault.kind].append((recovered - at) / 1e9)
        elif at < end_ns - TIME_NS:  # else there was hardly time
            unrecovered += 1
    stalls = [Stall(0.0, begin_ns, "")]
    silences = [Stall(0.0, begin_ns, "")]
    for life in notes.lives:
        faults = _concerning(life.server, excusing)
        gone_ns = min(end_ns, life.closed_ns if life.closing else _gone(life, struck, end_ns))
        own = [(fault.begin_ns, fault.end_ns) for fault in struck if fault.whom == life.server]
        for since, until in _with_regions(life, begin_ns, gone_ns):
            for since_quiet, until_quiet in _without(faults, since, until):
                stalls += _pauses(life, since_quiet, until_quiet)
            for since_awake, until_awake in _without(sorted(own), since, until):
                silences += _pauses(life, since_awake, until_awake)
    return Recovery(
        seconds,
        _waits(notes, struck),
        unrecovered,
        max(stalls, key=lambda stall: stall.seconds),
        max(silences, key=lambda stall: stall.seconds),
    )


def _recovery(fault: Struck, struck: Sequence[Struck], reached: Mapping[str, _Reached]) -> tuple[float, float]:
    """Return the time to count from, and the time when all servers had deliveries again; infinite for never."""
    at: float = fault.end_ns
    while True:
        away = {
            other.whom
            for other in struck
            if other.kind is Kind.SERVER_AWAY and other is not fault and other.begin_ns <= at < other.end_ns
        }
        recovered = max(
            (of_server.first_after(at) for server, of_server in reached.items() if server not in away), default=at
        )
        disturbing = [
            end
            for other in struck
            if other is not fault
            for begin, end in [_concerns_all(other)]
            if begin < recovered and end > at
        ]
        if not disturbing:
            return at, recovered
        at = max(disturbing)


def _waits(notes: Notes, struck: Sequence[Struck]) -> dict[Kind, list[float]]:
    taken: list[tuple[float, float]] = []
    """(Published, how long it took), of each delivery, in ns."""
    for server, lives in _by_server(notes).items():
        own = sorted((fault.begin_ns, fault.end_ns) for fault in struck if fault.whom == server)
        for life in lives:
            for delivered in life.session.deliveries:
                published = notes.published_ns.get(delivered.event)
                if published is not None and _is_within_none(own, published, at := delivered.at_ms * 1e6):
                    taken.append((published, at - published))
    taken.sort()
    published_at = [published for published, _ in taken]
    waits: dict[Kind, list[float]] = defaultdict(list)
    for fault in struck:
        first, last = bisect_left(published_at, fault.begin_ns), bisect_left(published_at, fault.end_ns)
        if first < last:
            waits[fault.kind].append(max(took for _, took in taken[first:last]) / 1e9)
    return waits


def _is_within_none(faults: Sequence[Interval], since: float, until: float) -> bool:
    return not any(begin < until and end > since for begin, end in faults)


class _Reached:
    """When a server was first handed an event that was published at some time or later."""

    def __init__(self, notes: Notes, lives: Iterable[Life]) -> None:
        pairs: list[tuple[float, float]] = []
        for life in lives:
            events = [delivered for delivered in life.session.deliveries if delivered.event]
            pairs += ((notes.published_ns.get(delivered.event, 0), delivered.at_ms * 1e6) for delivered in events)
        pairs.sort()
        self._published = [published for published, _ in pairs]
        self._earliest = [delivered for _, delivered in pairs]
        for place in range(len(pairs) - 2, -1, -1):
            self._earliest[place] = min(self._earliest[place], self._earliest[place + 1])

    def first_after(self, at: float) -> float:
        place = bisect_left(self._published, at)
        return self._earliest[place] if place < len(self._earliest) else math.inf


def _by_server(notes: Notes) -> dict[str, list[Life]]:
    found: dict[str, list[Life]] = defaultdict(list)
    for life in notes.lives:
        found[life.server].append(life)
    return found


def _gone(life: Life, struck: Sequence[Struck], end_ns: int) -> int:
    """Return until when a session that never closed was alive: until its server was killed, or to the end."""
    killed = (f.begin_ns for f in struck if f.whom == life.server and f.kind is Kind.SERVER_KILLED)
    return min((at for at in killed if at >= life.closed_ns), default=end_ns)


def _concerns_all(fault: Struck) -> Interval:
    """Return when a fault excuses the waiting of others."""
    if fault.kind is Kind.SERVER_AWAY:
        return fault.begin_ns, min(fault.end_ns, fault.begin_ns + LEASE_NS)
    return fault.begin_ns, fault.end_ns


def _concerning(server: str, struck: Sequence[Struck]) -> list[Interval]:
    return [
        (fault.begin_ns, fault.end_ns) if fault.whom == server else _concerns_all(fault)
        for fault in sorted(struck, key=lambda each: each.begin_ns)
    ]


def _with_regions(life: Life, begin: float, end: float) -> Iterator[Interval]:
    """Yield when a session had a region at least, joined and not left."""
    since = until = begin
    for joined, left in sorted((max(begin, joined), min(end, left)) for _, joined, left in life.stays):
        if joined > until:
            yield since, until
            since = joined
        until = max(until, left)
    yield since, until


def _without(faults: Sequence[Interval], since: float, until: float) -> Iterator[Interval]:
    """Yield the parts of an interval without a current fault; faults are in the order of their beginnings."""
    for begin, end in faults:
        if end <= since:
            continue
        if begin >= until:
            break
        if begin > since:
            yield since, begin
        since = max(since, end)
    if since < until:
        yield since, until


def _pauses(life: Life, since: float, until: float) -> Iterator[Stall]:
    first, last = bisect_left(life.delivered_ns, since), bisect_left(life.delivered_ns, until)
    for before, after in pairwise([since, *life.delivered_ns[first:last], until]):
        yield Stall((after - before) / 1e9, before, life.session.name)
