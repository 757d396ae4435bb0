"""Real Redis servers for the tests that need them, private ones, on ports of their own; and one Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from adapters.embedded.server import EmbeddedServer, EmbeddedServers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of a test run; skips where there is no Java for it."""
    from analytics.jobs.spark import open_spark
    from tests.integration.spark_session import HAS_JAVA, NO_JAVA  # also sets what the JVM is started with

    if not HAS_JAVA:
        pytest.skip(NO_JAVA)
    session = open_spark("local[2]", memory="1g")
    yield session
    session.stop()
