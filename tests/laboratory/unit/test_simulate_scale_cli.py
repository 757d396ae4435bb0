"""``gamecast lab simulate scale``: the tables, documents and pictures that it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.plan import plan
from laboratory.commands.simulate import simulate
from placement.planning.worlds import made, parse_world

SMALL = ("--cells", "30,100", "--servers", "4,9", "--players", "60,300", "--nodes", "1,3")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(simulate, ["scale", *map(str, arguments)])


def test_each_size_is_made_for_each_way_to_gather() -> None:
    done = run(*SMALL, "--gather", "spread,boss", "--json")
    assert done.exit_code == 0
    worlds = orjson.loads(done.stdout)["worlds"]
    assert [(one["spec"]["players"], one["spec"]["gather"]) for one in worlds] == [
        (60, "spread"),
        (60, "boss"),
        (300, "spread"),
        (300, "boss"),
    ]
    assert all([plan["nodes"] for plan in one["plans"]] == [1, 3] for one in worlds)
    assert "making the world" in done.stderr


def test_pictures_are_drawn(tmp_path: Path) -> None:
    done = run(*SMALL, "--gather", "event", "--plots", tmp_path / "pictures")
    assert done.exit_code == 0
    pictures = {file.name for file in (tmp_path / "pictures").iterdir()}
    assert pictures == {"busiest.png", "stamps.png", "joins.png", "planning.png"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cells", "1000,2000", "--servers", "1,2,3", "--players", "9"), "give 1 or as many"),
        (("--cells", "997", "--servers", "1", "--players", "9"), "no rectangle"),
        (("--gather", "herds"), "'herds' is none of spread, flocks, event, boss"),
        (("--nodes", "0"), "'0' is no whole number of at least 1"),
        (("--walked", "soon"), "'soon' is no number of at least 0"),
    ],
)
def test_wrong_use_is_refused(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_plan_for_a_world_is_that_of_its_membership_and_rates() -> None:
    spec = "12x10:servers=9,players=300,gather=boss,seed=3"
    world = made(parse_world(spec))
    result = CliRunner().invoke(plan, ["size", f"world:{spec}", "--json"], catch_exceptions=False)
    found = orjson.loads(result.stdout)
    assert (found["subscribers"], found["regions"]) == (9, 120)
    assert found["rows"] == world.membership.incidence.nnz
    assert found["node_load"]["max"] >= sum(world.rates.values()) / 3
    assert result.exit_code == 0
    refused = CliRunner().invoke(plan, ["--world", spec])
    assert refused.exit_code == 2
    assert "plan size world:SPEC" in refused.stderr
