"""What a session's client is told: events, acks and replies gather here while the socket takes the message before."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Collection, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web

from adapters.gateway.caller import Caller
from adapters.gateway.ended import Ended, is_cancelled
from adapters.gateway.eventtexts import Told, parted
from adapters.gateway.gateway import Gateway
from adapters.gateway.grants import Bucket
from adapters.gateway.messages import Close, Code, Refusal, events_message, message_id, said
from adapters.gateway.parked import ParkedSession

REPLIES_MAX = 1_024


class Outbox:
    """Gathers what one session says, and writes it: all events that are there as one message, then acks, then replies.

    Whoever adds a lot waits for room: `deliver` by itself, and who replies by `until_room_for_replies`.
    """

    def __init__(self, gateway: Gateway, socket: web.WebSocketResponse, caller: Caller) -> None:
        self._gateway, self._socket, self._caller = gateway, socket, caller
        self._limits = gateway.settings.limits
        self._message_bytes_max = self._limits.message_bytes_max
        self._coming: deque[Any] = deque()
        """Events and gaps of the batch that is being delivered, which have found no room yet."""
        self._items: list[Told] = []
        self._items_bytes = 0
        self._acks: list[dict[str, Any]] = []
        self._replies: list[str] = []
        self._wake, self._room, self._full = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._faults = Bucket(self._limits.requests_per_s, self._limits.burst_requests)

    async def deliver(self, place: ParkedSession) -> None:
        """Tell what comes to a place of the regions that were asked for; ends when its connection does."""
        items_max = self._limits.outbox_events_max
        async for batch in place.connection.batches():
            self._gateway.delivered(batch)
            if past := self._caller.past.events_in(batch):
                self._gateway.subject(self._caller.grant).read_history(past)
            self._coming.extend(batch)
            try:
                while self._coming:
                    self._tell(self._coming.popleft(), place)
                    while len(self._items) >= items_max or self._items_bytes >= self._message_bytes_max:
                        await self._until_room()
            finally:
                while self._coming:  # the session ends: what is left is resent when its client comes back
                    self._tell(self._coming.popleft(), place)
            self._wake.set()

    def bound_messages(self, bytes_max: int | None) -> int:
        """Send no longer messages of several events than the client wants; return the bound."""
        if bytes_max is not None:
            self._message_bytes_max = min(bytes_max, self._message_bytes_max)
        return self._message_bytes_max

    def left(self, regions: Collection[str]) -> None:
        """Drop what has come of regions that the client has left."""
        self._coming = deque(item for item in self._coming if item.region not in regions)

    def resend(self, missed: Iterable[Told]) -> None:
        """Have events go out once more, with what comes next."""
        for item in missed:
            self._add(item)

    def ack(self, answered: str | int | None, **fields: Any) -> None:
        """Tell where an event was published. ``answered``: the id of the message that this is about."""
        self._acks.append(_about(answered) | fields)
        self._wake.set()

    def reply(self, kind: str, answered: str | int | None = None, **fields: Any) -> None:
        """Tell anything else. ``answered``: the id of the message that this is about."""
        self._replies.append(said(kind, **_about(answered), **fields))
        self._wake.set()

    async def until_room_for_replies(self) -> None:
        """Wait while too many replies are not written yet."""
        while len(self._replies) >= REPLIES_MAX:
            await self._until_room()

    def deny(self, refusal: Refusal, document: Any) -> None:
        """Reply that what a message asks for is refused; raises `Ended` when that happens too often."""
        self.reply("error", message_id(document), **refusal.document())
        self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)
        if refusal.code is Code.RATE:
            self.slow_down()
        elif refusal.code is not Code.BACKEND_DOWN and self._faults.take():
            raise Ended(Close.RATE, "too many messages that had to be refused")

    def slow_down(self) -> None:
        """Count that something was refused for the rate; raises `Ended` when that happens too often."""
        if self._gateway.subject(self._caller.grant).goes_on_too_fast():
            raise Ended(Close.RATE, "too many messages beyond the rate: wait as long as retry_after_ms says")

    async def pong(self, content: bytes) -> None:
        """Answer a WebSocket ping; raises `Ended` when the socket takes nothing for too long."""
        await self._in_time(self._socket.pong(content))

    async def refuse(self, refusal: Refusal) -> None:
        """Tell at once why the session cannot go on."""
        self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)
        await self._send(said("error", **refusal.document()))

    async def write(self, batch_s: float) -> None:
        """Write what there is, again and again; each time gather for ``batch_s`` before, or until there is no room."""
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
        """Write what there is now; raises `Ended` when the socket takes nothing for too long."""
        items, self._items, self._items_bytes = self._items, [], 0
        acks, self._acks = self._acks, []
        replies, self._replies = self._replies, []
        self._room.set()
        for part in parted(items, self._message_bytes_max):
            await self._send(events_message(item.text for item in part))
            self._gateway.metrics.sent(len(part))
        if acks:
            await self._send(said("acks", acks=acks))
        for reply in replies:
            await self._send(reply)

    def _tell(self, item: Any, place: ParkedSession) -> None:
        if not isinstance(item, self._gateway.access.event_type):
            self._gateway.metrics.gap()
        if item.region in self._caller.regions:  # what is joined for a retry only is not shown
            told = self._gateway.texts.encode(item)
            place.tell(told)
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
            raise Ended(Close.TOO_SLOW, "the socket took nothing for too long") from error


def _about(answered: str | int | None) -> dict[str, Any]:
    return {} if answered is None else {"id": answered}
