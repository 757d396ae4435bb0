"""``gamecast simulate trees``: what it reads, prints and refuses."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from gamecast.cli.main import cli
from gamecast.errors import UsageError

LINKS = "a,b,delay_ms\ns,m,1\nm,x,1\nm,y,2\nx,y,1.5\ns,z,\n"


@pytest.fixture
def links(tmp_path: Path) -> Path:
    file = tmp_path / "links.csv"
    file.write_text(LINKS)
    return file


def trees(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["simulate", "trees", *map(str, arguments)])


def test_a_tree_is_cheaper_than_unicast_and_as_fast(links: Path) -> None:
    result = trees(links, "--source", "s", "--destinations", "x,y", "--json")
    document = orjson.loads(result.stdout)
    assert (document["nodes"], document["links"], document["skipped_links"]) == (4, 4, 1)
    by_kind = {tree["kind"]: tree for tree in document["trees"]}
    assert by_kind["unicast"]["network_cost"] == 5
    assert by_kind["reverse paths"]["network_cost"] == 4
    assert by_kind["Steiner (KMB)"]["network_cost"] == 3.5
    assert by_kind["unicast"]["destination_cost"] == by_kind["reverse paths"]["destination_cost"] == 2.5


def test_a_graph_in_gml_gives_the_same_as_its_links(links: Path, tmp_path: Path) -> None:
    file = tmp_path / "graph.gml"
    edges = [(0, 1, 1), (1, 2, 1), (1, 3, 2), (2, 3, 1.5)]
    nodes = "".join(f'node [ id {n} label "same" ]\n' for n in range(4))
    ways = "".join(f"edge [ source {u} target {v} delay_ms {ms} ]\n" for u, v, ms in edges)
    file.write_text(f"graph [\n{nodes}{ways}]\n")
    ours = orjson.loads(trees(file, "--source", 0, "--destinations", "2,3", "--json").stdout)["trees"]
    theirs = orjson.loads(trees(links, "--source", "s", "--destinations", "x,y", "--json").stdout)["trees"]
    assert [tree["network_cost"] for tree in ours] == [tree["network_cost"] for tree in theirs]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "s", "--destinations", "x,nowhere"], "'nowhere' is no node of the graph"),
        (["--source", "s", "--destinations", "s"], "is the source and a destination"),
        (["--destinations", "x"], "--destinations needs --source"),
        (["--source", "s", "--destinations", "y", "--bound-ms", "2.5"], "the fastest takes 3: raise the bound"),
        (["--weight", "km"], "no link has a 'km'"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(links: Path, arguments: list[str], said: str) -> None:
    result = trees(links, *arguments)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_a_delay_that_is_no_number_is_refused_with_its_row(links: Path) -> None:
    links.write_text(LINKS.replace("m,y,2", "m,y,-2"))
    result = trees(links)
    assert f"{links}, row 4: the link between 'm' and 'y' has the delay_ms '-2'" in str(result.exception)
