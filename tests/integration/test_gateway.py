"""The gateway's sessions over real Redis: order, resumption, back-pressure."""

from __future__ import annotations

import asyncio

import aiohttp

from adapters.embedded import EmbeddedServer
from tests.integration.gateway_clients import Socket, running_gateway


async def test_what_one_session_publishes_comes_to_the_others_in_order_with_acks(redis_server: EmbeddedServer) -> None:
    async with (
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="bot-1") as one,
        Socket.open(running.url, name="bot-2") as other,
    ):
        await one.subscribe("forest", "river")
        await other.subscribe("forest", "river")
        for number in range(20):
            await one.say(type="publish", id=number, region=("forest", "river")[number % 2], payload=number)
        acks = [await one.until(lambda said, number=number: said.get("id") == number) for number in range(20)]
        assert all(ack["type"] == "ack" and ack["position"] for ack in acks)
        events = await other.take(20)
        assert [event["payload"] for event in events if event["region"] == "forest"] == list(range(0, 20, 2))
        assert await one.take(20) == events
        assert {event["sender"] for event in events} == {"bot-1"}
        assert {ack["position"] for ack in acks[::2]} == {e["position"] for e in events if e["region"] == "forest"}


async def test_the_gateway_tells_whether_it_is_alive_and_ready(redis_server: EmbeddedServer) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        async with client.get(running.url + "/healthz") as response:
            assert (response.status, (await response.json())["status"]) == (200, "alive")
        async with client.get(running.url + "/readyz") as response:
            assert (response.status, (await response.json())["status"]) == (200, "ready")
        await asyncio.to_thread(redis_server.kill)
        async with client.get(running.url + "/readyz") as response:
            assert (response.status, (await response.json())["status"]) == (503, "unreachable")
