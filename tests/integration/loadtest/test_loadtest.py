"""Load tests as a user runs them: locust in its own processes, on real Redis servers, judged, failing when due."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gamecast import blocking
from gamecast.recording.deliverylog import find_delivery_logs, read_delivery_logs, read_published
from sequencing.checkers.stays import judge_stays
from tests.patience import scaled, slowness

# Not by importing it: that would patch this process, and every later test would run in greenlets.
if find_spec("locust") is None:
    pytest.skip("load tests need the 'loadtest' extra", allow_module_level=True)
ROOT = Path(__file__).parents[3]


def seconds(idle: int) -> str:
    """So long that on a busy machine too there is something to judge."""
    return str(round(idle * slowness()))


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """A network of two nodes for all runs: each has regions of its own."""
    with blocking.connect("embedded://?nodes=2") as client:
        yield client.url


def load(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    few = ["--sockets", "0", "--posters", "0", "--settle", "10"]
    command = [sys.executable, "-m", "loadtest", "--out", str(out), *few, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=scaled(100), check=False
    )


def judgement_in(out: Path) -> dict[str, Any]:
    judgement: dict[str, Any] = json.loads((out / "judgement.json").read_bytes())
    return judgement


def requests_in(out: Path) -> dict[tuple[str, str], int]:
    with (out / "stats_stats.csv").open() as file:
        return {(row["Type"], row["Name"]): int(row["Request Count"]) for row in csv.DictReader(file)}


def test_servers_in_one_process_are_judged_while_they_run_and_at_the_end(network: str, tmp_path: Path) -> None:
    ran = load(
        tmp_path, "--network", network, "--seconds", seconds(6), "--servers", "5", "--regions", "4", "--shape", "churn",
        "--logs", str(tmp_path / "logs"),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Every promise was kept." in ran.stdout
    judgement = judgement_in(tmp_path)
    assert judgement["fine"]
    assert judgement["looks"] >= 2
    assert judgement["deliveries"] > judgement["published"] > 50
    assert judgement["run"]["settled_s"] is not None
    requests = requests_in(tmp_path)
    assert requests["publish", "embedded"] >= judgement["published"]
    assert requests["deliver", "embedded"] == judgement["deliveries"]
    assert requests["join", "embedded"] >= 5
    assert (tmp_path / "locust.html").stat().st_size > 10_000
    logs = read_delivery_logs(find_delivery_logs([tmp_path / "logs"]))
    verdict = judge_stays(logs.sequences, logs.stays, read_published(tmp_path / "logs" / "published.ndjson"))
    assert verdict.fine
    assert verdict.deliveries == judgement["deliveries"]


def test_servers_clients_and_publishers_come_and_go_at_a_gateway_that_is_started_for_them(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="the gateway needs the 'gateway' extra")
    ran = load(
        tmp_path, "--seconds", seconds(7), "--servers", "3", "--sockets", "5", "--posters", "2", "--regions", "4",
        "--shape", "churn", "--processes", "2", "--nodes", "2",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    judgement = judgement_in(tmp_path)
    assert judgement["fine"]
    assert judgement["publishers_unchecked"] == 0
    requests = requests_in(tmp_path)
    for way in ("embedded", "socket", "http"):
        assert requests["publish", way] > 20
    for way in ("embedded", "socket"):
        assert requests["deliver", way] > 50


def test_a_match_is_played_by_servers_of_two_processes_that_join_and_leave(network: str, tmp_path: Path) -> None:
    ran = load(
        tmp_path, "--network", network, "--seconds", seconds(7), "--servers", "4", "--workload", "trace",
        "--speed", "20", "--processes", "2",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    judgement = judgement_in(tmp_path)
    assert judgement["fine"]
    assert judgement["published"] > 50
    assert requests_in(tmp_path)["join", "embedded"] > 4, "servers went where their players are"


def test_wrong_use_and_a_network_that_is_not_there_have_their_exit_status(tmp_path: Path) -> None:
    assert load(tmp_path, "--network", "redis://127.0.0.1:1").returncode == 3
    assert load(tmp_path, "--servers", "0").returncode == 2
    wrong = load(tmp_path, "--network", "redis://127.0.0.1:1", "--trace", "match")
    assert wrong.returncode in (2, 3)
