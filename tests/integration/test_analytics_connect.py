"""The analysis through Spark Connect: a server of its own, and the same figures as in this process's Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="Spark Connect speaks gRPC (the analytics extra)")

from adapters.embedded.ports import free_port
from analytics.session.synthetic import FAULTS, World, write_session
from tests.integration.spark_session import needs_spark
from tests.patience import Deadline, scaled

GAMECAST = [sys.executable, "-m", "gamecast"]
START_S_MAX = 90
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture
def connect_url(tmp_path: Path) -> Iterator[str]:
    """A Spark Connect server on one core, bound to this machine."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    command: list[str | Path] = [home / "bin" / "spark-submit", "--class", SERVER, "--master", "local[1]"]
    for setting in (
        "spark.connect.grpc.binding.address=127.0.0.1",
        f"spark.connect.grpc.binding.port={port}",
        "spark.ui.enabled=false",
    ):
        command += ["--conf", setting]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"], stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        until_it_answers(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def until_it_answers(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    due = Deadline(START_S_MAX)
    while not due.passed and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(log.read_text()[-2000:])


def analysed(session: Path, master: str) -> dict[str, Any]:
    command = [*GAMECAST, "analyze", str(session), "--master", master, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(300))
    assert done.returncode in (0, 1), done.stderr  # 1: the planted faults were found
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_spark
@pytest.mark.timeout(600)
def test_spark_connect_gives_the_figures_of_a_spark_here(connect_url: str, tmp_path: Path) -> None:
    write_session(
        tmp_path / "night",
        World(subscribers=12, regions=9, regions_each=3, seed=5),
        deliveries=3000,
        faults=FAULTS,
        deliveries_a_file=2000,
    )
    there, here = (analysed(tmp_path / "night", master) for master in (connect_url, "local[1]"))
    assert there == here
    assert there["order"]["inversions"] > 0
