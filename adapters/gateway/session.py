"""One WebSocket session: a subscriber of its own name, for as long as its socket is there.

Three tasks: what the client says is taken; regions are joined and left, one message after the other; and what is to be
said is written, everything that has gathered while the socket took the last message as one. When one of them ends, all
do, and the reason becomes the close code.

A client knows the position of the last event that it had of each region, and what it had is a prefix of its session's
order. When it comes back soon, it goes on in its `Place`, which was kept, and is sent what is behind that prefix. Else
a session that begins there, at this gateway or any other, replays what is behind that cut by its stamps, and goes on
live: `docs/gateway.md` says why that is the same order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import WSMsgType, web

from adapters.gateway.eventtexts import Told
from adapters.gateway.grants import Bucket, Grant
from adapters.gateway.messages import (
    PROTOCOL,
    Close,
    Code,
    Hello,
    Ping,
    Position,
    Publish,
    Refusal,
    Subscribe,
    Unsubscribe,
    events_message,
    message_id,
    position_of,
    position_text,
    read_json,
    read_message,
    said,
)
from adapters.gateway.place import Place
from adapters.gateway.ports import Connection
from adapters.gateway.retries import Retries
from sequencing.errors import GamecastError, NetworkError, Superseded, TooSlow, UsageError

if TYPE_CHECKING:
    from adapters.gateway.gateway import Gateway

COMMANDS_MAX = 64
"""Subscribes and unsubscribes that wait for the ones before; beyond it nothing more is read."""
REPLIES_MAX = 1_024
ABNORMAL = 1006
"""Of a socket that broke; never sent."""


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
        self.gone = asyncio.Event()
        """Set when its place is free for another session of the name."""
        self._place: Place | None = None
        self._kept: Place | None = None
        """Of an earlier session, until it is clear whether this one can go on in it."""
        self._has_place = asyncio.Event()
        self._moves = 0
        """Subscribes, unsubscribes and retries that are not done."""
        self._is_over = False
        """Whether it has ended so that there is nothing to go on with."""
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
        self._retries: Retries

    @property
    def subject(self) -> str | None:
        """Whose session it is."""
        return self._grant.subject if self._grant is not None else None

    @property
    def connection(self) -> Connection | None:
        """The connection to the network, once there is one."""
        return self._place.connection if self._place is not None else None

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
                self._is_over = True
                close_code, reason = Close.SUPERSEDED, "another session has taken this name over"
            except* TooSlow:
                self._is_over = True
                close_code, reason = Close.TOO_SLOW, "events were taken too slowly"
            except* GamecastError as error:
                self._is_over = True
                self._gateway.log("session-broken", session=self.id, reason=repr(error.exceptions[0]))
                close_code, reason = Close.TRY_LATER, "the network behind the gateway does not answer now"
            except* (ConnectionError, asyncio.CancelledError) as broken:
                close_code, reason = ABNORMAL, "the connection broke"
                _forget_frames(*broken.exceptions)
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
        self._retries = Retries(gateway.door, self.name, page_events=self._limits.history_events_max)
        self._kept = await gateway.place_of(self)
        if self._kept is None:
            await self._open_place()
        gateway.audit.note("session-opened", **self._ids())
        self._reply(self._welcome())

    async def _open_place(self) -> None:
        gateway = self._gateway
        connection = gateway.door.connection(
            self.name,
            when_behind=gateway.settings.when_behind,
            inbox_events_max=self._limits.inbox_events_max,
        )
        await gateway.open(connection)
        self._take_place(
            Place(connection, subject=self._granted.subject, resent_events_max=self._limits.resent_events_max)
        )

    def _take_place(self, place: Place) -> None:
        self._place = place
        self._has_place.set()

    async def _settle(self, since: Mapping[str, Position] | None) -> list[Told] | None:
        """Take the place that was kept if its client has had a prefix of what was sent there; return what it missed.

        Else the place is given up for a new one.
        """
        kept = self._kept
        assert kept is not None
        missed = kept.sent.after(since) if since is not None else None
        if missed is not None:
            try:
                await kept.connection.ping()
            except (Superseded, NetworkError):  # the client was at another gateway meanwhile, or nobody can tell
                missed = None
        self._kept = None
        if missed is None:
            self._gateway.close_soon(kept.connection)
            await self._open_place()
        else:
            self._items += [item.text for item in missed]
            self._gateway.metrics.resumed(len(missed))
            self._gateway.audit.note("session-resumed", **self._ids(), missed=len(missed))
            self._take_place(kept)
        return missed

    async def _until_placed(self) -> Place:
        """Return the place; what is not about a subscription is a word too late to go on in one that was kept."""
        if self._kept is not None and not self._moves:
            await self._settle(None)
        await self._has_place.wait()
        assert self._place is not None
        return self._place

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
        async with asyncio.TaskGroup() as group:
            for work in (
                self._take(),
                self._obey(),
                self._deliver(),
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
                self._is_over |= message.type is WSMsgType.CLOSE and message.data == 1000
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
            self._moves += 1
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
        place = await self._until_placed()
        if message.retry and (position := await self._published_before(message, encoded, place)) is not None:
            self._ack({**_answering(message.id), "region": message.region, "position": position, "repeated": True})
            return
        if not message.retry:
            self._retries.published(message.region)
        payload = encoded if isinstance(message.payload, bytes) else orjson.Fragment(encoded)
        receipt = place.publish(message.region, payload)
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
                position = position_text((receipt.result().epoch, receipt.result().sequence))
                self._ack({**_answering(message.id), "region": message.region, "position": position})
                if self._gateway.tracing is not None:
                    self._gateway.tracing.published(message.region, position, self.id, begun_ns)
            else:
                refusal = Refusal.of(error) if isinstance(error, GamecastError) else Refusal(Code.INTERNAL, "failed")
                self._reply(said("error", **_answering(message.id), **refusal.document()))
                self._gateway.refused(refusal.code, refusal.message, **self._ids())

        receipt.add_done_callback(answered)

    async def _published_before(self, message: Publish, encoded: bytes, place: Place) -> str | None:
        """Return the position of an event that an earlier session of this name published."""
        await self._commands.join()
        self._moves += 1
        position = await self._retries.position(message, encoded, place, follows=message.region in self.regions)
        self._moves -= 1
        if position is None and place.is_uncertain:
            self._is_over = True
            raise Ended(Close.TRY_LATER, "the answer to a publish was lost: come again, and it can be told")
        return position

    # Joining and leaving.

    async def _obey(self) -> None:
        while True:
            message = await self._commands.get()
            if self._kept is not None and await self._settle(since := _positions(message)) is not None:
                assert since is not None
                self._reply_subscribed(message, {region: position_text(at) for region, at in since.items()})
            else:
                place = self._place
                assert place is not None
                try:
                    await self._carry_out(message, place)
                except (Superseded, TooSlow):
                    raise
                except UsageError as error:
                    self._deny(Refusal(Code.MALFORMED, str(error)), {"id": message.id})
                except GamecastError as error:
                    self._deny(Refusal.of(error), {"id": message.id})
            self._moves -= 1
            self._commands.task_done()

    async def _carry_out(self, message: Subscribe | Unsubscribe, place: Place) -> None:
        if isinstance(message, Subscribe):
            self.regions |= set(message.regions)  # a message before this one may have left them
            positions = await place.connection.subscribe(*message.regions, since=message.since)
            place.sent.joined({region: position_of(position) for region, position in positions.items()})
            self._reply_subscribed(message, positions)
            self._gateway.audit.note("subscribed", **self._ids(), regions=list(message.regions))
        else:
            await place.connection.unsubscribe(*message.regions)
            self.regions -= set(message.regions)
            place.sent.left(message.regions)
            self._reply(said("unsubscribed", **_answering(message.id), regions=list(message.regions)))

    def _reply_subscribed(self, message: Subscribe | Unsubscribe, positions: Mapping[str, str]) -> None:
        self._reply(said("subscribed", **_answering(message.id), regions=positions))

    # What the client is told.

    async def _deliver(self) -> None:
        await self._has_place.wait()
        assert self._place is not None
        place = self._place
        encode, limit = self._gateway.texts.encode, self._limits.outbox_events_max
        event_type = self._gateway.door.event_type
        async for batch in place.connection.batches():
            self._gateway.delivered(batch)
            for item in batch:
                if not isinstance(item, event_type):
                    self._gateway.metrics.gap()
                if item.region in self.regions:  # what is joined for a retry only is not shown
                    told = encode(item)
                    place.tell(told)
                    self._items.append(told.text)
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
        self._leave_place(close_code)
        try:
            if not self._socket.closed:
                async with asyncio.timeout(self._limits.drain_s):
                    if close_code == Close.GOING_AWAY:
                        await self._flush()
                    text = reason.encode()[:120].decode(errors="ignore")
                    told = Close.GOING_AWAY if close_code == ABNORMAL else close_code
                    await self._socket.close(code=told, message=text.encode())
        except (TimeoutError, ConnectionError, Ended):
            pass
        finally:
            if (error := self._socket.exception()) is not None:
                _forget_frames(error)
            self._gateway.audit.note("session-closed", **self._ids(), code=close_code, reason=reason)

    def _leave_place(self, close_code: int) -> None:
        """Have the place kept for when the client comes back, if it can go on there; else give it up."""
        place = self._place or self._kept
        if place is not None:
            may_come_back = close_code in (1000, ABNORMAL, Close.SUPERSEDED) and not self._is_over
            if may_come_back and not (self._moves and place is self._place) and not place.is_uncertain:
                self._gateway.keep(self.name, place)
            else:
                self._gateway.close_soon(place.connection)
        self.gone.set()

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


def _positions(message: Subscribe | Unsubscribe) -> dict[str, Position] | None:
    """Return from where on a client asks to be told of all its regions, if these are positions."""
    since = message.since if isinstance(message, Subscribe) else None
    if isinstance(since, str):
        since = dict.fromkeys(message.regions, since)
    if not isinstance(since, Mapping):
        return None
    found = {region: position_of(at) for region, at in since.items() if isinstance(at, str)}
    return found if len(found) == len(since) else None


def _forget_frames(*errors: BaseException) -> None:
    """Have a session that dropped be freed at once: its frames refer to these errors, and they to its frames."""
    for error in errors:
        error.__traceback__ = error.__context__ = None


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
