"""What strangers and players can use up at a gateway, by frames, bytes and updates; and what they hear of others."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from adapters.embedded.server import EmbeddedServer
from gateway.frames import FRAMES_BEFORE_HELLO
from gateway.outbox import REPLIES_BYTES_MAX, REPLIES_MAX
from gateway.settings import parse_networks
from gateway.subscriptions import STATES_AT_ONCE
from gateway.tls import tls_context
from gateway.tokens import KeyFile
from tests.integration.gateway_clients import Socket, minted, running_gateway
from tests.patience import patience

UPGRADE = (
    b"GET /v1/socket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n\r\n"
)
PONG = b"\x8a\x80\0\0\0\0"
PART = b"\x01\x80\0\0\0\0"
MORE = b"\x00\x80\0\0\0\0"


def framed(text: str) -> bytes:
    body = text.encode()
    assert len(body) < 126
    return bytes([0x81, 0x80 | len(body)]) + bytes(4) + body


async def upgraded(url: str, tls: Any = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection ends."""
    async with patience(10):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@pytest.mark.parametrize("by_tls", [False, True])
@pytest.mark.parametrize("frames", [PONG * 2_000, PART + MORE * 2_000], ids=["pongs", "parts"])
async def test_a_stranger_that_sends_many_small_frames_is_gone_before_they_are_read(
    shared_redis: EmbeddedServer, tmp_path: Path, frames: bytes, by_tls: bool
) -> None:
    authority, tls = trustme.CA(), None
    if by_tls:
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        tls = tls_context(chain, key)
    async with running_gateway(shared_redis.url, tls=tls) as running:
        trusting = ssl.create_default_context() if by_tls else None
        if trusting is not None:
            authority.configure_trust(trusting)
        reader, writer = await upgraded(running.url, trusting)
        writer.write(frames)
        assert await rest(reader) == b""
        writer.close()
        assert (await running.is_noted("refused", code="rate"))["reason"].startswith("too many WebSocket frames")


async def test_what_comes_before_the_answer_to_an_upgrade_is_refused(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
        writer.write(UPGRADE + PONG * 2_000)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_a_frame_without_a_mask_ends_the_session_with_1002(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running:
        reader, writer = await upgraded(running.url)
        writer.write(framed('{"type":"hello","protocol":1}'))
        async with patience(10):
            said = await reader.read(1_000)
        assert b"welcome" in said
        writer.write(b"\x81\x02[]")
        assert (1002).to_bytes(2) in await rest(reader)
        writer.close()


async def test_a_session_with_too_many_frames_is_closed_and_one_within_the_rate_is_not(
    shared_redis: EmbeddedServer,
) -> None:
    async with running_gateway(shared_redis.url, frames_per_s=50, burst_frames=200) as running:
        async with Socket.open(running.url) as socket:
            for number in range(150):
                await socket.say(type="ping", id=number)
            await socket.reply(149)
            for number in range(150):
                await socket.say(type="ping", id=number)
            assert (await socket.closed())[0] == 4014
        reader, writer = await upgraded(running.url)
        writer.write(PONG * 8 + framed('{"type":"hello","protocol":1}'))
        assert FRAMES_BEFORE_HELLO > 8
        async with patience(10):
            assert b"welcome" in await reader.read(1_000)
        writer.close()


async def test_who_sends_many_bytes_is_read_more_slowly_and_loses_nothing(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    few: dict[str, Any] = {"bytes_per_s": 400_000, "burst_bytes": 100_000}
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), **few) as running,
        Socket.open(running.url, token=minted(keys_file)) as socket,
        Socket.open(running.url, token=minted(keys_file, "bob")) as other,
    ):
        await other.subscribe("large")
        began = asyncio.get_running_loop().time()
        for number in range(6):
            await socket.say(type="publish", id=number, region="large", payload=[number, "x" * 50_000])
        events = await other.take(6)
        assert asyncio.get_running_loop().time() - began >= 0.4
        assert [event["payload"][0] for event in events] == list(range(6))


async def test_updates_count_on_the_rate_of_a_token(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running:

        def updates(count: int) -> dict[str, Any]:
            return {"type": "updates", "updates": [{"region": "r", "key": f"k{n}", "payload": n} for n in range(count)]}

        async with Socket.open(running.url, token=minted(keys_file, rate=1, burst=5)) as socket:
            await socket.say(**updates(4))
            await socket.say(**updates(4), id=1)
            refused = await socket.reply(1)
            assert (refused["code"], refused["message"].partition(":")[0]) == ("rate", "too many events and updates")
        async with Socket.open(running.url, token=minted(keys_file, "bob", rate=5, burst=5)) as socket:
            await socket.say(**updates(8), id=1)  # more than the burst: its rest is owed
            refused = await socket.publish("r", 1, id=2)
            assert refused["code"] == "rate"
            assert refused["retry_after_ms"] > 500
        async with Socket.open(running.url, token=minted(keys_file, "carol")) as socket:
            await socket.say(**updates(50))
            assert (await socket.publish("r", 1, id=1))["type"] == "ack", "without a rate they are counted apart"


@pytest.mark.parametrize("key", ["owner:troll", "@bob"])
async def test_updates_take_no_key_that_events_refuse(shared_redis: EmbeddedServer, key: str) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url) as socket:
        await socket.say(type="updates", id=1, updates=[{"region": "r", "key": key, "payload": 1}])
        assert (await socket.reply(1))["code"] == "invalid-key"


async def test_a_slow_client_keeps_updates_of_few_bytes(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, updates_bytes_max=200_000) as running,
        Socket.open(running.url, name="slow", updates=True) as slow,
        Socket.open(running.url, name="sender") as sender,
    ):
        await slow.subscribe("r")
        [outbox] = [each._outbox for each in running.gateway.sessions if each.name == "~slow"]  # type: ignore[attr-defined]
        slow.transport.pause_reading()
        most = 0
        for number in range(600):
            await sender.say(type="updates", updates=[{"region": "r", "key": f"k{number}", "payload": "x" * 30_000}])
            most = max(most, outbox._updates_bytes)
        await sender.say(type="ping", id="end")
        await sender.reply("end")
        assert 100_000 < most <= 200_000
        assert sum(map(len, outbox._updates.values())) == outbox._updates_bytes
        slow.transport.resume_reading()


async def test_an_event_of_several_regions_counts_as_many_and_with_as_many_bytes(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    few: dict[str, Any] = {"bytes_per_s": 1_000, "burst_bytes": 100_000, "events_per_s": 1, "burst_events": 10}
    regions = [f"several-{number}" for number in range(8)]
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file), **few) as running:
        token = minted(keys_file)
        async with Socket.open(running.url, token=token) as socket:
            assert (await socket.publish(regions, 1, id=1))["type"] == "ack"
            assert (await socket.publish(regions, 1, id=2))["code"] == "rate"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {minted(keys_file, 'bob')}"}) as client:
            large = {"events": [{"regions": regions[:4], "payload": "x" * 20_000}]}
            async with client.post(running.url + "/v1/events", json=large) as response:
                assert response.status == 200, await response.text()
            async with client.post(running.url + "/v1/events", json=large) as response:
                assert response.status == 429
                assert int(response.headers["Retry-After"]) >= 1


async def test_states_of_many_regions_come_in_parts_and_all_of_them(shared_redis: EmbeddedServer) -> None:
    regions = [f"parts-{number}" for number in range(2 * STATES_AT_ONCE + 3)]
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url) as writer:
        for number, region in enumerate(regions):
            await writer.publish(region, number, id=number, key="k")
        async with Socket.open(running.url) as socket:
            reply = await socket.subscribe(*regions, state=True)
            assert reply["regions"].keys() == set(regions)
            states = await socket.take(len(regions))
            assert {state["region"]: state["state"]["k"]["payload"] for state in states} == dict(
                zip(regions, range(len(regions)), strict=True)
            )
            await socket.say(type="subscribe", id="again", regions=["parts-new", regions[0]], state=True)
            assert (await socket.reply("again"))["type"] == "error"


async def test_a_client_that_reads_no_replies_is_not_read_from_beyond_some_bytes(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url, name="deaf") as deaf:
        [outbox] = [each._outbox for each in running.gateway.sessions if each.name == "~deaf"]  # type: ignore[attr-defined]
        count = 0
        while outbox._replies_bytes < REPLIES_BYTES_MAX:
            with pytest.raises(StopIteration):  # it does not wait
                outbox.until_room_for_replies().send(None)
            outbox.reply("pong", "x" * 200)
            count += 1
        assert count < REPLIES_MAX
        waiting = asyncio.create_task(outbox.until_room_for_replies())
        assert outbox.until_room_for_replies().send(None) is not None, "it waits"
        await waiting
        assert outbox._replies_bytes < REPLIES_BYTES_MAX
        await deaf.say(type="ping", id="end")
        await deaf.reply("end")


async def test_a_token_that_may_only_write_hears_no_positions_of_others(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running:
        both, writing = minted(keys_file), minted(keys_file, "bob", read=[])
        async with Socket.open(running.url, token=both) as socket:
            at = (await socket.publish("den", 1, key="sword"))["position"]
            refused = await socket.publish("den", 2, id=1, only_if={"sword": None}, key="sword")
            assert refused["position"] == at
        async with Socket.open(running.url, token=writing) as socket:
            refused = await socket.publish("den", 2, id=1, only_if={"sword": None}, key="sword")
            assert refused["code"] == "key-conflict"
            assert at not in json.dumps(refused)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {writing}"}) as client:
            asked = {"payload": 2, "key": "sword", "only_if": {"sword": None}}
            async with client.post(running.url + "/v1/regions/den/events", json=asked) as response:
                assert response.status == 409
                assert at not in await response.text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "image"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}, 403),
    ],
)
async def test_a_page_of_another_origin_loads_nothing_without_saying_who_it_is(
    shared_redis: EmbeddedServer, headers: dict[str, str], status: int
) -> None:
    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession() as client:
        for path in ("/v1/regions/den/events", "/metrics", "/v1/events?region=den"):
            async with client.get(running.url + path, headers=headers) as response:
                assert response.status == status, path


async def test_the_port_that_a_proxy_reports_makes_no_address_of_its_own(shared_redis: EmbeddedServer) -> None:
    proxies = parse_networks(["127.0.0.0/8"])
    async with (
        running_gateway(shared_redis.url, connections_per_address_max=1, trusted_proxies=proxies) as running,
        aiohttp.ClientSession() as client,
    ):
        for one, same, other in (
            ("203.0.113.7:4711", ["203.0.113.7", "203.0.113.7:1"], "203.0.113.8:4711"),
            ("[2001:db8::1]:4711", ["2001:db8::1", "[2001:db8::1]", "[2001:db8::2]:80"], "2001:db8:0:1::1"),
        ):
            async with client.ws_connect(running.url + "/v1/socket", headers={"X-Forwarded-For": one}):
                for address, status in (*((each, 429) for each in same), (other, 200)):
                    named = {"X-Forwarded-For": address}
                    async with client.get(running.url + "/healthz", headers=named) as response:
                        assert response.status == status, address
