"""TLS of a gateway: its certificate, whom it asks for one, and reading them again while it serves."""

from __future__ import annotations

import ssl
from pathlib import Path

from sequencing.errors import UsageError


def tls_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return what TLS needs of a server; raises `UsageError` naming the file.

    ``client_ca``: PEM file of the authorities of which each client needs a certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificate {certificate} and key {key} cannot be read: {error}") from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"the authorities of clients in {client_ca} cannot be read: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsFiles:
    """The TLS context of some files, which may be read again: connections that begin then get the new one."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises `UsageError`."""
        self._certificate, self.key, self._client_ca = certificate, key, client_ca
        self._context = tls_context(certificate, key, client_ca)

    def context(self) -> ssl.SSLContext:
        """Return the context of now."""
        return self._context

    def reload(self) -> None:
        """Read the files again; raises `UsageError`, and keeps the context of before then."""
        self._context = tls_context(self._certificate, self.key, self._client_ca)
