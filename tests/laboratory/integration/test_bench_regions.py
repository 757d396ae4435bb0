"""The bench of many regions, small: each figure is measured, of gamecast and of plain Pub/Sub."""

from __future__ import annotations

import math

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench import walkers
from laboratory.bench.regions import report
from laboratory.bench.walkers import walkers_report
from laboratory.commands.bench import bench


def test_each_figure_is_measured_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walkers, "REPLAYED", 200)
    monkeypatch.setattr(walkers, "REPLAY_S", 1.0)
    found = CliRunner().invoke(bench, ["regions", "--sizes", "20,200", "--seconds", "4", "--json"])
    assert found.exit_code == 0, found.output
    result = orjson.loads(found.stdout)
    for growths in result["regions"].values():
        assert [growth["regions"] for growth in growths] == [20, 200]
        assert all(growth[key] > 0 for growth in growths for key in growth if key != "memory_mib")
    walks, replays = result["walkers"]["walks"], result["walkers"]["replays"]
    assert [(walk["nodes"], walk["history"]) for walk in walks] == [(1, False), (1, True), (3, False), (3, True)]
    assert all(walk["events"] > 0 and walk["joins"] > 4 for walk in walks), "they walk, and are told what happens"
    assert all(not math.isnan(each["p99_ms"]) for each in (*walks, *replays))
    assert report(result["regions"]).renderables
    assert walkers_report(result["walkers"]).renderables


def test_sizes_are_numbers() -> None:
    found = CliRunner().invoke(bench, ["regions", "--sizes", "20,many"])
    assert (found.exit_code, "is not a list of numbers" in found.output) == (2, True)
