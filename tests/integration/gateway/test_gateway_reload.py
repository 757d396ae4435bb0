"""A gateway that reads its certificate, keys and authorities again, and one that asks clients for certificates."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import orjson
import pytest
import trustme

from adapters.embedded.server import EmbeddedServer
from gateway.tls import TlsFiles, tls_context
from gateway.tokens import Keys, mint, new_key
from sequencing.errors import UsageError
from tests.integration.gateway_clients import running_gateway
from tests.patience import patience


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def write_certificate(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    """Write a new certificate and its key."""
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    key.chmod(0o600)
    return chain, key


def trusting(authority: trustme.CA, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if client is not None:
        client.configure_cert(context)
    return context


async def certificate_of(port: int, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a server shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown
    finally:
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


async def status(url: str, context: ssl.SSLContext, path: str = "/healthz", **headers: str) -> int:
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as client, client.get(url + path, headers=headers) as answer:
        return answer.status


class Process:
    """A gateway process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.said = process, ""

    @property
    def port(self) -> int:
        [url] = [word for word in self.said.split() if word.startswith("https://")]
        return int(url.rpartition(":")[2])

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    async def until_said(self, text: str) -> None:
        """Wait until a new line has a text."""
        assert self.process.stderr is not None
        async with patience(30):
            while True:
                line = (await self.process.stderr.readline()).decode()
                assert line, self.said
                self.said += line
                if text in line:
                    return


@asynccontextmanager
async def gateway_process(redis_url: str, *options: str) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "gamecast", "gateway", redis_url, "--port=0", *options]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        running = Process(process)
        await running.until_said("listens at")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_hangup_reloads_certificate_and_keys_and_keeps_what_it_had_for_broken_ones(
    shared_redis: EmbeddedServer, authority: trustme.CA, tmp_path: Path
) -> None:
    chain, key = write_certificate(authority, tmp_path)
    keys, context = tmp_path / "keys.json", trusting(authority)

    def write_keys(kid: str) -> str:
        keys.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", kid)]}))
        keys.chmod(0o600)
        return mint(Keys.read(keys).signer(), subject="alice", read=["**"])

    token = write_keys("k1")
    options = f"--tls-certificate={chain}", f"--tls-key={key}", f"--keys={keys}"
    async with gateway_process(shared_redis.url, *options) as gateway:
        url = f"https://localhost:{gateway.port}"
        path = "/v1/regions/forest/events"
        first = await certificate_of(gateway.port, context)
        assert await status(url, context, path, Authorization=f"Bearer {token}") == 200

        write_certificate(authority, tmp_path)
        token = write_keys("k2")
        gateway.hang_up()
        await gateway.until_said("reloaded after SIGHUP: certificate, keys")
        second = await certificate_of(gateway.port, context)
        assert first != second
        assert await status(url, context, path, Authorization=f"Bearer {token}") == 200

        for break_it in (lambda: chain.write_text("nonsense"), chain.unlink):
            break_it()
            gateway.hang_up()
            await gateway.until_said("reload-failed what=certificate")
            assert await certificate_of(gateway.port, context) == second
        write_certificate(authority, tmp_path)
        key.write_bytes(authority.issue_cert("localhost").private_key_pem.bytes())  # of another certificate
        keys.write_text("{")
        gateway.hang_up()
        await gateway.until_said("reload-failed what=certificate")
        await gateway.until_said("reload-failed what=keys")
        assert await certificate_of(gateway.port, context) == second
        assert await status(url, context, path, Authorization=f"Bearer {token}") == 200

        gateway.process.terminate()
        async with patience(20):
            assert await gateway.process.wait() == 0


async def test_a_reload_keeps_the_connections_that_there_are(
    shared_redis: EmbeddedServer, authority: trustme.CA, tmp_path: Path
) -> None:
    files = TlsFiles(*write_certificate(authority, tmp_path))
    connector = aiohttp.TCPConnector(ssl=trusting(authority))
    async with (
        running_gateway(shared_redis.url, tls=files) as running,
        aiohttp.ClientSession(connector=connector) as client,
        client.ws_connect(running.url + "/v1/socket") as raw,
    ):
        await raw.send_json({"type": "hello"})
        assert (await raw.receive_json())["type"] == "welcome"
        write_certificate(authority, tmp_path)
        files.reload()
        await raw.send_json({"type": "ping", "id": 1})
        assert await raw.receive_json() == {"type": "pong", "id": 1}


async def test_a_gateway_without_tls_and_keys_outlives_a_hangup(shared_redis: EmbeddedServer) -> None:
    async with gateway_process(shared_redis.url) as gateway:
        gateway.hang_up()
        await gateway.until_said("reloaded after SIGHUP: nothing")


async def test_a_gateway_whose_terminal_is_closed_ends(shared_redis: EmbeddedServer) -> None:
    terminal, end = pty.openpty()
    take_terminal = (
        "import fcntl, os, sys, termios as t; fcntl.ioctl(0, t.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    gateway = [sys.executable, "-m", "gamecast", "gateway", shared_redis.url, "--port=0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", take_terminal, *gateway, stdin=end, stdout=end, stderr=end, start_new_session=True
    )
    os.close(end)
    try:
        said = b""
        async with patience(30):
            while b"no keys" not in said:
                said += await asyncio.to_thread(os.read, terminal, 10_000)
            os.close(terminal)
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_clients_need_a_certificate_of_the_authority(
    shared_redis: EmbeddedServer, authority: trustme.CA, tmp_path: Path
) -> None:
    players, strangers = trustme.CA(), trustme.CA()
    ca_file = tmp_path / "players.pem"
    players.cert_pem.write_to_path(str(ca_file))
    files = TlsFiles(*write_certificate(authority, tmp_path), ca_file)
    async with running_gateway(shared_redis.url, tls=files) as running:
        known = trusting(authority, players.issue_cert("player@game.example"))
        assert await status(running.url, known) == 200
        for refused in (trusting(authority), trusting(authority, strangers.issue_cert("player@game.example"))):
            with pytest.raises((aiohttp.ClientError, ConnectionError, ssl.SSLError)):
                await status(running.url, refused)
        strangers.cert_pem.write_to_path(str(ca_file))
        files.reload()
        with pytest.raises((aiohttp.ClientError, ConnectionError, ssl.SSLError)):
            await status(running.url, known)
        assert await status(running.url, trusting(authority, strangers.issue_cert("player@game.example"))) == 200
    with pytest.raises(UsageError, match="client authorities"):
        tls_context(tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "key.pem")


@pytest.mark.parametrize(("mode", "is_warned"), [(0o644, True), (0o640, False)])
async def test_a_tls_key_that_everybody_can_read_is_warned_of(
    shared_redis: EmbeddedServer, authority: trustme.CA, tmp_path: Path, mode: int, is_warned: bool
) -> None:
    chain, key = write_certificate(authority, tmp_path)
    key.chmod(mode)
    async with gateway_process(shared_redis.url, f"--tls-certificate={chain}", f"--tls-key={key}") as gateway:
        assert ("can read the TLS key" in gateway.said) is is_warned


async def test_peers_that_begin_tls_and_stop_keep_others_of_their_address_waiting_only(
    shared_redis: EmbeddedServer, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most = 0, 0
    loop = asyncio.get_running_loop()
    accept: Callable[..., Awaitable[object]] = loop.connect_accepted_socket

    async def counting(*arguments: object, **options: object) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await accept(*arguments, **options)
        finally:
            under_way -= 1

    monkeypatch.setattr(loop, "connect_accepted_socket", counting)
    files = TlsFiles(*write_certificate(authority, tmp_path))
    async with running_gateway(
        shared_redis.url, tls=files, tls_handshakes_per_address_max=2, tls_handshake_timeout_s=2.0
    ) as running:
        port = int(running.url.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in held:
            writer.write(b"\x16")
        await asyncio.sleep(0.5)
        assert under_way == 2
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost", local_addr=("127.0.0.2", 0)
        )
        writer.close()
        async with patience(15):
            for reader, _ in held:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        assert most == 3  # of two addresses
        assert await status(running.url, trusting(authority)) == 200
        for _, each in held:
            each.close()
