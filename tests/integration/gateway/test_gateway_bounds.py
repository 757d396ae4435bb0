"""What one client can cost a gateway at most: memory for publishes, lines in the log, and what others are answered."""

from __future__ import annotations

import asyncio
import logging
import os
import signal

import aiohttp
import pytest

from adapters.embedded.server import EmbeddedServer
from gateway.refusal import Code, Refusal
from sequencing.errors import NotConnected, UsageError
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


async def test_publishes_that_wait_for_their_receipts_are_bounded_in_bytes(redis_server: EmbeddedServer) -> None:
    payload = "x" * 10_000
    async with (
        running_gateway(redis_server.url, unanswered_bytes_max=25_000) as running,
        Socket.open(running.url) as socket,
        patience(30),
    ):
        assert (await socket.publish("forest", "first", id=99))["type"] == "ack"
        os.kill(redis_server.pid, signal.SIGSTOP)
        try:
            for number in range(10):
                await socket.say(type="publish", id=number, region="forest", payload=payload)
            await asyncio.sleep(0.5)
            published = running.gateway.metrics.registry.get_sample_value("gamecast_gateway_published_bytes_total")
        finally:
            os.kill(redis_server.pid, signal.SIGCONT)
        answers = [await socket.reply(number) for number in range(10)]
        assert {answer["type"] for answer in answers} == {"ack"}
        assert published is not None
        assert 10_000 < published < 40_000


async def test_requests_that_are_written_wrongly_leave_no_tracebacks(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(redis_server.url) as running, aiohttp.ClientSession() as client:
        async with client.get(f"{running.url}/v1/regions/{'x' * 9_000}/events") as response:
            assert response.status == 400
        host, port = running.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(("error", "code"), [(NotConnected(), Code.UNREACHABLE), (UsageError("odd"), Code.MALFORMED)])
def test_a_connection_that_has_ended_is_not_the_clients_mistake(error: UsageError, code: Code) -> None:
    assert Refusal.of(error).code == code
