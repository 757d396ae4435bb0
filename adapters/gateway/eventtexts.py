"""Events in the encoding of clients: many sessions get the same events, and each event is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from adapters.gateway.eventmessages import encode_event, encode_gap
from adapters.gateway.messages import Position
from sequencing.compact import compact

KEPT_BYTES = 8 * 1024 * 1024
"""How many bytes of the newest events are kept. Sessions that keep up are at most this far apart."""

ENVELOPE_BYTES = len('{"type":"events","events":[]}')


class Told(NamedTuple):
    """An encoded event or gap; ``position`` is where to continue after it, None if that is unknown."""

    region: str
    position: Position | None
    text: bytes


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


class EventTexts:
    """Encodes events and keeps recent encodings.

    They are in two halves; when the newer one is full, the older is dropped.
    """

    def __init__(self, event_type: type[Any], on_first: Callable[[Any], None] = lambda event: None) -> None:
        """``on_first`` is called for each event that was not encoded recently."""
        self._event_type, self._on_first = event_type, on_first
        self._new: dict[tuple[str, int, int], Told] = {}
        self._old: dict[tuple[str, int, int], Told] = {}
        self._new_bytes = 0

    def encode(self, item: Any) -> Told:
        """Return an encoded event or gap.

        An event that JSON cannot represent becomes a gap: another API published it.
        """
        if not isinstance(item, self._event_type):
            position = (item.epoch, item.last_sequence) if item.last_sequence else None
            text = encode_gap(item.region, item.epoch, item.first_sequence, item.last_sequence, item.reason)
            return Told(item.region, position, compact(text))
        key = (item.region, item.epoch, item.sequence)
        told = self._new.get(key)
        if told is None:
            told = self._old.get(key)
            if told is None:
                told = Told(item.region, (item.epoch, item.sequence), compact(_text_of(item)))
                self._on_first(item)
            self._new[key] = told
            self._new_bytes += len(told.text) + 300
            if self._new_bytes > KEPT_BYTES // 2:
                self._old, self._new, self._new_bytes = self._new, {}, 0
        return told


def _text_of(event: Any) -> bytes:
    try:
        return encode_event(event)
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"the payload cannot be encoded as JSON: {error}"
        return encode_gap(event.region, event.epoch, event.sequence, event.sequence, reason)
