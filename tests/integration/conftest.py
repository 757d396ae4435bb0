"""Real Redis servers for the tests that need them: private ones, on ports of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.embedded import EmbeddedServer, EmbeddedServers


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[EmbeddedServer]:
    """One server for tests that clean up what they touch."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[EmbeddedServer]:
    """A fresh server."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def three_redis_servers() -> Iterator[EmbeddedServers]:
    """Three fresh servers."""
    with EmbeddedServers(3) as servers:
        yield servers
