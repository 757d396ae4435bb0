"""``gamecast lab simulate wan``: a prediction without a network, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from gamecast.errors import UsageError


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    file = tmp_path / "matrix.csv"
    file.write_text("from,west,east\nwest,1,40\neast,50,1\n")
    return file


def simulate_wan(*arguments: object) -> Result:
    return CliRunner().invoke(
        cli, ["lab", "simulate", "wan", *map(str, arguments), "--start-s", "200", "--duration-s", "5"]
    )


def figures(*arguments: object) -> Any:
    result = simulate_wan(*arguments, "--servers", 4, "--nodes", 2, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def test_what_waits_adds_up_to_what_the_prediction_is_above_the_paths(matrix: Path) -> None:
    found = figures(matrix)
    predicted, alone = found["predicted"], found["paths_alone"]
    assert found["hosts"]["server-4"] == "east"
    assert len(predicted["means_of_runs"]) == 8
    assert predicted["deliveries"] == 8 * alone["deliveries"]
    assert predicted["delay_ms"] - alone["delay_ms"] == pytest.approx(sum(predicted["waits"].values()))
    assert all(wait_ms >= -1e-6 for wait_ms in predicted["waits"].values())


def test_losses_slow_nodes_and_impatient_reads_make_it_worse(matrix: Path) -> None:
    usual = figures(matrix)["predicted"]["mean"]
    for option, value in (("--loss", 0.02), ("--service-ms", 10), ("--block-ms", 5)):
        assert figures(matrix, option, value)["predicted"]["mean"] > 1.02 * usual, option


def test_whole_reads_are_no_slower(matrix: Path) -> None:
    assert figures(matrix, "--whole-reads")["predicted"]["mean"] <= figures(matrix)["predicted"]["mean"]


def test_round_trips_are_halved(matrix: Path) -> None:
    whole, half = figures(matrix), figures(matrix, "--rtt")
    assert half["paths_alone"]["direct_ms"] == pytest.approx(whole["paths_alone"]["direct_ms"] / 2)


def test_the_table_says_what_waits(matrix: Path) -> None:
    result = simulate_wan(matrix, "--servers", 4)
    assert result.exit_code == 0
    assert "a delivery waits" in result.stdout.replace("\n", " ")


def test_a_host_that_the_matrix_lacks_is_refused(matrix: Path) -> None:
    result = simulate_wan(matrix, "--hosts", "west,mars")
    assert isinstance(result.exception, UsageError)
    assert "--hosts: the matrix has no host 'mars'; it has west, east" in str(result.exception)
