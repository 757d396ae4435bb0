"""Every guard of the gateway, seen from outside: what a client is told that does what it should not."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import redis
import trustme
from aiohttp import web
from click.testing import CliRunner

import gamecast
from adapters.embedded.server import EmbeddedServer
from cli.main import cli
from gateway import guard
from gateway.keyurl import KeyUrl
from gateway.replaycache import RedisReplayCache
from gateway.revocations import LOOK_S
from gateway.settings import GatewaySettings, parse_networks
from gateway.tls import tls_context
from gateway.tokens import KeyFile, Keys, mint, new_key, public_half, verify
from sequencing.errors import InvalidName, UsageError
from tests.integration.gateway_clients import Running, Socket, running_gateway
from tests.patience import Deadline, patience


@pytest.fixture
async def guarded(shared_redis: EmbeddedServer, keys_file: Path) -> AsyncIterator[Running]:
    """A gateway that asks for tokens."""
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running:
        yield running


def minted(keys_file: Path, subject: str = "alice", **claims: Any) -> str:
    told = {"read": ["arena/*"], "write": ["arena/*"]} | claims
    return mint(Keys.read(keys_file).signer(), subject=subject, **told)


async def refused_hello(url: str, **hello: Any) -> tuple[dict[str, Any], int | None]:
    """Return what a hello is answered that is refused, and the close code."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url + "/v1/socket") as raw:
        socket = Socket(raw)
        await socket.say(**{"type": "hello"} | hello)
        return await socket.hear("error"), (await socket.closed())[0]


@asynccontextmanager
async def eventually_open(url: str, token: str, name: str) -> AsyncIterator[Socket]:
    """Open a session as soon as the gateway knows the token's key."""
    async with patience(10):
        while True:
            error, _ = await refused_hello(url, token=token, name="never this one's")
            if "does not know" not in error["message"]:
                break
            await asyncio.sleep(0.1)
    async with Socket.open(url, token=token, name=name) as socket:
        yield socket


def run_cli(*arguments: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output


async def raw_answer(url: str, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Return what comes back for bytes that are written one after the other."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                if pause_s:
                    await asyncio.sleep(pause_s)
        except ConnectionError:
            pass
        async with patience(10):
            try:
                return await reader.read()
            except ConnectionError:
                return b""
    finally:
        writer.close()


async def test_who_has_no_token_is_refused(guarded: Running) -> None:
    error, code = await refused_hello(guarded.url)
    assert (error["code"], error["message"], code) == ("unauthorized", "this gateway asks for a token", 4001)
    async with aiohttp.ClientSession() as client:
        for method, path in (
            ("GET", "/v1/regions/arena%2F1/events"),
            ("POST", "/v1/regions/arena%2F1/events"),
            ("POST", "/v1/events"),
            ("GET", "/v1/events?region=arena/1"),
        ):
            async with client.request(method, guarded.url + path, json={"payload": 1}) as response:
                assert response.status == 401, path
                assert response.headers["WWW-Authenticate"] == "Bearer"
                assert (await response.json())["error"]["code"] == "unauthorized"


async def test_a_forged_and_an_expired_token_are_refused(guarded: Running, keys_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k1")]}))
    error, code = await refused_hello(guarded.url, token=minted(other))
    assert (error["message"], code) == ("the token's signature is wrong", 4001)
    error, code = await refused_hello(guarded.url, token=minted(keys_file, audience="another"))
    assert "is not for this gateway" in error["message"]
    late = minted(keys_file, lifetime_s=1)
    await asyncio.sleep(7)  # the leeway counts
    error, code = await refused_hello(guarded.url, token=late)
    assert (error["code"], code) == ("expired", 4010)


@pytest.mark.parametrize("leeway_s", [0.0, 60.0])
async def test_an_expired_token_has_the_same_leeway_over_http_and_in_sessions(
    leeway_s: float, shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    async with running_gateway(shared_redis.url, token_leeway_s=leeway_s, keys=KeyFile(keys_file)) as running:
        late = minted(keys_file, lifetime_s=0.01)  # until the second that has begun
        await asyncio.sleep(1)
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {late}"}) as client,
            client.get(running.url + "/v1/regions/arena%2F1/events") as response,
        ):
            assert response.status == (200 if leeway_s else 401)
        if not leeway_s:
            assert (await refused_hello(running.url, token=late))[1] == 4010
            return
        async with Socket.open(running.url, token=late) as socket:
            await socket.say(type="ping", id=1)
            await socket.hear("pong")


async def test_a_session_ends_when_its_token_expires_unless_it_is_renewed(guarded: Running, keys_file: Path) -> None:
    async with (
        Socket.open(guarded.url, token=minted(keys_file, lifetime_s=2), name="alice~1") as ends,
        Socket.open(guarded.url, token=minted(keys_file, lifetime_s=2), name="alice~2") as goes_on,
    ):
        await goes_on.say(type="hello", token=minted(keys_file, lifetime_s=60))
        assert (await goes_on.hear("welcome"))["name"] == "~alice~2"
        assert await ends.closed() == (4010, "the token has expired: send a hello with a new token before it expires")
        await goes_on.say(type="ping", id=1)
        await goes_on.hear("pong")
        await goes_on.say(type="hello", token=minted(keys_file, subject="bob"))
        assert (await goes_on.hear("error"))["code"] == "forbidden"


async def test_a_single_use_token_is_good_once_at_whichever_gateway(
    guarded: Running, keys_file: Path, shared_redis: EmbeddedServer
) -> None:
    token = minted(keys_file, once=True)
    async with Socket.open(guarded.url, token=token):
        pass
    error, code = await refused_hello(guarded.url, token=token)
    assert (error["message"], code) == ("this single-use token was used already: get a new one", 4001)
    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as other:
        error, code = await refused_hello(other.url, token=token)
        assert (error["message"], code) == ("this single-use token was used already: get a new one", 4001)


async def test_regions_are_read_and_written_as_the_token_says(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, read=["arena/*"], write=["arena/1"])
    async with Socket.open(guarded.url, token=token) as socket, aiohttp.ClientSession() as client:
        await socket.say(type="subscribe", id=1, regions=["arena/1", "lobby"])
        error = await socket.hear("error")
        assert (error["id"], error["code"], error["message"]) == (
            1,
            "forbidden",
            "this token does not let you read 'lobby'",
        )
        error = await socket.publish("arena/2", 1, id=2)
        assert (error["code"], error["message"]) == ("forbidden", "this token does not let you write 'arena/2'")
        assert (await socket.publish("arena/1", 1, id=3))["type"] == "ack"
        headers = {"Authorization": f"Bearer {token}"}
        for method, path, status in (
            ("GET", "/v1/regions/lobby/events", 403),
            ("GET", "/v1/regions/arena%2F1/events", 200),
            ("POST", "/v1/regions/arena%2F2/events", 403),
            ("POST", "/v1/regions/arena%2F1/events", 200),
            ("GET", "/v1/events?region=lobby", 403),
        ):
            async with client.request(method, guarded.url + path, headers=headers, json={"payload": 1}) as response:
                assert response.status == status, path
        batch = {"events": [{"region": "arena/1", "payload": 1}, {"region": "arena/2", "payload": 1}]}
        async with client.post(guarded.url + "/v1/events", headers=headers, json=batch) as response:
            assert response.status == 403


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ("arena/../lobby", "must not be empty, '.' or '..'"),
        ("arena/..", "must not be empty, '.' or '..'"),
        ("arena/*", "reserved for patterns"),
        ("arena/[1]", "must not contain [ ]"),
        ("arena/?", "must not contain ?"),
        ("ａrena/1", "normal form NFKC"),
        ("аrena/1", "must not mix CYRILLIC and LATIN"),
        ("arena/1\u200b", "control characters"),
        ("arena/1\x00", "control characters"),
        ("arena/1\n", "control characters"),
    ],
)
async def test_a_region_that_escapes_its_pattern_is_refused(
    guarded: Running, keys_file: Path, region: str, said: str
) -> None:
    token = minted(keys_file)
    async with Socket.open(guarded.url, token=token) as socket, aiohttp.ClientSession() as client:
        await socket.say(type="subscribe", id=1, regions=[region])
        assert (error := await socket.hear("error"))["code"] == "invalid-region"
        assert said in error["message"]
        error = await socket.publish(region, 1, id=2)
        assert (error["code"], said in error["message"]) == ("invalid-region", True)
        headers = {"Authorization": f"Bearer {token}"}
        body = {"events": [{"region": region, "payload": 1}]}
        async with client.post(guarded.url + "/v1/events", headers=headers, json=body) as response:
            assert response.status == 400
            assert said in (await response.json())["error"]["message"]


async def test_a_path_that_climbs_reaches_no_region(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, read=["**"])
    for path in ("/v1/regions/arena%2F..%2Flobby/events", "/v1/regions/%2e%2e%2flobby/events"):
        request = (
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        answer = await raw_answer(guarded.url, request.encode())
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert b"invalid-region" in answer


async def test_a_name_that_is_another_holders_is_refused(guarded: Running, keys_file: Path) -> None:
    error, code = await refused_hello(guarded.url, token=minted(keys_file), name="bob")
    assert (error["code"], code) == ("forbidden", 4001)
    assert error["message"] == "this token allows the name 'alice', or that name followed by '~' and a suffix"


async def test_no_client_of_the_gateway_can_have_the_name_of_a_game_server(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running,
        gamecast.connect(shared_redis.url, name="alice") as server,
    ):
        await server.subscribe("arena/1")
        for name in ("alice", "~alice"):
            async with Socket.open(running.url, token=minted(keys_file), name=name) as player:
                assert player.welcome["name"] == "~alice"
                await player.publish("arena/1", name)
        headers = {"Authorization": f"Bearer {minted(keys_file)}"}
        async with (
            aiohttp.ClientSession() as client,
            client.post(running.url + "/v1/regions/arena%2F1/events", headers=headers, json={"payload": 3}) as response,
        ):
            assert response.status == 200
        await server.publish("arena/1", "of the server")
        async with patience(10):
            came = [await anext(server) for _ in range(4)]
        senders = [event.sender for event in came if isinstance(event, gamecast.Event)]
        assert senders[:2] == ["~alice", "~alice"]
        assert senders[2].startswith("~alice~http-")
        assert senders[3] == "alice"
    with pytest.raises(InvalidName, match="names that begin with '~' are those of a gateway's clients"):
        gamecast.connect(shared_redis.url, name="~alice")


async def test_pages_of_other_origins_are_refused_unless_they_are_listed(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, origins=("https://game.example",)) as running,
        aiohttp.ClientSession() as client,
    ):
        for origin in ("https://evil.example", "null", "https://game.example.evil.example", "http://game.example"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(running.url + "/v1/socket", origin=origin)
            assert refused.value.status == 403
            async with client.post(
                running.url + "/v1/events", headers={"Origin": origin}, json={"events": []}
            ) as response:
                assert response.status == 403
                assert (await response.json())["error"]["code"] == "origin"
                assert "Access-Control-Allow-Origin" not in response.headers
        for origin in ("https://game.example", running.url):
            async with client.ws_connect(running.url + "/v1/socket", origin=origin):
                pass
        headers = {"Origin": "https://game.example", "Access-Control-Request-Method": "POST"}
        async with client.options(running.url + "/v1/events", headers=headers) as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://game.example"
            assert "Authorization" in response.headers["Access-Control-Allow-Headers"]


async def test_without_keys_a_page_cannot_have_its_own_name_lead_here(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running, aiohttp.ClientSession() as client:
        headers = {"Host": "evil.example", "Origin": "http://evil.example"}
        async with client.get(running.url + "/v1/regions/forest/events", headers=headers) as response:
            assert response.status == 403
            assert (await response.json())["error"]["code"] == "origin"


async def test_events_come_faster_than_a_token_allows(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, rate=0.1, burst=3)
    async with Socket.open(guarded.url, token=token) as socket, aiohttp.ClientSession() as client:
        replies = [await socket.publish("arena/1", 1, id=number) for number in range(5)]
        assert [reply["type"] for reply in replies] == ["ack"] * 3 + ["error"] * 2
        assert replies[3]["code"] == "rate"
        assert replies[3]["retriable"]
        assert 0 < replies[3]["retry_after_ms"] <= 10_000
        headers = {"Authorization": f"Bearer {token}"}
        address = guarded.url + "/v1/regions/arena%2F1/events"
        async with client.post(address, headers=headers, json={"payload": 1}) as response:
            assert response.status == 429
            left_ms = (await response.json())["error"]["retry_after_ms"]
            assert 0 < left_ms <= 10_000
            assert response.headers["Retry-After"] == str(max(1, round(left_ms / 1000)))


async def test_more_sessions_than_a_token_allows_are_refused(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, sessions=1)
    async with Socket.open(guarded.url, token=token):
        error, code = await refused_hello(guarded.url, token=token)
        assert (error["code"], code) == ("limit", 4013)


async def test_more_sessions_than_the_gateway_has_room_for_are_refused(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url, sessions_max=1) as running:
        async with Socket.open(running.url):
            error, code = await refused_hello(running.url)
            assert (error["code"], error["retriable"], code) == ("limit", True, 4013)
        async with Socket.open(running.url):
            pass


async def test_more_connections_than_there_is_room_for_are_closed_at_once(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url, connections_max=2) as running:
        port = int(running.url.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        try:
            assert await raw_answer(running.url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        finally:
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
        async with patience(5):
            while not await raw_answer(
                running.url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            ):
                pass


async def test_more_connections_of_one_address_than_allowed_are_closed_at_once(shared_redis: EmbeddedServer) -> None:
    asking = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for proxies, is_let_in in ((), False), (("127.0.0.0/8",), True):
        async with running_gateway(
            shared_redis.url, connections_per_address_max=2, trusted_proxies=parse_networks(proxies)
        ) as running:
            port = int(running.url.rpartition(":")[2])
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            try:
                for _, writer in held:
                    writer.write(asking)
                for reader, _ in held:
                    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                closing = asking.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
                assert (await raw_answer(running.url, closing)).startswith(b"HTTP/1.1 200") == is_let_in
            finally:
                for _, writer in held:
                    writer.close()


async def test_who_reads_much_of_the_past_waits_for_others(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    token, other = minted(keys_file, subject="historian"), minted(keys_file, subject="bob")
    async with (
        running_gateway(
            shared_redis.url, keys=KeyFile(keys_file), history_events_per_s=20, burst_history_events=10
        ) as running,
        Socket.open(running.url, token=token) as socket,
        aiohttp.ClientSession() as client,
    ):
        for number in range(30):
            await socket.publish("arena/past", number, id=number)
        address = running.url + "/v1/regions/arena%2Fpast/events"

        async def status(holder: str) -> int:
            async with client.get(address, headers={"Authorization": f"Bearer {holder}"}) as response:
                return response.status

        assert [await status(token), await status(token), await status(other)] == [200, 429, 200]
        await socket.say(type="subscribe", id=1, regions=["arena/past"], since=0)
        error = await socket.hear("error")
        assert (error["code"], error["retriable"], 0 < error["retry_after_ms"] <= 1_000) == ("rate", True, True)
        await socket.subscribe("arena/past")  # what comes from now on is not of the past
        async with patience(10):
            while await status(token) != 200:  # noqa: ASYNC110 - it is the clock that acts
                await asyncio.sleep(0.1)
        third = minted(keys_file, subject="carol")
        async with Socket.open(running.url, token=third) as replaying:
            await replaying.subscribe("arena/past", since=0)
            assert len(await replaying.take(30)) == 30
            assert await status(third) == 429  # the replay counts


async def test_one_token_does_not_make_regions_without_end(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    headers = {"Authorization": f"Bearer {minted(keys_file, subject='founder')}"}
    async with (
        running_gateway(
            shared_redis.url, keys=KeyFile(keys_file), new_regions_per_s=0.01, burst_new_regions=3
        ) as running,
        Socket.open(running.url, token=minted(keys_file, subject="founder")) as socket,
        aiohttp.ClientSession() as client,
    ):
        await socket.subscribe("arena/new1", "arena/new2")
        assert (await socket.publish("arena/new3", 1, id=1))["type"] == "ack"
        error = await socket.publish("arena/new4", 1, id=2)
        assert (error["code"], error["message"].partition(":")[0]) == ("rate", "too many new regions")
        async with client.post(
            running.url + "/v1/regions/arena%2Fnew5/events", headers=headers, json={"payload": 1}
        ) as response:
            assert response.status == 429
        await socket.say(type="subscribe", id=3, regions=["arena/new6"])
        assert (await socket.hear("error"))["code"] == "rate"
        assert (await socket.publish("arena/new1", 1, id=4))["type"] == "ack"
        await asyncio.sleep(1.1)
    async with (
        running_gateway(
            shared_redis.url, keys=KeyFile(keys_file), new_regions_per_s=0.01, burst_new_regions=1
        ) as another,
        Socket.open(another.url, token=minted(keys_file, subject="founder")) as again,
    ):
        await again.subscribe("arena/new1", "arena/new2", "arena/new3")  # there are these


async def test_what_is_too_large_is_refused(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, payload_bytes=100)
    async with Socket.open(guarded.url, token=token) as socket, aiohttp.ClientSession() as client:
        assert (await socket.publish("arena/1", "x" * 98, id=1))["type"] == "ack"
        error = await socket.publish("arena/1", "x" * 99, id=2)
        assert (error["code"], error["message"]) == ("too-large", "the payload has 101 bytes, and the limit is 100")
        headers = {"Authorization": f"Bearer {token}"}
        address = guarded.url + "/v1/regions/arena%2F1/events"
        async with client.post(address, headers=headers, json={"payload": "x" * 99}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (413, "too-large")
        async with client.post(address, headers=headers, data=b"x" * 300_000) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (413, "too-large")
        await socket.socket.send_str("x" * 300_000)
        assert (await socket.closed())[0] == 1009
    assert {"refused"} <= {line["what"] for line in guarded.audit if line.get("code") == "too-large"}


async def test_more_regions_and_longer_arrays_than_allowed_are_refused(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, regions_per_session_max=3, messages_per_array_max=2) as running,
        Socket.open(running.url) as socket,
    ):
        await socket.say(type="subscribe", id=1, regions=["r1", "r2", "r3", "r4"])
        assert (error := await socket.hear("error"))["code"] == "limit"
        assert error["message"] == "a session may have at most 3 regions"
        await socket.socket.send_str(json.dumps([{"type": "ping"}] * 3))
        assert (await socket.closed()) == (4000, "an array may have at most 2 messages")


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("{", "this is not JSON", 4000),
        ("\ud7ff" * 10, "this is not JSON", 4000),
        ("null", "a message must be an object", None),
        ('"hello"', "a message must be an object", None),
        ('{"type": "nothing"}', "type must be one of hello", None),
        ('{"type": ["hello"]}', "type must be one of hello", None),
        ('{"type": "publish", "region": "forest"}', "either payload (any JSON) or base64", None),
        ('{"type": "publish", "region": "forest", "payload": 1, "base64": ""}', "either payload", None),
        ('{"type": "publish", "region": "forest", "base64": "!"}', "base64 must be a base64", None),
        ('{"type": "publish", "region": "forest", "payload": 1, "id": {}}', "id must be an integer, or", None),
        ('{"type": "publish", "region": 7, "payload": 1}', "a region must be a string", None),
        ('{"type": "publish", "region": "forest", "payload": 1, "retry": true}', "a retry needs after", None),
        ('{"type": "subscribe", "regions": []}', "at least one region", None),
        ('{"type": "subscribe", "regions": "forest"}', "at least one region", None),
        ('{"type": "subscribe", "regions": ["forest"], "since": {"river": "1-1"}}', "each of the regions", None),
        ('{"type": "subscribe", "regions": ["forest"], "since": "1-x"}', "a position must be a string", None),
        ('{"type": "subscribe", "regions": ["forest"], "since": -1}', "a position must be a string", None),
    ],
)
async def test_what_is_malformed_is_told_so(
    shared_redis: EmbeddedServer, text: str, said: str, code: int | None
) -> None:
    async with running_gateway(shared_redis.url) as running, Socket.open(running.url) as socket:
        await socket.socket.send_str(text)
        error = await socket.hear("error")
        assert said in error["message"]
        if code is not None:
            assert (await socket.closed())[0] == code
        else:
            await socket.say(type="ping", id=1)
            assert (await socket.hear("pong"))["id"] == 1


async def test_binary_messages_and_a_first_message_that_is_no_hello_close_the_session(
    shared_redis: EmbeddedServer,
) -> None:
    async with running_gateway(shared_redis.url) as running:
        error, code = await refused_hello(running.url, type="ping")
        assert (error["code"], code) == ("malformed", 4000)
        error, code = await refused_hello(running.url, protocol=2)
        assert (error["message"], code) == ("this gateway speaks protocol 1, not '2'", 4000)
        async with Socket.open(running.url) as socket:
            await socket.socket.send_bytes(b"\x00")
            assert await socket.closed() == (1003, "messages must be text: send bytes as base64")


async def test_who_goes_on_saying_nonsense_is_closed(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, burst_requests=5, requests_per_s=0.1) as running,
        Socket.open(running.url) as socket,
    ):
        for _ in range(7):
            await socket.say(type="nonsense")
        assert await socket.closed() == (4014, "too many messages were refused: correct them before you reconnect")


async def test_who_says_no_hello_is_closed(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, hello_timeout_s=0.2) as running,
        aiohttp.ClientSession() as client,
        client.ws_connect(running.url + "/v1/socket") as raw,
    ):
        assert await Socket(raw).closed() == (4002, "no hello arrived within 0.2 s")


async def test_an_idle_session_is_closed_and_one_that_listens_is_not(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, idle_timeout_s=0.4) as running,
        Socket.open(running.url) as idle,
        Socket.open(running.url) as listens,
    ):
        await listens.subscribe("forest")
        assert (await idle.closed())[0] == 4012
        await listens.say(type="ping")
        await listens.hear("pong")


@pytest.mark.parametrize(
    "pieces",
    [
        [b"G", b"E", b"T"],
        [b"GET / HTTP/1.1\r\n", b"Host: localhost\r\n", b"X-A: 1\r\n", b"X-B: 2\r\n"],
        [b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n", b"{", b'"'],
    ],
)
async def test_a_request_that_trickles_is_given_up(shared_redis: EmbeddedServer, pieces: list[bytes]) -> None:
    async with running_gateway(shared_redis.url, request_timeout_s=0.6) as running:
        limit = Deadline(3.0)
        answer = await raw_answer(running.url, *pieces, pause_s=0.25)
        assert not limit.passed
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")
        assert pieces[0].startswith(b"POST") == bool(answer)


async def test_headers_without_end_are_refused(shared_redis: EmbeddedServer) -> None:
    async with running_gateway(shared_redis.url) as running:
        long_line = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"x" * 40_000 + b"\r\n\r\n"
        assert b" 400 Bad Request" in await raw_answer(running.url, long_line)
        many = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: 1\r\n" * 5_000 + b"\r\n"
        assert b" 400 Bad Request" in await raw_answer(running.url, many)


async def test_a_socket_that_takes_nothing_is_closed(shared_redis: EmbeddedServer) -> None:
    async with (
        running_gateway(shared_redis.url, send_timeout_s=0.5, heartbeat_s=60) as running,
        Socket.open(running.url, name="stuck") as stuck,
        Socket.open(running.url, name="talks") as talks,
    ):
        await stuck.subscribe("flood")
        stuck.transport.pause_reading()
        for number in range(400):
            await talks.publish("flood", "x" * 60_000, id=number)
        closed: list[dict[str, object]] = []
        async with patience(20):
            while not closed:
                await asyncio.sleep(0.05)
                closed = [
                    each for each in running.audit if (each["what"], each.get("name")) == ("session-closed", "~stuck")
                ]
        assert closed[0]["code"] in (4008, 1006)  # ours, or TCP's, whose own time-out is as long


async def test_sessions_and_streams_end_when_their_key_is_taken_out(guarded: Running, keys_file: Path) -> None:
    old = minted(keys_file)
    k2 = new_key("EdDSA", "k2")
    keys_file.write_bytes(orjson.dumps({"keys": [*orjson.loads(keys_file.read_bytes())["keys"], k2]}))  # noqa: ASYNC240
    newest = minted(keys_file)
    async with (
        aiohttp.ClientSession() as client,
        Socket.open(guarded.url, token=old, name="alice~old") as ends,
        client.get(f"{guarded.url}/v1/events?region=arena/1&access_token={old}") as stream,
        eventually_open(guarded.url, newest, "alice~new") as goes_on,
    ):
        keys_file.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k3"), k2]}))  # noqa: ASYNC240
        assert await ends.closed(10) == (4001, "the key of this token is no longer valid: get a new token")
        async with patience(10):
            await stream.content.read()
        await goes_on.say(type="ping", id=1)
        await goes_on.hear("pong")


async def test_a_broken_file_of_keys_lets_those_of_before_count_on_and_shows(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file, watch=True)
    keys_file.write_bytes(b'{"keys": [')  # noqa: ASYNC240
    headers = {"Authorization": f"Bearer {token}"}
    async with Socket.open(guarded.url, token=token) as socket, aiohttp.ClientSession() as client:
        async with patience(10):
            while True:
                async with client.get(guarded.url + "/metrics", headers=headers) as response:
                    if "gamecast_gateway_keys_broken 1.0" in await response.text():
                        break
                await asyncio.sleep(0.1)
        async with client.get(guarded.url + "/readyz") as response:
            told = await response.json()
            assert (response.status, told["status"]) == (200, "ready")
            assert told["keys"] == "they cannot be read: the previous keys stay valid"
        assert (await socket.publish("arena/1", 1))["type"] == "ack"


async def test_keys_of_a_provider_are_asked_for_again_and_those_of_before_count_on(
    shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "RETRY_S", 0.0)
    monkeypatch.setattr(KeyUrl.refresh, "__kwdefaults__", {"older_than_s": 0.2, "wait_s": None})
    one, other = (new_key("EdDSA", kid) for kid in ("k1", "k2"))
    published: list[Any] = [web.json_response, {"keys": [public_half(one)]}]

    async def jwks(request: web.Request) -> web.Response:
        answer: web.Response = published[0](published[1])
        return answer

    provider = web.Application()
    provider.router.add_get("/jwks", jwks)
    runner = web.AppRunner(provider)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    keys = KeyUrl(f"http://127.0.0.1:{runner.addresses[0][1]}/jwks")
    await keys.refresh()
    tokens = [
        mint(Keys.from_json(orjson.dumps({"keys": [each]})).signer(), subject="alice", read=["**"], write=["**"])
        for each in (one, other)
    ]
    try:
        async with (
            running_gateway(shared_redis.url, keys=keys) as running,
            Socket.open(running.url, token=tokens[0]) as session,
        ):
            error, _ = await refused_hello(running.url, token=tokens[1])
            assert "does not know" in error["message"]
            published[1] = {"keys": [public_half(one), public_half(other)]}
            async with Socket.open(running.url, token=tokens[1]):  # at once: its key is asked for
                pass
            published[:] = [lambda _: web.Response(status=503), None]
            async with aiohttp.ClientSession() as client, patience(10):
                while True:
                    async with client.get(running.url + "/readyz") as response:
                        if "keys" in (told := await response.json()):
                            break
                    await asyncio.sleep(0.1)
            assert (response.status, told["status"]) == (200, "ready")
            assert (await session.publish("arena/1", 1))["type"] == "ack"
            published[:] = [web.json_response, {"keys": [public_half(other)]}]
            assert (await session.closed(10))[0] == 4001
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("whose", ["subject", "token_id"])
async def test_what_is_revoked_is_refused_at_every_gateway_and_what_it_opened_ends(
    guarded: Running, keys_file: Path, shared_redis: EmbeddedServer, whose: str
) -> None:
    token, others = minted(keys_file, subject=f"mallory-{whose}"), minted(keys_file, subject="bob")
    value = f"mallory-{whose}" if whose == "subject" else verify(token, Keys.read(keys_file)).grant.token_id
    assert value is not None
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as other,
        Socket.open(guarded.url, token=token) as here,
        Socket.open(other.url, token=token) as there,
        Socket.open(guarded.url, token=others) as innocent,
    ):
        await asyncio.to_thread(
            run_cli, "token", "revoke", shared_redis.url, f"--{whose.replace('_', '-')}", value, "--for", "1h"
        )
        assert await here.closed(10) == (4001, "this token was revoked")
        assert await there.closed(10) == (4001, "this token was revoked")
        for url in (guarded.url, other.url):
            error, code = await refused_hello(url, token=token)
            assert (error["message"], code) == ("this token was revoked", 4001)
        assert (await innocent.publish("arena/1", 1))["type"] == "ack"


async def test_a_disconnect_lifts_no_revocation_and_a_pardon_does(
    guarded: Running, keys_file: Path, shared_redis: EmbeddedServer
) -> None:
    token = minted(keys_file, subject="eve")
    for arguments in (("revoke", "--for", "1h"), ("disconnect",), ("revoke", "--for", "1s")):
        await asyncio.to_thread(run_cli, "token", arguments[0], shared_redis.url, "--subject", "eve", *arguments[1:])
        await asyncio.sleep(LOOK_S + 1)
        error, code = await refused_hello(guarded.url, token=token)
        assert (error["message"], code) == ("this token was revoked", 4001)
    await asyncio.to_thread(run_cli, "token", "pardon", shared_redis.url, "--subject", "eve")
    await asyncio.sleep(LOOK_S + 1)
    async with Socket.open(guarded.url, token=token):
        pass


async def test_junk_among_the_revocations_revokes_nothing_and_hides_none(
    guarded: Running, keys_file: Path, shared_redis: EmbeddedServer
) -> None:
    with redis.Redis.from_url(shared_redis.url) as client:
        junk = {"x": "", "subject:alice": "[", "token_id:": '{"kind": 7}', b"\xff": b"\xff", "subject:": "null"}
        client.hset(RedisReplayCache.REVOKED, mapping=junk)
    async with Socket.open(guarded.url, token=minted(keys_file)) as socket:
        await asyncio.to_thread(run_cli, "token", "revoke", shared_redis.url, "--subject", "mallory")
        await asyncio.sleep(LOOK_S + 1)
        assert (await socket.publish("arena/1", 1))["type"] == "ack"
        error, _ = await refused_hello(guarded.url, token=minted(keys_file, subject="mallory"))
        assert error["message"] == "this token was revoked"


async def test_when_the_last_key_is_taken_out_nobody_is_let_in(guarded: Running, keys_file: Path) -> None:
    token = minted(keys_file)
    async with Socket.open(guarded.url, token=token) as socket:
        keys_file.write_text('{"keys": []}')  # noqa: ASYNC240
        assert (await socket.closed(10))[0] == 4001
        error, _ = await refused_hello(guarded.url, token=token)
        assert "does not know" in error["message"]


async def test_who_is_disconnected_may_come_back(
    guarded: Running, keys_file: Path, shared_redis: EmbeddedServer
) -> None:
    token = minted(keys_file, subject="carol", read=["arena/*"])
    for _ in range(2):
        async with Socket.open(guarded.url, token=token, name="carol~1") as socket:
            await asyncio.to_thread(run_cli, "token", "disconnect", shared_redis.url, "--subject", "carol")
            assert await socket.closed(10) == (1001, "an operator ended this session: connect again")


async def test_what_is_revoked_counts_on_while_the_control_redis_is_away(tmp_path: Path, keys_file: Path) -> None:
    with EmbeddedServer() as redis:
        async with running_gateway(redis.url, keys=KeyFile(keys_file)) as running:
            token = minted(keys_file, subject="mallory")
            async with Socket.open(running.url, token=token) as socket:
                await asyncio.to_thread(run_cli, "token", "revoke", redis.url, "--subject", "mallory")
                await socket.closed(10)
            redis.stop()
            await asyncio.sleep(3)
            error, code = await refused_hello(running.url, token=token)
            assert (error["message"], code) == ("this token was revoked", 4001)


async def test_a_session_that_has_lasted_long_enough_is_sent_on_and_goes_on_where_it_was(
    shared_redis: EmbeddedServer,
) -> None:
    async with running_gateway(shared_redis.url, session_s=1.0) as running:
        async with Socket.open(running.url, name="dora") as socket:
            await socket.subscribe("lasting")
            await socket.publish("lasting", 1)
            await socket.take(1)
            assert await socket.closed() == (1001, "the session has reached its maximum age: connect again")
            positions = socket.positions
        async with Socket.open(running.url, name="dora") as again:
            await again.subscribe("lasting", since=positions)
            await again.publish("lasting", 2)
            assert [event["payload"] for event in await again.take(1)] == [2]


async def test_metrics_and_the_dashboard_ask_for_a_token_whoever_asks(guarded: Running, keys_file: Path) -> None:
    async with aiohttp.ClientSession() as client:
        for headers in ({}, {"X-Forwarded-For": "127.0.0.1"}, {"Host": "evil.example"}):
            async with client.get(guarded.url + "/metrics", headers=headers) as response:
                assert response.status == 401
        for watch, status in ((False, 403), (True, 200)):
            headers = {"Authorization": f"Bearer {minted(keys_file, watch=watch)}"}
            async with client.get(guarded.url + "/metrics", headers=headers) as response:
                assert response.status == status


async def test_at_an_address_for_operators_they_need_no_token_and_nobody_elsewhere_sees_anything(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), admin=("127.0.0.1", 0)) as running,
        aiohttp.ClientSession() as client,
    ):
        [port] = running.gateway.guard.admin_ports
        async with client.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert (response.status, "gamecast_gateway_sessions" in await response.text()) == (200, True)
        async with client.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": "evil.example"}) as response:
            assert response.status == 403
        headers = {"Authorization": f"Bearer {minted(keys_file, watch=True)}"}
        async with client.get(running.url + "/metrics", headers=headers) as response:
            assert response.status == 404
        async with client.get(f"http://127.0.0.1:{port}/v1/regions/arena%2F1/events") as response:
            assert response.status == 401  # for this machine, all else is as at the other address


async def test_where_others_than_this_machine_reach_the_operators_address_nothing_else_is_there(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    with pytest.raises(UsageError, match="without keys"):
        async with running_gateway(shared_redis.url, admin=("0.0.0.0", 0)):
            pass
    with pytest.raises(UsageError, match="a port of its own"):
        GatewaySettings(host="127.0.0.2", port=8080, admin=("127.0.0.1", 8080))
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), admin=("0.0.0.0", 0)) as running,
        aiohttp.ClientSession() as client,
    ):
        [port] = running.gateway.guard.admin_ports
        headers = {"Authorization": f"Bearer {minted(keys_file)}"}
        for path, status in (
            ("/metrics", 200),
            ("/readyz", 200),
            ("/v1/regions/arena%2F1/events", 404),
            ("/v1/socket", 404),
        ):
            async with client.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response:
                assert response.status == status, path


@pytest.mark.parametrize(
    ("named", "peer"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7, 127.0.0.2", "203.0.113.7"),
        ("", "127.0.0.1"),
    ],
)
async def test_a_proxy_that_is_trusted_tells_who_asks(
    shared_redis: EmbeddedServer, keys_file: Path, named: str, peer: str
) -> None:
    headers = {"X-Forwarded-For": named} if named else {}
    for proxies, told in (("127.0.0.0/8", peer), ("10.0.0.1", "127.0.0.1")):
        async with (
            running_gateway(
                shared_redis.url, keys=KeyFile(keys_file), trusted_proxies=parse_networks([proxies])
            ) as running,
            aiohttp.ClientSession() as client,
        ):
            async with client.get(running.url + "/v1/regions/arena%2F1/events", headers=headers) as response:
                assert response.status == 401
            assert (await running.is_noted("refused"))["peer"] == told
            async with client.ws_connect(running.url + "/v1/socket", headers=headers) as raw:
                await raw.send_json({"type": "hello", "token": minted(keys_file)})
                assert (await running.is_noted("session-opened"))["peer"] == told


async def test_the_audit_log_tells_who_did_what_and_no_secret(guarded: Running, keys_file: Path) -> None:
    token, private = minted(keys_file), json.loads(keys_file.read_bytes())["keys"][0]["d"]  # noqa: ASYNC240
    async with Socket.open(guarded.url, token=token, name="alice~1") as socket:
        await socket.subscribe("arena/1")
        await socket.publish("lobby", "a payload that nobody is to see")
    query = f"/v1/events?region=lobby&access_token={token}"
    async with aiohttp.ClientSession() as client, client.get(guarded.url + query) as response:
        assert response.status == 403
    await guarded.is_noted("session-closed")
    lines = {line["what"]: line for line in guarded.audit}
    assert lines.keys() >= {"session-opened", "subscribed", "refused", "session-closed"}
    assert lines["subscribed"]["regions"] == ["arena/1"]
    assert lines["session-opened"]["subject"] == "alice"
    assert lines["session-opened"]["token_id"]
    secrets = (token, token.split(".")[2], private, "a payload")
    assert not any(secret in guarded.audit_text for secret in secrets)


async def test_tls_is_served_with_a_certificate_and_nothing_else_then(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with running_gateway(shared_redis.url, tls=tls_context(chain, key)) as running:
        assert running.url.startswith("https://")
        connector = aiohttp.TCPConnector(ssl=trusting)
        async with aiohttp.ClientSession(connector=connector) as client:
            async with client.get(running.url + "/healthz") as response:
                assert response.status == 200
            async with client.ws_connect(running.url + "/v1/socket", origin=running.url) as raw:
                socket = Socket(raw)
                await socket.say(type="hello")
                await socket.hear("welcome")
        async with aiohttp.ClientSession() as stranger:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await stranger.get(running.url + "/healthz")
        old = ssl.create_default_context()
        authority.configure_trust(old)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert ssl.TLSVersion.TLSv1_2 == tls_context(chain, key).minimum_version
    with pytest.raises(UsageError, match="cannot read"):
        tls_context(chain, chain)
