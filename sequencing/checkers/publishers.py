"""Check that each subscriber delivered the events of a publisher in a region in the order of their publication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sequencing.checkers.history import UNKNOWN_NS, History, IntArray
from sequencing.checkers.offence import Offence

UNKNOWN_RANK = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class PublisherOrder:
    """Adjacent descents over all subscribers, regions and publishers, and the publishers that could not be judged."""

    violations: int
    unchecked: tuple[str, ...]
    """Publishers whose own order is unknown: none was given, and not all of their deliveries carry `sent_at_ns`."""
    example: Offence | None


def check_publisher_order(
    history: History, publication_order: Mapping[str, Sequence[str]] | None = None
) -> PublisherOrder:
    """Count where a subscriber delivered an event right after one that its publisher sent to the same region later.

    "Right after" is among the first deliveries of that publisher's events of that region.
    ``publication_order`` gives each publisher's events in order. Without it the sending times are taken, if all of a
    publisher's events have one; equal times are in no order. Ids are never used to guess an order.
    """
    rank, unchecked = _ranks(history, publication_order)
    violations = 0
    example: Offence | None = None
    for subscriber, first in enumerate(history.firsts):
        known = first[rank[first] != UNKNOWN_RANK]
        stream = history.sender_of_event[known] * len(history.regions) + history.region_of_event[known]
        by_stream = np.argsort(stream, kind="stable")
        ordered, streams = known[by_stream], stream[by_stream]
        descends = (streams[1:] == streams[:-1]) & (rank[ordered[1:]] < rank[ordered[:-1]])
        descents = np.flatnonzero(descends)
        violations += len(descents)
        if example is None and len(descents):
            earliest = descents[np.argmin(by_stream[descents + 1])]
            example = _offence(history, subscriber, later=int(ordered[earliest]), earlier=int(ordered[earliest + 1]))
    return PublisherOrder(violations, unchecked, example)


def _ranks(history: History, given: Mapping[str, Sequence[str]] | None) -> tuple[IntArray, tuple[str, ...]]:
    if given is None:
        known = history.sent_at_ns != UNKNOWN_NS
        missing = np.bincount(history.sender_of_event[~known], minlength=len(history.senders)) > 0
        rank = np.where(missing[history.sender_of_event], UNKNOWN_RANK, history.sent_at_ns)
        return rank, tuple(sorted(history.senders[sender] for sender in np.flatnonzero(missing)))
    rank = np.full(len(history.events), UNKNOWN_RANK, np.int64)
    for events in given.values():
        for place, event in enumerate(events):
            if event in history.index_of:
                rank[history.index_of[event]] = place
    return rank, tuple(sorted(set(history.senders) - set(given)))


def _offence(history: History, subscriber: int, *, later: int, earlier: int) -> Offence:
    return Offence(
        kind="publisher_order",
        events=history.event_names([earlier, later]),
        regions=history.region_names([earlier, later]),
        subscribers=(history.subscribers[subscriber],),
        sender=history.senders[history.sender_of_event[earlier]],
    )
