"""The messages of a session's client after its hello: each is parsed, checked, and carried out or refused."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import WSMessage, WSMsgType, web

from gateway.caller import Caller
from gateway.ended import ENDS_CONNECTION, Ended
from gateway.eventmessages import position_text
from gateway.gateway import Gateway
from gateway.hooks import CALLS_AT_ONCE
from gateway.messages import (
    Hello,
    Ping,
    Publish,
    Updates,
    copies_in,
    names_in,
    read_json,
    read_message,
    updates_in,
)
from gateway.outbox import Outbox
from gateway.parked import ParkedSession
from gateway.refusal import Close, Code, Refusal
from gateway.resumption import Resumption
from gateway.retries import Retries
from gateway.subscriptions import Subscriptions
from sequencing.errors import GamecastError, UsageError


class Requests:
    """Reads the messages of one session in order, and has each of them carried out."""

    def __init__(
        self,
        gateway: Gateway,
        caller: Caller,
        *,
        outbox: Outbox,
        resumption: Resumption,
        subscriptions: Subscriptions,
    ) -> None:
        """``caller``: with the name of its hello."""
        self._gateway, self._caller, self._limits = gateway, caller, gateway.settings.limits
        self._outbox, self._resumption, self._subscriptions = outbox, resumption, subscriptions
        self._retries = Retries(gateway.access, caller.name, page_events=self._limits.history_events_max)
        self._unanswered = self._unanswered_bytes = 0
        self._answered = asyncio.Event()
        self._turns: asyncio.Queue[tuple[Publish, asyncio.Task[Publish]]] = asyncio.Queue(CALLS_AT_ONCE)
        """Publishes that wait for the game's backend, in the order of their arrival."""

    async def take(self, socket: web.WebSocketResponse) -> None:
        """Read until the client disconnects; then raise `Ended`."""
        while True:
            message = await socket.receive()
            self._caller.heard()
            if message.type is WSMsgType.TEXT:
                wait_s = self._gateway.subject(self._caller.grant).read_bytes(_size(message.data))
                if wait_s:
                    await asyncio.sleep(wait_s)
                await self._take_text(message.data)
            elif message.type is WSMsgType.BINARY:
                raise Ended(Close.UNSUPPORTED, "messages must be text: send bytes as base64")
            elif message.type in (WSMsgType.PING, WSMsgType.PONG):
                await self._take_control_frame(message)
            else:
                if message.type is WSMsgType.CLOSE and message.data == 1000:
                    self._resumption.give_up()
                if socket.close_code == Close.TOO_LARGE:
                    limit = self._limits.message_bytes_max
                    self._gateway.refused(Code.TOO_LARGE, f"a message of more than {limit} bytes", **self._caller.ids)
                raise Ended(1000, "the client disconnected")

    async def _take_control_frame(self, message: WSMessage) -> None:
        """Count a ping or a pong of WebSocket itself, and answer a ping within the rate limit."""
        try:
            self._gateway.subject(self._caller.grant).require_request()
        except Refusal as refusal:
            self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)
            self._outbox.slow_down()
        else:
            if message.type is WSMsgType.PING:
                await self._outbox.pong(message.data)

    async def _take_text(self, text: str) -> None:
        try:
            document = read_json(text)
            messages = document if isinstance(document, list) else [document]
            if len(messages) > self._limits.messages_per_array_max:
                raise Refusal(Code.LIMIT, f"an array may have at most {self._limits.messages_per_array_max} messages")
        except Refusal as refusal:
            await self._outbox.refuse(refusal)
            raise Ended(Close.MALFORMED, refusal.message) from refusal
        for each in messages or [None]:  # an empty array is refused as well
            try:
                await self._take_message(each)
            except Refusal as refusal:
                if isinstance(each, dict) and each.get("retry"):
                    refusal.definite = False  # it was not looked for: the first time may have succeeded
                self._outbox.deny(refusal, each)
            except GamecastError as error:
                if isinstance(error, ENDS_CONNECTION):
                    raise
                self._outbox.deny(Refusal.of(error), each)
            await self._outbox.until_room_for_replies()

    async def _take_message(self, document: Any) -> None:
        names, subject = names_in(document), self._gateway.subject(self._caller.grant)
        if isinstance(document, dict) and document.get("type") == "publish":
            copies = copies_in(document)
            subject.require_events(copies)
            if copies > 1:
                subject.read_bytes((copies - 1) * _size_about(document.get("payload", document.get("base64"))))
        elif updates := updates_in(document):
            subject.require_updates(updates)
        else:
            subject.require_request(names=min(names, self._limits.regions_per_session_max))
        if names > self._limits.regions_per_session_max:
            raise Refusal(
                Code.LIMIT, f"a session may have at most {self._limits.regions_per_session_max} regions", status=429
            )
        message = read_message(document)
        if isinstance(message, Publish):
            await self._publish(message)
        elif isinstance(message, Updates):
            await self._update(message)
        elif isinstance(message, Ping):
            self._outbox.reply("pong", message.id)
        elif isinstance(message, Hello):
            await self._renew(message)
        else:
            await self._subscriptions.put(message)

    async def _renew(self, hello: Hello) -> None:
        if hello.token is None:
            raise Refusal(Code.MALFORMED, "a hello in a running session must have a new token")
        grant = await self._gateway.guard.grant(hello.token, None)
        if grant.subject != self._caller.subject:
            raise Refusal(
                Code.FORBIDDEN, "the new token belongs to another subject: connect again to use it", status=403
            )
        for region in sorted(self._caller.regions):
            grant.require_read(region)
        self._caller.renew(grant)
        self._gateway.audit.note("session-renewed", **self._caller.ids)
        bytes_max = self._outbox.bound_messages(hello.message_bytes_max)
        welcome = self._caller.welcome(self._gateway.id, self._limits)
        self._outbox.reply("welcome", **welcome, message_bytes_max=bytes_max)

    async def publish_in_turn(self) -> None:
        """Publish the events that the game's backend allows, in the order of their arrival, without end."""
        try:
            while True:
                message, asking = await self._turns.get()
                try:
                    await self._carry_out(await asking)
                except Refusal as refusal:
                    self._outbox.deny(refusal, {"id": message.id})
                except GamecastError as error:
                    if isinstance(error, ENDS_CONNECTION):
                        raise
                    self._outbox.deny(Refusal.of(error), {"id": message.id})
                await self._outbox.until_room_for_replies()
        finally:
            while not self._turns.empty():
                self._turns.get_nowait()[1].cancel()

    async def _publish(self, message: Publish) -> None:
        await self._admit(message)
        if not self._gateway.hooks.asks("publish"):
            await self._carry_out(message)
            return
        asking = asyncio.create_task(self._asked(message), name="gamecast gateway publish hook")
        asking.add_done_callback(_retrieved)
        try:
            await self._turns.put((message, asking))
        except asyncio.CancelledError:
            asking.cancel()
            raise

    async def _asked(self, message: Publish) -> Publish:
        """Return a publish as the game's backend allows it; raises `Refusal`."""
        payload = await self._gateway.hooks.publish(
            self._caller.grant,
            message.region,
            message.payload,
            about=message.about,
            regions=message.regions,
            retry=message.retry,
            **self._caller.asker,
        )
        if payload is message.payload:
            return message
        return replace(message, payload=payload, payload_bytes=len(_encoded(payload)))

    async def _carry_out(self, message: Publish) -> None:
        encoded = _encoded(message.payload)
        place = await self._resumption.place_to_publish()
        if message.retry and (position := await self._published_before(message, encoded, place)) is not None:
            where = {"positions": {message.region: position}} if message.regions else {}
            self._outbox.ack(message.id, region=message.region, position=position, **where, repeated=True)
            return
        if not message.retry:
            self._retries.published(message.regions or (message.region,))
        payload = encoded if isinstance(message.payload, bytes) else orjson.Fragment(encoded)
        target = message.regions or message.region
        try:
            receipt = place.publish(target, payload, message.about)
        except UsageError:
            # In causal order, a publisher subscribes to its regions: the session may be joining this one.
            await self._subscriptions.until_done()
            receipt = place.publish(target, payload, message.about)
        self._unanswered += 1
        self._unanswered_bytes += message.payload_bytes
        begun_ns = time.time_ns()
        self._gateway.metrics.published(message.region, message.payload_bytes)
        receipt.add_done_callback(lambda receipt: self._answer(message, receipt, begun_ns))

    async def _update(self, message: Updates) -> None:
        if self._gateway.hooks.asks("publish"):
            told = "the game's backend decides about each event here, and it is not asked about updates: publish events"
            raise Refusal(Code.DENIED, told, status=403)
        grant = self._caller.grant
        for update in message.updates:
            grant.require_write(update.region)
            self._require_size(update.payload_bytes)
        await self._gateway.admit_regions(grant, {update.region: None for update in message.updates})
        connection = (await self._resumption.place_to_publish()).connection
        for region, key, payload, _, position in message.updates:
            connection.update(region, key, payload, position=position)

    def _require_size(self, payload_bytes: int) -> None:
        most = self._caller.grant.payload_bytes_max or self._limits.payload_bytes_max
        most = min(most, self._limits.payload_bytes_max)
        if payload_bytes > most:
            raise Refusal(Code.TOO_LARGE, f"the payload has {payload_bytes} bytes, and the limit is {most}", status=413)

    async def _admit(self, message: Publish) -> None:
        """Check that an event may be published, and wait until there is room for it."""
        grant, limits = self._caller.grant, self._limits
        regions = message.regions or (message.region,)
        for region in regions:
            grant.require_write(region)
        self._require_size(message.payload_bytes)
        await self._gateway.admit_regions(grant, regions)
        while self._unanswered >= limits.unanswered_max or (
            self._unanswered and self._unanswered_bytes + message.payload_bytes > limits.unanswered_bytes_max
        ):
            self._answered.clear()
            await self._answered.wait()

    def _answer(self, message: Publish, receipt: asyncio.Future[Any], begun_ns: int) -> None:
        self._unanswered -= 1
        self._unanswered_bytes -= message.payload_bytes
        self._answered.set()
        if receipt.cancelled():
            return
        error = receipt.exception()
        if error is None:
            position = position_text((receipt.result().epoch, receipt.result().sequence))
            where = {"positions": receipt.result().positions} if message.regions else {}
            self._outbox.ack(message.id, region=message.region, position=position, **where)
            if self._gateway.tracing is not None:
                self._gateway.tracing.published(message.region, position, self._caller.session, begun_ns)
        else:
            refusal = Refusal(Code.INTERNAL, "failed")
            if isinstance(error, GamecastError):
                refusal = Refusal.of(error, self._caller.grant.read)
            self._outbox.reply("error", message.id, **refusal.document())
            self._gateway.refused(refusal.code, refusal.message, **self._caller.ids)

    async def _published_before(self, message: Publish, encoded: bytes, place: ParkedSession) -> str | None:
        """Return the position of an event that an earlier session of this name published."""
        await self._subscriptions.until_done()
        self._resumption.move_begins()
        follows = message.region in self._caller.regions
        try:
            position = await self._retries.position(message, encoded, place, follows=follows)
        except Refusal:
            self._resumption.move_ended()
            raise
        self._resumption.move_ended()
        if position is None and place.is_uncertain:
            self._resumption.give_up()
            raise Ended(Close.TRY_LATER, "the answer to a publish was lost: reconnect and retry to get it")
        return position


def _encoded(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else orjson.dumps(payload)


def _retrieved(asking: asyncio.Task[Publish]) -> None:
    if not asking.cancelled():
        asking.exception()  # retrieved here, as a session that has ended does not retrieve it


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _size_about(payload: Any) -> int:
    """Return about how many bytes a payload has, which was not checked yet."""
    try:
        return len(orjson.dumps(payload))
    except TypeError:
        return 0
