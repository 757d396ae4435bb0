"""Messages of a gateway that carry events and gaps."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from adapters.places import Position


def position_text(position: Position) -> str:
    """Return a position in the encoding of clients."""
    return f"{position[0]}-{position[1]}"


def events_message(items: Iterable[bytes]) -> str:
    """Return the message with these items, in order; each is encoded already."""
    return (b'{"type":"events","events":[' + b",".join(items) + b"]}").decode()


def acks_messages(acks: Iterable[dict[str, Any]], bytes_max: int) -> Iterator[str]:
    """Yield the messages with these acks, in order, of at most ``bytes_max`` bytes; a larger ack comes alone."""
    begin, end = b'{"type":"acks","acks":[', b"]}"
    part: list[bytes] = []
    part_bytes = 0
    for ack in map(orjson.dumps, acks):
        if part and len(begin) + part_bytes + len(ack) + len(end) > bytes_max:
            yield (begin + b",".join(part) + end).decode()
            part, part_bytes = [], 0
        part.append(ack)
        part_bytes += len(ack) + 1
    if part:
        yield (begin + b",".join(part) + end).decode()


def encode_event(event: Any) -> bytes:
    """Return one event in the encoding of clients."""
    payload = event.payload
    content = {"base64": base64.b64encode(payload).decode()} if type(payload) is bytes else {"payload": payload}
    return orjson.dumps(
        {
            "region": event.region,
            "position": position_text((event.epoch, event.sequence)),
            "sender": event.sender,
            "sent_at_ms": event.sent_at_ns // 1000 / 1000,
            **content,
            **({"key": event.key} if event.key is not None else {}),
            **_places_of(event),
        }
    )


def _places_of(event: Any) -> dict[str, Any]:
    """Return the fields that only an event of several regions has."""
    if getattr(event, "parts", None) is None:
        return {}
    return {"regions": event.regions, "positions": event.positions}


def encode_unreadable(event: Any, reason: str) -> bytes:
    """Return an encoded gap in the place of an event."""
    gap = encode_gap(event.region, event.epoch, event.sequence, event.sequence, reason)
    places = _places_of(event)
    return orjson.dumps({**orjson.loads(gap), **places}) if places else gap


def encode_gap(region: str, epoch: int, first_sequence: int, last_sequence: int, reason: str) -> bytes:
    """Return an encoded gap; ``position`` is where to continue after it, null if that is unknown."""
    last = position_text((epoch, last_sequence)) if last_sequence else None
    told = {"first": position_text((epoch, first_sequence)), "last": last, "reason": reason}
    return orjson.dumps({"region": region, "position": last, "gap": told})


def said(kind: str, **fields: Any) -> str:
    """Return a message from the gateway."""
    return orjson.dumps({"type": kind, **fields}).decode()
