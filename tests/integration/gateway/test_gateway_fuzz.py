"""Nonsense over WebSocket and HTTP ends with no 500, no crash and no leak; see gateway_fuzz.py for more of it."""

from __future__ import annotations

import asyncio

import pytest

from adapters.embedded.server import EmbeddedServer
from tests.integration.gateway_clients import running_gateway
from tests.integration.gateway_fuzz import fuzz


@pytest.mark.parametrize("seed", [1, 2])
async def test_nonsense_does_no_harm(redis_server: EmbeddedServer, seed: int) -> None:
    async with running_gateway(redis_server.url):
        idle = len(asyncio.all_tasks())
    found = await fuzz(redis_server.url, 1_000, seed)
    assert found["still_serves"]
    assert found["complaints"] == []
    assert "500" not in found["requests"], found
    assert "internal" not in found["sockets"], found
    assert found["requests"].keys() >= {"200", "400", "404", "405"}
    assert found["sockets"].keys() >= {"acks", "malformed", "subscribed"}
    assert found["tasks"] <= idle + 10
