"""`gamecast plan`: what it prints, what it writes, and with which status it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

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


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(plan, [str(argument) for argument in arguments], input=stdin)


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
    found = report(world, "--rates", rates, "--node", "solo")
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
        (["--nodes", "2", "--node", "a"], "either --nodes N or --node NAME"),
        (["--node", "a", "--node", "a"], "twice"),
        (["--nodes", "0"], "--nodes"),
        (["--ordering", "random"], "--ordering"),
        (["--capacity", "0"], "neither a number of events/s above 0 nor 'receiver'"),
        (["--capacity", "much"], "'much' is neither"),
    ],
)
def test_wrong_use_ends_with_status_2(world: Path, options: Sequence[str], complaint: str) -> None:
    result = run(world, *options)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_node_needs_a_plain_name(world: Path) -> None:
    assert isinstance(run(world, "--node", "no spaces").exception, InvalidName)


def test_files_that_cannot_be_written_are_named(world: Path, tmp_path: Path) -> None:
    for option, file in (("--out", "plan.json"), ("--picture", "plan.svg")):
        result = run(world, option, tmp_path / "nowhere" / file)
        assert isinstance(result.exception, UsageError)
        assert file in str(result.exception)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_is_drawn(world: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"plan.{suffix}"
    assert "picture" in report(world, "--picture", picture)["seconds"]
    assert picture.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


def test_a_picture_needs_a_known_suffix_and_matplotlib(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "must end in .png, .svg or .pdf" in str(run(world, "--picture", tmp_path / "plan.gif").exception)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(world, "--picture", tmp_path / "plan.png")
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


@pytest.mark.parametrize("option", ["--nodes", "--node", "--ordering", "--rates", "--out", "--picture", "--skip-bad"])
def test_help_names_every_option(option: str) -> None:
    assert option in run("--help").stdout
