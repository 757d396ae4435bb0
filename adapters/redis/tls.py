"""What TLS needs to know, read once for all connections of a process that have the same settings.

Reading the system's certificate authorities takes some 20 ms of the processor, in which an event loop does nothing
else; redis-py does it for each connection, and a question to a sentinel is a connection.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from redis.asyncio.connection import RedisSSLContext, SSLConnection

__all__ = ["share_context"]


def share_context(connection: object) -> None:
    """Have a connection of redis-py, if it is one with TLS, take the context that others with its settings have."""
    if isinstance(connection, SSLConnection):
        connection.ssl_context = _Shared(connection.ssl_context)  # type: ignore[assignment]


class _Shared:
    """Gives the context when a connection is opened, as `RedisSSLContext` does, and raises what it raises."""

    def __init__(self, settings: RedisSSLContext) -> None:
        self._settings = settings
        self._name = repr([getattr(settings, name) for name in RedisSSLContext.__slots__ if name != "context"])

    def get(self) -> ssl.SSLContext:
        settings, system = self._settings, ssl.get_default_verify_paths()
        read = settings.ca_certs, settings.certfile, settings.keyfile, system.cafile
        stamps = [_stamp(path) for path in read if path]
        known = _contexts.get(self._name)
        if known is None or known[0] != stamps:
            settings.context = None
            known = _contexts[self._name] = stamps, settings.get()
        return known[1]


_contexts: dict[str, tuple[list[tuple[int, int, int]], ssl.SSLContext]] = {}
"""Settings → what told their files from others', and the context."""


def _stamp(path: str) -> tuple[int, int, int]:
    """Return what changes when a certificate is renewed; raises `OSError` as reading it would."""
    status = Path(path).stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
