"""Where regions had better end: what their events would take by way of another node, as far as records show it.

Each region whose path is one node shows how long events take from publishers to that node, and from there to
subscribers. Only the sums of both are recorded, but sums of many pairs tell the parts, up to a constant that cancels
where pairs are tied to each other. So the delay of another region's events by way of that node is known for all who are
seen there, without a model of the world's distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

GAIN_MS_MIN = 5.0
GAIN_PART_MIN = 0.2
"""A smaller gain, or part of the delay, is no reason to move a region."""
DIRECT_MS_MIN = 1.0
"""Between hosts that are nearer, no other place helps, and a stretch says nothing."""
ONE_MACHINE_MS_MAX = 10.0
"""Probes between busy processes of one machine may look as long as this."""
SEEN_PART_MIN = 0.9
"""So many of a region's deliveries are between hosts that were seen at the other node."""
ROUNDS = 60
TRIPS_MAX = 200_000

FloatArray = npt.NDArray[np.float64]


class Trip(NamedTuple):
    """All deliveries of a publisher's events of a region to a subscriber; mean delays, in ms."""

    region: str
    publisher: str
    subscriber: str
    deliveries: int
    delay_ms: float
    direct_ms: float


@dataclass(frozen=True, slots=True)
class Move:
    """A region that had better end at another node. Means over its deliveries, in ms; ``farthest``: of the subscriber
    that is worst off, now and then."""

    region: str
    source: str
    target: str
    now_ms: float
    then_ms: float
    farthest_ms: tuple[float, float]
    subscribers: int

    @property
    def gain_ms(self) -> float:
        """How much sooner an event would be there."""
        return self.now_ms - self.then_ms

    def __str__(self) -> str:
        now, then = self.farthest_ms
        count = f"{self.subscribers:,} subscriber{'s' if self.subscribers != 1 else ''}"
        return (
            f"from {self.source} to {self.target}: its events would take {self.then_ms:.0f} ms instead of "
            f"{self.now_ms:.0f} in the mean, and {then:.0f} instead of {now:.0f} to the farthest of {count}"
        )


def is_near(direct_ms: Iterable[float], limit_ms: float = DIRECT_MS_MIN) -> bool:
    """Return whether all direct ways are too short to matter."""
    return all(each < limit_ms for each in direct_ms)


def moves(trips: Sequence[Trip], plan: Mapping[str, Sequence[str]]) -> list[Move]:
    """Return what moves are worth it, the greatest gain of all subscribers together first. ``plan``: region → path."""
    of_region: dict[str, list[Trip]] = {}
    for trip in trips:
        if trip.publisher != trip.subscriber:
            of_region.setdefault(trip.region, []).append(trip)
    at_node: dict[str, list[Trip]] = {}
    for region, theirs in of_region.items():
        if len(path := plan.get(region, ())) == 1:
            at_node.setdefault(path[0], []).extend(theirs)
    ways = {node: _Way.of(theirs) for node, theirs in at_node.items()}
    found = []
    for region, theirs in of_region.items():
        path = plan.get(region, ())
        count = sum(trip.deliveries for trip in theirs)
        if not path or sum(trip.direct_ms * trip.deliveries for trip in theirs) < DIRECT_MS_MIN * count:
            continue
        others = (_move(region, path[-1], node, theirs, way) for node, way in ways.items() if node not in path)
        best = min((each for each in others if each is not None), key=lambda each: each.then_ms, default=None)
        if best is not None and best.gain_ms >= max(GAIN_MS_MIN, GAIN_PART_MIN * best.now_ms):
            found.append((best.gain_ms * count, best))
    return [move for _, move in sorted(found, key=lambda each: (-each[0], each[1].region))]


@dataclass(frozen=True, slots=True)
class _Way:
    """How long events take to a node and from it, by publisher and by subscriber, up to a constant that cancels.

    ``tied``: publishers and subscribers → the group within which it does.
    """

    there: Mapping[str, float]
    back: Mapping[str, float]
    tied: tuple[Mapping[str, int], Mapping[str, int]]

    def knows(self, trip: Trip) -> bool:
        """Return whether the delay from a publisher to a subscriber is known."""
        publishers, subscribers = self.tied
        return publishers.get(trip.publisher, -1) == subscribers.get(trip.subscriber, -2)

    @classmethod
    def of(cls, trips: Sequence[Trip]) -> _Way:
        """Fit the parts to the sums, by least squares, weighted by deliveries."""
        publishers = {name: n for n, name in enumerate(sorted({trip.publisher for trip in trips}))}
        subscribers = {name: n for n, name in enumerate(sorted({trip.subscriber for trip in trips}))}
        one = np.array([publishers[trip.publisher] for trip in trips])
        other = np.array([subscribers[trip.subscriber] for trip in trips])
        delay = np.array([trip.delay_ms for trip in trips])
        weight = np.array([trip.deliveries for trip in trips], np.float64)
        there, back = np.zeros(len(publishers)), np.zeros(len(subscribers))
        for _ in range(ROUNDS):
            there = _means(one, delay - back[other], weight, len(publishers))
            back = _means(other, delay - there[one], weight, len(subscribers))
        names = len(publishers) + len(subscribers)
        ties = sparse.coo_array((np.ones(len(trips)), (one, len(publishers) + other)), shape=(names, names))
        _, group = csgraph.connected_components(ties, directed=False)
        return cls(
            {name: float(there[n]) for name, n in publishers.items()},
            {name: float(back[n]) for name, n in subscribers.items()},
            (
                {name: int(group[n]) for name, n in publishers.items()},
                {name: int(group[len(publishers) + n]) for name, n in subscribers.items()},
            ),
        )


def _means(key: npt.NDArray[np.int64], values: FloatArray, weight: FloatArray, size: int) -> FloatArray:
    return np.bincount(key, values * weight, size) / np.maximum(np.bincount(key, weight, size), 1e-12)


def _move(region: str, source: str, target: str, trips: Sequence[Trip], way: _Way) -> Move | None:
    known = [trip for trip in trips if way.knows(trip)]
    count = sum(trip.deliveries for trip in known)
    if not known or count < SEEN_PART_MIN * sum(trip.deliveries for trip in trips):
        return None
    # (now, then, deliveries) by subscriber
    of_subscriber: dict[str, list[tuple[float, float, int]]] = {}
    for trip in known:
        then = max(way.there[trip.publisher] + way.back[trip.subscriber], trip.direct_ms)
        of_subscriber.setdefault(trip.subscriber, []).append((trip.delay_ms, then, trip.deliveries))
    means = [
        tuple(sum(row[side] * row[2] for row in rows) / sum(row[2] for row in rows) for side in (0, 1))
        for rows in of_subscriber.values()
    ]
    totals = [sum(row[side] * row[2] for rows in of_subscriber.values() for row in rows) / count for side in (0, 1)]
    farthest = max(now for now, _ in means), max(then for _, then in means)
    return Move(region, source, target, totals[0], totals[1], farthest, len(of_subscriber))
