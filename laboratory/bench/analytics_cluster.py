"""The same analysis on local[2] and on a standalone cluster of two workers on this machine: is it the same?

    python laboratory/bench/analytics_cluster.py [SESSION]

Without SESSION one of 100,000 deliveries is drawn, with every fault. Everything listens on 127.0.0.1 only. Exit status
1 if any figure differs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WAIT_S = 120
GAMECAST = "from cli.main import main; main()"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_NO_DAEMONIZE": "1",
}


def main() -> None:
    """Compare, and print the results as JSON."""
    with tempfile.TemporaryDirectory() as scratch:
        session = Path(sys.argv[1]) if len(sys.argv) > 1 else draw(Path(scratch) / "session")
        here = analyze(session, "local[2]")
        with cluster(Path(scratch)) as url:
            there = analyze(session, url)
    different = sorted(name for name in here["figures"] if here["figures"][name] != there["figures"].get(name))
    print(
        json.dumps(
            {
                "deliveries": here["figures"]["deliveries"],
                "order": here["figures"]["order"],
                "different": different,
                "local_s": here["seconds"],
                "cluster_s": there["seconds"],
                "load_average": os.getloadavg()[0],
            },
            indent=2,
        )
    )
    sys.exit(bool(different))


def draw(directory: Path) -> Path:
    """Draw a session."""
    from analytics.session.synthetic import FAULTS, World, write_session

    return write_session(directory, World(), deliveries=100_000, faults=FAULTS).directory


def analyze(session: Path, master: str) -> dict[str, Any]:
    """Run the command; floats are compared to 12 digits, because sums of floats depend on their order."""
    command = [sys.executable, "-c", GAMECAST, "analyze", str(session), "--causal", "--json", "--master", master]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode not in (0, 1):
        sys.exit(f"{master}: {done.stderr}")
    figures = json.loads(done.stdout, parse_float=lambda text: float(f"{float(text):.12g}"))
    return {"figures": figures, "seconds": time.perf_counter() - began}


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
    import pyspark

    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (scratch / f"{main_class.rpartition('.')[2]}-{time.monotonic_ns()}.log").open("wb") as log:
        return subprocess.Popen([str(script), main_class, *arguments], stdout=log, stderr=log, env=ENVIRONMENT)


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Return when a process listens on the port."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    sys.exit("the master does not listen")


if __name__ == "__main__":
    main()
