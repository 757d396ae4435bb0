"""A server that hangs, which takes connections and answers nothing, is not told as one that is down."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection
from cli import doctor as doctor_command
from gamecast import Unreachable
from tests.integration.networks import register
from tests.patience import patience, scaled, until


async def test_a_server_that_hangs_and_one_that_is_down_are_told_apart(redis_server: EmbeddedServer) -> None:
    connection = RedisConnection(redis_server.url)
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable, match=r"accepted the connection but did not answer for 0\.3 s"):
            await connection.call("PING", timeout_s=0.3)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
        await connection.close()
    down = RedisConnection(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(Unreachable, match=r"nothing answers at .*: is a server running there\?"):
        await down.call("PING")
    await down.close()


async def test_a_hung_node_shows_in_the_status_soon_and_its_regions_and_subscribers_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adapters.redis.probe.ANSWER_S_MAX", 0.5)
    monkeypatch.setattr(doctor_command, "LOOK_AGAIN_S", 0.1)
    async with EmbeddedServer() as server, EmbeddedServer() as node:
        await register(server.url, {"n1": node.url})
        states: list[tuple[float, str, str]] = []
        async with gamecast.connect(server.url, name="eu-1", publish_timeout_s=4) as client, patience(60):

            @client.on_status
            def note(state: gamecast.Status) -> None:
                states.append((time.monotonic(), state.name, str(state.error)))

            await client.subscribe("forest", "river")
            await client.publish("forest", 1)
            os.kill(node.pid, signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                futures = [client.publish_async("forest", number) for number in range(3)]
                await asyncio.sleep(0)
                futures += [client.publish_async("forest", number) for number in range(3)]
                findings = await doctor_command.findings_of(server.url)
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
            finally:
                os.kill(node.pid, signal.SIGCONT)
            at, name, error = states[0]
            assert name == "disconnected"
            assert "hangs" in error
            assert at - stopped < scaled(4)
            [problem] = [each for each in findings if each.subject == "n1" and each.level == "problem"]
            assert "2 regions stand still (forest, river), subscribed to by eu-1" in problem.seen
            assert "start the server" not in problem.advice
            assert "kill -CONT" in problem.advice
            assert not any("have reached the egress" in each.seen for each in findings if each.level == "ok")
            assert any("forest, river: it is unknown whether" in each.seen for each in findings)
            for outcome in outcomes:
                assert isinstance(outcome, gamecast.GamecastError)
                assert ("may or may not" in str(outcome)) is not outcome.definite
            await client.publish("river", 2)
            await until(lambda: client.status.name == "connected")
