"""`gamecast plan`: what it prints, what it writes, and with which status it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner, Result

from cli.plan import plan
from sequencing.conditions import violations
from sequencing.errors import InvalidInput, InvalidName, UsageError
from sequencing.membership import Membership
from sequencing.plan import Ordering, Plan

ROWS = "subscriber,region\nann,forest\nann,river\nbob,forest\nbob,river\nbob,village\ncid,village\n,desert\n"
MEMBERS = {"ann": ["forest", "river"], "bob": ["forest", "river", "village"], "cid": ["village"]}
CHAIN = "".join(f"{who}{pair},{region}\n" for pair in ("ab", "bc", "cd") for who in "st" for region in pair)
"""On three nodes a and b end at one, c and d at one each."""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    file = tmp_path / "world.csv"
    file.write_text(ROWS)
    return file


def run(*arguments: object, stdin: str | None = None, nodes: int | None = 3) -> Result:
    said = [str(argument) for argument in arguments]
    at_most = [] if nodes is None or {"--nodes", "--capacity"}.intersection(said) else ["--nodes", str(nodes)]
    return CliRunner().invoke(plan, ["size", *said, *at_most], input=stdin)


def report(*arguments: object, stdin: str | None = None) -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_json_is_one_object_with_the_figures(world: Path) -> None:
    found = report(world, "--nodes", 2)
    expected = {"regions": 4, "subscribers": 3, "overlaps": 1, "atoms": 0, "nodes": 2, "components": 1, "skipped": 0}
    assert {key: found[key] for key in expected} == expected
    assert found["path_nodes"] == {"mean": 1.0, "max": 1}
    assert found["node_load"]["max"] == max(found["node_load"]["of_nodes"].values())
    assert found["node_load"]["busiest_receiver"] == 3.0
    assert found["conditions"] == {"C1": True, "C2": True, "C3": True, "C4": True}
    assert found["seconds"].keys() == {"reading", "overlaps", "plan", "conditions"}
    assert (found["rows"], found["duplicates"], found["ordering"]) == (7, 0, "acyclic")


def test_the_account_says_it_for_a_person(world: Path) -> None:
    result = run(world)
    assert result.exit_code == 0
    assert result.stderr == ""
    for says in ("3 subscribers in 4 regions", "1 pair of regions", "✓ C1", "✓ C4", "busiest receiver"):
        assert says in result.stdout


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("s,a\nt,b\n", "No atom is needed: no subscriber could see the order of any two regions."),
        (ROWS, "No atom is needed, in 1 component: what needs order ends at one node"),
        ("s1,a\ns1,b\ns2,b\ns2,c\ns3,c\ns3,a\n", "No atom is needed, in 1 component: what needs order"),
        (CHAIN, "2 atoms, in 1 component, for the order that 'acyclic' promises between regions that end at different"),
    ],
    ids=["nothing", "one end", "ring", "chain"],
)
def test_the_account_says_what_needs_order_and_what_needs_atoms(rows: str, says: str) -> None:
    assert says in " ".join(run("-", stdin=rows).stdout.split())


def test_without_a_limit_the_number_is_found_for_what_a_node_is_taken_to_carry(world: Path, tmp_path: Path) -> None:
    found = run(world, nodes=None).stdout
    assert found.startswith("1 node: 4 events/s in all, 4 of 5,000 on the busiest node.")
    assert "That a node carries 5,000 events/s is assumed (--capacity)." in found
    assert "No rates were given: 1 event/s for each region is a guess" in found
    rates = tmp_path / "rates.csv"
    rates.write_text("forest,2000\nriver,10\nvillage,2000\ndesert,3000\nmoon,7\n")
    found = run(world, "--rates", rates, nodes=None).stdout
    assert found.startswith("2 nodes: 7,010 events/s in all"), found
    assert "a guess" not in found
    assert "The rates of 1 region that the membership lacks are left out, such as that of 'moon'." in " ".join(
        found.split()
    )


def test_rates_that_are_all_0_count_as_1_each_and_the_output_says_so(world: Path, tmp_path: Path) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text("forest,0\nriver,0\nvillage,0\ndesert,0\n")
    result = run(world, "--rates", rates, "--capacity", 5)
    assert result.exit_code == 0
    assert "All rates are 0, so each region counts as 1 event/s." in result.stdout
    assert report(world, "--rates", rates, "--capacity", 5)["node_load"]["max"] == 4.0


def test_rounding_asks_for_no_further_node_and_check_agrees(tmp_path: Path) -> None:
    (tmp_path / "members.csv").write_text("".join(f"{who},{region}\n" for who in "ab" for region in "xyz"))
    (tmp_path / "rates.csv").write_text("x,0.1\ny,0.2\nz,0.3\n")
    limits = "--rates", tmp_path / "rates.csv", "--capacity", 0.6
    out = tmp_path / "plan.json"
    assert run(tmp_path / "members.csv", *limits, "--out", out).stdout.startswith("1 node:")
    assert placed("check", out, tmp_path / "members.csv", *limits)["overload"] == 0


def test_no_more_nodes_are_named_than_have_something_to_do(world: Path) -> None:
    missed = run(world, "--capacity", 0.5)
    assert missed.exit_code == 1
    found = json.loads(run(world, "--capacity", 0.5, "--json").stdout)
    loads = found["node_load"]["of_nodes"]
    assert all(loads.values()), loads
    assert missed.stdout.startswith(f"{len(loads)} nodes: 4 events/s in all, and the busiest node still carries")


def test_the_choice_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("s1,a\ns1,b\ns2,a\ns2,b\n")
    assert "One node is best" in run(file).stdout
    found = report(file)
    assert (found["optimal"], "One node is best" in found["why"][0]) == (True, True)


def test_what_exceeds_the_capacity_is_said(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("".join(f"s{at},{region}\n" for at in range(2) for region in "abc"))
    assert "The busiest node carries" not in run(file, "--capacity", "3").stdout
    missed = run(file, "--capacity", "2")
    assert "50.0% more than the operator allows" in " ".join(missed.stdout.split())
    assert (missed.exit_code, run(file, "--capacity", "3").exit_code) == (1, 0)
    assert report(file, "--capacity", "receiver")["node_load"]["max"] == 3.0


def test_rates_make_loads(world: Path, tmp_path: Path) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text("forest,10\nriver,20\nvillage,5\n")
    found = report(world, "--rates", rates, "--nodes", "solo")
    assert found["node_load"] == {"max": 36.0, "busiest_receiver": 35.0, "of_nodes": {"solo": 36.0}}


@pytest.mark.parametrize("ordering", get_args(Ordering))
def test_the_plan_file_holds_a_sound_plan(world: Path, tmp_path: Path, ordering: Ordering) -> None:
    out = tmp_path / "plan.json"
    found = report(world, "--out", out, "--ordering", ordering)
    document = json.loads(out.read_text())
    assert document["ordering"] == ordering
    assert document["epoch"] == 1
    assert document["nodes"].keys() == {"n1", "n2", "n3"}
    assert document["regions"].keys() == {"forest", "river", "village", "desert"}
    common = ["forest", "river"]
    assert [atom["node"] for atom in document["atoms"] if atom["regions"] == common] == [
        document["regions"]["forest"]["path"][-1]
    ]
    # bob alone has the village beside them.
    alone = [] if ordering == "overlap" else [["forest", "village"], ["river", "village"]]
    assert sorted(atom["regions"] for atom in document["atoms"]) == [common, *alone]
    assert found["seconds"]["out"] > 0
    assert violations(Plan.from_json(out.read_bytes()), Membership.of(MEMBERS)) == {}


def test_atoms_of_the_plan_file_are_pairs_with_the_counter_that_they_share(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    rows = "".join(f"s{number},{region}\n" for number in range(3) for region in "abc") + "s0,d\ns1,d\n"
    found = report("-", "--out", out, stdin=rows)
    assert (found["overlaps"], found["atoms"]) == (6, 0)
    atoms = json.loads(out.read_text())["atoms"]
    assert sorted(map(tuple, (atom["regions"] for atom in atoms))) == list(combinations("abcd", 2))
    assert len({atom["id"] for atom in atoms}) == 6
    assert by_counter(atoms) == {("n1", 0): ["ab", "ac", "ad", "bc", "bd", "cd"]}
    twins = CHAIN + "".join(f"{row[:-1]}{row[-1].upper()}\n" for row in CHAIN.splitlines())
    assert report("-", "--out", out, stdin=twins)["atoms"] == 2
    assert by_counter(json.loads(out.read_text())["atoms"]) == {
        ("n1", 0): ["Dd"],
        ("n1", 2): ["CD", "Cd", "Dc", "cd"],
        ("n2", 0): ["Cc"],
        ("n2", 1): ["BC", "Bc", "Cb", "bc"],
        ("n3", 0): ["AB", "Aa", "Ab", "Ba", "Bb", "ab"],
    }


def by_counter(atoms: list[dict[str, Any]]) -> dict[tuple[str, int], list[str]]:
    """The number spaces of a plan file, each with what it orders."""
    found: dict[tuple[str, int], list[str]] = {}
    for atom in atoms:
        found.setdefault((atom["node"], atom["counter"]), []).append("".join(atom["regions"]))
    return {counter: sorted(regions) for counter, regions in found.items()}


def test_too_many_pairs_are_left_to_the_atoms(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.planning.document.PAIRS_MAX", 2)
    rows = "".join(f"s{number},{region}\n" for number in range(3) for region in "abc")
    result = run("-", "--out", tmp_path / "plan.json", "--json", stdin=rows)
    assert result.exit_code == 0
    assert "3 pairs of regions need order" in result.stderr
    [atom] = json.loads((tmp_path / "plan.json").read_text())["atoms"]
    assert (atom["regions"], atom["node"], atom["counter"]) == (["a", "b", "c"], "n1", 0)
    assert run("-", "--out", tmp_path / "plan.json", stdin=CHAIN).exit_code == 0
    document = (tmp_path / "plan.json").read_bytes()
    assert by_counter(json.loads(document)["atoms"]) == {("n3", 0): ["ab"], ("n2", 1): ["bc"], ("n1", 2): ["cd"]}


@pytest.mark.parametrize(
    ("rows", "regions", "overlaps", "atoms", "components"),
    [
        ("s,a\n", 1, 0, 0, 0),
        ("s,a\nt,a\nu,a\n", 1, 0, 0, 0),
        ("s,a\nt,b\nu,c\n", 3, 0, 0, 0),
        ("s,a\nt,a\ns,b\nt,b\ns,c\nt,c\n", 3, 3, 0, 1),
        (",a\n,b\n", 2, 0, 0, 0),
        ("s,a\ns,a\nt,a\ns,b\nt,b\nt,b\n", 2, 1, 0, 1),
        ("s,a\nt,a\ns,b\nt,b\nu,c\nv,c\nu,d\nv,d\n", 4, 2, 0, 2),
        (CHAIN, 4, 3, 2, 1),
    ],
    ids=["one row", "one region", "no overlaps", "all in all", "no subscribers", "twice", "two", "chain"],
)
def test_worlds_at_the_edges_are_planned(
    tmp_path: Path, rows: str, regions: int, overlaps: int, atoms: int, components: int
) -> None:
    found = report("-", "--out", tmp_path / "plan.json", stdin=rows)
    figures = {"regions": regions, "overlaps": overlaps, "atoms": atoms, "components": components}
    assert {key: found[key] for key in figures} == figures
    assert all(found["conditions"].values())
    assert run("-", stdin=rows).exit_code == 0
    assert len(json.loads((tmp_path / "plan.json").read_text())["atoms"]) == overlaps


def test_a_malformed_row_is_raised_for_the_command_line_to_report(world: Path) -> None:
    world.write_text(ROWS + "dan\n")
    result = run(world, "--json")
    assert isinstance(result.exception, InvalidInput)
    assert f"{world}, line 9: 1 cell" in str(result.exception)
    assert result.stdout == ""


def test_malformed_rows_of_standard_input_are_named_too() -> None:
    assert "standard input, line 2" in str(run("-", stdin="s,a\nt\n").exception)


def test_malformed_rows_are_counted_on_request(world: Path) -> None:
    world.write_text(ROWS + "dan\nann,forest\n")
    found = report(world, "--skip-bad")
    assert (found["skipped"], found["duplicates"], found["rows"]) == (1, 1, 8)
    assert "line 9" in found["first_skipped"]
    assert "Skipped 1 malformed row, the first:" in run(world, "--skip-bad").stdout


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--nodes", "2", "--nodes", "a"], "either how many nodes, or the name of each"),
        (["--nodes", "a,b,a"], "twice"),
        (["--nodes", "0"], "--nodes"),
        (["--ordering", "random"], "--ordering"),
        (["--capacity", "0"], "neither a number of events/s above 0 nor 'receiver'"),
        (["--capacity", "much"], "'much' is neither"),
        (["--capacity", "1e-300"], "'1e-300' is neither"),
    ],
)
def test_wrong_use_ends_with_status_2(world: Path, options: Sequence[str], complaint: str) -> None:
    result = run(world, *options)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_node_needs_a_plain_name(world: Path) -> None:
    assert isinstance(run(world, "--nodes", "no spaces").exception, InvalidName)


def test_files_that_cannot_be_written_are_named(world: Path, tmp_path: Path) -> None:
    for file in ("plan.json", "plan.svg"):
        result = run(world, "--out", tmp_path / "nowhere" / file)
        assert isinstance(result.exception, UsageError)
        assert file in str(result.exception)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_is_drawn(world: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"plan.{suffix}"
    assert "picture" in report(world, "--out", picture, "--out", tmp_path / "plan.json")["seconds"]
    assert (tmp_path / "plan.json").exists()
    assert picture.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


def test_a_picture_needs_a_known_suffix_and_matplotlib(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "for a picture in .png, .svg or .pdf" in run(world, "--out", tmp_path / "plan.gif").stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(world, "--out", tmp_path / "plan.png")
    assert isinstance(result.exception, UsageError)
    assert "pip install 'gamecast[plots]'" in str(result.exception)


def test_a_plan_that_violates_a_condition_ends_with_status_1(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sequencing.conditions.violations", lambda *_: {"C3": "n1 and n2 are linked both ways"})
    result = run(world, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["conditions"] == {"C1": True, "C2": True, "C3": False, "C4": True}
    assert found["violations"] == {"C3": "n1 and n2 are linked both ways"}
    result = run(world)
    assert result.exit_code == 1
    assert "✗ C3" in result.stdout


COMMANDS = dict(plan.commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_few_options_and_an_example(name: str) -> None:
    command = COMMANDS[name]
    options = [each for each in command.params if isinstance(each, click.Option)]
    assert len(options) <= 8
    said = CliRunner().invoke(plan, [name, "--help"]).stdout
    assert f"Example:\n    gamecast plan {name} " in said
    assert all(option.opts[0] in said for option in options)


def test_plan_alone_shows_which_command_is_meant() -> None:
    said = CliRunner().invoke(plan, []).output
    for name in COMMANDS:
        assert f"gamecast plan {name} " in said


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["world.csv"], "plan size"),
        (["world.csv", "--topology", "latency.csv"], "plan places"),
        (["--from", "redis://localhost"], "plan improve URL"),
    ],
)
def test_the_former_command_names_the_new_one(arguments: Sequence[str], meant: str) -> None:
    result = CliRunner().invoke(plan, arguments)
    assert result.exit_code == 2
    assert f"{meant}`" in result.stderr


LATENCY = ",eu,us\neu,1,90\nus,80,1\n"
FAR = "subscriber,region\nann,forest\nbob,forest\ncid,desert\ndan,desert\n"
HOSTS = "subscriber,host\nann,eu\nbob,eu\ncid,us\ndan,us\n"


@pytest.fixture
def far(tmp_path: Path) -> list[Path]:
    """A membership, a topology and hosts."""
    files = [tmp_path / name for name in ("members.csv", "latency.csv", "hosts.csv")]
    for file, text in zip(files, (FAR, LATENCY, HOSTS), strict=True):
        file.write_text(text)
    return files


def placed(command: str, *arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(plan, [command, *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_number_and_places_are_found(far: Sequence[Path]) -> None:
    found = placed("places", *far)
    assert sorted(found["placement"]["hosts"].values()) == ["eu", "us"]
    assert found["placement"]["mean_ms"] == pytest.approx(2)
    members, latency, hosts = far
    assert placed("places", members, f"{latency}:rtt", hosts)["placement"]["mean_ms"] == pytest.approx(1)
    one = placed("places", *far, "--nodes", 1)["placement"]
    assert len(one["hosts"]) == 1


def test_nodes_stand_on_the_hosts_of_a_file_and_have_their_names(far: Sequence[Path], tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("host\nus\n")
    found = placed("places", *far, "--nodes", tmp_path / "nodes.csv", "--nodes", "fra,nyc")["placement"]
    assert found["hosts"] == {"fra": "us"}
    missing = CliRunner().invoke(plan, ["places", *map(str, far), "--nodes", str(tmp_path / "none.csv")])
    assert "none.csv" in str(missing.exception)
    assert "need a topology" in str(run(far[0], "--nodes", tmp_path / "nodes.csv").exception)


def test_a_topology_has_options_behind_its_name(far: Sequence[Path]) -> None:
    members, latency, hosts = map(str, far)
    wrong = CliRunner().invoke(plan, ["places", members, f"{latency}:half", hosts])
    assert "'half' is neither rtt nor weight=NAME" in str(wrong.exception)
    missing = CliRunner().invoke(plan, ["places", members, f"{latency}x:rtt", hosts])
    assert "there is no such file" in str(missing.exception)


def test_a_plan_that_was_written_is_checked(far: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    made = placed("places", *far, "--out", out)
    members, latency, hosts = far
    found = placed("check", out, members, latency, hosts)
    for name in ("mean_ms", "p95_ms", "hosts"):
        assert found["placement"][name] == made["placement"][name]
    assert found["node_load"] == made["node_load"]
    assert found["conditions"] == {"C1": True, "C2": True, "C3": True, "C4": True}
    limited = CliRunner().invoke(plan, ["check", str(out), str(members), "--capacity", "0.5"])
    assert limited.exit_code == 1
    assert "The busiest node carries 1 events/s, more than the 0.5 that it may." in " ".join(limited.stdout.split())


def test_a_plan_for_others_is_not_sound(far: Sequence[Path], tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    placed("places", *far, "--out", out)
    far[0].write_text(FAR + "ann,desert\nbob,desert\n")
    both = CliRunner().invoke(plan, ["check", str(out), str(far[0])])
    assert both.exit_code == 1
    assert "✗ C4" in both.stdout
    far[0].write_text(FAR + "ann,moor\n")
    assert "region 'moor'" in str(CliRunner().invoke(plan, ["check", str(out), str(far[0])]).exception)


def test_nodes_may_have_dots_in_their_names(world: Path) -> None:
    assert report(world, "--nodes", "fra.1,tok.2")["node_load"]["of_nodes"].keys() == {"fra.1", "tok.2"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nodes": 3}', '{"nodes": {"n1": {"host": null}}}'])
def test_what_is_no_plan_is_named(text: str, far: Sequence[Path], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    wrong = CliRunner().invoke(plan, ["check", str(tmp_path / "plan.json"), str(far[0])])
    assert isinstance(wrong.exception, InvalidInput)
    assert "plan.json" in str(wrong.exception)
    assert "Error(" not in str(wrong.exception)


def test_the_order_may_hold_overlaps_too(tmp_path: Path) -> None:
    rows = "a,cell:0:0\nb,cell:0:1\n"
    assert report("-", "--ordering", "causal,grid", stdin=rows)["ordering"] == "causal"
    assert "No atom is needed: no subscriber" not in run("-", "--ordering", "grid", stdin=rows).stdout
    (tmp_path / "pairs.csv").write_text("cell:0:0,cell:0:1\n")
    assert report("-", "--ordering", tmp_path / "pairs.csv", stdin=rows)["components"] == 1
    assert "'nowhere.csv' is none of" in run("-", "--ordering", "acyclic,nowhere.csv", stdin=rows).stderr
