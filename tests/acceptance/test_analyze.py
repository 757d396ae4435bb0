"""`gamecast analyze` as its user calls it, on logs that somebody else wrote."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.spark_session import needs_spark
from tests.patience import scaled

GAMECAST = [sys.executable, "-m", "gamecast"]
MATRIX = ",s1,s2,s3\ns1,0,10,20\ns2,10,0,30\ns3,20,30,0\n"


def line(subscriber: str, index: int, event: str, region: str, sender: str, took_ms: int) -> str:
    sent = 1_700_000_000_000_000_000 + int(event[1:]) * 1_000_000
    row = {"subscriber": subscriber, "index": index, "event": event, "region": region, "sender": sender}
    return json.dumps({**row, "sent_at_ns": sent, "delivered_at_ns": sent + took_ms * 1_000_000}) + "\n"


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*GAMECAST, "analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(500))


@needs_spark
@pytest.mark.timeout(600)
def test_logs_of_which_some_are_broken_are_analysed_with_what_is_whole(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    one = [line("s1", 0, "e0", "a", "s2", 15), line("s1", 1, "e1", "b", "s3", 60), line("s1", 2, "e2", "a", "s1", 7)]
    other = [line("s2", 0, "e1", "b", "s3", 30), line("s2", 1, "e0", "a", "s2", 3), line("s2", 2, "e2", "a", "s1", 20)]
    (logs / "s1.jsonl").write_text("".join(one))
    (logs / "copy-of-s1.jsonl").write_text("".join(one))
    (logs / "s2.jsonl.gz").write_bytes(gzip.compress("".join(other).encode()))
    (logs / "cut.jsonl").write_text(line("s3", 0, "e0", "a", "s2", 45) + line("s3", 1, "e2", "a", "s1", 30)[:40])
    (logs / "cut.jsonl.gz").write_bytes(gzip.compress("".join(other).encode() * 50)[:-20])
    (logs / "empty.jsonl").write_text("")
    (tmp_path / "matrix.csv").write_text(MATRIX)
    done = analyze(
        logs, "--master", "local[1]", "--direct", tmp_path / "matrix.csv", "--json", "--out", tmp_path / "out"
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["subscribers"], found["regions"], found["deliveries"]) == (3, 2, 7)
    assert found["stretch"]["by_destination"] == pytest.approx({"s1": (15 + 60) / 30, "s2": (30 + 20) / 40, "s3": 1.5})
    assert (found["stretch"]["p50"], found["stretch"]["max"]) == (1.5, 2.5)
    assert {entry["reason"].split(",")[0]: entry["count"] for entry in found["quarantine"]} == {
        "the same content as another file": 1,
        "neither a delivery nor a stay": 1,
        "truncated gzip": 1,
        "empty": 1,
    }
    assert found["quarantined"] == 4
    order = found["order"]
    assert (order["inversions"], order["cycles"], order["lost"]) == (1, 1, None)
    assert set(order["first"]["events"]) == {"e0", "e1"}
    assert done.returncode == 1
    assert (tmp_path / "out" / "report.html").is_file()


def test_what_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    done = analyze(tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gamecast: {tmp_path / 'nowhere'} does not exist\n"


def test_what_has_no_deliveries_is_refused_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # Spark would not start
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "empty.jsonl").write_text("")
    done = analyze(tmp_path / "logs")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gamecast: there are no deliveries to analyse")


def test_a_report_that_is_wanted_and_not_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(line("s1", 0, "e0", "a", "s2", 15))
    done = analyze(tmp_path / "log.jsonl", "--out", tmp_path / "out", "--no-report")
    assert done.returncode == 2
    assert "--no-report" in done.stderr
