"""A gateway that stands still for so long that its players count as gone: they notice nothing but the pause."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack

import pytest
import redis

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from adapters.leadership import TTL_MS
from adapters.redis.controlkeys import ControlKeys
from tests.integration.gamecast.test_faults import count_as_gone, plan_for
from tests.integration.gateway_clients import Socket, running_gateway, until_listening

PLAYERS = [f"player-{number}" for number in range(4)]
REGIONS = "forest", "river"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("pause_s", [TTL_MS / 1000 + 3])
async def test_a_gateway_that_stood_still_goes_on_with_everybody(redis_server: EmbeddedServer, pause_s: float) -> None:
    port = free_port()
    command = [sys.executable, "-m", "gamecast", "gateway", redis_server.url, f"--port={port}"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        await until_listening(process.stderr)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(gamecast.connect(redis_server.url, name="server"))
            await server.subscribe(*REGIONS)
            url = f"http://127.0.0.1:{port}"
            players = [await stack.enter_async_context(Socket.open(url, name=name)) for name in PLAYERS]
            for player in players:
                await player.subscribe(*REGIONS)
            published = 0

            async def publish(count: int) -> None:
                nonlocal published
                for _ in range(count):
                    await server.publish(REGIONS[published % 2], published)
                    published += 1

            async def all_came() -> None:
                for player in players:
                    await player.take(published, 40)
                assert [[event["payload"] for event in player.events] for player in players] == [
                    [*range(published)] for _ in players
                ]

            await publish(10)
            await all_came()
            os.kill(process.pid, signal.SIGSTOP)
            try:
                await publish(10)
                await asyncio.sleep(pause_s)
                with redis.Redis.from_url(redis_server.url) as client:
                    assert client.hkeys(ControlKeys.connections) == [b"server"]
                await publish(10)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            await all_came()
            assert (await players[0].publish("river", published))["type"] == "ack"
            published += 1
            await all_came()
            await players[1].subscribe("cave")
            await server.publish("cave", "bats")
            assert (await players[1].take(published + 1))[-1]["payload"] == "bats"
    finally:
        process.kill()
        await process.wait()


async def test_players_whom_the_network_went_on_without_are_told_to_come_again(redis_server: EmbeddedServer) -> None:
    await plan_for(redis_server.url)
    async with (
        gamecast.connect(redis_server.url, name="server", resume_s=0.01) as server,
        running_gateway(redis_server.url) as running,
        Socket.open(running.url, name="player") as player,
    ):
        await player.subscribe(*REGIONS)
        with redis.Redis.from_url(redis_server.url) as client:
            await count_as_gone(client, "~player")
        await asyncio.sleep(0.1)  # longer than it may be away
        await server.declare_overlaps([REGIONS])
        assert (await player.closed())[0] == 1013
        await server.publish("forest", "after")
        async with Socket.open(running.url, name="player") as again:
            await again.subscribe(*REGIONS, since=player.positions)
            assert [event["payload"] for event in await again.take(1)] == ["after"]
