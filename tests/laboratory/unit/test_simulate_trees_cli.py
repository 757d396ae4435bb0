"""``gamecast lab simulate trees``: what it reads, prints and refuses."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from cli.main import cli
from gamecast.errors import InvalidInput, UsageError

LINKS = "a,b,delay_ms\ns,m,1\nm,x,1\nm,y,2\nx,y,1.5\ny,z,\n"


@pytest.fixture
def links(tmp_path: Path) -> Path:
    file = tmp_path / "world_edges.csv"
    file.write_text(LINKS)
    return file


def trees(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["lab", "simulate", "trees", *map(str, arguments)])


def test_a_tree_is_cheaper_than_unicast_and_as_fast(links: Path) -> None:
    result = trees(links, "--source", "s", "--destinations", "x,y", "--json")
    document = orjson.loads(result.stdout)
    assert (document["nodes"], document["links"]) == (5, 5)
    assert document["notes"] == ["1 of 5 links have no delay_ms; they get 1.25 ms, the median of the others"]
    by_kind = {tree["kind"]: tree for tree in document["trees"]}
    assert by_kind["unicast"]["network_cost"] == 5
    assert by_kind["reverse paths"]["network_cost"] == 4
    assert by_kind["Steiner (KMB)"]["network_cost"] == 3.5
    assert by_kind["unicast"]["destination_cost"] == by_kind["reverse paths"]["destination_cost"] == 2.5


def test_a_graph_in_gml_gives_the_same_as_its_links(links: Path, tmp_path: Path) -> None:
    file = tmp_path / "graph.gml"
    edges = [(0, 1, 1), (1, 2, 1), (1, 3, 2), (2, 3, 1.5), (3, 4, 1.25)]
    nodes = "".join(f'node [ id {n} label "same" ]\n' for n in range(5))
    ways = "".join(f"edge [ source {u} target {v} latency_ms {ms} ]\n" for u, v, ms in edges)
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
        (["--weight", "km"], "km"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(links: Path, arguments: list[str], said: str) -> None:
    result = trees(links, *arguments)
    assert isinstance(result.exception, UsageError | InvalidInput)
    assert said in str(result.exception)


def test_a_matrix_has_no_links_to_make_trees_of(tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text("from,a,b\na,0,1\nb,1,0\n")
    assert "trees need links" in str(trees(file).exception)
