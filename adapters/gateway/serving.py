"""A gateway that listens."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from adapters.gateway.gateway import GATEWAY
from sequencing.errors import UsageError

BACKLOG = 512


@asynccontextmanager
async def serving(application: web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Listen while the context is open; its value is the URL. Raises `UsageError` when the place is taken."""
    settings = application[GATEWAY].settings
    limits = settings.limits
    runner = web.AppRunner(
        application,
        access_log=None,  # it would hold query strings, and tokens in them
        keepalive_timeout=limits.request_timeout_s,
        shutdown_timeout=limits.drain_s,
        handler_cancellation=True,
        max_line_size=8_190,
        max_field_size=TOKEN_FIELD_BYTES,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=tls, backlog=BACKLOG)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(f"the gateway cannot listen at {settings.host}:{settings.port}: {error}") from error
        host, port = runner.addresses[0][:2]
        yield f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


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
