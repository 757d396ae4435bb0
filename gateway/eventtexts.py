"""Events in the encoding of clients: many sessions get the same events, and each event is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gamecast.event import Event
from gateway.eventmessages import (
    encode_event,
    encode_gap,
    encode_presence,
    encode_unreadable,
    is_presence,
)
from gateway.messages import Position
from sequencing.compact import compact

KEPT_BYTES = 8 * 1024 * 1024
"""How many bytes of the newest events are kept. Sessions that keep up are at most this far apart."""

ENVELOPE_BYTES = len('{"type":"events","events":[]}')


class Told(NamedTuple):
    """An encoded event or gap; ``position`` is where to continue after it, None if that is unknown.

    ``places``: of an event of several regions, the position in each that its text names. ``begins``: it is the last
    item of the state of its region, before all events there.
    """

    region: str
    position: Position | None
    text: bytes
    places: tuple[tuple[str, Position], ...] = ()
    begins: bool = False

    @property
    def positions(self) -> Mapping[str, Position]:
        """Region → where to continue after it, empty if that is unknown."""
        if self.places:
            return dict(self.places)
        return {self.region: self.position} if self.position is not None else {}


def parted(items: Iterable[Told], bytes_max: int) -> Iterator[list[Told]]:
    """Split items, in order, into messages of at most ``bytes_max`` bytes; a larger item gets a message of its own."""
    part: list[Told] = []
    part_bytes = ENVELOPE_BYTES
    for item in items:
        if part and part_bytes + len(item.text) + 1 > bytes_max:
            yield part
            part, part_bytes = [], ENVELOPE_BYTES
        part.append(item)
        part_bytes += len(item.text) + 1
    if part:
        yield part


def visible(item: Any, regions: Container[str]) -> Any:
    """Return an event or gap as those see it who have some regions only; None if they have none of its regions."""
    if getattr(item, "parts", None) is None:
        return item if item.region in regions else None
    return item.within(regions)


class EventTexts:
    """Encodes events and keeps recent encodings.

    They are in two halves; when the newer one is full, the older is dropped.
    """

    def __init__(self, on_first: Callable[[Any], None] = lambda event: None) -> None:
        """``on_first`` is called for each event that was not encoded recently."""
        self._on_first = on_first
        self._new: dict[tuple[Any, ...], Told] = {}
        self._old: dict[tuple[Any, ...], Told] = {}
        self._new_bytes = 0

    def encode(self, item: Any) -> Told:
        """Return an encoded event or gap.

        An event that JSON cannot represent becomes a gap: another API published it.
        """
        if is_presence(item):
            return Told(item.region, (item.epoch, item.sequence), compact(encode_presence(item)))
        if not isinstance(item, Event):
            position = (item.epoch, item.last_sequence) if item.last_sequence else None
            text = encode_gap(item.region, item.epoch, item.first_sequence, item.last_sequence, item.reason)
            return Told(item.region, position, compact(text))
        place = item.region, item.epoch, item.sequence
        # What sessions see of an event of several regions differs: the text is shared by those who see the same.
        key = place if type(item) is Event else (*place, getattr(item, "parts", ()))
        told = self._new.get(key)
        if told is None:
            told = self._keep(key, self._old.get(key) or self._told(item, place))
        return told

    def _keep(self, key: tuple[Any, ...], told: Told) -> Told:
        self._new[key] = told
        self._new_bytes += len(told.text) + 300
        if self._new_bytes > KEPT_BYTES // 2:
            self._old, self._new, self._new_bytes = self._new, {}, 0
        return told

    def _told(self, event: Any, place: tuple[str, int, int]) -> Told:
        """Encode an event."""
        parts, seen = getattr(event, "parts", ()), (*place, "seen")
        told = Told(
            event.region,
            (event.epoch, event.sequence),
            compact(_text_of(event)),
            tuple((region, (event.epoch, sequence)) for region, sequence in parts),
        )
        if all(known not in kept for known in (place, seen) for kept in (self._new, self._old)):
            self._on_first(event)
        if parts:
            self._keep(seen, told)
        return told


def _text_of(event: Any) -> bytes:
    try:
        return encode_event(event)
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"the payload cannot be encoded as JSON: {error}"
        return encode_unreadable(event, reason)
