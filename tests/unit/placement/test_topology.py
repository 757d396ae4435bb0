"""Hosts and delays: shortest paths, what is refused, and what each kind of file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from placement.topologies.reading import read_topology
from placement.topology import matrix, network
from sequencing.errors import InvalidInput, UsageError
from tests.shared_data import SHARED_DATA, needs_shared_data

ALL = np.arange(3)
TRIANGLE = np.array([[0, 1], [1, 2], [0, 2]])


def test_a_network_takes_the_shortest_way_and_of_parallel_links_the_fastest() -> None:
    found = network("abc", np.array([[0, 1], [1, 2], [0, 2], [2, 1]]), np.array([1.0, 5.0, 9.0, 2.0]))
    assert found.ms_from(ALL).tolist() == [[0, 1, 3], [1, 0, 2], [3, 2, 0]]
    assert found.ms_to(np.array([2])).tolist() == [[3, 2, 0]]


def test_a_link_of_no_length_is_a_link() -> None:
    found = network("abc", np.array([[0, 1], [1, 2]]), np.array([0.0, 5.0]))
    assert found.ms_from(ALL).tolist() == [[0, 0, 5], [0, 0, 5], [5, 5, 0]]


def test_a_disconnected_network_is_refused_and_names_who_is_lost() -> None:
    with pytest.raises(UsageError, match="no link leads from a to c: add links"):
        network("abc", np.array([[0, 1]]), np.array([1.0]))


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
def test_a_link_with_an_impossible_delay_is_refused_and_names_its_ends(delay: float) -> None:
    with pytest.raises(UsageError, match="the link b – c has a delay of"):
        network("abc", TRIANGLE, np.array([1.0, delay, 1.0]))


def test_a_matrix_is_taken_as_it_is_and_its_diagonal_is_what_machines_at_one_place_are_apart() -> None:
    found = matrix("ab", np.array([[1.0, 7.0], [9.0, 2.0]]))
    assert found.ms_from(np.array([0])).tolist() == [[1, 7]]
    assert found.ms_to(np.array([0])).tolist() == [[1, 9]]
    assert found.roomy
    assert not matrix("ab", np.array([[0.0, 7.0], [9.0, 0.0]])).roomy


def test_hosts_must_have_names_of_their_own() -> None:
    with pytest.raises(UsageError, match="the host 'a' is there twice"):
        matrix("aa", np.zeros((2, 2)))


def written(directory: Path, name: str, text: str) -> Path:
    (directory / name).write_text(text, encoding="utf-8")
    return directory / name


def test_round_trips_are_halved_and_rows_may_stand_in_another_order_than_columns(tmp_path: Path) -> None:
    file = written(tmp_path, "m.csv", "from,a,b\nb,30,4\na,2,20\n")
    found = read_topology(file, rtt=True)
    assert found.names == ("b", "a")
    assert found.ms_from(np.array([0])).tolist() == [[2, 15]]
    assert any("asymmetric" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("from,a,b\na,0,\nb,1,0\n", "line 2: row 'a', column 'b' is missing"),
        ("from,a,b\na,0,1\nb,-2,0\n", "line 3: row 'b', column 'a' is '-2', not a delay of 0 ms or more"),
        ("from,a,b\na,0,1\nb,far,0\n", "line 3: row 'b', column 'a' is 'far'"),
        ("from,a,b\na,0,nan\nb,1,0\n", "line 2: row 'a', column 'b' is 'nan'"),
        ("from,a,b\na,0\nb,1,0\n", "line 2: row 'a' has 1 cells of 2"),
        ("from,a,b\na,0,1\n", "not square: 'b' has no row"),
        ("from,a\na,0\nb,1\n", "not square: 'b' has no column"),
        ("from,a,b\na,0,1\na,0,1\nb,1,0\n", "line 3: the row 'a' is there twice"),
        ("", "holds no matrix"),
    ],
)
def test_a_matrix_that_is_none_is_refused_by_row_and_column(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=r"m\.csv") as caught:
        read_topology(written(tmp_path, "m.csv", text))
    assert complaint in str(caught.value)


def test_blank_delays_of_a_table_get_the_median_of_the_others_and_are_told_of(tmp_path: Path) -> None:
    written(tmp_path, "net_nodes.csv", "node,label\n0,Oslo\n1,Rome\n2,Oslo\n")
    file = written(tmp_path, "net_edges.csv", "a,b,delay_ms\n0,1,4\n1,2,\n0,2,8\n")
    found = read_topology(file)
    assert found.names == ("Oslo (0)", "Rome", "Oslo (2)")
    assert found.ms_from(np.array([1])).tolist() == [[4, 0, 6]]
    assert found.notes == ("1 of 3 links have no delay_ms; they get 6 ms, the median of the others",)
    assert read_topology(file, blank_ms=1.0).ms_from(np.array([1])).tolist() == [[4, 0, 1]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b,delay_ms\n0,1,-4\n", "line 2: delay_ms of 0 – 1 is '-4'"),
        ("a,b,length\n0,1,4\n", "there is no column 'delay_ms'"),
        ("a,b,delay_ms\n0,1,\n", "no edge has a delay_ms"),
        ("a,b,delay_ms\n0,1,2\n2,3,2\n", "is disconnected, in 2 parts"),
        ("a,b,delay_ms\n0,1\n", "line 2: has 2 cells of 3"),
    ],
)
def test_a_table_of_edges_that_is_none_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_topology(written(tmp_path, "net_edges.csv", text))
    assert complaint in str(caught.value)


GML = """graph [
  node [ id 0 label "x" ] node [ id 1 label "y" ] node [ id 2 label "z" ]
  edge [ source 0 target 1 latency_ms 3.0 km 9 ] edge [ source 1 target 2 %s km 1 ]
]"""
GRAPHML = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d" for="edge" attr.name="latency_ms" attr.type="double"/><graph edgedefault="undirected">
<node id="x"/><node id="y"/><edge source="x" target="y"><data key="d">2.5</data></edge></graph></graphml>"""


def test_graphs_are_read_by_an_edge_attribute(tmp_path: Path) -> None:
    found = read_topology(written(tmp_path, "g.gml", GML % "latency_ms 2.0"))
    assert found.names == ("x", "y", "z")
    assert found.ms_from(np.array([0])).tolist() == [[0, 3, 5]]
    by_km = read_topology(written(tmp_path, "g.gml", GML % ""), weight="km")
    assert by_km.ms_from(np.array([0])).tolist() == [[0, 9, 10]]
    assert read_topology(written(tmp_path, "g.graphml", GRAPHML)).ms_from(np.array([0])).tolist() == [[0, 2.5]]


@pytest.mark.parametrize(
    ("attribute", "complaint"),
    [
        ("", "the edge y – z has no latency_ms"),
        ("latency_ms -2", "of the edge y – z is -2, not a delay of 0 ms or more"),
    ],
)
def test_an_edge_of_a_graph_without_a_delay_is_refused(tmp_path: Path, attribute: str, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_topology(written(tmp_path, "g.gml", GML % attribute))
    assert complaint in str(caught.value)


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    for name in ("g.gml", "g.graphml"):
        with pytest.raises(InvalidInput, match="cannot be read as a graph"):
            read_topology(written(tmp_path, name, "neither <xml nor [ gml"))
    with pytest.raises(UsageError, match="is no topology by its name"):
        read_topology(tmp_path / "g.txt")


@needs_shared_data
def test_the_real_topologies_are_read_whole() -> None:
    clouds = read_topology(SHARED_DATA / "latency_aws_p50_ms.csv", rtt=True)
    assert len(clouds.names) == 33
    assert clouds.roomy
    for name, hosts, blank in (("cogentco", 197, 31), ("kdl", 754, 76)):
        found = read_topology(SHARED_DATA / f"topology_{name}_edges.csv")
        assert len(found.names) == hosts
        assert found.notes[0].startswith(f"{blank} of ")
        assert np.isfinite(found.ms_from(np.array([0]))).all()
