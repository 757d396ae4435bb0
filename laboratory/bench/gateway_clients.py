"""Clients of the gateway's soak: they drop and come back, and note what they saw."""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gateway.messages import Position, position_of

COME_BACK_S = (0.02, 0.1, 0.5, 1.0, 2.0)


@dataclass(slots=True)
class Seen:
    """The events that one client saw, by number, in order; and region → the position after which it began."""

    events: array[int] = field(default_factory=lambda: array("q"))
    latencies_ms: array[float] = field(default_factory=lambda: array("d"))
    begins: dict[str, Position] = field(default_factory=dict)
    gaps: int = 0
    refused: int = 0
    out_of_place: int = 0
    """Events whose position does not grow."""


class Client:
    """The parts that both kinds of clients share."""

    def __init__(self, name: str, regions: Sequence[str], session: aiohttp.ClientSession) -> None:
        self.name, self.regions, self.seen = name, tuple(regions), Seen()
        self.drops = 0
        self.joined = asyncio.Event()
        self.published: dict[int, tuple[str, Position | None]] = {}
        """Number → region and position (None: there are none) of the acknowledged events."""
        self.unanswered: dict[int, tuple[str, str]] = {}
        self._session = session
        self._raw: aiohttp.ClientWebSocketResponse | None = None
        self._since_ns = 0
        self._ending = False

    async def run(self, url: str) -> None:
        """Stay connected until `end`, reconnecting after any failure."""
        tries = 0
        while not self._ending:
            try:
                self._raw = await self._session.ws_connect(
                    url + self.PATH, max_msg_size=0, timeout=aiohttp.ClientWSTimeout(ws_close=1.0)
                )
                tries = 0
                await self._begin(self._raw)
                async for message in self._raw:
                    await self._hear(message.data)
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                pass
            self.joined.clear()
            if not self._ending:
                await asyncio.sleep(COME_BACK_S[min(tries, len(COME_BACK_S) - 1)])
                tries += 1

    def drop(self) -> None:
        """Drop the connection without closing it; the client reconnects by itself."""
        if self._raw is not None and (connection := self._raw._response.connection) is not None:
            self.drops += 1
            self.joined.clear()
            if connection.transport is not None:
                connection.transport.abort()

    async def publish(self, region: str, number: int) -> None:
        """Publish an event; it is sent again when the client comes back before it is answered, if that can be."""
        payload = json.dumps({"n": number, "t": time.time_ns()})
        self.unanswered[number] = region, payload
        if self.joined.is_set() and self._raw is not None and not self._raw.closed:
            with suppress(ConnectionError):
                await self._raw.send_str(self._publication(number, region, payload))

    async def end(self) -> None:
        """Disconnect for good."""
        self._ending = True
        if self._raw is not None:
            await self._raw.close()

    PATH = ""

    async def _begin(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        raise NotImplementedError

    async def _hear(self, text: str) -> None:
        raise NotImplementedError

    def _publication(self, number: int, region: str, payload: str) -> str:
        raise NotImplementedError

    def _note(self, payload: dict[str, Any]) -> None:
        self.seen.events.append(payload["n"])
        if payload["t"] > self._since_ns:  # what came before is late because the client was away
            self.seen.latencies_ms.append((time.time_ns() - payload["t"]) / 1e6)

    def _is_there(self) -> None:
        self._since_ns = time.time_ns()
        self.joined.set()


class GatewayClient(Client):
    """Speaks the gateway's protocol, and goes on where it was."""

    PATH = "/v1/socket"

    def __init__(self, name: str, regions: Sequence[str], session: aiohttp.ClientSession) -> None:
        super().__init__(name, regions, session)
        self._positions: dict[str, str] = {}
        self._after: dict[int, str] = {}
        self._acked: dict[str, str] = {}

    async def _begin(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        await raw.send_str(json.dumps({"type": "hello", "name": self.name}))
        since = {"since": self._positions} if self._positions else {}
        await raw.send_str(json.dumps({"type": "subscribe", "id": "s", "regions": self.regions, **since}))
        for number, (region, payload) in sorted(self.unanswered.items()):
            after = self._after.setdefault(number, self._positions[region])
            after = max(after, self._acked.get(region, after), key=position_of)
            again = f',"retry":true,"after":"{after}"}}'
            await raw.send_str(self._publication(number, region, payload)[:-1] + again)

    def _publication(self, number: int, region: str, payload: str) -> str:
        self._after.setdefault(number, self._positions[region])
        return f'{{"type":"publish","id":{number},"region":"{region}","payload":{payload}}}'

    async def _hear(self, text: str) -> None:
        said = json.loads(text)
        if said["type"] == "events":
            for event in said["events"]:
                region, position = event["region"], event["position"]
                if "gap" in event:
                    self.seen.gaps += 1
                    continue
                if position_of(position) <= position_of(self._positions[region]):
                    self.seen.out_of_place += 1
                self._positions[region] = position
                self._note(event["payload"])
        elif said["type"] == "acks":
            for ack in said["acks"]:
                region, _ = self.unanswered.pop(ack["id"])
                self._after.pop(ack["id"], None)
                self._acked[region] = ack["position"]
                self.published[ack["id"]] = region, position_of(ack["position"])
        elif said["type"] == "subscribed":
            for region, position in said["regions"].items():
                self._positions.setdefault(region, position)
                self.seen.begins.setdefault(region, position_of(position))
            self._is_there()
        elif said["type"] == "error":
            self.seen.refused += 1


class SocketIoClient(Client):
    """Speaks Engine.IO 4 over WebSocket, and joins its rooms again after a reconnect."""

    PATH = "/socket.io/?EIO=4&transport=websocket"

    async def _begin(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        await raw.send_str("40")

    def _publication(self, number: int, region: str, payload: str) -> str:
        return f'42{number}["publish","{region}",{payload}]'

    async def _hear(self, text: str) -> None:
        assert self._raw is not None
        if text == "2":
            await self._raw.send_str("3")
        elif text.startswith("40"):
            await self._raw.send_str("420" + json.dumps(["join", self.regions]))
        elif text.startswith("430"):
            self._is_there()
        elif text.startswith("43"):
            number = int(text[2 : text.index("[")])
            if (waited := self.unanswered.pop(number, None)) is not None:
                self.published[number] = waited[0], None
        elif text.startswith("42"):
            self._note(json.loads(text[2:])[1][1])
