"""The senders of updates keep their connection, and send again what has no answer when it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import hiredis
import pytest
from redis import exceptions

from adapters.redis import updates
from adapters.redis.updates import UpdateHub, _Sender
from adapters.redis.wire import Told
from tests.patience import patience


class Server:
    """What is sent to it, and what waits for an answer."""

    def __init__(self) -> None:
        self.is_connected, self.is_sent = asyncio.Event(), asyncio.Event()
        self.connections = 0
        self.sent: list[bytes] = []
        self.awaited: list[Told] = []

    async def connect(self) -> None:
        self.connections += 1

    async def disconnect(self, *, nowait: bool) -> None:
        assert nowait

    def wire(self, connection: object) -> Server:
        assert connection is self
        self.is_connected.set()
        return self

    def send(self, packed: Iterable[bytes], replies: int, told: Told) -> None:
        reader = hiredis.Reader()
        reader.feed(b"".join(packed))
        assert replies == 1
        words: Any = reader.gets()
        self.sent.append(words[-1])
        self.awaited.append(told)
        self.is_sent.set()

    def let_go(self) -> None:
        self.cut()

    def cut(self) -> None:
        """End the connection: nothing more is answered."""
        awaited, self.awaited = self.awaited, []
        for told in awaited:
            told([], exceptions.ConnectionError("cut off"))

    def answer(self) -> None:
        self.awaited.pop(0)([1], None)

    async def until_sent(self, *messages: bytes) -> None:
        async with patience(10):
            while self.sent != [*messages]:
                self.is_sent.clear()
                await self.is_sent.wait()
        self.sent.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(updates, "connection_to", lambda _: server)
    monkeypatch.setattr(updates, "Wire", server.wire)
    return server


async def opened(hub: UpdateHub, server: Server) -> _Sender:
    sender = hub.sender("n1")
    async with patience(10):
        await server.is_connected.wait()
    assert sender.has_room
    return sender


async def test_what_has_no_answer_is_sent_again_when_the_connection_is_back(server: Server) -> None:
    hub = UpdateHub(lambda _: "redis://127.0.0.1:1")
    sender = await opened(hub, server)
    for message in (b"one", b"two", b"three"):
        sender.send("forest", message)
    await server.until_sent(b"one", b"two", b"three")
    server.answer()
    server.cut()
    await server.until_sent(b"two", b"three")
    assert server.connections == 2
    server.answer()
    server.answer()
    server.cut()
    sender.send("forest", b"four")
    server.cut()
    await server.until_sent(b"four", b"four")
    await hub.close()


async def test_who_sends_nothing_keeps_its_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "KEEP_S", 0.01)
    hub = UpdateHub(lambda _: "redis://127.0.0.1:1")
    await opened(hub, server)
    for _ in range(3):
        await server.until_sent(b"PING")
        server.answer()
    assert server.connections == 1
    await hub.close()


async def test_a_server_that_does_not_answer_is_connected_to_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "KEEP_S", 0.01)
    monkeypatch.setattr(updates, "PING_S", 0.05)
    hub = UpdateHub(lambda _: "redis://127.0.0.1:1")
    sender = await opened(hub, server)
    sender.send("forest", b"one")
    await server.until_sent(b"one", b"one")
    assert server.connections == 2
    await hub.close()
