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
    yield from _messages("acks", map(orjson.dumps, acks), bytes_max)


def updates_messages(updates: Iterable[bytes], bytes_max: int) -> Iterator[str]:
    """Yield the messages with these encoded updates, of at most ``bytes_max`` bytes; a larger update comes alone."""
    yield from _messages("updates", updates, bytes_max)


def _messages(kind: str, items: Iterable[bytes], bytes_max: int) -> Iterator[str]:
    begin, end = f'{{"type":"{kind}","{kind}":['.encode(), b"]}"
    part: list[bytes] = []
    part_bytes = 0
    for item in items:
        if part and len(begin) + part_bytes + len(item) + len(end) > bytes_max:
            yield (begin + b",".join(part) + end).decode()
            part, part_bytes = [], 0
        part.append(item)
        part_bytes += len(item) + 1
    if part:
        yield (begin + b",".join(part) + end).decode()


def encode_update(update: Any) -> bytes:
    """Return an update in the encoding of clients."""
    payload = update.payload
    content = {"base64": base64.b64encode(payload).decode()} if type(payload) is bytes else {"payload": payload}
    about = {"region": update.region, "key": update.key, "sender": update.sender, "position": update.position}
    return orjson.dumps({**about, "sent_at_ms": update.sent_at_ns // 1000 / 1000, **content})


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


def is_presence(item: Any) -> bool:
    """Return whether an item of a batch says that somebody arrived or left, and is no event or gap."""
    return hasattr(item, "is_here")


def encode_presence(item: Any) -> bytes:
    """Return who arrives or leaves in the encoding of clients."""
    said = {"name": item.name, "here": item.is_here, "info": item.info}
    return orjson.dumps(
        {"region": item.region, "position": position_text((item.epoch, item.sequence)), "presence": said}
    )


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
