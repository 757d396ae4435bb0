"""Run a gateway that listens on its ports."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.gateway import GATEWAY
from gateway.listening import BACKLOG, Admission, Listener, Turns, connections_bound
from gateway.refusal import Code
from gateway.settings import GatewayLimits
from gateway.tls import TlsFiles
from sequencing.errors import UsageError

ADMIN_CONNECTIONS = 32
"""How many connections operators may have, even when there is no room for clients."""
REQUEST_END_S_MAX = 0.5
"""At shutdown, after sessions: the time limit for responses in progress. aiohttp waits for it twice."""


@asynccontextmanager
async def serving(application: web.Application, tls: ssl.SSLContext | TlsFiles | None = None) -> AsyncIterator[str]:
    """Listen while the context is open; its value is the URL. Raises `UsageError` if an address is in use."""
    fixed = tls if isinstance(tls, ssl.SSLContext) else None
    context = tls.context if isinstance(tls, TlsFiles) else lambda: fixed
    settings = application[GATEWAY].settings
    limits = settings.limits
    runner = web.AppRunner(
        application,
        access_log=None,  # it would have query strings, and the tokens in them
        logger=_quiet_logger(),
        keepalive_timeout=limits.request_timeout_s,
        shutdown_timeout=min(limits.drain_s, REQUEST_END_S_MAX),
        handler_cancellation=True,
        lingering_time=1.0,
        max_line_size=8_190,
        max_field_size=TOKEN_FIELD_BYTES,
    )
    await runner.setup()
    try:
        gateway = application[GATEWAY]
        spare = ADMIN_CONNECTIONS if settings.admin is not None else 0
        admission = Admission(
            connections_bound(limits.connections_max, spare=spare),
            gateway.addresses,
            gateway.guard.is_proxy,
            lambda: gateway.metrics.refused(str(Code.LIMIT)),
            handshakes=Turns(limits.tls_handshakes_max, limits.tls_handshakes_per_address_max),
        )
        host, port = await _listen(runner, (settings.host, settings.port), limits, context, admission=admission)
        if settings.admin is not None:
            _, admin_port = await _listen(
                runner, settings.admin, limits, lambda: None, spare=spare, admission=admission
            )
            if admin_port == port:  # on two different addresses, both of which were free
                raise UsageError(f"the address for operators needs a port of its own, not {port}")
            application[GATEWAY].guard.admin_ports.add(admin_port)
        yield f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


async def _listen(
    runner: web.AppRunner,
    address: tuple[str, int],
    limits: GatewayLimits,
    tls: Callable[[], ssl.SSLContext | None],
    *,
    spare: int = 0,
    admission: Admission,
) -> tuple[str, int]:
    """Listen at an address; return the actual address. ``spare``: connections beyond the limit."""
    before = len(runner.addresses)
    try:
        await _Site(runner, address, limits, tls, spare, admission).start()
    except OSError as error:
        raise UsageError(f"the gateway cannot listen at {address[0]}:{address[1]}: {error}") from error
    host, port = runner.addresses[before][:2]
    return str(host), int(port)


def collect_rarely() -> None:
    """Make full garbage collections rare in this process: with 1,000 sessions, each takes 0.3 s.

    Objects that exist now, those of the program itself, are never searched. Nearly all garbage of sessions is freed by
    reference counting.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, COLLECT_EVERY)


class _Site(web.BaseSite):
    """Limits its connections, closes those beyond the limit at once, and drops a client that accepts no data."""

    def __init__(
        self,
        runner: web.AppRunner,
        address: tuple[str, int],
        limits: GatewayLimits,
        tls: Callable[[], ssl.SSLContext | None],
        spare: int,
        admission: Admission,
    ) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._tls = tls
        self._address, self._limits, self._spare, self._admission = address, limits, spare, admission

    @property
    def name(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None
        listener = Listener(
            server,
            self._admission,
            tls=self._tls,
            handshake_timeout_s=self._limits.tls_handshake_timeout_s,
            spare=self._spare,
        )
        await listener.listen(*self._address)
        self._server = cast(asyncio.AbstractServer, listener)  # aiohttp uses only its `sockets` and `close`
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # accepted sockets inherit it from the listener
            for each in listener.sockets:
                timeout_ms = max(1, min(round(self._limits.send_timeout_s * 1000), 2**31 - 1))
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)

    async def stop(self) -> None:
        await super().stop()
        if self._server is not None:
            await self._server.wait_closed()


COLLECT_EVERY = 100
"""How many collections of the middle generation, each after some 7,000 new objects, come between two full ones."""

TOKEN_FIELD_BYTES = 16_380
"""The maximum length of a header line: tokens are long."""


def _quiet_logger() -> logging.Logger:
    """Return aiohttp's logger for a server, without the tracebacks of malformed requests and clients that are gone."""
    log = logging.getLogger("aiohttp.server")
    if not any(isinstance(each, _WithoutClientsErrors) for each in log.filters):
        log.addFilter(_WithoutClientsErrors())
    return log


class _WithoutClientsErrors(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Drop errors that only the client caused: it was answered with 400, or was gone before the answer."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (HttpProcessingError, web.HTTPBadRequest, ClientConnectionResetError))
