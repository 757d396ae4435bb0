"""Odd requests and odd events at a gateway that listens: what nobody should say, and what seldom happens."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


async def comes_again(url: str) -> bool:
    """Return whether a player subscribes and hears what it publishes; false if it is told to come later."""
    async with Socket.open(url, name="player") as player:
        try:
            await player.subscribe("forest")
            await player.publish("forest", "again")
            return [event["payload"] for event in await player.take(1)] == ["again"]
        except ConnectionError:
            assert player.socket.close_code == 1013
            return False


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
