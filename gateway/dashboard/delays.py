"""How long each node took to answer, and how long the first frame of each link has waited: the last hour of both.

A frame carries the time of its publisher only, so the transit of one link is not measured. What a link's counters show
is the age of its first waiting frame: at which look that frame was on the link already. It is a lower bound, and less
than one interval between looks short of the truth.
"""

from __future__ import annotations

import gzip
import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapters.redis.networkstate import LinkState, NetworkState
from adapters.wording import natural
from gateway.dashboard.history import BUCKET_MS, OLD_POINTS, RECENT_POINTS
from gateway.dashboard.rates import Link, links_of, target_of

NODES_KEPT, LINKS_KEPT = 100, 200
"""Of how many nodes and links a look is kept: those with the largest figures."""
NODES_SHOWN, LINKS_SHOWN = 40, 40
"""How many curves a viewer gets: those with the largest figures of the hour."""
COUNTS_KEPT = 1_000
"""Of how many looks the counter of one lane is kept: half an hour of frames that do not leave, and then thinned."""

Column = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class _Point:
    """Milliseconds at ``at_ms`` (Unix time), of each node and each link. What is missing or None is unknown."""

    at_ms: int
    nodes: Column = field(default_factory=dict)
    links: Column = field(default_factory=dict)

    def joined(self, later: _Point) -> _Point:
        """Return the larger figures of two points, at the time of the first."""
        return _Point(self.at_ms, _larger(self.nodes, later.nodes), _larger(self.links, later.links))


class Delays:
    """The curves of nodes and links: the newest points as they are, and of older ones the largest in 10 s."""

    def __init__(self) -> None:
        self._recent: deque[_Point] = deque()
        self._old: deque[_Point] = deque(maxlen=OLD_POINTS)
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._zipped: tuple[_Point, bytes] | None = None

    def add(self, now: NetworkState, at_ms: int) -> None:
        """Append a look."""
        nodes = {
            node.name: None if node.server is None or node.server.round_trip_ms is None
            else round(node.server.round_trip_ms, 2)
            for node in now.nodes
        }  # fmt: skip
        waits = self._waits(now)
        links = {f"{source} → {target}": wait for (source, target), wait in waits.items()}
        self._append(_Point(at_ms, _largest(nodes, NODES_KEPT), _largest(links, LINKS_KEPT)))

    def missed(self, at_ms: int) -> None:
        """Append a look that failed: all is unknown then."""
        self._append(_Point(at_ms))

    def zipped(self) -> bytes:
        """Return the document as gzipped JSON, encoded once a look."""
        if not self._recent:
            return gzip.compress(orjson.dumps(self.document()))
        if self._zipped is None or self._zipped[0] is not self._recent[-1]:
            self._zipped = self._recent[-1], gzip.compress(orjson.dumps(self.document()), 5)
        return self._zipped[1]

    def document(self) -> dict[str, Any]:
        """Return the curves as JSON values, each as long as ``at_ms``."""
        points = [*self._old, *self._recent]
        return {
            "at_ms": [point.at_ms for point in points],
            "answers": _series([point.nodes for point in points], NODES_SHOWN),
            "waits": _series([point.links for point in points], LINKS_SHOWN),
        }

    def _append(self, point: _Point) -> None:
        for points in (self._recent, self._old):  # those in the future of a clock that was set back
            while points and points[-1].at_ms >= point.at_ms:
                points.pop()
        self._recent.append(point)
        if len(self._recent) <= RECENT_POINTS:
            return
        leaving = self._recent.popleft()
        if self._old and self._old[-1].at_ms // BUCKET_MS == leaving.at_ms // BUCKET_MS:
            self._old[-1] = self._old[-1].joined(leaving)
        else:
            self._old.append(leaving)

    def _waits(self, now: NetworkState) -> Mapping[Link, float | None]:
        """Return link → for how many ms its first frame has waited, at least; 0 if none waits."""
        counted = {node.name: node for node in now.nodes if node.accepted is not None and node.read_at_s is not None}
        waits: dict[Link, float | None] = {link: 0.0 if link[0] in counted else None for link in links_of(now)}
        lanes: dict[tuple[str, str], _Lane] = {}
        for name, node in counted.items():
            for each in node.links:
                link, lane = (name, target_of(each)), (name, each.target)
                lanes[lane] = self._lanes.get(lane) or _Lane()
                wait = lanes[lane].wait_ms(each, node.read_at_s or 0.0)
                known = waits.get(link, 0.0)
                waits[link] = None if wait is None or known is None else max(known, wait)
        silent = {lane: kept for lane, kept in self._lanes.items() if lane[0] not in counted}
        self._lanes = silent | lanes if now.nodes else {}
        return waits


@dataclass(slots=True)
class _Lane:
    """When the counter of a lane was at which number: only looks at which it had moved, the oldest first."""

    counts: deque[tuple[float, int]] = field(default_factory=deque)

    def wait_ms(self, link: LinkState, read_at_s: float) -> float | None:
        """Return for how long the first frame has been seen on the lane; None if its counter is unknown."""
        if link.sent is None:
            self.counts.clear()
            return None if link.frames else 0.0
        if self.counts and self.counts[-1][1] > link.sent:
            self.counts.clear()  # its server lost data
        if not self.counts or self.counts[-1][1] < link.sent:
            self.counts.append((read_at_s, link.sent))
        first = link.sent - link.frames + 1
        while len(self.counts) > 1 and self.counts[0][1] < first:
            self.counts.popleft()
        if len(self.counts) > COUNTS_KEPT:  # from a later look, the age is less: a lower bound still
            self.counts = deque(list(self.counts)[::2])
        return round((read_at_s - self.counts[0][0]) * 1000) if link.frames else 0.0


def _larger(one: Column, other: Column) -> Column:
    larger = dict(one)
    for name, figure in other.items():
        before = larger.get(name)
        larger[name] = figure if before is None else before if figure is None else max(before, figure)
    return larger


def _largest(figures: Column, number: int) -> Column:
    if len(figures) <= number:
        return figures
    unknown = float("inf")  # what is unknown is kept first: it may be the trouble
    return dict(heapq.nlargest(number, figures.items(), key=lambda each: unknown if each[1] is None else each[1]))


def _series(columns: list[Column], number: int) -> dict[str, Any]:
    """Return the curves of what the newest look has, unknown first, then the largest figures first."""
    names = columns[-1].keys() if columns and columns[-1] else _names(columns)
    curves = {name: [column.get(name) for column in columns] for name in names}
    ordered = sorted(curves, key=lambda name: (-_rank(curves[name]), natural(name)))[:number]
    return {"of": len(curves), "names": ordered, "ms": [curves[name] for name in ordered]}


def _names(columns: Iterable[Column]) -> list[str]:
    return list(dict.fromkeys(name for column in columns for name in column))


def _rank(curve: list[float | None]) -> float:
    return float("inf") if curve[-1] is None else max((each for each in curve if each is not None), default=0.0)
