"""What the tests of the gateway share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from adapters.embedded.server import EmbeddedServer
from gateway.tokens import new_key
from tests.integration.gateway_clients import Running, running_gateway


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """A file with the key of tokens."""
    file = tmp_path / "keys.json"
    file.write_bytes(orjson.dumps({"keys": [new_key("EdDSA", "k1")]}))
    return file


@pytest.fixture
async def running(redis_server: EmbeddedServer) -> AsyncIterator[Running]:
    """A gateway that asks for no tokens."""
    async with running_gateway(redis_server.url) as running:
        yield running
