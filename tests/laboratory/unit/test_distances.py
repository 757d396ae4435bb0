"""Latency matrices, who stands where, and the stretch: what they mean, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from demo.match.hosting import Publication, Workload
from gamecast.errors import InvalidInput, UsageError
from laboratory.wan.run import spread
from laboratory.wan.stretch import stretch_of
from placement.topologies.distances import Distances, read_distances, stand

MATRIX = "from,a,b,c\na,0.5,10,20\nb,12,0,30\nc,20,30,1\n"


def file_of(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "matrix.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_cell_is_the_way_from_its_row_to_its_column_and_the_diagonal_is_kept(tmp_path: Path) -> None:
    found = read_distances(file_of(tmp_path, MATRIX))
    assert found.hosts == ("a", "b", "c")
    assert (found.ms("a", "b"), found.ms("b", "a"), found.ms("a", "a"), found.ms("b", "b")) == (10, 12, 0.5, 0)


def test_of_a_round_trip_one_way_is_half(tmp_path: Path) -> None:
    found = read_distances(file_of(tmp_path, MATRIX), rtt=True)
    assert (found.ms("a", "b"), found.ms("b", "a"), found.ms("a", "a")) == (5, 6, 0.25)


def test_rows_may_come_in_another_order_than_columns(tmp_path: Path) -> None:
    found = read_distances(file_of(tmp_path, "x,a,b\r\nb,3,4\r\n\r\na,1,2\r\n"))
    assert (found.ms("a", "b"), found.ms("b", "a")) == (2, 3)


def test_what_is_no_matrix_is_refused_with_file_row_and_column(tmp_path: Path) -> None:
    file = file_of(tmp_path, MATRIX.replace("12,0", ",0"))
    with pytest.raises(InvalidInput, match="row 'b', column 'a' is missing"):
        read_distances(file)


def test_hosts_that_are_joined_by_links_are_as_far_apart_as_the_shortest_way(tmp_path: Path) -> None:
    file = tmp_path / "world_edges.csv"
    file.write_text("a,b,delay_ms\nx,y,2\ny,z,3\nx,z,9\n")
    found = read_distances(file)
    assert (found.ms("x", "z"), found.ms("x", "x")) == (5, 0)


def test_a_host_that_the_matrix_lacks_is_refused_with_those_that_it_has() -> None:
    distances = Distances(("a", "b"), np.zeros((2, 2)))
    with pytest.raises(UsageError, match="--hosts: the matrix has no host 'x'; it has a, b"):
        stand(distances, servers=["s"], nodes=[], hosts="a, x", node_hosts=None)


def test_servers_and_nodes_stand_at_their_hosts_in_turn() -> None:
    distances = Distances(("a", "b", "c"), np.arange(9.0).reshape(3, 3))
    standing = stand(distances, servers=["s1", "s2", "s3"], nodes=["n1", "n2"], hosts="a, b", node_hosts="c")
    assert dict(standing.host_of) == {"s1": "a", "s2": "b", "s3": "a", "n1": "c", "n2": "c"}
    assert (standing.ms("s1", "s2"), standing.ms("s1", "s3"), standing.ms("n1", "n2")) == (1, 0, 8)


def test_the_stretch_of_a_destination_is_a_ratio_of_sums_over_what_others_sent() -> None:
    distances = Distances(("a", "b", "c"), np.array([[1.0, 10, 20], [12, 1, 30], [20, 30, 0]]))
    names = ["s1", "s2", "s3"]
    standing = stand(distances, servers=names, nodes=[], hosts=None, node_hosts=None)
    found = stretch_of({"s1": [("s2", 24.0), ("s3", 40.0), ("s1", 999.0)], "s2": [("s1", 30.0)], "s3": []}, standing)
    assert found.by_destination == {"s1": 2.0, "s2": 3.0}
    assert found.mean == 2.5
    assert (found.deliveries, found.delay_ms, found.direct_ms) == (3, 94 / 3, 42 / 3)
    assert found.as_dict()["ratio_of_means"] == 94 / 42


def test_what_arrives_from_no_distance_has_no_stretch() -> None:
    standing = stand(Distances(("a",), np.zeros((1, 1))), servers=["s1", "s2"], nodes=[], hosts=None, node_hosts=None)
    found = stretch_of({"s1": [("s2", 3.0)], "s2": []}, standing)
    assert found.by_destination == {}
    assert found.as_dict()["mean"] is None


def test_what_happened_at_one_time_is_spread_until_the_next() -> None:
    times = [0.0, 1.0, 1.0, 1.0, 1.0, 1.5, 9.0, 9.0]
    publications = tuple(Publication(t_s, "s", "r", f"e{n}", {}) for n, t_s in enumerate(times))
    workload = Workload("m", ("s",), {"s": frozenset("r")}, publications, 1, 0)
    after = spread(workload).publications
    assert [each.t_s for each in after] == [0.0, 1.0, 1.125, 1.25, 1.375, 1.5, 9.0, 9.5]
    assert [each.event for each in after] == [each.event for each in publications]
