"""Clients whose sockets take nothing: they keep neither a gateway from ending, nor a place among its connections."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import Socket, running_gateway, until_listening
from tests.patience import Deadline, patience, scaled

FLOOD = 400
TEXT = "x" * 30_000
"""So many of it are more than sockets and buffers hold."""
SMALL: dict[str, Any] = {"inbox_events_max": 50, "outbox_events_max": 20}


@asynccontextmanager
async def stuck_session(url: str) -> AsyncIterator[None]:
    async with Socket.open(url, name="stuck") as stuck:
        await stuck.subscribe("flood")
        connection = stuck.socket._response.connection
        assert connection is not None
        transport = connection.transport
        assert transport is not None
        transport.pause_reading()
        try:
            yield
        finally:
            transport.abort()


@asynccontextmanager
async def stuck_request(url: str, path: str) -> AsyncIterator[None]:
    """Ask for something, and read no more than that it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1_024)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await reader.readuntil(b" 200 OK")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        yield
    finally:
        writer.transport.abort()


def stuck_stream(url: str) -> AbstractAsyncContextManager[None]:
    return stuck_request(url, "/v1/events?region=flood")


def stuck_history(url: str) -> AbstractAsyncContextManager[None]:
    return stuck_request(url, f"/v1/regions/flood/events?limit={FLOOD}")


async def flood(redis_url: str, *readers: Socket) -> None:
    """Publish more than sockets and buffers hold; who reads gets it."""
    async with gamecast.connect(redis_url, name="talks") as talks:
        for _ in range(FLOOD):
            await talks.publish("flood", TEXT)
        for reader in readers:
            await reader.take(FLOOD, 60)


@pytest.mark.parametrize("is_flooded", [True, False])
async def test_a_gateway_ends_in_time_though_clients_take_nothing(
    redis_server: EmbeddedServer, is_flooded: bool
) -> None:
    url = redis_server.url
    await flood(url)
    async with AsyncExitStack() as clients:
        async with running_gateway(url, drain_s=2.0, heartbeat_s=60, **SMALL) as running:
            for stuck in (stuck_session, stuck_stream, stuck_history):
                await clients.enter_async_context(stuck(running.url))
            if is_flooded:
                async with Socket.open(running.url, name="quick") as quick:
                    await quick.subscribe("flood")
                    await flood(url, quick)
            limit = Deadline(5.0)  # the bound is 3 s
        assert not limit.passed
        assert (await running.is_noted("session-closed", name="~stuck"))["code"] == 1001
        await running.is_noted("stream-closed")


async def test_a_stream_whose_first_word_is_not_taken_ends_with_the_gateway(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    await flood(url)
    async with AsyncExitStack() as clients:
        async with running_gateway(url, drain_s=600.0, heartbeat_s=60, **SMALL) as running:
            delivered = asyncio.Event()
            running.gateway.taps.append(lambda batch: delivered.set())
            path = "/v1/events?region=flood&after=flood%3D0-0"
            await clients.enter_async_context(stuck_request(running.url, path))
            await asyncio.wait_for(delivered.wait(), scaled(20))
            limit = Deadline(4.0)
        assert not limit.passed  # of 600 s, which nobody needed


async def test_a_gateway_process_ends_well_though_a_client_takes_nothing(redis_server: EmbeddedServer) -> None:
    port = free_port()
    command = [sys.executable, "-m", "gamecast", "gateway", redis_server.url]
    options = [f"--port={port}", *(f"--limit={name}={value}" for name, value in {**SMALL, "drain_s": 0.3}.items())]
    process = await asyncio.create_subprocess_exec(*command, *options, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        await until_listening(process.stderr)
        url = f"http://127.0.0.1:{port}"
        async with stuck_session(url):
            async with Socket.open(url, name="quick") as quick:
                await quick.subscribe("flood")
                await flood(redis_server.url, quick)
            process.terminate()
            assert await asyncio.wait_for(process.wait(), scaled(10)) == 0, (await process.stderr.read()).decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system cannot tell who takes nothing")
async def test_a_connection_whose_client_takes_nothing_of_an_answer_is_given_to_others(
    redis_server: EmbeddedServer,
) -> None:
    await flood(redis_server.url)
    async with (
        running_gateway(redis_server.url, connections_max=1, send_timeout_s=0.5) as running,
        stuck_history(running.url),
        aiohttp.ClientSession() as client,
    ):
        async with patience(20):
            refused = 0
            while True:
                try:
                    async with client.get(running.url + "/healthz") as response:
                        assert response.status == 200
                        break
                except aiohttp.ClientError:
                    refused += 1
                    await asyncio.sleep(0.05)
        assert refused, "there was room at once"
