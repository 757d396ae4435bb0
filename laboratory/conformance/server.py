"""A gateway that follows a script: it answers as a gateway does, except where a scenario says otherwise."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from gamecast.event import Event
from gateway.caller import Caller
from gateway.eventmessages import acks_messages, events_message, position_text, said
from gateway.eventtexts import EventTexts, parted, visible
from gateway.grants import anybody
from gateway.messages import (
    SUBPROTOCOL,
    Hello,
    Message,
    Ping,
    Position,
    Publish,
    Subscribe,
    Unsubscribe,
    position_of,
    read_json,
    read_message,
)
from gateway.refusal import Code, Refusal
from gateway.settings import GatewayLimits
from gateway.states import RegionState
from laboratory.conformance.frames import BINARY, TEXT, fragments, frame
from laboratory.conformance.log import Closed, Happened, Heard, Left, Log, Opened, Said
from laboratory.conformance.world import Item, World, places_of

SILENT = logging.getLogger("gamecast.conformance")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False  # of connections that a client drops in their handshake
MESSAGE_BYTES = 60_000
"""The largest message of several events if the hello does not say otherwise, as of a gateway."""
Handler = Callable[["Connection", Any], Awaitable[None]]


class Server:
    """Listens on loopback. ``on``: message type → what to do instead of the usual; ``limits``: of the welcome."""

    def __init__(self, world: World, log: Log) -> None:
        self.world, self.log = world, log
        self.on: dict[type[Message], Handler] = {}
        self.limits = GatewayLimits()
        self.welcome: dict[str, Any] = {}
        """Fields of the welcome beside the usual ones."""
        self.transform: Callable[[bytes], bytes] = bytes
        """What becomes of each message before it is sent."""
        self.connections: list[Connection] = []
        self.failures: list[Exception] = []
        """What went wrong in the kit itself."""
        self.url = ""
        self._runner: web.AppRunner | None = None

    @property
    def last(self) -> Connection:
        """The newest connection."""
        return self.connections[-1]

    async def start(self) -> None:
        """Listen at a free port."""
        application = web.Application()
        application.router.add_get("/v1/socket", self._accept)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None, logger=SILENT)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"ws://{host}:{port}/v1/socket"

    async def stop(self) -> None:
        """Close all connections, and listen no more."""
        for connection in self.connections:
            connection.abort()
        if self._runner is not None:
            await self._runner.cleanup()

    def happened(self, item: Item) -> None:
        """Log an item that was added to the world."""
        content = item.payload if isinstance(item, Event) else None
        content = base64.b64encode(content).decode() if isinstance(content, bytes) else content
        self.log.add(Happened(places_of(item), item.sender if isinstance(item, Event) else None, content))

    async def _accept(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(compress=False, protocols=(SUBPROTOCOL,), max_msg_size=0, timeout=0.2)
        with suppress(ConnectionError, asyncio.CancelledError):
            await ws.prepare(request)
            connection = Connection(self, ws, request, len(self.connections))
            self.connections.append(connection)
            self.log.add(Opened(connection.number, self.log.now()))
            try:
                await connection.serve()
            except ConnectionError:
                pass
            except Exception as error:
                self.failures.append(error)
                raise
        return ws


class Connection:
    """One WebSocket of the client."""

    def __init__(self, server: Server, ws: web.WebSocketResponse, request: web.Request, number: int) -> None:
        self.server, self.number = server, number
        self._ws, self._request = ws, request
        self.name = ""
        self.follows: dict[str, Position] = {}
        """Region → the position behind which it is sent."""
        self.heard: list[Message] = []
        self._bytes_max = MESSAGE_BYTES
        self._sent = 0
        self._texts = EventTexts()
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return not self._is_over and not self._ws.closed

    async def serve(self) -> None:
        """Answer the client's messages until it disconnects."""
        async for message in self._ws:
            if message.type is not WSMsgType.TEXT:
                self.server.log.add(Heard(self.number, None, self.server.log.now()))
                continue
            try:
                document = read_json(message.data)
            except Refusal:
                self.server.log.add(Heard(self.number, None, self.server.log.now()))
                continue
            for each in document if isinstance(document, list) else [document]:
                self.server.log.add(Heard(self.number, each, self.server.log.now()))
                with suppress(Refusal):  # the judge reads it again, and reports this
                    await self._take(read_message(each))
        if not self._is_over:
            self._is_over = True
            self.server.log.add(Left(self.number, self._ws.close_code or 1006))

    async def _take(self, message: Message) -> None:
        self.heard.append(message)
        handler = self.server.on.get(type(message), Connection.answer)
        await handler(self, message)

    async def answer(self, message: Message) -> None:
        """Answer a message as a gateway does."""
        match message:
            case Hello():
                await self.greet(message)
            case Subscribe():
                await self.subscribe(message)
            case Unsubscribe():
                for region in message.regions:
                    self.follows.pop(region, None)
                await self.say("unsubscribed", message.id, regions=list(message.regions))
            case Publish():
                await self.ack(message, self.accept(message))
                await self.flush()
            case Ping():
                await self.say("pong", message.id)

    async def greet(self, hello: Hello) -> None:
        """Send the welcome."""
        self.name = "~" + (hello.name or "generated").removeprefix("~")
        if hello.message_bytes_max:
            self._bytes_max = min(hello.message_bytes_max, self.server.limits.message_bytes_max)
        caller = Caller(f"s-{self.number}", peer="127.0.0.1", grant=anybody())
        caller.name = self.name
        fields = caller.welcome("g-kit", self.server.limits) | {"message_bytes_max": self._bytes_max}
        await self.say("welcome", **fields | self.server.welcome)

    async def subscribe(self, message: Subscribe) -> None:
        """Send what is behind the positions, or the state, and the answer."""
        await self.flush()
        world, since = self.server.world, message.since
        if message.state:
            for region in message.regions:
                state = RegionState(world.state(region), region)
                while not state.is_over:
                    await self._send_items([state.encode(self._bytes_max).text])
        elif since is not None:
            starts = since if isinstance(since, Mapping) else dict.fromkeys(message.regions, since)
            begins = {one: position_of(at) if isinstance(at, str) else (at, 0) for one, at in starts.items()}
            await self._send(world.after(begins), begins)
        for region in message.regions:
            self.follows[region] = world.end(region)
        ends = {region: position_text(world.end(region)) for region in message.regions}
        await self.say("subscribed", message.id, regions=ends)

    def accept(self, message: Publish) -> Event:
        """Return the event that a publish made: a retry of an event that there is makes no other."""
        world, regions = self.server.world, message.regions or (message.region,)
        if message.retry and message.after is not None:
            found = world.published(self.name, message.payload, message.region, position_of(message.after))
            if found is not None:
                return found
        if message.regions:
            event = world.joint(regions, message.payload, sender=self.name)
        else:
            key = message.about.get("key")
            event = world.event(message.region, message.payload, sender=self.name, key=key)
        self.server.happened(event)
        return event

    async def ack(self, message: Publish, event: Event) -> None:
        """Say that an event is durable."""
        places = {"positions": event.positions} if message.regions else {}
        repeated = {"repeated": True} if message.retry else {}
        position = event.positions[message.region]
        ack = {"id": message.id, "region": message.region, "position": position, **places, **repeated}
        for text in acks_messages([ack], self._bytes_max):
            await self.send_text(text)

    async def refuse(
        self, message: Message, code: Code, *, retriable: bool = False, retry_after_s: float | None = None
    ) -> None:
        """Refuse a message."""
        refusal = Refusal(code, f"the kit refuses this: {code}", retriable=retriable, retry_after_s=retry_after_s)
        await self.say("error", getattr(message, "id", None), **refusal.document())

    async def flush(self) -> None:
        """Send what happened since the last time in the regions that the client follows."""
        items, self._sent = self.server.world.items[self._sent :], len(self.server.world.items)
        await self._send([item for item in items if self._is_behind(item)], self.follows)

    def _is_behind(self, item: Item) -> bool:
        places = places_of(item) or {item.region: (2**53, 0)}
        return any(region in self.follows and self.follows[region] < at for region, at in places.items())

    def encoded(self, items: Iterable[Item], regions: Mapping[str, Any]) -> list[str]:
        """Return the messages with items, as the client of some regions gets them."""
        told = [self._texts.encode(visible(item, regions)) for item in items]
        return [events_message([each.text for each in part]) for part in parted(told, self._bytes_max)]

    async def _send(self, items: Iterable[Item], regions: Mapping[str, Any]) -> None:
        for text in self.encoded(items, regions):
            await self.send_text(text)

    async def _send_items(self, texts: Iterable[bytes]) -> None:
        await self.send_text(events_message(texts))

    async def say(self, kind: str, answered: str | int | None = None, **fields: Any) -> None:
        """Send a message of the protocol."""
        about = {} if answered is None else {"id": answered}
        await self.send_text(said(kind, **about, **fields))

    async def send_text(self, text: str) -> None:
        """Send a message of the protocol, and log it."""
        self.note(text)
        if self.is_open:
            with suppress(ConnectionError):
                await self._ws.send_str(self.server.transform(text.encode()).decode())

    def note(self, text: str) -> None:
        """Log a message of the protocol as sent."""
        self.server.log.add(Said(self.number, orjson.loads(text), self.server.log.now()))

    def send_junk(self, content: bytes, *, is_binary: bool = False) -> None:
        """Send what is no message of the protocol; it is not logged."""
        self._write(frame(content, opcode=BINARY if is_binary else TEXT))

    async def send_fragments(self, text: str, size: int, pause_s: float) -> None:
        """Send a message in frames, and these byte by byte at their heads."""
        self.note(text)
        for part in fragments(text.encode(), size):
            for piece in (part[:1], part[1:2], part[2:]):
                self._write(piece)
                await asyncio.sleep(pause_s)

    def send_half(self, text: str) -> None:
        """Send the first half of a message's bytes, and reset the connection."""
        self.note(text)
        whole = frame(text.encode())
        self._write(whole[: len(whole) // 2])

    def _write(self, content: bytes) -> None:
        if (transport := self._request.transport) is not None:
            transport.write(content)

    async def close(self, code: int, reason: str = "the kit closes") -> None:
        """Close the WebSocket with a code."""
        if self.is_open:
            self._is_over = True
            self.server.log.add(Closed(self.number, code))
            with suppress(ConnectionError):
                await self._ws.close(code=code, message=reason.encode())

    def reset(self) -> None:
        """Reset the TCP connection: the client may have lost anything that it had not read."""
        if self.is_open:
            self._is_over = True
            self.server.log.add(Closed(self.number, None))
            self.abort()

    def fall_silent(self) -> None:
        """Read and send nothing any more, while TCP stays open."""
        self._is_over = True
        self.server.log.add(Closed(self.number, None))
        if (transport := self._request.transport) is not None:
            transport.pause_reading()

    def abort(self) -> None:
        """Close the TCP connection at once."""
        transport = self._request.transport
        if transport is None:
            return
        self._is_over = True
        if (plain := transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
