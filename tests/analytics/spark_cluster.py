"""A standalone cluster of Spark's, with two workers, on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from adapters.embedded.ports import free_port

WAIT_S = 120
ENVIRONMENT = {
    **os.environ,
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
}


@contextmanager
def cluster(scratch: Path) -> Iterator[str]:
    """Start a master and two workers of a core each; yields the master's URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    local = ["--host", "127.0.0.1"]
    master = start("org.apache.spark.deploy.master.Master", [*local, "--port", str(port), "--webui-port", "0"], scratch)
    try:
        wait_for(port)
        worker = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(scratch / "work"), url]
        workers = [start("org.apache.spark.deploy.worker.Worker", [*local, *worker], scratch) for _ in range(2)]
        try:
            yield url
        finally:
            for each in workers:
                each.terminate()
                each.wait(WAIT_S)
    finally:
        master.terminate()
        master.wait(WAIT_S)


def start(main_class: str, arguments: Sequence[str], scratch: Path) -> subprocess.Popen[bytes]:
    """Start one daemon of Spark's in the foreground of its own process."""
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (scratch / f"{main_class.rpartition('.')[2]}-{time.monotonic_ns()}.log").open("wb") as log:
        return subprocess.Popen([str(script), main_class, *arguments], stdout=log, stderr=log, env=ENVIRONMENT)


def wait_for(port: int) -> None:
    """Return when a process listens on the port."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError("the master does not listen")
