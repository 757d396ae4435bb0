"""The states of regions in the encoding of clients: the keys of each region as one item among the events, or several.

Such an item has ``state``: key → value. A state that is larger than a message is sent as several items. The position of
its region is in the last one only, so a client that has not received all of it has no position to resume from.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from gateway.eventmessages import encode_gap, position_text
from gateway.eventtexts import ENVELOPE_BYTES, Told
from gateway.messages import position_of
from sequencing.compact import compact


def is_state(item: Any) -> bool:
    """Return whether an item of a batch is the state of regions, and no event or gap."""
    return hasattr(item, "incomplete")


def keys_in(batch: Iterable[Any]) -> int:
    """Return how many keys the states of a batch have."""
    return sum(len(keys) for item in batch if is_state(item) for keys in item.values.values())


class RegionState:
    """The state of one region, as far as it is not encoded yet."""

    def __init__(self, state: Any, region: str) -> None:
        """``state``: of this region, and maybe others."""
        self.region = region
        self._position: str = state.positions[region]
        self._more = {"incomplete": True} if region in state.incomplete else {}
        self._present = {"present": state.present[region]} if region in state.present else {}
        self._values = iter(state.values[region].items())
        self._number = 0
        self._next = self._encoded_next()

    @property
    def is_over(self) -> bool:
        """Whether all of it is encoded."""
        return self._number > 0 and self._next is None

    def encode(self, bytes_max: int) -> Told:
        """Return the next item, which fits into a message of ``bytes_max`` bytes unless it has a single value."""
        room = bytes_max - ENVELOPE_BYTES - len(self._item(b"", is_last=False)) - len(self._position) - 1
        texts, taken = list[bytes](), 0
        while self._next is not None and (not texts or taken + len(self._next) <= room):
            texts.append(self._next)
            taken += len(self._next) + 1
            self._next = self._encoded_next()
        is_last = self._next is None
        text = self._item(b",".join(texts), is_last=is_last)
        self._number += 1
        return Told(self.region, position_of(self._position) if is_last else None, compact(text), begins=is_last)

    def skipped(self) -> Told:
        """Return what stands for the rest if it is not sent: its client cannot resume behind it."""
        return Told(self.region, position_of(self._position), b"", begins=True)

    def _item(self, values: bytes, *, is_last: bool) -> bytes:
        parts = {} if is_last and not self._number else {"part": self._number, "more": not is_last}
        present = self._present if is_last else {}
        about = {"region": self.region, "position": self._position if is_last else None}
        fields = {**about, **parts, **self._more, **present}
        return orjson.dumps({**fields, "state": orjson.Fragment(b"{" + values + b"}")})

    def _encoded_next(self) -> bytes | None:
        key, event = next(self._values, (None, None))
        return orjson.dumps(key) + b":" + _value(event) if event is not None else None


def _value(event: Any) -> bytes:
    position = position_text((event.epoch, event.sequence))
    payload = event.payload
    content = {"base64": base64.b64encode(payload).decode()} if type(payload) is bytes else {"payload": payload}
    about = {"position": position, "sender": event.sender, "sent_at_ms": event.sent_at_ns // 1000 / 1000}
    try:
        return orjson.dumps(about | content)
    except (TypeError, ValueError, RecursionError) as error:
        reason = f"the payload cannot be encoded as JSON: {error}"
        gap = orjson.loads(encode_gap(event.region, event.epoch, event.sequence, event.sequence, reason))
        return orjson.dumps({**about, "gap": gap["gap"]})


def opened(batch: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a batch; instead of a state, that of each of its regions."""
    for item in batch:
        if is_state(item):
            yield from (RegionState(item, region) for region in item.values)
        else:
            yield item


def encoded(batch: Iterable[Any], encode: Callable[[Any], Told], bytes_max: int) -> Iterator[Told]:
    """Yield the items of a batch in the encoding of clients. ``encode``: of events and gaps."""
    for item in opened(batch):
        if isinstance(item, RegionState):
            while not item.is_over:
                yield item.encode(bytes_max)
        else:
            yield encode(item)
