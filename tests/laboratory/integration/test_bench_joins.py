"""The bench's figures of joins, small: in place and with epochs, and that who has joined gets everything."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench import joining
from laboratory.bench.joining import Walk
from laboratory.commands.bench import bench
from sequencing.errors import UsageError
from tests.patience import besides_waiting

SMALL = ["joins", "--regions", "24", "--servers", "4", "--view", "3", "--step", "2", "--turns", "2"]


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(bench, [*SMALL, *arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert besides_waiting(result.stderr) == ""
    document: dict[str, Any] = orjson.loads(result.stdout)
    return document


def test_servers_walk_around_a_ring() -> None:
    walk = Walk(regions=24, servers=4, view=3, step=2, turns=2)
    assert walk.regions_at(1, 0, 3) == ["region-00006", "region-00007", "region-00008"]
    assert walk.regions_at(3, 5, 7) == ["region-00023", "region-00000"]
    assert len(walk.pairs()) == 24 * 4
    assert ("region-00000", "region-00004") in walk.pairs()


def test_a_ring_has_room_for_the_walk() -> None:
    with pytest.raises(UsageError, match="needs 9 of them: not 8"):
        Walk(regions=8, servers=2, view=3, step=2, turns=2)


@pytest.mark.parametrize("how", [(), ("--shared",)])
def test_the_command_tells_of_both_kinds_of_joins(how: tuple[str, ...]) -> None:
    document = run(*how)
    assert document["walk"]["shared"] == bool(how)
    in_place, epochs = document["kinds"]["in place"], document["kinds"]["epochs"]
    assert in_place["epochs"] == epochs["epochs"] == 0, "a node's own order is there whoever joins what"
    assert in_place["atoms"] == epochs["atoms"] == 0
    for figures in (in_place, epochs):
        assert figures["lost"] == figures["unexpected"] == 0
        assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
        assert 0 < figures["alone_latency_ms"]["p50"] <= figures["alone_latency_ms"]["p99"]
        assert [turn["joins"] for turn in figures["turns"]] == [8, 8]
        for turn in figures["turns"]:
            assert turn["joins_per_s"] == pytest.approx(8 / turn["seconds"])
            assert turn["cpu_ms"]["servers"] > 0
            assert turn["cpu_ms"].keys() == {"servers", "manager", "redis"}


def test_one_kind_can_be_measured_by_itself() -> None:
    assert run("--overlaps", "declared")["kinds"].keys() == {"in place"}


def test_the_command_fails_when_somebody_gets_what_it_should_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining._Crowd, "_regions_of", lambda _crowd, _server: ["region-00000", "region-00001"])
    result = CliRunner().invoke(bench, [*SMALL, "--overlaps", "undeclared"], env={"COLUMNS": "80"})
    assert result.exit_code == 1
    assert "lost deliveries, epochs" in result.stderr
    assert "unexpected deliveries, epochs" in result.stderr
    assert "epochs, turn 2" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
