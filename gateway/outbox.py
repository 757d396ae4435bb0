"""What a session sends to its client.

Events, acks and replies wait here while the socket writes the previous message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Collection, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web

from gamecast.event import Event
from gateway.caller import Caller
from gateway.ended import Ended, is_cancelled
from gateway.eventmessages import (
    acks_messages,
    encode_update,
    events_message,
    is_presence,
    said,
    updates_messages,
)
from gateway.eventtexts import Told, parted, visible
from gateway.gateway import Gateway
from gateway.grants import Bucket
from gateway.messages import message_id
from gateway.parked import ParkedSession
from gateway.refusal import Close, Code, Refusal
from gateway.states import RegionState, keys_in, opened

REPLIES_MAX = 1_024
REPLIES_BYTES_MAX = 131_072
MESSAGE_BYTES = 60_000
"""The limit of clients that name none: engines drop connections over larger messages (Godot's above 65,535 bytes)."""


class Outbox:
    """Collects what one session sends, and writes it: all waiting events as one message, then acks, then replies.

    Producers of large output wait for room: `deliver` does so by itself, and for replies call `until_room_for_replies`.
    """

    def __init__(self, gateway: Gateway, socket: web.WebSocketResponse, caller: Caller) -> None:
        self._gateway, self._socket, self._caller = gateway, socket, caller
        self._limits = gateway.settings.limits
        self._message_bytes_max = min(MESSAGE_BYTES, self._limits.message_bytes_max)
        self._coming: deque[Any] = deque()
        """Events, gaps and states of the current batch that wait for room."""
        self._items: list[Told] = []
        self._items_bytes = 0
        self._acks: list[dict[str, Any]] = []
        self._replies: list[str] = []
        self._replies_bytes = 0
        self._updates: dict[tuple[str, str, str], bytes] = {}
        """Region, key and sender → the newest update."""
        self._updates_bytes = 0
        self._wake, self._room, self._full = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._faults = Bucket(self._limits.requests_per_s, self._limits.burst_requests)

    async def deliver(self, place: ParkedSession) -> None:
        """Send the events of a parked session's subscribed regions; returns when its connection ends."""
        items_max = self._limits.outbox_events_max
        async for batch in place.connection.batches():
            self._gateway.delivered(batch)
            if past := self._caller.past.events_in(batch) + keys_in(batch):
                self._gateway.subject(self._caller.grant).read_history(past)
            self._coming.extend(opened(batch))
            try:
                while self._coming:
                    self._tell(self._coming.popleft(), place)
                    while len(self._items) >= items_max or self._items_bytes >= self._message_bytes_max:
                        await self._until_room()
            finally:
                while self._coming:  # the session ends: the rest is resent when its client resumes
                    item = self._coming.popleft()
                    if isinstance(item, RegionState):
                        place.tell(item.skipped())
                    else:
                        self._tell(item, place)
            self._wake.set()

    async def deliver_updates(self, place: ParkedSession) -> None:
        """Send the newest updates of the session's regions, each after the events that its sender had seen."""
        while True:
            for update in await place.connection.next_updates():
                if update.region in self._caller.regions:
                    self._keep_update((update.region, update.key, update.sender), encode_update(update))
            self._wake.set()

    def _keep_update(self, whose: tuple[str, str, str], text: bytes) -> None:
        older = self._updates.get(whose)
        size = self._updates_bytes + len(text) - len(older or b"")
        has_room = older is not None or len(self._updates) < self._limits.updates_max
        if has_room and size <= self._limits.updates_bytes_max:
            self._updates[whose], self._updates_bytes = text, size

    def bound_messages(self, bytes_max: int | None) -> int:
        """Limit messages of several events or acks to the size that the client wants, if it says; return the limit."""
        if bytes_max is not None:
            self._message_bytes_max = min(bytes_max, self._limits.message_bytes_max)
        return self._message_bytes_max

    def leave(self, regions: Collection[str], place: ParkedSession) -> None:
        """Have the client leave regions: drop their waiting events.

        An event of several regions is not dropped, because it would not come by another one that the client joins
        later: it is sent before the client hears that it has left.
        """
        staying = self._caller.regions.difference(regions)
        self._coming = deque(
            item for item in self._coming if not isinstance(item, RegionState) or item.region in staying
        )
        last = 0
        for number, item in enumerate(self._coming, start=1):
            if getattr(item, "parts", None) is not None and visible(item, staying) is None:
                last = number
        for _ in range(last):
            self._tell(self._coming.popleft(), place)
        self._caller.regions -= set(regions)
        self._coming = deque(seen for item in self._coming if (seen := visible(item, staying)) is not None)

    def resend(self, missed: Iterable[Told]) -> None:
        """Send events again, before the next ones."""
        for item in missed:
            self._add(item)

    def ack(self, answered: str | int | None, **fields: Any) -> None:
        """Send the position of a published event. ``answered``: the id of the message that this answers."""
        self._acks.append(_about(answered) | fields)
        self._wake.set()

    def reply(self, kind: str, answered: str | int | None = None, **fields: Any) -> None:
        """Send any other reply. ``answered``: the id of the message that this answers."""
        reply = said(kind, **_about(answered), **fields)
        self._replies.append(reply)
        self._replies_bytes += len(reply)
        self._wake.set()

    async def until_room_for_replies(self) -> None:
        """Wait while too many replies are not written yet."""
        while len(self._replies) >= REPLIES_MAX or self._replies_bytes >= REPLIES_BYTES_MAX:
            await self._until_room()

    def deny(self, refusal: Refusal, document: Any) -> None:
        """Reply that a message is refused; raises `Ended` if that happens too often."""
        self.reply("error", message_id(document), **refusal.document())
        self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)
        if refusal.code is Code.RATE:
            self.slow_down()
        elif refusal.code is not Code.BACKEND_DOWN and self._faults.take():
            raise Ended(Close.RATE, "too many messages were refused: correct them before you reconnect")

    def slow_down(self) -> None:
        """Count a refusal for the rate limit; raises `Ended` if that happens too often."""
        if self._gateway.subject(self._caller.grant).goes_on_too_fast():
            raise Ended(Close.RATE, "too many messages beyond the rate limit: wait for retry_after_ms after a refusal")

    async def pong(self, content: bytes) -> None:
        """Answer a WebSocket ping; raises `Ended` if the socket accepts nothing for too long."""
        await self._in_time(self._socket.pong(content))

    async def refuse(self, refusal: Refusal) -> None:
        """Send at once the reason why the session cannot continue."""
        self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)
        await self._send(said("error", **refusal.document()))

    async def write(self, batch_s: float) -> None:
        """Write what is waiting, in a loop; before each write, collect for ``batch_s``, or until there is no room."""
        while True:
            await self._wake.wait()
            if batch_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(batch_s):
                        await self._full.wait()
            self._wake.clear()
            self._full.clear()
            await self.flush()

    async def flush(self) -> None:
        """Write what is waiting now; raises `Ended` if the socket accepts nothing for too long."""
        items, self._items, self._items_bytes = self._items, [], 0
        acks, self._acks = self._acks, []
        replies, self._replies, self._replies_bytes = self._replies, [], 0
        self._room.set()
        for part in parted(items, self._message_bytes_max):
            await self._send(events_message(item.text for item in part))
            self._gateway.metrics.sent(len(part))
        for message in acks_messages(acks, self._message_bytes_max):
            await self._send(message)
        for reply in replies:
            await self._send(reply)
        if self._updates and not self._coming and not self._items:
            updates, self._updates, self._updates_bytes = self._updates, {}, 0
            staying = (text for (region, _, _), text in updates.items() if region in self._caller.regions)
            for message in updates_messages(staying, self._message_bytes_max):
                await self._send(message)

    def _tell(self, item: Any, place: ParkedSession) -> None:
        if isinstance(item, RegionState):
            self._tell_state(item, place)
            return
        if not isinstance(item, Event) and not is_presence(item):
            self._gateway.metrics.gap()
        # A region that was joined only for a retry is not sent, and not named.
        if (seen := visible(item, self._caller.regions)) is not None:
            told = self._gateway.texts.encode(seen)
            place.tell(told)
            self._add(told)

    def _tell_state(self, state: RegionState, place: ParkedSession) -> None:
        """Send as much of a region's state as fits into a message; the rest comes next."""
        if state.region in self._caller.regions:
            told = state.encode(self._message_bytes_max)
            if told.begins:
                place.tell(told)
            else:
                self._coming.appendleft(state)
            self._add(told)

    def _add(self, told: Told) -> None:
        self._items.append(told)
        self._items_bytes += len(told.text) + 1

    async def _until_room(self) -> None:
        self._room.clear()
        self._wake.set()
        self._full.set()
        await self._room.wait()

    async def _send(self, text: str) -> None:
        await self._in_time(self._socket.send_str(text))

    async def _in_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._limits.send_timeout_s):
                await sending
        except (TimeoutError, asyncio.CancelledError) as error:
            if is_cancelled(error):
                raise
            raise Ended(Close.TOO_SLOW, "the socket accepted no data for too long: read faster") from error


def _about(answered: str | int | None) -> dict[str, Any]:
    return {} if answered is None else {"id": answered}
