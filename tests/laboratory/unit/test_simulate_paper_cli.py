"""``gamecast lab simulate paper`` and ``… placement``: the documents, tables and pictures that they write."""

from __future__ import annotations

import csv
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orjson
import pytest
from click.testing import CliRunner, Result

from cli.plan import EFFORTS as PLAN_EFFORTS
from cli.plan import plan as plan_command
from gamecast.errors import InvalidInput
from laboratory.commands.simulate import simulate
from laboratory.commands.simulate_paper import OBJECTIVES
from placement import splitting
from placement.placing import EFFORTS, Objective
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


def a_matrix(directory: Path) -> Path:
    random = np.random.default_rng(0)
    places = random.uniform(0, 100, (8, 2))
    ms = np.hypot(*(places[:, None] - places[None, :]).transpose(2, 0, 1)) + 1
    names = [f"city{number}" for number in range(8)]
    lines = [",".join(["from", *names])] + [
        ",".join([name, *map(str, row)]) for name, row in zip(names, ms.tolist(), strict=True)
    ]
    (directory / "cities.csv").write_text("\n".join(lines))
    return directory / "cities.csv"


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


def test_plans_choose_hosts_for_their_nodes(tmp_path: Path) -> None:
    members = tmp_path / "members.csv"
    members.write_text("subscriber,region\n" + "".join(f"city{n},r{n // 2}\nann{n},r{n // 2}\n" for n in range(6)))
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("subscriber,host\n" + "".join(f"ann{n},city{n}\n" for n in range(6)))
    plan = [str(members), "--topology", str(a_matrix(tmp_path)), "--json", "--out", str(tmp_path / "plan.json")]
    result = CliRunner().invoke(plan_command, [*plan, "--hosts", str(hosts)], catch_exceptions=False)
    found = orjson.loads(result.stdout)
    assert found["conditions"] == {"C1": True, "C2": True, "C3": True, "C4": True}
    placement = found["placement"]
    assert placement["direct_ms"] <= placement["mean_ms"] <= placement["central_ms"]
    assert placement["p95_ms"] <= placement["central_p95_ms"]
    assert placement["stretch"]["worst"] <= placement["stretch"]["central_worst"]
    nodes = orjson.loads((tmp_path / "plan.json").read_bytes())["nodes"]
    assert {name: node["host"] for name, node in nodes.items()} == placement["hosts"]
    lost = CliRunner().invoke(plan_command, plan)
    assert lost.exit_code != 0
    assert "the topology has no host 'ann0'; say by --hosts FILE" in str(lost.exception)
    few = CliRunner().invoke(plan_command, [*plan, "--hosts", str(hosts), "--nodes", "2"], catch_exceptions=False)
    assert len(orjson.loads(few.stdout)["placement"]["hosts"]) <= 2


@pytest.mark.parametrize(
    ("capacity", "overload", "limit"), [("2", 1.0, 2.0), ("3", 0.0, 3.0), ("4", 0.0, 4.0), ("receiver", 0.0, 3.0)]
)
@pytest.mark.parametrize("nodes", [(), ("--nodes", "2")])
def test_a_plan_on_hosts_that_exceeds_the_capacity_says_by_how_much_and_ends_with_1(
    tmp_path: Path, capacity: str, overload: float, limit: float, nodes: tuple[str, ...]
) -> None:
    # a, b and c must meet on one node; d has no subscriber, and its events need a node nevertheless.
    members = tmp_path / "members.csv"
    members.write_text("city1,a\ncity1,b\ncity1,c\ncity2,a\ncity2,b\ncity2,c\n,d\n")
    command = [str(members), "--topology", str(a_matrix(tmp_path)), "--capacity", capacity, *nodes]
    shown = CliRunner().invoke(plan_command, command)
    found = orjson.loads(CliRunner().invoke(plan_command, [*command, "--json"]).stdout)
    assert (found["overload"], found["placement"]["capacity"]) == (overload, limit)
    assert found["node_load"]["max"] == found["placement"]["peak"] == limit + overload
    assert shown.exit_code == (1 if overload else 0)
    assert ("carries 3 events/s, 50.0% more than the capacity (2)" in " ".join(shown.stdout.split())) == bool(overload)


def test_options_of_a_topology_need_one(tmp_path: Path) -> None:
    result = CliRunner().invoke(plan_command, [str(tmp_path / "members.csv"), "--rtt"])
    assert result.exit_code == 2
    assert "--topology FILE" in result.stderr


def test_the_objectives_on_offer_are_those_that_placement_has() -> None:
    assert set(OBJECTIVES) == set(get_args(Objective))


def test_a_frontier_compares_delay_and_load_and_plans_what_it_chooses(tmp_path: Path) -> None:
    members = tmp_path / "members.csv"
    members.write_text("".join(f"city{n},r{(n + step) % 4}\n" for n in range(8) for step in range(2)))
    picture = tmp_path / "frontier.svg"
    command = [str(members), "--topology", str(a_matrix(tmp_path)), "--frontier", "--nodes", "4", "--effort", "quick"]
    shown = CliRunner().invoke(plan_command, [*command, "--picture", str(picture)], catch_exceptions=False)
    assert "busiest node, events/s" in shown.stdout
    assert "one central sequencer" in picture.read_text()
    found = orjson.loads(CliRunner().invoke(plan_command, [*command, "--json"], catch_exceptions=False).stdout)
    frontier = found["frontier"]
    points = frontier["points"]
    assert {point["nodes"] for point in points} <= {1, 2, 3, 4}
    assert points[0]["nodes"] == 1
    assert points[0]["mean_ms"] == pytest.approx(found["placement"]["central_ms"])
    for one, other in permutations(points, 2):
        assert any(one[key] > other[key] for key in ("nodes", "mean_ms", "peak")) or one == other
    chosen = points[frontier["chosen"]]
    assert chosen["mean_ms"] == found["placement"]["mean_ms"]
    assert chosen["mean_ms"] <= min(point["mean_ms"] for point in points) * 1.02
    assert frontier["why"] in found["why"]
    assert found["placement"]["lower_bound_ms"] <= chosen["mean_ms"]
    assert found["placement"]["above_lower_bound"] == pytest.approx(
        chosen["mean_ms"] / found["placement"]["lower_bound_ms"] - 1
    )


def test_a_frontier_keeps_a_capacity_if_any_of_its_networks_does(tmp_path: Path) -> None:
    members = tmp_path / "members.csv"
    members.write_text("".join(f"city{n},r{n // 2}\ncity{(n + 1) % 8},r{n // 2}\n" for n in range(8)))
    command = [str(members), "--topology", str(a_matrix(tmp_path)), "--frontier", "--nodes", "6", "--effort", "quick"]
    limited = [*command, "--ordering", "overlap", "--capacity", "2", "--json"]
    found = orjson.loads(CliRunner().invoke(plan_command, limited).stdout)
    assert found["placement"]["peak"] <= 2
    assert found["frontier"]["points"][0]["overload"] > 0


@pytest.mark.parametrize("wrong", [["--frontier"], ["--frontier", "--topology", "x.csv", "--node", "a"]])
def test_a_frontier_needs_a_topology_and_names_its_nodes_itself(tmp_path: Path, wrong: list[str]) -> None:
    result = CliRunner().invoke(plan_command, [str(tmp_path / "members.csv"), *wrong])
    assert result.exit_code == 2
    assert "--frontier" in result.stderr


def test_the_efforts_on_offer_are_those_that_placement_has() -> None:
    assert set(PLAN_EFFORTS) == set(EFFORTS)


def test_nodes_stand_on_the_hosts_that_may_carry_them(tmp_path: Path) -> None:
    members, hosts = tmp_path / "members.csv", tmp_path / "node-hosts.csv"
    members.write_text("".join(f"city{n},r{(n + step) % 4}\n" for n in range(8) for step in range(2)))
    command = [str(members), "--topology", str(a_matrix(tmp_path)), "--json", "--node-hosts", str(hosts)]
    means = []
    for allowed in (["city1", "city6"], ["city6"]):
        hosts.write_text("host\n" + "\n".join(allowed))
        for more in ([], ["--nodes", "2"], ["--objective", "max"], ["--effort", "quick"]):
            found = orjson.loads(CliRunner().invoke(plan_command, [*command, *more], catch_exceptions=False).stdout)
            assert set(found["placement"]["hosts"].values()) <= set(allowed)
            means.append(found["placement"]["mean_ms"])
    assert max(means[:2]) <= min(means[4:6])
    hosts.write_text("atlantis")
    assert "no host 'atlantis'" in str(CliRunner().invoke(plan_command, command).exception)
    hosts.write_text("host\n\n")
    assert "nowhere to stand" in str(CliRunner().invoke(plan_command, command).exception)
    unplaced = CliRunner().invoke(plan_command, [str(members), "--node-hosts", str(hosts)])
    assert "--node-hosts" in unplaced.stderr


LINE = ",a,b,c\na,{0},10,20\nb,10,{0},10\nc,20,10,{0}\n"
"""Three hosts, 10 ms from each to the next; the diagonal says whether a host has room for several nodes."""


def planned(directory: Path, rows: str, *options: str, diagonal: int = 0) -> tuple[int, Any]:
    (directory / "rows.csv").write_text(rows)
    (directory / "line.csv").write_text(LINE.format(diagonal))
    command = [str(directory / "rows.csv"), "--topology", str(directory / "line.csv"), "--json", *options]
    result = CliRunner().invoke(plan_command, command)
    return result.exit_code, orjson.loads(result.stdout)


@pytest.mark.parametrize("rows", ["a,r0\nb,r0\n,r1\n", "a,r0\nb,r0\nc,r1\n"])
def test_a_region_without_deliveries_gets_a_node_of_its_own_where_the_capacity_asks_for_it(
    tmp_path: Path, rows: str
) -> None:
    status, found = planned(tmp_path, rows, "--capacity", "1")
    assert (status, found["placement"]["peak"], len(found["placement"]["hosts"])) == (0, 1.0, 2)
    assert len(planned(tmp_path, rows)[1]["placement"]["hosts"]) == 1


def test_no_two_nodes_stand_on_a_host_with_room_for_one(tmp_path: Path) -> None:
    hosts = tmp_path / "node-hosts.csv"
    hosts.write_text('\nHost\n"a"\nc\n')
    rows = "b,r0\na,r0\nc,r0\nc,r1\na,r2\nb,r3\n"
    for effort in ("quick", "normal"):
        _, found = planned(tmp_path, rows, "--capacity", "1", "--node-hosts", str(hosts), "--effort", effort)
        standing = list(found["placement"]["hosts"].values())
        assert len(set(standing)) == len(standing)


def test_a_host_with_room_has_as_many_nodes_as_the_capacity_asks_for(tmp_path: Path) -> None:
    chain = "".join(f"{who}{n},r{n}\n{who}{n},r{n + 1}\n" for n in range(4) for who in "xy")
    (tmp_path / "hosts.csv").write_text("".join(f"{who}{n},a\n" for n in range(4) for who in "xy"))
    options = "--hosts", str(tmp_path / "hosts.csv"), "--ordering", "overlap", "--nodes", "9", "--capacity", "3"
    status, found = planned(tmp_path, chain, *options, diagonal=1)
    assert (status, found["placement"]["peak"] <= 3) == (0, True)


def test_hosts_have_capacities_of_their_own_that_are_kept_or_the_plan_says_which_is_not(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text("".join(f"{who}{n},a\n" for n in range(3) for who in "xy"))
    rows = "".join(f"{who}{n},r{n}\n" for n in range(3) for who in "xy")
    node_hosts = tmp_path / "node-hosts.csv"
    options = "--hosts", str(tmp_path / "hosts.csv"), "--node-hosts", str(node_hosts)
    node_hosts.write_text("host,events_per_s\na,1\nb,1\nc,5\n")
    status, found = planned(tmp_path, rows, *options)
    loads = {found["placement"]["hosts"][node]: load for node, load in found["node_load"]["of_nodes"].items()}
    assert (status, loads, found["overload"]) == (0, {"a": 1.0, "b": 1.0, "c": 1.0}, 0)
    node_hosts.write_text("a\nb,1\n")
    status, found = planned(tmp_path, rows, *options)
    assert (status, set(found["placement"]["hosts"].values())) == (0, {"a"})
    node_hosts.write_text("a,2\nb,0.5\n")
    status, found = planned(tmp_path, rows, *options)
    assert (status, found["overload"]) == (1, 0.5)
    assert "node on b" in " ".join(found["why"]) or " on b carries 0.5 events/s more" in " ".join(found["why"])
    for wrong, complaint in (
        ("a,x", "'x' is not a number"),
        ("a,1\na,2", "another capacity"),
        ("a,1,2", "not a number"),
    ):
        node_hosts.write_text(wrong)
        command = [
            str(tmp_path / "rows.csv"),
            "--topology",
            str(tmp_path / "line.csv"),
            "--node-hosts",
            str(node_hosts),
        ]
        assert complaint in str(CliRunner().invoke(plan_command, command).exception)


def test_a_frontier_has_no_more_nodes_than_asked_for_and_goes_on_over_a_plateau(tmp_path: Path) -> None:
    rows = "".join(f"{who}{n},r{n}\n" for n in range(5) for who in "xy")
    (tmp_path / "hosts.csv").write_text("".join(f"x{n},{'abcab'[n]}\ny{n},{'bcabc'[n]}\n" for n in range(5)))
    options = "--hosts", str(tmp_path / "hosts.csv"), "--frontier", "--effort", "quick"
    lowest_peaks = {}
    for nodes in (2, 5):
        _, found = planned(tmp_path, rows, *options, "--nodes", str(nodes), diagonal=1)
        points = found["frontier"]["points"]
        assert max(point["nodes"] for point in points) <= nodes
        lowest_peaks[nodes] = min(point["peak"] for point in points)
    assert lowest_peaks[5] == 1.0


def test_a_bound_of_0_has_no_gap(tmp_path: Path) -> None:
    hosts = tmp_path / "node-hosts.csv"
    hosts.write_text("c")
    (tmp_path / "hosts.csv").write_text("x,a\ny,a\n")
    options = "--hosts", str(tmp_path / "hosts.csv"), "--node-hosts", str(hosts)
    _, found = planned(tmp_path, "x,r\ny,r\n", *options)
    assert (found["placement"]["mean_ms"], found["placement"]["lower_bound_ms"]) == (40.0, 0.0)
    assert found["placement"]["above_lower_bound"] is None
    assert "above" not in " ".join(found["why"])
