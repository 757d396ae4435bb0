"""``gamecast lab simulate paper`` and ``… placement``: the documents, tables and pictures that they write."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from click.testing import CliRunner, Result

from gamecast.errors import InvalidInput
from laboratory.commands.simulate import simulate
from laboratory.commands.simulate_paper import OBJECTIVES
from placement import splitting
from placement.placing import Objective
from tests.placed_worlds import a_matrix
from tests.shared_data import BLACK_GOLD, SHARED_DATA, needs_shared_data

SCHEMES = {"ours", "unlimited", "paper", "well_placed", "central", "random", "lower_bound"}
SMALL = ("--nodes", "300", "--subscribers", "24", "--clusters", "4", "--groups", "4,8", "--jobs", "1")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(simulate, [*map(str, arguments)], catch_exceptions=False)


def test_the_document_has_the_stretch_of_each_scheme_by_groups_and_the_seeds() -> None:
    found = orjson.loads(run("paper", "--runs", "2", "--first", "5", *SMALL, "--json").stdout)
    assert found["seeds"] == [5, 6]
    assert list(found["groups"]) == ["4", "8"]
    for groups, schemes in found["groups"].items():
        assert set(schemes) == SCHEMES
        for scheme in schemes.values():
            assert 1 <= scheme["p50"] <= scheme["p90"] <= scheme["max"]
        assert schemes["lower_bound"]["mean_ms"] <= min(scheme["mean_ms"] for scheme in schemes.values()) + 1e-3
        assert found["loads"][groups]["ours"]["ordered"]["max"] <= 1.0
        assert schemes["unlimited"]["mean_ms"] <= schemes["central"]["mean_ms"], "the objective decides"
        assert schemes["well_placed"]["mean_ms"] < schemes["paper"]["mean_ms"]
        assert schemes["well_placed"]["nodes"] == schemes["paper"]["nodes"]
        against = found["against_lower_bound"][groups]
        assert against["median"] == pytest.approx(schemes["ours"]["p50"] / schemes["lower_bound"]["p50"], abs=1e-3)
    figures = found["figures"]["found"]
    for name in ("3", "4"):
        assert len(figures[name]["at"]) == len(figures[name]["nodes"]) == len(figures[name]["overlaps"]) > 10
    assert figures["4"]["most_nodes_at"] in figures["4"]["at"]
    assert found["figures"]["paper"]["2"]["worst"] == {"8": 2.5, "64": 5.0}
    assert found["figures"]["paper"]["4"] == {"most_nodes_at": 0.15, "one_node_above": 0.9}


def test_one_seed_gives_one_document_however_many_processes_there_are() -> None:
    def stretch(jobs: str) -> object:
        return orjson.loads(run("paper", "--runs", "2", *SMALL[:-1], jobs, "--json").stdout)["groups"]

    assert stretch("1") == stretch("2")


def test_tables_and_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("paper", "--runs", "1", *SMALL, "--csv", tmp_path / "tables", "--plots", tmp_path / "plots")
    assert "8 groups, lower bound" in result.stdout
    pictures = {file.name for file in (tmp_path / "plots").iterdir()}
    assert pictures == {"stretch.png", "nodes.png", "occupancy.png", "load.png", "stamps.png"}
    with (tmp_path / "tables" / "stretch.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 2 * len(SCHEMES) * 24
    assert {row["scheme"] for row in rows} == SCHEMES
    assert {file.name for file in (tmp_path / "tables").iterdir()} == {
        "stretch.csv",
        "runs.csv",
        "groups.csv",
        "occupancy.csv",
    }


@pytest.mark.parametrize("groups", ["", "0,8", "eight"])
def test_groups_that_are_no_numbers_are_wrong_use(groups: str) -> None:
    result = run("paper", "--groups", groups)
    assert result.exit_code == 2
    assert "is not a list of numbers of groups" in result.stderr


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The document of a comparison, for a recorded match too where there is one."""
    trace = ("--trace", BLACK_GOLD) if SHARED_DATA.is_dir() else ()
    file = a_matrix(tmp_path_factory.mktemp("topology"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(splitting, "STEPS_MAX", 500)  # how good rows get is not the point here
        return orjson.loads(run("placement", file, "--rtt", *trace, "--runs", "1", "--jobs", "1", "--json").stdout)


def test_placements_are_compared_on_a_topology_from_a_file(compared: Any) -> None:
    assert compared["seeds"] == [0]
    by_workload = {name: one for name, one in compared["topologies"]["cities.csv"].items() if name != str(BLACK_GOLD)}
    assert len(by_workload) == 5
    assert by_workload["correlated"]["against_central"] > 1.2
    for one in by_workload.values():
        assert one["bound_ms"] <= one["ours_ms"] <= one["random_ms"]
        assert one["ordered"] <= 1 + 1e-9
    assert "its diagonal is taken" in compared["notes"]["cities.csv"][0]


@needs_shared_data
def test_a_match_can_be_what_placements_are_compared_for(compared: Any) -> None:
    one = compared["topologies"]["cities.csv"][str(BLACK_GOLD)]
    assert one["bound_ms"] <= one["ours_ms"] <= one["random_ms"]


def test_a_match_that_is_not_there_is_said_to_be_missing_before_the_work_begins(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere_players"):
        run("placement", a_matrix(tmp_path), "--trace", tmp_path / "nowhere")


def test_the_objectives_on_offer_are_those_that_placement_has() -> None:
    assert set(OBJECTIVES) == set(get_args(Objective))
