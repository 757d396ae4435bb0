"""A gateway in this process over a real Redis, and clients that speak its protocol by hand."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Self

import aiohttp
from aiohttp import web
from pydantic import Field, TypeAdapter

from gamecast.client.configuration import WhenBehind
from gateway import schema
from gateway.access import ClientAccess
from gateway.application import make_application
from gateway.audit import AuditLog
from gateway.gateway import GATEWAY, Extension, Gateway
from gateway.guard import Guard
from gateway.refusal import Code
from gateway.replaycache import RedisReplayCache
from gateway.serving import serving
from gateway.settings import GatewayLimits, GatewaySettings, IPNetwork
from gateway.tokens import Keys, KeySource, mint
from sequencing.plan import Ordering
from tests.patience import patience


class Running:
    """A gateway that listens."""

    def __init__(self, url: str, application: web.Application, audit: StringIO) -> None:
        self.url, self.application, self._audit = url, application, audit

    @property
    def gateway(self) -> Gateway:
        return self.application[GATEWAY]

    @property
    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit log."""
        return [json.loads(line) for line in self._audit.getvalue().splitlines()]

    async def is_noted(self, what: str, **fields: Any) -> dict[str, Any]:
        """Wait until the audit log has a line, and return it."""
        async with patience(10):
            while True:
                for line in self.audit:
                    if line.items() >= {"what": what, **fields}.items():
                        return line
                await asyncio.sleep(0.01)

    @property
    def audit_text(self) -> str:
        return self._audit.getvalue()


@asynccontextmanager
async def running_gateway(
    redis_url: str,
    *,
    keys: KeySource | None = None,
    port: int = 0,
    origins: tuple[str, ...] = (),
    when_behind: WhenBehind = "wait",
    extensions: tuple[Extension, ...] = (),
    tls: Any = None,
    admin: tuple[str, int] | None = None,
    admin_names: tuple[str, ...] = (),
    trusted_proxies: tuple[IPNetwork, ...] = (),
    ordering: Ordering = "acyclic",
    **limits: Any,
) -> AsyncIterator[Running]:
    settings = GatewaySettings(
        port=port,
        origins=origins,
        when_behind=when_behind,
        admin=admin,
        admin_names=admin_names,
        trusted_proxies=trusted_proxies,
        limits=GatewayLimits(**limits),
    )
    replay_cache = RedisReplayCache(redis_url)
    audit = StringIO()
    application = make_application(
        ClientAccess(redis_url, ordering=ordering),
        settings,
        guard=Guard(settings, replay_cache, keys=keys),
        replay_cache=replay_cache,
        audit=AuditLog(audit),
        extensions=extensions,
    )
    async with serving(application, tls) as url:
        yield Running(url, application, audit)


@asynccontextmanager
async def listening(application: web.Application, held: socket.socket | None = None) -> AsyncIterator[str]:
    """Serve an application that is not a gateway; ``held``: at this socket."""
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await (web.SockSite(runner, held) if held else web.TCPSite(runner, "127.0.0.1", 0)).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def minted(keys_file: Path, subject: str = "alice", **claims: Any) -> str:
    """Return a token, for all regions if the claims do not say for which."""
    return mint(Keys.read(keys_file).signer(), subject=subject, **{"read": ["**"], "write": ["**"]} | claims)


SERVER_MESSAGE: TypeAdapter[Any] = TypeAdapter(Annotated[schema.ServerMessage, Field(discriminator="type")])


def check_sent(said: dict[str, Any]) -> None:
    """Check that a message of a gateway is as in the schema, with no other field."""
    message: Any = SERVER_MESSAGE.validate_python(said)
    if isinstance(message, schema.Events):
        for item in message.events:
            kinds = {"state": schema.State, "gap": schema.Gap, "presence": schema.PresenceItem}
            kind: Any = next((kind for field, kind in kinds.items() if field in item), schema.Event)
            checked = kind.model_validate(item)
            for fields in schema.EXACTLY_ONE.get(kind.__name__, ()):
                assert sum(field in item for field in fields) == 1, item
            if isinstance(checked, schema.State):
                assert all(("payload" in it) + ("base64" in it) + ("gap" in it) == 1 for it in item["state"].values())
    elif isinstance(message, schema.Updates):
        assert all(("payload" in update) != ("base64" in update) for update in said["updates"]), said
    elif isinstance(message, schema.ErrorMessage):
        assert message.code in set(Code), message.code


async def until_listening(stderr: asyncio.StreamReader) -> None:
    """Wait until a gateway process says that it listens; warnings may come before."""
    said = b""
    async with patience(30):
        while b"listens at" not in said:
            line = await stderr.readline()
            assert line, said.decode()
            said += line


class Socket:
    """One WebSocket session; what comes is kept by kind."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.positions: dict[str, str] = {}
        self.welcome: dict[str, Any] = {}
        self._said: list[dict[str, Any]] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, **hello: Any) -> AsyncIterator[Self]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(aiohttp.ClientSession())
            raw = await stack.enter_async_context(client.ws_connect(url + "/v1/socket"))
            socket = cls(raw)
            await socket.say(type="hello", **hello)
            socket.welcome = await socket.hear("welcome")
            yield socket

    @property
    def transport(self) -> asyncio.Transport:
        connection = self.socket._response.connection
        assert connection is not None
        assert isinstance(connection.transport, asyncio.Transport)
        return connection.transport

    def drop(self) -> None:
        """Be gone without a word."""
        self.transport.abort()

    async def say(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def subscribe(self, *regions: str, since: Any = None, **more: Any) -> dict[str, Any]:
        more |= {} if since is None else {"since": since}
        await self.say(type="subscribe", id="subscribe", regions=list(regions), **more)
        reply = await self.hear("subscribed")
        for region, position in reply["regions"].items():
            self.positions.setdefault(region, position)
        return reply

    async def publish(self, region: str | Sequence[str], payload: Any, id: int = 0, **more: Any) -> dict[str, Any]:  # noqa: A002
        where = {"region": region} if isinstance(region, str) else {"regions": [*region]}
        await self.say(type="publish", id=id, **where, payload=payload, **more)
        return await self.reply(id)

    async def reply(self, id: Any) -> dict[str, Any]:  # noqa: A002
        """Return the answer to a request."""
        return await self.until(lambda said: said.get("id") == id)

    async def hear(self, kind: str, seconds: float = 15.0) -> dict[str, Any]:
        """Return the next message of a kind; events are noted meanwhile."""
        return await self.until(lambda said: said["type"] == kind, seconds)

    async def until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 15.0) -> dict[str, Any]:
        async with patience(seconds):
            while True:
                for said in self._said:
                    if wanted(said):
                        self._said.remove(said)
                        return said
                await self._read()

    async def take(self, count: int, seconds: float = 20.0) -> list[dict[str, Any]]:
        """Wait until so many events have come in all, and return them."""
        async with patience(seconds):
            while len(self.events) < count:
                await self._read()
        return self.events

    async def closed(self, seconds: float = 15.0) -> tuple[int | None, str]:
        """Wait until the gateway closes; return code and reason."""
        async with patience(seconds):
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._note(json.loads(message.data))
                elif message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR):
                    return self.socket.close_code, str(message.extra or "")

    async def _read(self) -> None:
        message = await self.socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionError(f"closed with {self.socket.close_code}: {message.extra}")
        self._note(json.loads(message.data))

    def _note(self, said: dict[str, Any]) -> None:
        check_sent(said)
        if said["type"] == "events":
            for event in said["events"]:
                self.events.append(event)
                if event["position"] is not None:
                    self.positions |= event.get("positions", {event["region"]: event["position"]})
        elif said["type"] == "updates":
            self.updates += said["updates"]
        elif said["type"] == "acks":
            self._said += ({"type": "ack", **ack} for ack in said["acks"])
        else:
            self._said.append(said)
