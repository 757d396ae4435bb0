"""Real Redis servers for the tests that need them, private ones, on ports of their own; and one Spark."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from tests.integration.accessibility import fetch_axe

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
def held_port() -> Iterator[socket.socket]:
    """A bound socket: its loopback port refuses connections until it listens, and no other process gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held


@pytest.fixture
def three_redis_servers() -> Iterator[EmbeddedServers]:
    """Three fresh servers."""
    with EmbeddedServers(3) as servers:
        yield servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of a test run; a Spark Connect server is part of it."""
    import tests.integration.spark_session  # noqa: F401 - sets what the JVM is started with
    from analytics.jobs.spark import open_spark

    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(free_port()),
    }
    arguments = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
        session = open_spark("local[2]", memory="2g")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_connect(spark: SparkSession) -> str:
    """Where that server is."""
    return f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """The source of axe-core, None where it cannot be fetched."""
    return fetch_axe(tmp_path_factory.mktemp("axe"))
