"""The deliveries of all subscribers, as arrays that every checker reads.

The history knows nothing of stamps, frames or plans. An event is an id with its region, its sender and the places at
which the subscribers delivered it. So the same checkers judge gamecast, plain Pub/Sub, and logs that other programs
wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from sequencing.errors import InvalidInput, UsageError

IntArray = npt.NDArray[np.int64]

UNKNOWN_NS = np.iinfo(np.int64).min
"""Stands for a missing time in arrays: no clock shows it."""


@dataclass(frozen=True, slots=True)
class DeliverySequence:
    """The deliveries of one subscriber, in its order: one event id, region and sender for each.

    ``sent_at_ns`` is as long as the others, or empty if no delivery carries it; None replaces a missing one.
    """

    subscriber: str
    events: Sequence[str]
    regions: Sequence[str]
    senders: Sequence[str]
    sent_at_ns: Sequence[int | None] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.events), len(self.regions), len(self.senders), len(self.sent_at_ns) or len(self.events)}
        if len(lengths) != 1:
            raise UsageError(f"the columns of {self.subscriber}'s deliveries differ in length: {sorted(lengths)}")


@dataclass(frozen=True, slots=True)
class Published:
    """One published event and its region: losses are counted against these."""

    event: str
    region: str


@dataclass(frozen=True, slots=True)
class History:
    """All delivery sequences with names turned into indices; subscribers are sorted by name.

    ``deliveries[s]`` holds the event of each delivery of subscriber s in order; ``firsts[s]`` leaves out repeated
    deliveries. The event arrays are indexed by event.
    """

    subscribers: tuple[str, ...]
    events: tuple[str, ...]
    regions: tuple[str, ...]
    senders: tuple[str, ...]
    index_of: Mapping[str, int]
    region_of_event: IntArray
    sender_of_event: IntArray
    sent_at_ns: IntArray
    deliveries: tuple[IntArray, ...]
    firsts: tuple[IntArray, ...]

    @classmethod
    def of(cls, sequences: Iterable[DeliverySequence]) -> History:
        """Index the sequences.

        Raises `UsageError` for two sequences of one subscriber. Raises `InvalidInput` for an event with two regions or
        two senders: its id is then not unique, and no order can be judged.
        """
        ordered = sorted(sequences, key=lambda sequence: sequence.subscriber)
        for earlier, later in pairwise(ordered):
            if earlier.subscriber == later.subscriber:
                raise UsageError(f"two delivery sequences of {later.subscriber}: join them in delivery order first")
        events, regions, senders = _Names(), _Names(), _Names()
        deliveries = tuple(events.indices(sequence.events) for sequence in ordered)
        region_of_event = np.full(len(events), -1, np.int64)
        sender_of_event = np.full(len(events), -1, np.int64)
        sent_at_ns = np.full(len(events), UNKNOWN_NS, np.int64)
        for sequence, delivered in zip(ordered, deliveries, strict=True):
            region = regions.indices(sequence.regions)
            sender = senders.indices(sequence.senders)
            _assign(region_of_event, delivered, region, what="region", names=regions, events=events, by=sequence)
            _assign(sender_of_event, delivered, sender, what="sender", names=senders, events=events, by=sequence)
            if sequence.sent_at_ns:
                given = [UNKNOWN_NS if sent is None else sent for sent in sequence.sent_at_ns]
                sent = np.array(given, np.int64)
                known = sent != UNKNOWN_NS
                sent_at_ns[delivered[known]] = sent[known]
        return cls(
            subscribers=tuple(sequence.subscriber for sequence in ordered),
            events=tuple(events),
            regions=tuple(regions),
            senders=tuple(senders),
            index_of=events,
            region_of_event=region_of_event,
            sender_of_event=sender_of_event,
            sent_at_ns=sent_at_ns,
            deliveries=deliveries,
            firsts=_first_deliveries(deliveries, events_count=len(events)),
        )

    def earliest(self) -> IntArray:
        """Return, for each event, the smallest place at which any subscriber first delivered it."""
        earliest = np.full(len(self.events), np.iinfo(np.int64).max, np.int64)
        for first in self.firsts:
            earliest[first] = np.minimum(earliest[first], np.arange(len(first)))
        return earliest

    def places(self, subscriber: int) -> IntArray:
        """Return the place of each event among the subscriber's first deliveries, -1 where it was not delivered."""
        places = np.full(len(self.events), -1, np.int64)
        places[self.firsts[subscriber]] = np.arange(len(self.firsts[subscriber]))
        return places

    def region_names(self, events: Sequence[int]) -> tuple[str, ...]:
        """Return the regions of these events."""
        return tuple(self.regions[self.region_of_event[event]] for event in events)

    def event_names(self, events: Sequence[int]) -> tuple[str, ...]:
        """Return the ids of these events."""
        return tuple(self.events[event] for event in events)


class _Names(dict[str, int]):
    """Names and their indices, numbered as they come."""

    def __missing__(self, name: str) -> int:
        index = self[name] = len(self)
        return index

    def indices(self, names: Sequence[str]) -> IntArray:
        return np.fromiter(map(self.__getitem__, names), np.int64, len(names))


def _assign(
    known: IntArray,
    delivered: IntArray,
    given: IntArray,
    *,
    what: str,
    names: _Names,
    events: _Names,
    by: DeliverySequence,
) -> None:
    fresh = known[delivered] < 0
    known[delivered[fresh]] = given[fresh]
    differing = np.flatnonzero(known[delivered] != given)
    if len(differing):
        place = int(differing[0])
        event, other = tuple(events)[delivered[place]], tuple(names)[known[delivered[place]]]
        here = tuple(names)[given[place]]
        raise InvalidInput(
            f"event {event} has the {what} {here} in a delivery of {by.subscriber} and {other} in another delivery: "
            "each event needs an id of its own"
        )


def _first_deliveries(deliveries: Sequence[IntArray], *, events_count: int) -> tuple[IntArray, ...]:
    place_of_first = np.zeros(events_count, np.int64)
    firsts = []
    for delivered in deliveries:
        places = np.arange(len(delivered))
        # Of several assignments to one element the last one stays, hence backwards.
        place_of_first[delivered[::-1]] = places[::-1]
        firsts.append(delivered[place_of_first[delivered] == places])
    return tuple(firsts)
