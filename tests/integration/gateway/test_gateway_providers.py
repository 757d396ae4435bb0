"""Identity providers that are down, hang, or publish no keys any more, and what the gateway does then."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from adapters.embedded.server import EmbeddedServer
from gateway import guard
from gateway.keyurl import KeyUrl
from gateway.tokens import Keys, mint, new_key, public_half
from tests.integration.gateway_clients import Socket, listening, running_gateway
from tests.patience import patience


def token_of(key: dict[str, str]) -> str:
    signer = Keys.from_json(orjson.dumps({"keys": [key]})).signer()
    return mint(signer, subject="alice", read=["**"], write=["**"])


class Provider:
    """Publishes keys; may hang."""

    def __init__(self, *keys: dict[str, str]) -> None:
        self.keys = [public_half(key) for key in keys]
        self.answers = asyncio.Event()
        self.answers.set()

    @asynccontextmanager
    async def listening(self, held: socket.socket | None = None) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/jwks", self._jwks)
        async with listening(application, held) as url:
            yield f"{url}/jwks"

    async def _jwks(self, request: web.Request) -> web.Response:
        await self.answers.wait()
        return web.json_response({"keys": self.keys})


async def hello(url: str, token: str) -> tuple[dict[str, Any], int | None]:
    """Return what a hello is answered, and the close code."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url + "/v1/socket") as raw:
        await raw.send_json({"type": "hello", "token": token})
        said = await raw.receive_json()
        if said["type"] == "welcome":
            return said, None
        await raw.receive()
        return said, raw.close_code


async def test_a_provider_that_publishes_an_empty_set_revokes_all_keys(
    shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyUrl.refresh, "__kwdefaults__", {"older_than_s": 0.2, "wait_s": None})
    key = new_key("EdDSA", "k1")
    provider = Provider(key)
    async with provider.listening() as url:
        keys = KeyUrl(url)
        await keys.refresh()
        async with (
            running_gateway(shared_redis.url, keys=keys) as running,
            Socket.open(running.url, token=token_of(key)) as session,
        ):
            provider.keys = []
            assert (await session.closed(10))[0] == 4001
            said, code = await hello(running.url, token_of(key))
            assert (said["code"], code) == ("unauthorized", 4001)


async def test_a_provider_that_is_down_at_the_start_is_waited_for(
    shared_redis: EmbeddedServer, held_port: socket.socket
) -> None:
    key = new_key("EdDSA", "k1")
    command = ["-m", "gamecast", "gateway", shared_redis.url, "--port", "0"]
    gateway = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        "--keys",
        f"http://127.0.0.1:{held_port.getsockname()[1]}/jwks",
        stderr=subprocess.PIPE,
    )
    assert gateway.stderr is not None
    try:
        told = b""
        async with patience(30):
            while (found := re.search(rb"listens at (http://\S+)", told)) is None:
                line = await gateway.stderr.readline()
                assert line, told
                told += line
        assert b"WARNING gamecast.daemon.gateway: cannot read the keys of" in told
        url = found[1].decode()
        async with aiohttp.ClientSession() as client, client.get(url + "/readyz") as response:
            assert (response.status, "has not answered" in (await response.json())["keys"]) == (503, True)
        said, code = await hello(url, token_of(key))
        assert (said["code"], said["retriable"], code) == ("unreachable", True, 1013)
        async with Provider(key).listening(held_port), patience(20):
            while (await hello(url, token_of(key)))[1] is not None:  # noqa: ASYNC110 - another process or task acts
                await asyncio.sleep(0.1)
    finally:
        gateway.terminate()
        async with patience(20):
            told += await gateway.stderr.read()
            assert await gateway.wait() == 0, told


async def test_a_provider_that_hangs_costs_unknown_keys_little(
    shared_redis: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "RETRY_S", 0.0)
    known, unknown = new_key("EdDSA", "k1"), new_key("EdDSA", "k2")
    provider = Provider(known)
    async with provider.listening() as url:
        keys = KeyUrl(url)
        await keys.refresh()
        async with running_gateway(shared_redis.url, keys=keys) as running:
            provider.answers.clear()
            took = []
            for token in (token_of(unknown), token_of(known)):
                begun = time.monotonic()
                await hello(running.url, token)
                took.append(time.monotonic() - begun)
            assert took[0] < 3
            assert took[1] < 3
            provider.answers.set()
            provider.keys.append(public_half(unknown))
            async with patience(20):
                while (await hello(running.url, token_of(unknown)))[1] is not None:  # noqa: ASYNC110 - another process or task acts
                    await asyncio.sleep(0.1)
