"""The regions of a scenario: events, gaps and keys in one order, as a network behind a gateway has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gamecast.event import Event, Gap, JointEvent, State
from gateway.messages import Position

Item = Event | Gap
EPOCH = 1_763_928_000_123
"""As large as epochs are in real networks."""
FIRST_MS = 1_763_769_600_123
OTHER = "~bob"


def places_of(item: Item) -> dict[str, Position]:
    """Return region → position of an item. The position after a gap of unknown length is not known."""
    if isinstance(item, Gap):
        return {item.region: (item.epoch, item.last_sequence)} if item.last_sequence else {}
    return {region: (item.epoch, int(text.partition("-")[2])) for region, text in item.positions.items()}


class World:
    """All that happened, in order. Sequences grow and skip numbers, as those of markers do."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self._last: dict[str, int] = {}
        self._keys: dict[str, dict[str, Event]] = {}

    def end(self, region: str) -> Position:
        """Return the position of the last item of a region."""
        return EPOCH, self._last.setdefault(region, 6)

    def event(self, region: str, payload: Any, *, sender: str = OTHER, key: str | None = None) -> Event:
        """Add an event."""
        at_ns = self._time_ns()
        event = Event(region, sender, payload, EPOCH, self._next(region), at_ns, at_ns, False, key)
        self.items.append(event)
        if key is not None and payload is None:
            self._keys.get(region, {}).pop(key, None)
        elif key is not None:
            self._keys.setdefault(region, {})[key] = event
        return event

    def joint(self, regions: Iterable[str], payload: Any, *, sender: str = OTHER) -> Event:
        """Add an event of several regions."""
        at_ns, parts = self._time_ns(), tuple((region, self._next(region)) for region in regions)
        region, sequence = parts[0]
        event = JointEvent(region, sender, payload, EPOCH, sequence, at_ns, at_ns, False, None, parts, parts)
        self.items.append(event)
        return event

    def gap(self, region: str, events: int = 3) -> Gap:
        """Add a gap in the place of some events."""
        first = self._next(region)
        self._last[region] = first + events - 1
        gap = Gap(region, EPOCH, first, self._last[region], "the node no longer has them")
        self.items.append(gap)
        return gap

    def state(self, region: str) -> State:
        """Return the keys of a region as they are now."""
        epoch, last = self.end(region)
        return State({region: dict(self._keys.get(region, {}))}, {region: f"{epoch}-{last}"}, frozenset())

    def after(self, since: Mapping[str, Position]) -> list[Item]:
        """Return the items that are behind positions, in order."""
        return [
            item
            for item in self.items
            if any(region in since and since[region] < position for region, position in places_of(item).items())
        ]

    def published(self, sender: str, payload: Any, region: str, after: Position) -> Event | None:
        """Return an event of a sender behind a position, None if there is none: so a gateway answers retries."""
        for item in self.after({region: after}):
            if isinstance(item, Event) and (item.sender, item.payload) == (sender, payload):
                return item
        return None

    def _next(self, region: str) -> int:
        self._last[region] = self.end(region)[1] + (3 if self.items and len(self.items) % 5 == 0 else 1)
        return self._last[region]

    def _time_ns(self) -> int:
        return (FIRST_MS + len(self.items)) * 1_000_000 + 456_000
