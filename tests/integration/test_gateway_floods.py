"""What floods cost a gateway that listens: silent connections, long lists of names, large events, and pings."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from adapters.embedded.server import EmbeddedServer
from adapters.gateway.serving import tls_context
from tests.integration.gateway_clients import running_gateway
from tests.patience import patience


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> ssl.SSLContext:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return tls_context(chain, key)


async def status_by_tls(url: str, authority: trustme.CA) -> int:
    """Return the status of a health check over TLS."""
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as client,
        client.get(url + "/healthz") as response,
    ):
        return response.status


@asynccontextmanager
async def silent_connections(url: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Hold connections that say nothing."""
    port = int(url.rpartition(":")[2])
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        yield [reader for reader, _ in held]
    finally:
        for _, writer in held:
            writer.close()


async def is_closed(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Return whether the gateway closes a connection within so long."""
    try:
        async with patience(seconds):
            return await reader.read() == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_address_max"])
async def test_silent_tls_connections_count_and_end_in_time(
    shared_redis: EmbeddedServer, authority: trustme.CA, tls: ssl.SSLContext, limit: str
) -> None:
    limits: dict[str, Any] = {limit: 3, "tls_handshake_timeout_s": 2.0}
    async with (
        running_gateway(shared_redis.url, tls=tls, **limits) as running,
        silent_connections(running.url, 3) as silent,
    ):
        async with silent_connections(running.url, 2) as refused:
            assert [await is_closed(each, 1) for each in refused] == [True, True]
        assert [await is_closed(each, 10) for each in silent] == [True] * 3
        assert await status_by_tls(running.url, authority) == 200


async def test_refused_connections_are_logged_at_most_once_a_second(
    shared_redis: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "gamecast.gateway"):
        async with running_gateway(shared_redis.url, connections_per_address_max=1) as running:
            async with silent_connections(running.url, 41) as held:
                assert all([await is_closed(each, 5) for each in held[1:]])
            await asyncio.sleep(1.2)
    lines = [record.getMessage() for record in caplog.records if "connections-refused" in record.getMessage()]
    assert 2 <= len(lines) <= 4
    assert sum(int(line.rpartition("count=")[2]) for line in lines) == 40
    assert "reason=connections_per_address_max" in lines[0]


async def test_a_gateway_without_file_descriptors_logs_little_and_recovers(shared_redis: EmbeddedServer) -> None:
    command = shlex.join([sys.executable, "-m", "gamecast", "gateway", shared_redis.url, "--port", "0"])
    gateway = await asyncio.create_subprocess_exec(
        "sh", "-c", f"ulimit -n 64; exec {command}", stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert gateway.stderr is not None
    try:
        said = b""
        async with patience(30):
            while (found := re.search(rb"listens at (http://\S+)", said)) is None:
                said += await gateway.stderr.readline()
        url = found[1].decode()
        assert b"connections-bounded" in said
        async with silent_connections(url, 150):
            await asyncio.sleep(2)
        async with aiohttp.ClientSession() as client, client.get(url + "/healthz") as response:
            assert response.status == 200
    finally:
        gateway.terminate()
        async with patience(20):
            said += await gateway.stderr.read()
            await gateway.wait()
    assert len(said) < 5_000, said[:5_000]
