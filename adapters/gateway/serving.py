"""A gateway that listens."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from adapters.gateway.gateway import GATEWAY
from adapters.gateway.settings import GatewayLimits
from sequencing.errors import UsageError

BACKLOG = 512
ADMIN_CONNECTIONS = 32
"""So many may watch also when there is no room for others."""
REQUEST_END_S_MAX = 0.5
"""At the end, after sessions: how long an answer may take that is under way. aiohttp waits that long twice."""


@asynccontextmanager
async def serving(application: web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Listen while the context is open; its value is the URL. Raises `UsageError` when the place is taken."""
    settings = application[GATEWAY].settings
    limits = settings.limits
    runner = web.AppRunner(
        application,
        access_log=None,  # it would hold query strings, and tokens in them
        keepalive_timeout=limits.request_timeout_s,
        shutdown_timeout=min(limits.drain_s, REQUEST_END_S_MAX),
        handler_cancellation=True,
        lingering_time=1.0,
        max_line_size=8_190,
        max_field_size=TOKEN_FIELD_BYTES,
    )
    await runner.setup()
    try:
        is_proxy = application[GATEWAY].guard.is_proxy
        host, port = await _listen(runner, (settings.host, settings.port), limits, tls, is_proxy=is_proxy)
        if settings.admin is not None:
            _, admin_port = await _listen(
                runner, settings.admin, limits, None, spare=ADMIN_CONNECTIONS, is_proxy=is_proxy
            )
            if admin_port == port:  # at two addresses, which were free both
                raise UsageError(f"the address for operators needs a port of its own, not {port}")
            application[GATEWAY].guard.admin_ports.add(admin_port)
        yield f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


async def _listen(
    runner: web.AppRunner,
    address: tuple[str, int],
    limits: GatewayLimits,
    tls: ssl.SSLContext | None,
    *,
    spare: int = 0,
    is_proxy: Callable[[str], bool],
) -> tuple[str, int]:
    """Listen at an address; return which it is. ``spare``: connections beyond the limit.

    ``is_proxy``: whether many come from an address because it stands for others.
    """
    before = len(runner.addresses)
    try:
        await _Site(runner, address, limits, tls, spare, is_proxy).start()
    except OSError as error:
        raise UsageError(f"the gateway cannot listen at {address[0]}:{address[1]}: {error}") from error
    host, port = runner.addresses[before][:2]
    return str(host), int(port)


def collect_rarely() -> None:
    """Have this process search all of its objects for garbage seldom: with 1,000 sessions that takes 0.3 s.

    What is there now, the program itself, is never searched. Nearly all that sessions leave is freed without a search.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, COLLECT_EVERY)


class _Site(web.BaseSite):
    """Takes so many connections, closes others at once, and has none for ever whose client takes nothing."""

    def __init__(
        self,
        runner: web.AppRunner,
        address: tuple[str, int],
        limits: GatewayLimits,
        tls: ssl.SSLContext | None,
        spare: int,
        is_proxy: Callable[[str], bool],
    ) -> None:
        super().__init__(runner, ssl_context=tls, backlog=BACKLOG)
        self._host, self._port = address
        self._limits, self._connections_max = limits, limits.connections_max + spare
        self._is_proxy = is_proxy

    @property
    def name(self) -> str:
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None

        def protocol() -> asyncio.BaseProtocol:
            if len(server.connections) >= self._connections_max:
                return _Turned()
            return _Arriving(server, self._limits.connections_per_address_max, self._is_proxy)

        self._server = await asyncio.get_running_loop().create_server(
            protocol, self._host, self._port, ssl=self._ssl_context, backlog=BACKLOG
        )
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # what is accepted has it from its listener
            for listener in self._server.sockets:
                timeout_ms = max(1, min(round(self._limits.send_timeout_s * 1000), 2**31 - 1))
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)


class _Arriving(asyncio.Protocol):
    """A connection of which it is not known yet where it comes from: too many of one address are closed at once."""

    def __init__(self, server: web.Server, most: int, is_proxy: Callable[[str], bool]) -> None:
        self._server, self._most, self._is_proxy = server, most, is_proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        others = self._server.connections
        if len(others) >= self._most and not self._is_proxy(address := _address(transport)):
            here = sum(other.transport is not None and _address(other.transport) == address for other in others)
            if here >= self._most:
                transport.close()
                return
        served = self._server()
        transport.set_protocol(served)
        served.connection_made(transport)


def _address(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""


class _Turned(asyncio.Protocol):
    """A connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


COLLECT_EVERY = 100
"""Searches of what is younger, each for some 7,000 new objects, between two of all."""

TOKEN_FIELD_BYTES = 16_380
"""A header line: tokens are long."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return what TLS needs of a server; raises `UsageError` naming the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificate {certificate} and key {key} cannot be read: {error}") from error
    return context
