"""Publishes that a client sends again because it does not know whether they were accepted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from gamecast.event import Event
from gateway.access import ClientAccess
from gateway.eventmessages import position_text
from gateway.messages import Publish
from gateway.parked import ParkedSession
from gateway.refusal import Code, Refusal

SCAN_EVENTS_MAX = 200_000
"""How far back a region is searched for an event that may have been published before; older events stay uncertain."""


class Retries:
    """The retries of one session; see `docs/gateway.md`."""

    def __init__(self, access: ClientAccess, name: str, *, page_events: int) -> None:
        """``name``: of the session and the earlier ones; ``page_events``: how many events one read takes."""
        self._access, self._name, self._page_events = access, name, page_events
        self._events: dict[str, deque[_Own]] = {}
        self._copies: dict[str, set[int]] = {}
        """Region → when events were sent that were found in another one: here they are no other event."""
        self._fresh: set[str] = set()

    def published(self, regions: Iterable[str]) -> None:
        """Note that the session has published a new event: its retries in these regions must come before."""
        self._fresh.update(regions)

    async def position(self, message: Publish, encoded: bytes, place: ParkedSession, *, follows: bool) -> str | None:
        """Return where an earlier session of the name published this, if it did. ``follows``: it has the region.

        An event of several regions was published in all of them or in none: only the first one is searched.

        An earlier connection can publish no more after this one has joined the region. The marker of the join passed
        the region's ingress, which refuses later events of an earlier connection. Events that an earlier session
        published over this connection have been delivered by the region's egress. Either way the event is in the
        region's stream.
        """
        region = message.region
        if region in self._events:
            events = self._events[region]
        else:
            if not self._fresh.isdisjoint(message.regions or (region,)):
                raise Refusal(Code.ORDER, "retries of a region must come before new events there", status=409)
            assert message.after is not None
            await place.until_arrived(region)
            if not follows:
                await place.connection.subscribe(region)
            try:
                events = self._events[region] = await self._own_events(region, message.after)
            finally:
                if not follows:
                    await place.connection.unsubscribe(region)
        copies = self._copies.get(region, ())
        for number, own in enumerate(events):
            if (own.payload, own.key) == (encoded, message.about.get("key")) and own.sent_at_ns not in copies:
                for _ in range(number + 1):
                    events.popleft()
                for other in message.regions[1:]:
                    self._copies.setdefault(other, set()).add(own.sent_at_ns)
                return own.position
        return None

    async def _own_events(self, region: str, after: str) -> deque[_Own]:
        events = deque[_Own]()
        for _ in range(SCAN_EVENTS_MAX // self._page_events):
            page = await self._access.history(region, after=after, events_max=self._page_events)
            for item in page.items:
                if not isinstance(item, Event):
                    raise Refusal(
                        Code.UNCERTAIN,
                        "the region's history is too short to find the event",
                        status=504,
                        definite=False,
                    )
                event: Any = item
                if event.sender == self._name:
                    raw = event.payload if isinstance(event.payload, bytes) else _written(event.payload)
                    position = position_text((event.epoch, event.sequence))
                    events.append(_Own(position, raw, event.key, event.sent_at_ns))
            after = page.next
            if page.is_late:
                raise Refusal(
                    Code.UNCERTAIN,
                    "the region's events are delayed, so the outcome is not known yet: retry later",
                    status=504,
                    definite=False,
                )
            if not page.more:
                return events
        raise Refusal(
            Code.UNCERTAIN, "too many events were published since then to find the event", status=504, definite=False
        )


class _Own(NamedTuple):
    """An event that the name has published; ``payload``: encoded."""

    position: str
    payload: bytes
    key: str | None
    sent_at_ns: int


def _written(payload: Any) -> bytes:
    try:
        return orjson.dumps(payload)
    except TypeError:
        return b""  # not published here
