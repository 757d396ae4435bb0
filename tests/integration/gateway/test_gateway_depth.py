"""What the gateway cannot write for its clients, payloads nested too deep above all: nobody else is hurt by it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import orjson
import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.control import SOLE_NODE
from adapters.redis.node import RedisNode
from gamecast.testing import memory_url
from gateway.eventtexts import EventTexts
from sequencing.frames import PublishedFrame
from sequencing.node import Verdict
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience

DEPTHS = (1, 63, 64, 65, 66, 200, 253, 254, 255, 256, 1000, 1024, 1025, 3000, 10_000)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


async def history(client: aiohttp.ClientSession, url: str) -> list[Any]:
    async with client.get(f"{url}/v1/regions/forest/events") as response:
        assert response.status == 200
        found: list[Any] = (await response.json(loads=orjson.loads))["events"]
        return found


async def streamed(client: aiohttp.ClientSession, url: str, count: int) -> list[Any]:
    found: list[Any] = []
    async with client.get(f"{url}/v1/events?region=forest&after=forest%3D0-0") as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                found += orjson.loads(line.removeprefix(b"data: ")).get("events", ())
            if len(found) >= count:
                break
    return found


async def test_readers_of_all_doors_get_what_is_around_a_payload_that_is_nested_too_deep(
    redis_server: EmbeddedServer,
) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="reader") as reader,
        Socket.open(running.url, name="hostile") as hostile,
        aiohttp.ClientSession() as client,
    ):
        await reader.subscribe("forest")
        accepted: list[Any] = []
        for place, depth in enumerate(DEPTHS):
            await hostile.publish("forest", f"before {depth}", 2 * place)
            accepted.append(f"before {depth}")
            text = f'{{"type":"publish","id":{2 * place + 1},"region":"forest","payload":{nested(depth)}}}'
            if depth <= 1020:  # what is no JSON for orjson has no id either
                await hostile.socket.send_str(text)
                reply = await hostile.reply(2 * place + 1)
                assert (reply["type"] == "ack") == (depth <= 64), (depth, reply)
            async with client.post(
                f"{running.url}/v1/regions/forest/events",
                data=f'{{"payload":{nested(depth)}}}',
                headers={"Content-Type": "application/json"},
            ) as response:
                assert response.status == (200 if depth <= 64 else 400), (depth, await response.text())
            accepted += [json.loads(nested(depth))] * 2 if depth <= 64 else []
        assert [event["payload"] for event in await reader.take(len(accepted))] == accepted
        assert [event["payload"] for event in await history(client, running.url)] == accepted
        async with patience(10):
            assert [event["payload"] for event in await streamed(client, running.url, len(accepted))] == accepted


async def test_what_cannot_be_written_is_a_gap_with_its_position(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="server") as cast,
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="reader") as reader,
        aiohttp.ClientSession() as client,
    ):
        await reader.subscribe("forest")
        before = await cast.publish("forest", "before")
        node = RedisNode(SOLE_NODE, redis_server.url)
        body = b"[0,[0],[%b]]" % nested(254).encode()
        [answer] = await node.publish([PublishedFrame("forest", before.epoch, "stranger", 99, 1, 1, body)])
        assert answer.verdict is Verdict.OK
        await node.close()
        await cast.publish("forest", "after")
        one, gap, other = await reader.take(3)
        assert (one["payload"], other["payload"]) == ("before", "after")
        position = f"{before.epoch}-{answer.numbers[1]}"
        assert (gap["position"], gap["gap"]["first"], gap["gap"]["last"]) == (position, position, position)
        assert "cannot be encoded" in gap["gap"]["reason"]
        assert await history(client, running.url) == [one, gap, other]
        async with patience(10):
            assert await streamed(client, running.url, 3) == [one, gap, other]


@pytest.mark.parametrize("kind", ["list", "dict", "mixed"])
async def test_what_is_nested_too_deep_is_refused_where_it_is_published(kind: str) -> None:
    def deep(depth: int) -> Any:
        found: Any = 1
        for level in range(depth):
            found = {"a": found} if kind == "dict" or (kind == "mixed" and level % 2) else [found]
        return found

    async with gamecast.connect(memory_url()) as cast, asyncio.timeout(60):
        await cast.publish("a", deep(64))
        for depth in (65, 254, 255, 5000):
            with pytest.raises(
                gamecast.InvalidPayload, match=r"nested deeper than payload_depth_max=64|Recursion limit"
            ):
                await cast.publish("a", deep(depth))
        await cast.publish("a", [deep(10) for _ in range(500)])
    async with gamecast.connect(memory_url(), payload_depth_max=200) as cast:
        await cast.publish("a", deep(200))
        with pytest.raises(gamecast.InvalidPayload):
            await cast.publish("a", deep(201))
    with pytest.raises(gamecast.UsageError, match="payload_depth_max is 200 at most"):
        gamecast.connect("memory://x", payload_depth_max=201)


async def test_an_error_that_nobody_expected_closes_with_what_to_look_for_in_the_log(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_texts: EventTexts, _item: Any) -> Any:
        raise ValueError("as it must")

    async with running_gateway(redis_server.url) as running:
        with monkeypatch.context() as patched:
            patched.setattr(EventTexts, "encode", broken)
            async with Socket.open(running.url, name="reader") as reader:
                await reader.subscribe("forest")
                await reader.say(type="publish", id=1, region="forest", payload=1)
                code, reason = await reader.closed()
            assert code == 1011
            incident = reason.rpartition(" ")[2]
            assert f"session-broke incident={incident} session=" in caplog.text
            assert "ValueError: as it must" in caplog.text
        async with Socket.open(running.url, name="reader") as again:
            await again.subscribe("forest", since=reader.positions)
            assert [event["payload"] for event in await again.take(1)] == [1]
