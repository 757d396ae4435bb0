"""The TLS files of a gateway: its certificate, the authorities of clients, and reloading both while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path

from sequencing.errors import UsageError


def tls_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a server; raises `UsageError` naming the file.

    ``client_ca``: PEM file of authorities; each client then needs a certificate from one of them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot read the certificate {certificate} and key {key}: {error}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"cannot read the client authorities in {client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsFiles:
    """The TLS context of some files. After a reload, new connections get the new context."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises `UsageError`."""
        self._certificate, self.key, self._client_ca = certificate, key, client_ca
        self._context = tls_context(certificate, key, client_ca)

    def context(self) -> ssl.SSLContext:
        """Return the current context."""
        return self._context

    def reload(self) -> None:
        """Read the files again; raises `UsageError`, and then keeps the previous context."""
        self._context = tls_context(self._certificate, self.key, self._client_ca)
