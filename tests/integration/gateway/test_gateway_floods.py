"""What floods cost a gateway that listens: silent connections, long lists of names, large events, and pings."""

from __future__ import annotations

import asyncio
import json
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
from gateway import messages
from gateway.settings import parse_networks
from gateway.tls import tls_context
from gateway.tokens import KeyFile
from tests.integration.gateway_clients import Running, Socket, minted, running_gateway
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


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
async def test_a_list_of_too_many_regions_is_refused_before_any_name_is_read(
    shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url) as socket:
        read: list[str] = []

        def check(name: str) -> str:
            read.append(name)
            return name

        monkeypatch.setattr(messages, "check_public_region", check)
        await socket.say(type=kind, id=1, regions=[f"r{number}" for number in range(24_000)])
        error = await socket.hear("error")
        assert (error["id"], error["code"], error["message"]) == (1, "limit", "a session may have at most 256 regions")
        assert read == []


async def test_the_regions_that_messages_list_count_against_the_rate(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    names = [f"listed{number}" for number in range(160)]
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), burst_requests=20, requests_per_s=0.1) as running,
        Socket.open(running.url, token=minted(keys_file, "lister")) as socket,
    ):
        await socket.say(type="unsubscribe", id=1, regions=names)
        assert (await socket.reply(1))["type"] == "unsubscribed"
        await socket.say(type="unsubscribe", id=2, regions=names)
        assert (await socket.reply(2))["code"] == "rate"


async def test_refused_http_publishes_count_against_the_rate(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    headers = {"Authorization": f"Bearer {minted(keys_file, 'batcher')}"}
    batch = {"events": [{"region": "in/../valid", "payload": 1}] * 200}
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), burst_events=300, events_per_s=0.1) as running,
        aiohttp.ClientSession() as client,
    ):
        statuses = []
        for _ in range(2):
            async with client.post(running.url + "/v1/events", headers=headers, json=batch) as response:
                statuses.append(response.status)
        assert statuses == [400, 429]


@asynccontextmanager
async def slow_gateway(redis: EmbeddedServer, keys_file: Path) -> AsyncIterator[Running]:
    """A gateway at which a token may do 20 things, and then next to nothing."""
    async with running_gateway(
        redis.url, keys=KeyFile(keys_file), burst_requests=20, requests_per_s=0.1, burst_events=20, events_per_s=0.1
    ) as running:
        yield running


@pytest.mark.parametrize(
    "message",
    [{"type": "ping"}, {"type": "publish", "region": "flood", "payload": 1}, {"type": "publish"}, {"type": "x"}, None],
)
async def test_who_goes_on_beyond_the_rate_is_closed(
    shared_redis: EmbeddedServer, keys_file: Path, message: dict[str, Any] | None
) -> None:
    async with (
        slow_gateway(shared_redis, keys_file) as running,
        Socket.open(running.url, token=minted(keys_file, "hasty")) as socket,
    ):
        for _ in range(50):
            await socket.socket.send_str(json.dumps([] if message is None else [message]))
        code, reason = await socket.closed()
        assert (code, reason.partition(":")[0]) in (
            (4014, "too many messages beyond the rate limit"),
            (4014, "too many messages were refused"),
        )
        refusals = [line for line in running.audit if line["what"] == "refused"]
        assert len(refusals) <= 41


@pytest.mark.parametrize("frame", ["ping", "pong"])
async def test_pings_of_websocket_itself_count_against_the_rate(
    shared_redis: EmbeddedServer, keys_file: Path, frame: str
) -> None:
    async with (
        slow_gateway(shared_redis, keys_file) as running,
        Socket.open(running.url, token=minted(keys_file, "pinger")) as socket,
    ):
        for number in range(100):
            await getattr(socket.socket, frame)(str(number).encode())
        code, reason = await socket.closed()
        assert (code, reason.partition(":")[0]) == (4014, "too many messages beyond the rate limit")


async def test_pings_within_the_rate_are_answered_also_before_the_hello(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url) as running,
        aiohttp.ClientSession() as client,
        client.ws_connect(running.url + "/v1/socket", autoping=False) as raw,
    ):
        await raw.ping(b"before")
        assert (await raw.receive()).data == b"before"
        await raw.send_json({"type": "hello"})
        assert (await raw.receive_json())["type"] == "welcome"
        await raw.ping(b"behind")
        answer = await raw.receive()
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"behind")


async def test_hellos_count_against_the_rate(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    token = minted(keys_file, "comes and goes")
    async with slow_gateway(shared_redis, keys_file) as running:
        for _ in range(20):
            async with Socket.open(running.url, token=token):
                pass
        async with aiohttp.ClientSession() as client, client.ws_connect(running.url + "/v1/socket") as raw:
            socket = Socket(raw)
            await socket.say(type="hello", token=token)
            assert (await socket.hear("error"))["code"] == "rate"
            assert (await socket.closed())[0] == 4014


async def sent_sizes(socket: Socket, events: int, seconds: float = 20.0) -> tuple[list[int], list[Any]]:
    """Return the bytes of each message with events, and the first part of each event's payload."""
    sizes, came = [], list[Any]()
    async with patience(seconds):
        while len(came) < events:
            message = await socket.socket.receive()
            said = json.loads(message.data)
            if said["type"] == "events":
                sizes.append(len(message.data.encode()))
                came += [event["payload"][0] for event in said["events"]]
                socket.positions["large"] = said["events"][-1]["position"]
    return sizes, came


@pytest.mark.parametrize("wanted", [None, 150_000, 1_000, 10**9])
async def test_messages_with_events_have_a_bound_and_a_larger_event_comes_alone(
    shared_redis: EmbeddedServer, wanted: int | None
) -> None:
    hello = {} if wanted is None else {"message_bytes_max": wanted}
    async with (
        running_gateway(shared_redis.url) as running,
        Socket.open(running.url, batch_ms=500, **hello) as reader,
        Socket.open(running.url) as writer,
    ):
        assert reader.welcome["message_bytes_max"] == min(wanted or 60_000, 262_144)
        await reader.subscribe("large")
        for number in range(20):
            await writer.say(type="publish", id=number, region="large", payload=[number, "x" * 25_000])
        sizes, came = await sent_sizes(reader, 20, seconds=6)  # where there is no room, `batch_ms` is not waited for
    assert came == list(range(20))
    if wanted == 1_000:
        assert len(sizes) == 20
    else:
        assert max(sizes) <= min(wanted or 60_000, 262_144)
        assert len(sizes) < 20


async def test_who_drops_in_the_middle_of_large_events_misses_none(shared_redis: EmbeddedServer) -> None:
    before: list[Any] = []
    most: dict[str, Any] = {"resent_bytes_max": 16 * 1024 * 1024}
    async with running_gateway(shared_redis.url, **most) as running, Socket.open(running.url) as writer:
        async with Socket.open(running.url, name="slow", message_bytes_max=1_000) as reader:
            await reader.subscribe("large")
            for number in range(150):
                await writer.publish("large", [number, "x" * 60_000], id=number)
                if number == 20:
                    _, before = await sent_sizes(reader, 5)
                    reader.transport.pause_reading()
            reader.drop()
        async with Socket.open(running.url, name="slow") as again:
            await again.say(type="subscribe", id=1, regions=["large"], since=reader.positions)
            _, behind = await sent_sizes(again, 150 - len(before))
    await running.is_noted("session-resumed")
    assert before + behind == list(range(150))


async def test_an_event_stream_splits_large_batches(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, message_bytes_max=150_000) as running,
        Socket.open(running.url) as writer,
        aiohttp.ClientSession(read_bufsize=2**20) as client,
        client.get(running.url + "/v1/events?region=streamed") as stream,
    ):
        lines = stream.content
        async with patience(20):
            while b"subscribed" not in await lines.readline():
                pass
            for number in range(20):
                await writer.say(type="publish", id=number, region="streamed", payload=[number, "x" * 60_000])
            came: list[int] = []
            while len(came) < 20:
                line = await lines.readline()
                assert len(line) <= 150_100
                if line.startswith(b'data: {"events"'):
                    came += [event["payload"][0] for event in json.loads(line[6:])["events"]]
    assert came == list(range(20))


async def test_behind_a_trusted_proxy_limits_by_address_count_whom_it_names(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(
            shared_redis.url, connections_per_address_max=2, trusted_proxies=parse_networks(["127.0.0.0/8"])
        ) as running,
        aiohttp.ClientSession() as client,
    ):

        async def status(address: str) -> int:
            async with client.get(running.url + "/healthz", headers={"X-Forwarded-For": address}) as response:
                return response.status

        one = {"X-Forwarded-For": "203.0.113.7"}
        async with client.ws_connect(running.url + "/v1/socket", headers=one):
            async with client.ws_connect(running.url + "/v1/socket", headers=one):
                assert await status("203.0.113.7") == 429
                assert await status("192.0.2.1, 203.0.113.7") == 429
                assert await status("203.0.113.8") == 200
            async with patience(10):
                while await status("203.0.113.7") != 200:  # noqa: ASYNC110 - another process or task acts
                    await asyncio.sleep(0.05)
