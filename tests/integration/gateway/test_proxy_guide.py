"""`docs/proxy.md`: its configuration for nginx, run by a real nginx before a real gateway."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme

from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from gateway.settings import parse_networks
from gateway.tokens import KeyFile, Keys, mint
from tests.integration.gateway_clients import Running, running_gateway
from tests.patience import Deadline, patience, until

PAGE = Path(__file__).parents[3] / "docs" / "proxy.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/local/sbin:/usr/sbin:/sbin")
CLIENT, OTHER_CLIENT = "127.0.0.2", "127.0.0.3"
"""Other addresses of this machine than the proxy's, which is 127.0.0.1."""

# Where nginx keeps what it takes in; what is built in is for root.
FOLDERS = "client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def token(keys_file: Path) -> str:
    return mint(Keys.read(keys_file).signer(), subject="alice", read=["**"], write=["**"])


@pytest.fixture
async def gateway(shared_redis: EmbeddedServer, keys_file: Path) -> AsyncIterator[Running]:
    """A gateway that believes the proxy, and takes two connections of each client."""
    async with running_gateway(
        shared_redis.url,
        keys=KeyFile(keys_file),
        trusted_proxies=parse_networks(["127.0.0.1"]),
        connections_per_address_max=2,
        heartbeat_s=1,
    ) as running:
        yield running


@pytest.fixture
async def proxy(gateway: Running, authority: trustme.CA, tmp_path: Path) -> AsyncIterator[str]:
    """nginx with the configuration of the page; the value is its URL."""
    if NGINX is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    port = free_port()
    folder = tmp_path / "nginx"
    folder.mkdir()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(folder / "certificate.pem", append=number > 0)
    main, server = nginx_of_the_page()
    for there, here in (
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("server 127.0.0.1:8080;", f"server {gateway.url.removeprefix('http://')};"),
        ("/etc/ssl/play.example.pem", str(folder / "certificate.pem")),
        ("/etc/ssl/play.example.key", str(folder / "key.pem")),
        ("/var/log/nginx/gamecast.log", str(folder / "access.log")),
    ):
        assert server.count(there) == 1, there
        server = server.replace(there, here)
    folders = "".join(f"{name} {folder / name};\n" for name in FOLDERS)
    configuration = folder / "nginx.conf"
    configuration.write_text(f"{main}\npid {folder / 'pid'};\nhttp {{\n{folders}\n{server}\n}}\n")
    options = "daemon off; master_process off; error_log stderr;"
    with ExitStack() as stack:
        output = stack.enter_context((folder / "stderr").open("wb"))
        process = await asyncio.create_subprocess_exec(
            NGINX, "-e", "stderr", "-p", str(folder), "-c", str(configuration), "-g", options, stderr=output
        )
        try:
            deadline = Deadline(10)
            while not await is_listening(port):
                assert process.returncode is None, (folder / "stderr").read_text()
                assert not deadline.passed, (folder / "stderr").read_text()
                await asyncio.sleep(0.02)
            yield f"https://127.0.0.1:{port}"
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
    said = (folder / "stderr").read_text().splitlines()
    errors = [
        line for line in said if re.search(r"\[(error|crit|alert|emerg)\]", line) and "too large body" not in line
    ]
    assert errors == []


def nginx_of_the_page() -> Iterator[str]:
    """Return what the page has for nginx: outside of ``http``, and inside."""
    blocks = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    return iter(blocks)


async def is_listening(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def client_of(
    address: str, proxy: str, trusted: ssl.SSLContext, token: str = ""
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client at an address of its own."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=trusted, local_addr=(address, 0))
    async with aiohttp.ClientSession(proxy, connector=connector, headers=headers) as client:
        yield client


async def test_websockets_and_requests_come_through_nginx(
    gateway: Running, proxy: str, trusted: ssl.SSLContext, token: str
) -> None:
    async with client_of(CLIENT, proxy, trusted, token) as client:
        # A page of the proxy's own origin, since the gateway sees the Host of the client.
        async with client.ws_connect("/v1/socket", origin=proxy) as socket, patience(20):
            await socket.send_json({"type": "hello", "name": "alice"})
            assert (await socket.receive_json())["name"] == "~alice"
            assert (await gateway.is_noted("session-opened"))["peer"] == CLIENT
            await socket.send_json({"type": "subscribe", "id": 1, "regions": ["proxied/1"]})
            assert (await socket.receive_json())["type"] == "subscribed"
            async with client.post("/v1/regions/proxied%2F1/events", json={"payload": "hello"}) as response:
                assert response.status == 200
                position = (await response.json())["position"]
            [event] = (await socket.receive_json())["events"]
            assert (event["position"], event["payload"]) == (position, "hello")
        async with client.get("/v1/regions/proxied%2F1/events") as response:
            assert [event["payload"] for event in (await response.json())["events"]] == ["hello"]
        async with client.post("/v1/events", data=b"x" * 300_000) as response:
            assert response.status == 413
        async with client.get("/readyz", headers={"Authorization": "Bearer " + "x" * 12_000}) as response:
            assert response.status == 200


async def test_event_streams_come_through_nginx_at_once_and_their_token_into_no_log(
    proxy: str, trusted: ssl.SSLContext, token: str, tmp_path: Path
) -> None:
    query = {"region": "proxied/2", "access_token": token}
    async with (
        client_of(CLIENT, proxy, trusted) as listener,
        client_of(OTHER_CLIENT, proxy, trusted, token) as publisher,
        listener.get("/v1/events", params=query) as stream,
        patience(20),
    ):
        assert stream.headers["Content-Type"] == "text/event-stream"
        while b"event: subscribed" not in await stream.content.readline():
            pass
        for number in range(3):
            begun = time.monotonic()
            async with publisher.post("/v1/regions/proxied%2F2/events", json={"payload": number}) as response:
                assert response.status == 200
            while not (line := await stream.content.readline()).startswith(b'data: {"events"'):
                pass
            assert f'"payload":{number}'.encode() in line
            assert time.monotonic() - begun < 5
        while not (await stream.content.readline()).startswith(b": here"):  # heartbeats keep the stream open
            pass
    log = tmp_path / "nginx" / "access.log"
    await until(lambda: '"GET /v1/events"' in log.read_text())
    assert token not in log.read_text()


async def test_limits_by_address_count_the_clients_behind_nginx(
    gateway: Running, proxy: str, trusted: ssl.SSLContext, token: str
) -> None:
    forged = {"X-Forwarded-For": "203.0.113.9, 127.0.0.1"}
    async with (
        client_of(CLIENT, proxy, trusted, token) as client,
        client.ws_connect("/v1/socket"),
        client.ws_connect("/v1/socket", headers=forged),
    ):
        for headers in ({}, forged):
            async with client.get("/v1/regions/proxied%2F3/events", headers=headers) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (429, "limit")
        assert (await gateway.is_noted("refused"))["peer"] == CLIENT
        async with (
            client_of(OTHER_CLIENT, proxy, trusted, token) as other,
            other.get("/v1/regions/proxied%2F3/events") as response,
        ):
            assert response.status == 200
