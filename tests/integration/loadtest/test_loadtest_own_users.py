"""Load tests with users of one's own, as a game programmer writes them: locust's own command, page and workers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gamecast import blocking
from gamecast.event import Event
from tests.patience import Deadline, scaled, slowness

if find_spec("locust") is None:
    pytest.skip("load tests need the 'loadtest' extra", allow_module_level=True)
ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
GUARANTEES = {
    *("order kept", "each publisher's order kept", "nothing lost", "nothing twice", "nothing unexpected"),
    "every report arrived",
}
MINE = """\
from locust import between
from gamecast.loadtest import GameServerUser

class Zone(GameServerUser):
    wait_time = between(0.02, 0.1)

    def regions(self):
        return ["town", f"zone-{self.number % 2}"]

    def payload(self, region):
        return {"type": "move", "of": self.number, "to": region}
"""
SECONDS = str(round(4 * slowness()))


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    with blocking.connect("embedded://?nodes=2") as client:
        yield client.url


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return file


def locust(mine: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "locust", "-f", str(mine), "--loglevel", "WARNING", "--only-summary", *arguments]


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=scaled(50), check=False
    )


@contextmanager
def started(command: list[str], directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def judge_rows(report: str) -> dict[str, int]:
    """Return the findings in locust's HTML report, each with its failures."""
    found = re.search(r"window.templateArgs = (.*)", report)
    assert found is not None
    rows = json.loads(found[1])["requests_statistics"]
    return {row["name"]: row["num_failures"] for row in rows if row["method"] == "judge"}


def test_users_of_ten_lines_are_judged_and_others_get_their_payloads(network: str, mine: Path, tmp_path: Path) -> None:
    assert len([line for line in MINE.splitlines() if line]) <= 10
    with blocking.connect(network, name="other") as other:
        other.subscribe("town")
        command = locust(
            mine, "--headless", "--network", network, "--users", "4", "--seconds", SECONDS, "--processes", "2",
            "--master-port", (port := free_port()), "--master-bind-port", port, "--master-bind-host", "127.0.0.1",
            "--html", "report.html", "--judgement", "judgement.json", "--run", "mine",
        )  # fmt: skip
        ran = run(command, tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        item = other.fetch(1, timeout=scaled(5))[0]
    assert isinstance(item, Event)
    assert (item.payload["type"], item.payload["to"]) == ("move", "town")
    assert item.payload["of"] in range(4)
    assert item.payload["loadtest"]["run"] == "mine"
    judgement = json.loads((tmp_path / "judgement.json").read_bytes())
    assert judgement["fine"]
    assert judgement["deliveries"] > judgement["published"] > 20
    assert judgement["subscribers"] == 4
    assert "4 users (Zone)" in ran.stdout
    assert judge_rows((tmp_path / "report.html").read_text()) == dict.fromkeys(GUARANTEES, 0)


class Page:
    """Locust's web page, by its HTTP endpoints."""

    def __init__(self, port: str) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=scaled(5)) as answer:
            return str(answer.read().decode())

    def post(self, path: str, **form: object) -> str:
        body = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(f"{self.url}{path}", data=body, timeout=scaled(20)) as answer:
            return str(answer.read().decode())

    def until(self, condition: Callable[[], Any], seconds: float = 30) -> Any:
        deadline = Deadline(seconds)
        while deadline.look(0.4) > 0:
            try:
                if result := condition():
                    return result
            except urllib.error.URLError:
                pass
            time.sleep(0.2)
        raise AssertionError("it did not come to that")

    def judgement(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/judgement"))
        return found

    def delivered(self) -> int:
        # Not /stats/requests, which is cached for seconds.
        rows = [line.split(",") for line in self.get("/stats/requests/csv").splitlines()]
        return sum(int(row[2]) for row in rows if row[0] == "deliver")


@pytest.mark.parametrize("workers", [2])
def test_each_start_on_the_page_is_a_run_of_its_own(network: str, mine: Path, tmp_path: Path, workers: int) -> None:
    port, master = free_port(), free_port()
    command = locust(
        mine, "--web-host", "127.0.0.1", "--web-port", port, "--network", network, "--run", f"page{workers}",
    )  # fmt: skip
    if workers:
        command += ["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", master]
    worker = locust(mine, "--worker", "--master-host", "127.0.0.1", "--master-port", master)
    page = Page(port)
    with started(command, tmp_path) as process:
        page.until(lambda: page.get("/"))
        with ExitStack() as stack:
            for _ in range(workers):
                stack.enter_context(started(worker, tmp_path))
            if workers:
                page.until(lambda: json.loads(page.get("/worker-count"))["worker_count"] == workers)
            assert page.judgement() == {}
            page.post("/swarm", user_count=3, spawn_rate=10)
            page.until(lambda: page.delivered() > 20)
            page.post("/stop")
            first = page.until(page.judgement)
            assert first["subscribers"] >= 3  # and one for each session that a busy machine has cost a user
            assert first["inversions"] == first["duplicated"] == 0
            assert "lost" not in first, "events were in flight when it was stopped"
            assert judge_rows(page.get("/stats/report"))["nothing lost: not judged"] == 0

            page.post("/swarm", user_count=4, spawn_rate=10, run_time=f"{SECONDS}s")
            second = page.until(lambda: (now := page.judgement())["name"] != first["name"] and now, 50)
            assert second["fine"], second
            assert second["subscribers"] >= 4
            assert second["deliveries"] > second["published"] > 20
            assert judge_rows(page.get("/stats/report")) == dict.fromkeys(GUARANTEES, 0)

            page.post("/swarm", user_count=2, spawn_rate=10)  # while locust still stops the users of the second
            page.until(lambda: judge_rows(page.get("/stats/report")) == {} and page.delivered() > 20)
            page.post("/stop")
            third = page.until(lambda: (now := page.judgement())["name"] != second["name"] and now)
            assert third["subscribers"] == 2
            assert third["inversions"] == third["duplicated"] == 0
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=scaled(20))
    assert process.returncode == 0, output
    assert output.count("users (Zone)") == 3


def test_a_file_of_own_users_runs_on_the_network_of_the_command_and_can_fail(mine: Path, tmp_path: Path) -> None:
    ran = run(
        [
            *(sys.executable, "-m", "loadtest", "--scenario", str(mine), "--servers", "4", "--nodes", "2"),
            *("--seconds", SECONDS, "--plant", "duplicate", "--out", "out"),
        ],
        tmp_path,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "4 users (Zone)" in ran.stdout
    rows = judge_rows((tmp_path / "out" / "locust.html").read_text())
    assert rows["nothing twice"] > 0
    assert rows["order kept"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file"),
        ("import locust\n", "has no users"),
        ("raise ValueError('no map')\n", "ValueError: no map"),
        ("def f(:\n", "SyntaxError"),
        ("import os\nos._exit(7)\n", "ended the process"),
    ],
)
def test_a_file_that_cannot_run_is_refused_in_one_sentence(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "bad.py").write_text(text)
    ran = run([sys.executable, "-m", "loadtest", "--scenario", "bad.py"], tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not ran.stdout
