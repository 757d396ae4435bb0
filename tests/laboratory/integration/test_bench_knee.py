"""The knee, searched for quickly: the command says how much each peer carries, and what it does not."""

from __future__ import annotations

import math

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench import knee
from laboratory.bench.knee import find_knee, ratios
from laboratory.bench.peers.registry import OURS
from laboratory.bench.workload import ring
from laboratory.commands.bench import bench
from sequencing.errors import ProcessFailed


def test_the_knee_of_each_peer_is_between_what_it_carries_and_what_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knee, "START_PER_S", 1_000.0)
    monkeypatch.setattr(knee, "RATE_MAX_PER_S", 2_000.0)
    arguments = ["--against", "pubsub", "--world", "ring", "--tick", "20", "--seconds", "0.4", "--size", "4"]
    found = CliRunner().invoke(bench, ["knee", *arguments, "--p99-ms", "1000", "--json"])
    assert found.exit_code == 0, found.output
    result = orjson.loads(found.stdout)
    assert [(each["peer"], each["rate_per_s"]) for each in result["knees"]] == [("gamecast", 2000), ("pubsub", 2000)]
    assert all(0 < each["p99_ms"] <= 1000 and each["fails_at_per_s"] is None for each in result["knees"])
    assert [ratio for _, ratio in ratios(result, "gamecast")] == [1.0]
    assert knee.report(result, "gamecast").renderables


def test_a_trial_that_fails_is_beyond_the_knee(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise ProcessFailed("nothing was delivered")

    monkeypatch.setattr(knee, "run_trial", failing)
    found = find_knee(OURS, ring(4), 20, p99_ms=20.0, seconds=0.2, begin=lambda _: None)
    assert (found.rate_per_s, found.fails_at_per_s) == (None, 1.0)
    assert math.isnan(found.p99_ms)
