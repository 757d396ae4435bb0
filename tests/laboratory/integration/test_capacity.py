"""`gamecast capacity` on real Redis servers, for as short as says something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapters.embedded.server import EmbeddedServer
from cli.main import cli

QUICK = ("--seconds", "0.5", "--repeats", "1", "--max-seconds", "60", "--size", "4", "--start", "200")


def test_the_capacity_of_a_network_that_is_started_is_found_and_its_knee_drawn(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli,
        ["capacity", *QUICK, "--nodes", "2", "--rate-max", "800", "--p99-ms", "2000", "--hold-ms", "2000", "--json",
         "--plot", str(tmp_path / "knee.png")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["capacity"]["rate_per_s"] == 800
    assert [run["rate_per_s"] for run in result["runs"]] == [200, 400, 800]
    for run in result["runs"]:
        assert run["lost"] == run["duplicated"] == run["pairs_out_of_order"] == 0
        assert 0 < run["p50_ms"] <= run["p99_ms"]
        assert run["deliveries_per_s"] > run["rate_per_s"]
        assert set(run["cores"]) == {"publishers", "subscribers", "servers", "relays"}
    assert result["finished"]
    assert result["promises_broken"] == 0
    assert (tmp_path / "knee.png").stat().st_size > 5_000


def test_bounds_that_nothing_meets_are_an_exit_status_and_a_network_that_runs_is_used(
    redis_server: EmbeddedServer,
) -> None:
    done = CliRunner().invoke(cli, ["capacity", redis_server.url, *QUICK, "--p99-ms", "0.1", "--rate-max", "400"])
    assert done.exit_code == 1, done.output
    assert "No rate that was tried stays within" in done.output


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["redis://127.0.0.1:1"], 3), (["--repeats", "2"], 2), (["--plot", "knee.txt"], 2)],
)
def test_wrong_use_and_a_network_that_is_not_there_have_their_exit_status(arguments: list[str], status: int) -> None:
    command = [sys.executable, "-m", "gamecast", "capacity", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
