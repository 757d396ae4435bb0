"""`gamecast bench plan`: growth of planning, measured small."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench.planning import STAGES, measure_size
from laboratory.commands.bench import bench
from sequencing.errors import UsageError


def test_the_command_prints_one_document(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "growth.svg"
    result = CliRunner().invoke(bench, ["plan", "--max", "10000", "--json", "--plot", str(plot)])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    sizes = orjson.loads(result.stdout)["sizes"]
    assert list(sizes) == ["1000", "10000"]
    for size, found in sizes.items():
        assert found["subscribers"] == 10 * found["regions"] == int(size)
        assert found["stages"].keys() == STAGES.keys()
        assert all(stage["seconds"] >= 0 and stage["peak_mib"] > 10 for stage in found["stages"].values())
        assert found["join_us"] > 0
        assert found["leave_us"] > 0
        assert found["overlaps"] > 0
        assert found["atoms"] > 0, "on several nodes not everything can end together"
    assert "whole plan" in plot.read_text()


def test_the_command_prints_a_table_for_a_person() -> None:
    result = CliRunner().invoke(bench, ["plan", "--max", "1000"])
    assert result.exit_code == 0, result.output
    for text in ("1,000", *STAGES.values(), "a join, µs"):
        assert text in result.stdout


def test_wrong_use_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    assert CliRunner().invoke(bench, ["plan", "--max", "5"]).exit_code == 2
    result = CliRunner().invoke(bench, ["plan", "--plot", str(tmp_path / "growth.gif")])
    assert isinstance(result.exception, UsageError)


def test_the_same_seed_measures_the_same_world() -> None:
    one, other = (measure_size(1_000, seed=3) for _ in range(2))
    assert (one.subscriptions, one.overlaps, one.atoms) == (other.subscriptions, other.overlaps, other.atoms)
