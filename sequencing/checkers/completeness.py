"""Check that nothing was lost, delivered twice, or delivered without having been published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from sequencing.checkers.history import History, IntArray, Published
from sequencing.checkers.offence import Kind, Offence
from sequencing.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Count:
    """How often something happened, and the first time."""

    count: int
    example: Offence | None


def count_duplicates(history: History) -> Count:
    """Count the deliveries of an event to a subscriber that had delivered it before."""
    count = 0
    example: Offence | None = None
    for subscriber, (delivered, first) in enumerate(zip(history.deliveries, history.firsts, strict=True)):
        count += len(delivered) - len(first)
        if example is None and len(delivered) > len(first):
            # The first deliveries are the beginning of all deliveries, up to the first repetition.
            repeated = np.flatnonzero(delivered[: len(first)] != first)
            place = int(repeated[0]) if len(repeated) else len(first)
            example = _offence(history, "duplicate", subscriber, int(delivered[place]))
    return Count(count, example)


def count_losses(
    history: History, published: Iterable[Published], membership: Mapping[str, AbstractSet[str]] | None = None
) -> tuple[Count, Count]:
    """Count the published events never delivered to a subscriber of their region, and the events delivered
    unexpectedly.

    Without ``membership`` (subscriber → regions), a subscriber has the regions of which it delivered anything, so the
    loss of all events of a region is not noticed. A delivery (the first of each event) is unexpected if the event was
    never published, was published to another region, or is not of one of the subscriber's regions.
    Raises `InvalidInput` for an event that was published to two regions.
    """
    region_of = _regions_of_published(published)
    events_of: dict[str, list[str]] = {}
    for event, region in region_of.items():
        events_of.setdefault(region, []).append(event)
    genuine = np.fromiter(
        (
            region_of.get(event) == history.regions[region]
            for event, region in zip(history.events, history.region_of_event, strict=True)
        ),
        np.bool_,
        len(history.events),
    )
    order = {event: place for place, event in enumerate(region_of)}
    row_of = {name: row for row, name in enumerate(history.subscribers)}
    lost = unexpected = 0
    first_lost: tuple[int, str, str] | None = None
    first_unexpected: Offence | None = None
    for subscriber in sorted(row_of.keys() | (membership or {}).keys()):
        row = row_of.get(subscriber)
        first = history.firsts[row] if row is not None else np.empty(0, np.int64)
        mine = _regions_delivered(history, first) if membership is None else membership.get(subscriber, frozenset())
        is_mine = np.array([region in mine for region in history.regions], np.bool_)
        expected = genuine[first] & is_mine[history.region_of_event[first]]
        wrong = first[~expected]
        unexpected += len(wrong)
        if first_unexpected is None and row is not None and len(wrong):
            first_unexpected = _offence(history, "unexpected", row, int(wrong[0]))
        missing = sum(len(events_of.get(region, ())) for region in mine) - int(np.count_nonzero(expected))
        lost += missing
        if missing:
            delivered = set(history.event_names(first[expected].tolist()))
            wanted = (event for region in mine for event in events_of.get(region, ()) if event not in delivered)
            place, event = min((order[event], event) for event in wanted)
            if first_lost is None or place < first_lost[0]:
                first_lost = place, event, subscriber
    return Count(lost, _lost(first_lost, region_of)), Count(unexpected, first_unexpected)


def _regions_of_published(published: Iterable[Published]) -> dict[str, str]:
    region_of: dict[str, str] = {}
    for one in published:
        known = region_of.setdefault(one.event, one.region)
        if known != one.region:
            raise InvalidInput(f"event {one.event} was published to {known} and {one.region}: an event has one region")
    return region_of


def _regions_delivered(history: History, delivered: IntArray) -> AbstractSet[str]:
    return {history.regions[region] for region in np.unique(history.region_of_event[delivered])}


def _lost(loss: tuple[int, str, str] | None, region_of: Mapping[str, str]) -> Offence | None:
    if loss is None:
        return None
    _, event, subscriber = loss
    return Offence(kind="lost", events=(event,), regions=(region_of[event],), subscribers=(subscriber,))


def _offence(history: History, kind: Kind, subscriber: int, event: int) -> Offence:
    return Offence(
        kind=kind,
        events=history.event_names([event]),
        regions=history.region_names([event]),
        subscribers=(history.subscribers[subscriber],),
    )
