"""Odd requests and odd events at a gateway that listens: what nobody should say, and what seldom happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import orjson
import pytest
from click.testing import CliRunner

import gamecast
from adapters.embedded.server import EmbeddedServer
from cli.main import cli
from gateway.tokens import KeyFile
from sequencing.errors import UsageError
from tests.integration.gateway_clients import Socket, minted, running_gateway
from tests.patience import patience


async def comes_again(url: str) -> bool:
    """Return whether a player subscribes and hears what it publishes; false if it gets a gap, or is to come later."""
    try:
        async with Socket.open(url, name="player") as player:
            await player.subscribe("forest")
            await player.publish("forest", "again")
            return [event.get("payload") for event in await player.take(1)] == ["again"]
    except ConnectionError as error:
        if str(error).startswith("closed with 1013:"):
            return False
        raise


@pytest.mark.parametrize("is_subscribed", [True, False])
async def test_players_come_again_after_the_control_redis_lost_its_data(is_subscribed: bool) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as server, running_gateway(server.url) as running:
        address = running.url + "/v1/regions/forest/events"
        async with (
            Socket.open(running.url, name="player") as player,
            aiohttp.ClientSession() as client,
        ):
            if is_subscribed:
                await player.subscribe("forest")
            await player.publish("forest", 1)
            async with client.post(address, json={"payload": 2}) as response:
                assert response.status == 200
            server.kill()
            await server.restart_async()
            await player.say(type="subscribe", id=1, regions=["river"])
            code, reason = await player.closed(30)
            assert (code, reason) == (1013, "the network lost its data: subscribe again, without since")
            async with patience(30):
                while not await comes_again(running.url):  # noqa: ASYNC110 - another task acts
                    await asyncio.sleep(0.2)
            async with patience(20):
                while True:
                    async with client.post(address, json={"payload": 4}) as response:
                        if response.status == 200:
                            break
                        assert (await response.json())["error"]["code"] in ("unreachable", "uncertain")
                    await asyncio.sleep(0.1)


async def raw_answer(url: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        writer.write(request)
        async with patience(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("origins", [(), ("*",)])
@pytest.mark.parametrize(
    "origin",
    [b"http://[", b"http://[::1", b"http://[x]", b"http://evil\xff.example", "http://évil".encode(), b"[", b"\xff"],
)
async def test_odd_origins_are_refused(
    shared_redis: EmbeddedServer, origins: tuple[str, ...], origin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(shared_redis.url, origins=origins) as running:
        request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: %b\r\nConnection: close\r\n\r\n" % origin
        answer = await raw_answer(running.url, request)
        if origins and origin == b"[":  # it is none of a browser's, and can be read
            assert answer.startswith(b"HTTP/1.1 200"), answer
        else:
            assert answer.startswith(b"HTTP/1.1 403"), answer
    assert "request-broke" not in caplog.text


async def test_a_broken_key_file_shows_though_no_token_comes(
    shared_redis: EmbeddedServer, keys_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_keys() -> None:
        keys_file.write_text("{")

    async with running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running, aiohttp.ClientSession() as client:
        break_keys()
        async with patience(10):
            while True:
                async with client.get(running.url + "/readyz") as response:
                    if "keys" in await response.json():
                        break
                await asyncio.sleep(0.1)
    assert caplog.text.count("keys-broken") == 1


async def test_the_address_for_operators_is_called_by_no_name_that_nobody_gave_it(
    shared_redis: EmbeddedServer, keys_file: Path
) -> None:
    async with (
        running_gateway(
            shared_redis.url,
            keys=KeyFile(keys_file),
            admin=("0.0.0.0", 0),
            admin_names=("metrics.internal",),
        ) as running,
        aiohttp.ClientSession() as client,
    ):
        [port] = running.gateway.guard.admin_ports
        for host, status in (
            ("evil.example", 403),
            ("evil.example:9100", 403),
            ("10.0.0.7:9100", 200),
            ("[fd00::7]:9100", 200),
            ("localhost", 200),
            ("Metrics.internal:9100", 200),
        ):
            async with client.get(f"http://127.0.0.1:{port}/metrics", headers={"Host": host}) as response:
                assert response.status == status, host


async def test_answers_that_are_remembered_are_bounded(shared_redis: EmbeddedServer, keys_file: Path) -> None:
    authorization = {"Authorization": f"Bearer {minted(keys_file)}"}
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file), idempotency_events_max=10) as running,
        aiohttp.ClientSession(headers=authorization) as client,
    ):
        statuses = []
        for number in range(6):
            headers = {"Idempotency-Key": f"bounded-{keys_file}-{number}"}
            async with client.post(
                running.url + "/v1/regions/kept/events", headers=headers, json={"payload": 1}
            ) as response:
                statuses.append(response.status)
        assert statuses == [200] * 5 + [429]
        async with client.post(running.url + "/v1/regions/kept/events", json={"payload": 1}) as response:
            assert response.status == 200


@pytest.mark.parametrize("letter", ["\u3164", "\ufe0f", "\u115f", "\u2800"])
async def test_names_of_sessions_have_no_letter_that_nobody_sees(
    shared_redis: EmbeddedServer, keys_file: Path, letter: str
) -> None:
    async with (
        running_gateway(shared_redis.url, keys=KeyFile(keys_file)) as running,
        aiohttp.ClientSession() as client,
        client.ws_connect(running.url + "/v1/socket") as raw,
    ):
        socket = Socket(raw)
        await socket.say(type="hello", token=minted(keys_file), name=f"alice~{letter}phone")
        error = await socket.hear("error")
        assert (error["code"], "invisible letters" in error["message"]) == ("malformed", True)


@pytest.mark.parametrize("command", ["revoke", "disconnect"])
@pytest.mark.parametrize("subject", ["ma*", "~mallory", "mallory~phone", "mallory\u3164", ""])
def test_what_is_no_holders_name_is_not_revoked(shared_redis: EmbeddedServer, command: str, subject: str) -> None:
    result = CliRunner().invoke(cli, ["token", command, shared_redis.url, "--subject", subject])
    assert isinstance(result.exception, UsageError), result.output
    assert "--subject" in str(result.exception)


@pytest.mark.parametrize("bytes_max", [262_144, 100_000])
async def test_history_pages_have_a_bound_of_bytes_and_leave_nothing_out(
    shared_redis: EmbeddedServer, tmp_path: Path, bytes_max: int
) -> None:
    region = f"pages/{tmp_path.name}"
    sizes = [60_000] * 12 + [10] * 300 + [60_000, 10] * 5
    async with gamecast.connect(shared_redis.url) as server:
        await asyncio.gather(*(server.publish(region, [number, "x" * size]) for number, size in enumerate(sizes)))
    async with (
        running_gateway(shared_redis.url, message_bytes_max=bytes_max) as running,
        aiohttp.ClientSession() as client,
    ):
        came, after, pages = list[int](), "0-0", list[int]()
        async with patience(20):
            while len(came) < len(sizes):
                address = f"{running.url}/v1/regions/{region.replace('/', '%2F')}/events?limit=1000&after={after}"
                async with client.get(address) as response:
                    text = await response.read()
                assert len(text) <= bytes_max + 200
                page = orjson.loads(text)
                assert page["events"]
                came += [event["payload"][0] for event in page["events"]]
                pages.append(len(page["events"]))
                after = page["next"]
                assert page["more"] or len(came) == len(sizes)
    assert came == list(range(len(sizes)))
    assert max(pages) > 100


async def test_an_event_larger_than_a_history_page_comes_alone(shared_redis: EmbeddedServer, tmp_path: Path) -> None:
    region = f"alone-{tmp_path.name}"
    async with gamecast.connect(shared_redis.url) as server:
        for number in range(3):
            await server.publish(region, [number, "x" * 5_000])
    async with running_gateway(shared_redis.url, message_bytes_max=1_000) as running, aiohttp.ClientSession() as client:
        after = "0-0"
        for number in range(3):
            async with client.get(f"{running.url}/v1/regions/{region}/events?after={after}") as response:
                page = await response.json()
            assert [event["payload"][0] for event in page["events"]] == [number]
            after = page["next"]
