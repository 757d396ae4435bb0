"""`gamecast plan places`: hosts for nodes, limits of load, and networks compared."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.plan import plan as plan_command
from tests.placed_worlds import a_matrix


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(plan_command, ["places", *arguments], catch_exceptions=False)


def test_plans_choose_hosts_for_their_nodes(tmp_path: Path) -> None:
    members = tmp_path / "members.csv"
    members.write_text("subscriber,region\n" + "".join(f"city{n},r{n // 2}\nann{n},r{n // 2}\n" for n in range(6)))
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("subscriber,host\n" + "".join(f"ann{n},city{n}\n" for n in range(6)))
    plan = [str(members), str(a_matrix(tmp_path)), "--json", "--out", str(tmp_path / "plan.json")]
    result = invoke(*plan[:2], str(hosts), *plan[2:])
    found = orjson.loads(result.stdout)
    assert found["conditions"] == {"C1": True, "C2": True, "C3": True, "C4": True}
    placement = found["placement"]
    assert placement["direct_ms"] <= placement["mean_ms"] <= placement["central_ms"]
    assert placement["p95_ms"] <= placement["central_p95_ms"]
    assert placement["stretch"]["worst"] <= placement["stretch"]["central_worst"]
    nodes = orjson.loads((tmp_path / "plan.json").read_bytes())["nodes"]
    assert {name: node["host"] for name, node in nodes.items()} == placement["hosts"]
    lost = CliRunner().invoke(plan_command, ["places", *plan])
    assert lost.exit_code != 0
    assert "the topology has no host 'ann0'; say by a file of hosts" in str(lost.exception)
    few = invoke(*plan[:2], str(hosts), *plan[2:], "--nodes", "2")
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
    command = [str(members), str(a_matrix(tmp_path)), "--capacity", capacity, *nodes]
    shown = invoke(*command)
    found = orjson.loads(invoke(*command, "--json").stdout)
    assert (found["overload"], found["placement"]["capacity"]) == (overload, limit)
    assert found["node_load"]["max"] == found["placement"]["peak"] == limit + overload
    assert shown.exit_code == (1 if overload else 0)
    assert ("carries 3 events/s, 50.0% more than the capacity (2)" in " ".join(shown.stdout.split())) == bool(overload)


def test_a_frontier_compares_delay_and_load_and_plans_what_it_chooses(tmp_path: Path) -> None:
    members = tmp_path / "members.csv"
    members.write_text("".join(f"city{n},r{(n + step) % 4}\n" for n in range(8) for step in range(2)))
    picture = tmp_path / "frontier.svg"
    command = [str(members), str(a_matrix(tmp_path)), "--objective", "balance", "--nodes", "4"]
    shown = invoke(*command, "--out", str(picture))
    assert "busiest node, events/s" in shown.stdout
    assert "one central sequencer" in picture.read_text()
    found = orjson.loads(invoke(*command, "--json").stdout)
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
    command = [str(members), str(a_matrix(tmp_path)), "--objective", "balance", "--nodes", "6"]
    limited = [*command, "--ordering", "overlap", "--capacity", "2", "--json"]
    found = orjson.loads(invoke(*limited).stdout)
    assert found["placement"]["peak"] <= 2
    assert found["frontier"]["points"][0]["overload"] > 0


def test_nodes_stand_on_the_hosts_that_may_carry_them(tmp_path: Path) -> None:
    members, hosts = tmp_path / "members.csv", tmp_path / "node-hosts.csv"
    members.write_text("".join(f"city{n},r{(n + step) % 4}\n" for n in range(8) for step in range(2)))
    command = ["places", str(members), str(a_matrix(tmp_path)), "--json", "--nodes", str(hosts)]
    means = []
    for allowed in (["city1", "city6"], ["city6"]):
        hosts.write_text("host\n" + "\n".join(allowed))
        for more in ([], ["--nodes", "2"], ["--objective", "max"], ["--capacity", "9"]):
            found = orjson.loads(CliRunner().invoke(plan_command, [*command, *more], catch_exceptions=False).stdout)
            assert set(found["placement"]["hosts"].values()) <= set(allowed)
            means.append(found["placement"]["mean_ms"])
    assert max(means[:2]) <= min(means[4:6])
    hosts.write_text("atlantis")
    assert "no host 'atlantis'" in str(CliRunner().invoke(plan_command, command).exception)
    hosts.write_text("host\n\n")
    assert "nowhere to stand" in str(CliRunner().invoke(plan_command, command).exception)


LINE = ",a,b,c\na,{0},10,20\nb,10,{0},10\nc,20,10,{0}\n"
"""Three hosts, 10 ms from each to the next; the diagonal says whether a host has room for several nodes."""


def planned(directory: Path, rows: str, *options: str, diagonal: int = 0) -> tuple[int, Any]:
    (directory / "rows.csv").write_text(rows)
    (directory / "line.csv").write_text(LINE.format(diagonal))
    result = CliRunner().invoke(
        plan_command, ["places", str(directory / "rows.csv"), str(directory / "line.csv"), *options, "--json"]
    )
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
    _, found = planned(tmp_path, rows, "--capacity", "1", "--nodes", str(hosts))
    standing = list(found["placement"]["hosts"].values())
    assert len(set(standing)) == len(standing)


def test_a_host_with_room_has_as_many_nodes_as_the_capacity_asks_for(tmp_path: Path) -> None:
    chain = "".join(f"{who}{n},r{n}\n{who}{n},r{n + 1}\n" for n in range(4) for who in "xy")
    (tmp_path / "hosts.csv").write_text("".join(f"{who}{n},a\n" for n in range(4) for who in "xy"))
    options = str(tmp_path / "hosts.csv"), "--ordering", "overlap", "--nodes", "9", "--capacity", "3"
    status, found = planned(tmp_path, chain, *options, diagonal=1)
    assert (status, found["placement"]["peak"] <= 3) == (0, True)


def test_hosts_have_capacities_of_their_own_that_are_kept_or_the_plan_says_which_is_not(tmp_path: Path) -> None:
    (tmp_path / "hosts.csv").write_text("".join(f"{who}{n},a\n" for n in range(3) for who in "xy"))
    rows = "".join(f"{who}{n},r{n}\n" for n in range(3) for who in "xy")
    node_hosts = tmp_path / "node-hosts.csv"
    options = str(tmp_path / "hosts.csv"), "--nodes", str(node_hosts)
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
        command = ["places", *(str(tmp_path / name) for name in ("rows.csv", "line.csv")), "--nodes", str(node_hosts)]
        assert complaint in str(CliRunner().invoke(plan_command, command).exception)


def test_a_frontier_has_no_more_nodes_than_asked_for_and_goes_on_over_a_plateau(tmp_path: Path) -> None:
    rows = "".join(f"{who}{n},r{n}\n" for n in range(5) for who in "xy")
    (tmp_path / "hosts.csv").write_text("".join(f"x{n},{'abcab'[n]}\ny{n},{'bcabc'[n]}\n" for n in range(5)))
    options = str(tmp_path / "hosts.csv"), "--objective", "balance"
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
    options = str(tmp_path / "hosts.csv"), "--nodes", str(hosts)
    _, found = planned(tmp_path, "x,r\ny,r\n", *options)
    assert (found["placement"]["mean_ms"], found["placement"]["lower_bound_ms"]) == (40.0, 0.0)
    assert found["placement"]["above_lower_bound"] is None
    assert "above" not in " ".join(found["why"])
