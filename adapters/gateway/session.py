"""One WebSocket session: a subscriber of its own name, for as long as its socket is there.

Three tasks: what the client says is taken; regions are joined and left, one message after the other; and what is to be
said is written, everything that has gathered while the socket took the last message as one. When one of them ends, all
do, and the reason becomes the close code.

Nothing is kept for a client that is gone. It knows the position of the last event that it had of each region, and what
it had is a prefix of its session's order. So a session that begins there, at this gateway or any other, replays what is
behind that cut by its stamps, and goes on live: `docs/gateway.md` says why that is the same order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import WSMsgType, web

from adapters.gateway.grants import Bucket, Grant
from adapters.gateway.messages import (
    PROTOCOL,
    Close,
    Code,
    Hello,
    Ping,
    Publish,
    Refusal,
    Subscribe,
    Unsubscribe,
    events_message,
    message_id,
    read_json,
    read_message,
    said,
)
from adapters.gateway.ports import Connection
from sequencing.errors import GamecastError, Superseded, TooSlow, UsageError

if TYPE_CHECKING:
    from adapters.gateway.gateway import Gateway

COMMANDS_MAX = 64
"""Subscribes and unsubscribes that wait for the ones before; beyond it nothing more is read."""
REPLIES_MAX = 1_024
RETRY_SCAN_EVENTS_MAX = 200_000
"""How far a region is searched for an event that may have been published before; further back nobody can tell."""


class Ended(Exception):
    """The session ends."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(reason)
        self.close_code, self.reason = close_code, reason


class Session:
    """One session, from the hello to the close."""

    def __init__(self, gateway: Gateway, socket: web.WebSocketResponse, *, peer: str, grant: Grant | None) -> None:
        """``grant``: of a token that came with the request; the hello may bring another."""
        self.id = gateway.new_id("s")
        self.peer = peer
        self.name = ""
        self.regions: set[str] = set()
        """Those that were asked for."""
        self.since = time.time()
        self._gateway, self._limits, self._socket = gateway, gateway.settings.limits, socket
        self._grant = grant
        self._connection: Connection | None = None
        self._batch_s = 0.0
        self._commands: asyncio.Queue[Subscribe | Unsubscribe] = asyncio.Queue(COMMANDS_MAX)
        self._items: list[bytes] = []
        self._acks: list[dict[str, Any]] = []
        self._replies: list[str] = []
        self._unanswered = 0
        self._wake, self._room, self._answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._faults = Bucket(self._limits.requests_per_s, self._limits.burst_requests)
        self._heard_at = time.monotonic()
        self._renewed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._leaving_reason: tuple[int, str] = Close.GOING_AWAY, "the gateway ends: go on at another one"
        self._retries: dict[str, deque[tuple[str, bytes]]] = {}
        self._fresh: set[str] = set()
        """Regions to which this session has published: what it retries there must have come before."""

    @property
    def subject(self) -> str | None:
        """Whose session it is."""
        return self._grant.subject if self._grant is not None else None

    @property
    def connection(self) -> Connection | None:
        """The connection to the network, once there is one."""
        return self._connection

    def leave(self, close_code: int, reason: str) -> None:
        """Have the session end."""
        self._leaving_reason = close_code, reason
        self._leaving.set()

    async def run(self) -> None:
        """Go on until the socket closes, or the session ends; then close it with what tells why."""
        close_code, reason = 1000, ""
        try:
            try:
                await self._begin()
                await self._go_on()
            except* Ended as ended:
                close_code, reason = _first(ended)
            except* Superseded:
                close_code, reason = Close.SUPERSEDED, "another session has taken this name over"
            except* TooSlow:
                close_code, reason = Close.TOO_SLOW, "events were taken too slowly"
            except* GamecastError as error:
                self._gateway.log("session-broken", session=self.id, reason=repr(error.exceptions[0]))
                close_code, reason = Close.TRY_LATER, "the network behind the gateway does not answer now"
            except* (ConnectionError, asyncio.CancelledError):
                close_code, reason = 1006, "the connection broke"
        finally:
            await self._end(close_code, reason)

    async def _begin(self) -> None:
        """Learn who this is, and connect under that name."""
        gateway = self._gateway
        try:
            async with asyncio.timeout(self._limits.hello_timeout_s):
                hello = await self._hello()
        except TimeoutError as error:
            raise Ended(Close.HELLO_TIMEOUT, f"no hello within {self._limits.hello_timeout_s:g} s") from error
        try:
            self._grant = await gateway.guard.grant(hello.token, self._grant)
            self.name = gateway.session_name(self._grant, hello.name)
            gateway.enter(self, self._grant)
        except Refusal as refusal:
            await self._refuse(refusal)
            close = {Code.LIMIT: Close.LIMIT, Code.EXPIRED: Close.EXPIRED}.get(refusal.code, Close.UNAUTHORIZED)
            raise Ended(close, refusal.message) from refusal
        self._batch_s = hello.batch_ms / 1000
        connection = gateway.door.connection(
            self.name,
            when_behind=gateway.settings.when_behind,
            inbox_events_max=self._limits.inbox_events_max,
        )
        await gateway.open(connection)
        self._connection = connection
        gateway.audit.note("session-opened", **self._ids())
        self._reply(self._welcome())

    async def _hello(self) -> Hello:
        message = await self._socket.receive()
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
            raise Ended(1000, "gone before the hello")
        try:
            if message.type is not WSMsgType.TEXT:
                raise Refusal(Code.MALFORMED, "the first message is a hello, in text")
            hello = read_message(read_json(message.data))
            if not isinstance(hello, Hello):
                raise Refusal(Code.MALFORMED, "the first message is a hello")
        except Refusal as refusal:
            await self._refuse(refusal)
            raise Ended(Close.MALFORMED, refusal.message) from refusal
        return hello

    async def _go_on(self) -> None:
        assert self._connection is not None
        async with asyncio.TaskGroup() as group:
            for work in (
                self._take(),
                self._obey(self._connection),
                self._deliver(self._connection),
                self._write(),
                self._watch(),
                self._leave(),
            ):
                group.create_task(self._ending(work), name=f"gamecast session {self.id}")

    @staticmethod
    async def _ending(work: Coroutine[Any, Any, None]) -> None:
        await work
        raise Ended(1000, "")

    async def _leave(self) -> None:
        await self._leaving.wait()
        raise Ended(*self._leaving_reason)

    async def _watch(self) -> None:
        """End the session when its token expires, or when it is of no use."""
        while True:
            self._renewed.clear()
            assert self._grant is not None
            waits = [self._limits.idle_timeout_s - (time.monotonic() - self._heard_at)]
            if self._grant.expires_at_s is not None:
                waits.append(self._grant.expires_at_s - time.time())
                if waits[-1] <= 0:
                    raise Ended(Close.EXPIRED, "the token has expired: say hello with a new one before")
            if waits[0] <= 0:
                if not self.regions:
                    raise Ended(Close.IDLE, "no subscription and no message for too long")
                self._heard_at = time.monotonic()
            try:
                async with asyncio.timeout(max(0.01, min(waits))):
                    await self._renewed.wait()
            except TimeoutError:
                pass

    # What the client says.

    async def _take(self) -> None:
        while True:
            message = await self._socket.receive()
            self._heard_at = time.monotonic()
            if message.type is WSMsgType.TEXT:
                await self._take_text(message.data)
            elif message.type is WSMsgType.BINARY:
                raise Ended(Close.UNSUPPORTED, "messages are text: bytes go as base64")
            elif message.type in (WSMsgType.PING, WSMsgType.PONG):
                continue
            else:
                if self._socket.close_code == Close.TOO_LARGE:
                    limit = self._limits.message_bytes_max
                    self._gateway.refused(Code.TOO_LARGE, f"a message of more than {limit} bytes", **self._ids())
                raise Ended(1000, "the client has gone")

    async def _take_text(self, text: str) -> None:
        try:
            document = read_json(text)
            messages = document if isinstance(document, list) else [document]
            if len(messages) > self._limits.messages_per_array_max:
                raise Refusal(Code.LIMIT, f"an array has at most {self._limits.messages_per_array_max} messages")
        except Refusal as refusal:
            await self._refuse(refusal)
            raise Ended(Close.MALFORMED, refusal.message) from refusal
        for each in messages:
            try:
                await self._take_message(each)
            except Refusal as refusal:
                self._deny(refusal, each)
            except GamecastError as error:
                if isinstance(error, Superseded):
                    raise
                self._deny(Refusal.of(error), each)
            while len(self._replies) >= REPLIES_MAX:
                await self._until_room()

    def _deny(self, refusal: Refusal, document: Any) -> None:
        fields = refusal.document()
        if (given := message_id(document)) is not None:
            fields["id"] = given
        self._reply(said("error", **fields))
        self._gateway.refused(refusal.code, refusal.message, **self._ids())
        if refusal.code is not Code.RATE and self._faults.take():
            raise Ended(Close.RATE, "too many messages that had to be refused")

    async def _take_message(self, document: Any) -> None:
        message = read_message(document)
        if isinstance(message, Publish):
            await self._publish(message)
        elif isinstance(message, Ping):
            self._gateway.subject(self._granted).require_request()
            self._reply(said("pong", **_answering(message.id)))
        elif isinstance(message, Hello):
            await self._renew(message)
        else:
            self._gateway.subject(self._granted).require_request()
            if isinstance(message, Subscribe):
                for region in message.regions:
                    self._granted.require_read(region)
                if len(self.regions | set(message.regions)) > self._limits.regions_per_session_max:
                    most = self._limits.regions_per_session_max
                    raise Refusal(Code.LIMIT, f"a session has at most {most} regions", status=429)
                self.regions |= set(message.regions)
            await self._commands.put(message)

    async def _renew(self, hello: Hello) -> None:
        self._gateway.subject(self._granted).require_request()
        if hello.token is None:
            raise Refusal(Code.MALFORMED, "a hello in a session brings a new token")
        grant = await self._gateway.guard.grant(hello.token, None)
        if grant.subject != self._granted.subject:
            raise Refusal(Code.FORBIDDEN, "the new token is of another subject", status=403)
        for region in sorted(self.regions):
            grant.require_read(region)
        self._grant = grant
        self._renewed.set()
        self._gateway.audit.note("session-renewed", **self._ids())
        self._reply(self._welcome())

    async def _publish(self, message: Publish) -> None:
        grant, limits = self._granted, self._limits
        grant.require_write(message.region)
        most = min(grant.payload_bytes_max or limits.payload_bytes_max, limits.payload_bytes_max)
        if message.payload_bytes > most:
            raise Refusal(
                Code.TOO_LARGE, f"the payload has {message.payload_bytes} bytes, more than {most}", status=413
            )
        self._gateway.subject(grant).require_events(1)
        while self._unanswered >= limits.unanswered_max:
            self._answered.clear()
            await self._answered.wait()
        encoded = message.payload if isinstance(message.payload, bytes) else orjson.dumps(message.payload)
        if message.retry and (position := await self._published_before(message, encoded)) is not None:
            self._ack({**_answering(message.id), "region": message.region, "position": position, "repeated": True})
            return
        if not message.retry:
            self._fresh.add(message.region)
        payload = encoded if isinstance(message.payload, bytes) else orjson.Fragment(encoded)
        assert self._connection is not None
        receipt = self._connection.publish_soon(message.region, payload)
        self._unanswered += 1
        begun_ns = time.time_ns()
        self._gateway.metrics.published(message.region, message.payload_bytes)

        def answered(receipt: asyncio.Future[Any]) -> None:
            self._unanswered -= 1
            self._answered.set()
            if receipt.cancelled():
                return
            error = receipt.exception()
            if error is None:
                position = f"{receipt.result().epoch}-{receipt.result().sequence}"
                self._ack({**_answering(message.id), "region": message.region, "position": position})
                if self._gateway.tracing is not None:
                    self._gateway.tracing.published(message.region, position, self.id, begun_ns)
            else:
                refusal = Refusal.of(error) if isinstance(error, GamecastError) else Refusal(Code.INTERNAL, "failed")
                self._reply(said("error", **_answering(message.id), **refusal.document()))
                self._gateway.refused(refusal.code, refusal.message, **self._ids())

        receipt.add_done_callback(answered)

    async def _published_before(self, message: Publish, encoded: bytes) -> str | None:
        """Return the position of an event that an earlier session of this name published; see `docs/gateway.md`.

        That session can publish no more when this one has joined the region: its marker came through the region's
        ingress, which takes nothing of an earlier connection behind it. What it published is in the region's stream.
        """
        region = message.region
        if region in self._retries:
            found = self._retries[region]
        else:
            if region in self._fresh:
                raise Refusal(Code.ORDER, "retries of a region come before what is new there", status=409)
            assert self._connection is not None
            assert message.after is not None
            await self._commands.join()
            joined_for_this = region not in self.regions
            if joined_for_this:
                await self._connection.subscribe(region)
            found = self._retries[region] = await self._own_events(region, message.after)
            if joined_for_this:
                await self._connection.unsubscribe(region)
        for place, (position, known) in enumerate(found):
            if known == encoded:
                for _ in range(place + 1):
                    found.popleft()
                return position
        return None

    async def _own_events(self, region: str, after: str) -> deque[tuple[str, bytes]]:
        door, found = self._gateway.door, deque[tuple[str, bytes]]()
        for _ in range(RETRY_SCAN_EVENTS_MAX // self._limits.history_events_max):
            page = await door.history(region, after=after, events_max=self._limits.history_events_max)
            for item in page.items:
                if not isinstance(item, door.event_type):
                    raise Refusal(Code.UNCERTAIN, "the region has kept too little to tell", status=504, definite=False)
                event: Any = item
                if event.sender == self.name:
                    raw = event.payload if isinstance(event.payload, bytes) else orjson.dumps(event.payload)
                    found.append((f"{event.epoch}-{event.sequence}", raw))
            after = page.next
            if not page.more:
                return found
        raise Refusal(Code.UNCERTAIN, "too much was published since to tell", status=504, definite=False)

    # Joining and leaving.

    async def _obey(self, connection: Connection) -> None:
        while True:
            message = await self._commands.get()
            try:
                if isinstance(message, Subscribe):
                    self.regions |= set(message.regions)  # a message before this one may have left them
                    positions = await connection.subscribe(*message.regions, since=message.since)
                    self._reply(said("subscribed", **_answering(message.id), regions=positions))
                    self._gateway.audit.note("subscribed", **self._ids(), regions=list(message.regions))
                else:
                    await connection.unsubscribe(*message.regions)
                    self.regions -= set(message.regions)
                    self._reply(said("unsubscribed", **_answering(message.id), regions=list(message.regions)))
            except (Superseded, TooSlow):
                raise
            except UsageError as error:
                self._deny(Refusal(Code.MALFORMED, str(error)), {"id": message.id})
            except GamecastError as error:
                self._deny(Refusal.of(error), {"id": message.id})
            finally:
                self._commands.task_done()

    # What the client is told.

    async def _deliver(self, connection: Connection) -> None:
        encode, limit = self._gateway.texts.encode, self._limits.outbox_events_max
        event_type = self._gateway.door.event_type
        async for batch in connection.batches():
            self._gateway.delivered(batch)
            # What is joined for a retry only is not shown.
            self._items += [encode(item) for item in batch if item.region in self.regions]
            for item in batch:
                if not isinstance(item, event_type):
                    self._gateway.metrics.gap()
            self._wake.set()
            while len(self._items) >= limit:
                await self._until_room()

    async def _until_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            if self._batch_s:
                await asyncio.sleep(self._batch_s)
            self._wake.clear()
            await self._flush()

    async def _flush(self) -> None:
        items, self._items = self._items, []
        acks, self._acks = self._acks, []
        replies, self._replies = self._replies, []
        self._room.set()
        if items:
            await self._send(events_message(items))
            self._gateway.metrics.sent(len(items))
        if acks:
            await self._send(said("acks", acks=acks))
        for reply in replies:
            await self._send(reply)

    async def _send(self, text: str) -> None:
        try:
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._socket.send_str(text)
        except TimeoutError as error:
            raise Ended(Close.TOO_SLOW, "the socket took nothing for too long") from error

    def _reply(self, text: str) -> None:
        self._replies.append(text)
        self._wake.set()

    def _ack(self, ack: dict[str, Any]) -> None:
        self._acks.append(ack)
        self._wake.set()

    def _welcome(self) -> str:
        limits, grant = self._limits, self._granted
        return said(
            "welcome",
            protocol=PROTOCOL,
            gateway=self._gateway.id,
            session=self.id,
            name=self.name,
            heartbeat_ms=round(limits.heartbeat_s * 1000),
            expires_at_ms=round(grant.expires_at_s * 1000) if grant.expires_at_s is not None else None,
            limits={
                "message_bytes": limits.message_bytes_max,
                "payload_bytes": min(grant.payload_bytes_max or limits.payload_bytes_max, limits.payload_bytes_max),
                "messages_per_array": limits.messages_per_array_max,
                "regions": limits.regions_per_session_max,
                "unanswered": limits.unanswered_max,
            },
        )

    async def _refuse(self, refusal: Refusal) -> None:
        self._gateway.refused(refusal.code, refusal.message, **self._ids())
        await self._send(said("error", **refusal.document()))

    async def _end(self, close_code: int, reason: str) -> None:
        self._gateway.leave(self)
        try:
            if not self._socket.closed and close_code != 1006:
                async with asyncio.timeout(self._limits.drain_s):
                    if close_code == Close.GOING_AWAY:
                        await self._flush()
                    text = reason.encode()[:120].decode(errors="ignore")
                    await self._socket.close(code=close_code, message=text.encode())
        except (TimeoutError, ConnectionError, Ended):
            pass
        finally:
            if self._connection is not None:
                self._gateway.close_soon(self._connection)
            self._gateway.audit.note("session-closed", **self._ids(), code=close_code, reason=reason)

    @property
    def _granted(self) -> Grant:
        assert self._grant is not None
        return self._grant

    def _ids(self) -> dict[str, Any]:
        token_id = self._grant.token_id if self._grant is not None else None
        return {
            "session": self.id,
            "subject": self.subject,
            "token_id": token_id,
            "name": self.name or None,
            "peer": self.peer,
        }


def _answering(given: str | int | None) -> dict[str, Any]:
    return {} if given is None else {"id": given}


def _first(errors: BaseExceptionGroup[Any]) -> tuple[int, str]:
    """Return the reason that tells most: another one than that the client has gone, if there is one."""
    worst = 0, ""
    pending: list[Any] = [errors]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        elif (error.close_code, error.reason) > worst:
            worst = error.close_code, error.reason
    return worst
