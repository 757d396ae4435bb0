"""Servers that join and leave: which events each had to deliver of its regions, and which of them it did not.

A *stay* begins when a server requests a region and ends when it leaves. A server that stays everywhere to the end must
deliver all events of its regions. A stay requires

- every event that was published after the server was reported to be in, up to the last one that it delivered before it
  left; if it never left, up to the very last;
- all events between the first and the last that it delivered.

Positions show the order of events within a region: the order in which the region's ingress accepted them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from sequencing.checkers import DeliverySequence, Offence, Published, Verdict, judge
from sequencing.errors import InvalidInput

Position = tuple[int, int]
"""Epoch, and sequence in the region."""


@dataclass(frozen=True, slots=True)
class Placed(Published):
    """An event, its place in its region, and when its publisher called publish."""

    position: Position
    published_at_ns: int


@dataclass(slots=True)
class Stay:
    """A server in a region: the deliveries from place ``start`` in its order to before ``end`` (None: to the last).

    ``start`` is its place when it requested the region. ``joined_at_ns`` is when it was reported to be in, None for
    never.
    Times are by the same clock as those of the events.
    """

    subscriber: str
    region: str
    start: int
    end: int | None = None
    asked_at_ns: int | None = None
    joined_at_ns: int | None = None


def judge_stays(
    sequences: Sequence[DeliverySequence],
    stays: Iterable[Stay],
    published: Iterable[Published],
    *,
    publication_order: Mapping[str, Sequence[str]] | None = None,
    unrecorded: AbstractSet[str] = frozenset(),
) -> Verdict:
    """Judge the deliveries of servers that roam (those with a stay) and of servers that do not.

    Order, cycles and repetitions are judged over all alike. A server without a stay must deliver everything of the
    regions of which it delivered anything. An event is unexpected if it was not published to that region or, for a
    server that roams, was delivered outside all stays there. Each is counted once for each server. ``unrecorded``:
    events that may have been published although ``published`` has them not; servers that roam may deliver them.
    Raises what `judge` raises, and `InvalidInput` for an event without position if any server roams.
    """
    published, stays = list(published), list(stays)
    roaming = {stay.subscriber for stay in stays}
    verdict = judge(sequences, publication_order=publication_order)
    staying = judge([each for each in sequences if each.subscriber not in roaming], published=published)
    order = _in_order(published) if roaming else {}
    seen = {each.subscriber: _Seen.of(each) for each in sequences if each.subscriber in roaming}
    lost = [offence for stay in stays for offence in _losses(stay, order, seen)]
    strange = [offence for each in seen.values() for offence in _unexpected(each, stays, order, unrecorded)]
    examples = [*verdict.examples]
    for kind, offences in (("lost", lost), ("unexpected", strange)):
        examples += [each for each in (*staying.examples, *offences) if each.kind == kind][:1]
    return replace(
        verdict,
        lost=(staying.lost or 0) + len(lost),
        unexpected=(staying.unexpected or 0) + len(strange),
        examples=tuple(examples),
    )


@dataclass(frozen=True, slots=True)
class _Region:
    """The events of a region in order."""

    events: list[Placed]
    place_of: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The deliveries of one server: region → events, and their places in its order."""

    subscriber: str
    regions: dict[str, tuple[list[str], list[int]]]

    @classmethod
    def of(cls, sequence: DeliverySequence) -> _Seen:
        regions: dict[str, tuple[list[str], list[int]]] = {}
        for index, (event, region) in enumerate(zip(sequence.events, sequence.regions, strict=True)):
            events, indices = regions.setdefault(region, ([], []))
            events.append(event)
            indices.append(index)
        return cls(sequence.subscriber, regions)

    def during(self, stay: Stay) -> list[str]:
        """Return the events that were delivered in a stay."""
        events, indices = self.regions.get(stay.region, ([], []))
        end = len(events) if stay.end is None else bisect_left(indices, stay.end)
        return events[bisect_left(indices, stay.start) : end]


def _in_order(published: Iterable[Published]) -> dict[str, _Region]:
    by_region: dict[str, list[Placed]] = {}
    for each in published:
        if not isinstance(each, Placed):
            raise InvalidInput(
                f"event {each.event!r} has no position among what was published: what servers that join and leave "
                "had to deliver cannot be told without"
            )
        by_region.setdefault(each.region, []).append(each)
    regions = {}
    for region, events in by_region.items():
        events.sort(key=lambda each: each.position)
        regions[region] = _Region(events, {each.event: place for place, each in enumerate(events)})
    return regions


def _losses(stay: Stay, order: Mapping[str, _Region], seen: Mapping[str, _Seen]) -> Iterator[Offence]:
    region = order.get(stay.region)
    if region is None:
        return
    delivered = set(seen[stay.subscriber].during(stay)) if stay.subscriber in seen else set[str]()
    places = [region.place_of[event] for event in delivered if event in region.place_of]
    first = min(places, default=len(region.events))
    end = len(region.events) if stay.end is None else max(places, default=-1) + 1
    for place, each in enumerate(region.events[:end]):
        promised = stay.joined_at_ns is not None and each.published_at_ns > stay.joined_at_ns
        if (place >= first or promised) and each.event not in delivered:
            yield Offence("lost", (each.event,), (stay.region,), (stay.subscriber,))


def _unexpected(
    seen: _Seen, stays: Iterable[Stay], order: Mapping[str, _Region], unrecorded: AbstractSet[str]
) -> Iterator[Offence]:
    expected: dict[str, set[str]] = {}
    for stay in stays:
        if stay.subscriber == seen.subscriber and stay.region in order:
            here = order[stay.region].place_of
            expected.setdefault(stay.region, set()).update(event for event in seen.during(stay) if event in here)
    for region, (events, _) in seen.regions.items():
        for event in dict.fromkeys(events):
            if event not in expected.get(region, ()) and event not in unrecorded:
                yield Offence("unexpected", (event,), (region,), (seen.subscriber,))
