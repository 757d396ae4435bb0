"""Connections of one process share what TLS reads from files, until the files change."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from adapters.redis.places import connection_to


@pytest.fixture
def authority(tmp_path: Path) -> str:
    path = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(path))
    return str(path)


def context_of(url: str) -> object:
    return connection_to(url).ssl_context.get()


def test_connections_with_the_same_settings_read_the_authorities_once(authority: str) -> None:
    found = context_of(f"rediss://one:6379?ssl_ca_certs={authority}")
    assert context_of(f"rediss://user:word@two:6379?ssl_ca_certs={authority}") is found
    assert context_of(f"rediss://one:6379?ssl_ca_certs={authority}&ssl_check_hostname=false") is not found


def test_an_authority_that_was_renewed_is_read_by_the_next_connection(authority: str, tmp_path: Path) -> None:
    connection = connection_to(f"rediss://one:6379?ssl_ca_certs={authority}")
    before = connection.ssl_context.get()
    renewed = tmp_path / "renewed.crt"
    trustme.CA().cert_pem.write_to_path(str(renewed))
    renewed.rename(authority)
    assert connection.ssl_context.get() is not before
    assert context_of(f"rediss://one:6379?ssl_ca_certs={authority}") is connection.ssl_context.get()


def test_a_file_that_is_missing_is_an_error_each_time_and_is_read_once_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "late.crt"
    connection = connection_to(f"rediss://one:6379?ssl_ca_certs={path}")
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"late\.crt"):
            connection.ssl_context.get()
    trustme.CA().cert_pem.write_to_path(str(path))
    assert connection.ssl_context.get().cert_store_stats()["x509_ca"] > 0
