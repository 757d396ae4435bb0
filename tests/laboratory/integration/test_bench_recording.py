"""Recording in the bench: what it costs beside the same without it, and that all was recorded meanwhile."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

pytest.importorskip("pyarrow")

from laboratory.bench.workload import FAN_OUT
from laboratory.commands.bench import bench

SMALL = ["--size", "4", "--runs", "1", "--events", "400", "--seconds", "0.2", "--rate", "500"]


def test_the_command_prints_both_their_ratios_and_what_was_recorded() -> None:
    result = CliRunner().invoke(bench, ["recording", "--json", *SMALL])
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    plain, recorded = document["figures"]["not recorded"], document["figures"]["recorded"]
    assert plain["lost"] == recorded["lost"] == recorded["duplicated"] == recorded["pairs_out_of_order"] == 0
    ratio = recorded["deliveries_per_s"] / plain["deliveries_per_s"]
    assert document["ratios"]["deliveries_per_s"] == pytest.approx(ratio)
    assert document["overhead"] == pytest.approx(1 - ratio)
    assert document["overheads"] == [document["overhead"]]
    assert document["unrecorded"] == 0
    assert document["session"]["deliveries"]["events"] == recorded["expected"]
    assert document["session"]["publishes"]["events"] * FAN_OUT == recorded["expected"]
    assert "losses" not in document["session"]


def test_the_command_prints_a_table_for_a_person() -> None:
    result = CliRunner().invoke(bench, ["recording", *SMALL], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "Recording overhead" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
