"""The bench's figures beside what they are to be, printed by one command."""

from __future__ import annotations

from pathlib import Path

import orjson
from click.testing import CliRunner

from gamecast.errors import ProcessFailed
from laboratory.commands.bench import bench


def test_one_command_prints_each_figure_beside_its_goal() -> None:
    result = CliRunner().invoke(bench, ["all", "--quick", "--parts", "paths,joins", "--json"])
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    assert list(document["parts"]) == ["paths", "joins"]
    [paths, script, *beside, stamp] = document["goals"][:5]
    joins = document["goals"][5:]
    assert script["measured"] > 0
    assert [goal["figure"] for goal in beside] == [f"the same beside {n} regions, x beside none" for n in (10, 60)]
    assert stamp["is_reached"]
    assert paths["measured"] == document["parts"]["paths"]["ratios"]["deliveries_per_s"]["2"]
    assert [goal["figure"] for goal in joins] == [
        "joins/s, in place",
        "a join, in place: p99, ms",
        "joins/s, epochs",
        "a join, epochs: p99, ms",
    ]
    for goal in document["goals"]:
        more, reached = goal["measured"] >= goal["wanted"], goal["is_reached"]
        assert reached == (more if not goal["at_most"] else goal["measured"] <= goal["wanted"])
    assert "measuring: joins" in result.stderr


def test_a_part_that_does_not_exist_is_named_with_those_that_do() -> None:
    result = CliRunner().invoke(bench, ["all", "--parts", "paths,speed"])
    assert result.exit_code == 2
    assert "'speed'" in result.stderr
    assert "memory" in result.stderr


def test_what_was_measured_is_told_though_a_part_fails(tmp_path: Path) -> None:
    arguments = ["all", "--quick", "--parts", "trace-500,joins", "--trace", str(tmp_path / "nothing"), "--json"]
    result = CliRunner().invoke(bench, arguments)
    assert isinstance(result.exception, ProcessFailed)
    assert "--world trace" in str(result.exception)
    assert list(orjson.loads(result.stdout)["parts"]) == ["joins"]
