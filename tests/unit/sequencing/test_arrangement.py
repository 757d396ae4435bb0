"""Oriented trees: where walks meet, and the paths that ingresses determine."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sequencing.arrangement import Arrangement, Meetings, Tree, arrange, meetings
from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.plan import Ordering

CHAIN = Membership.of({"s": "ab", "t": "ab", "u": "bc", "v": "bc"})
"""b meets a and c; a and c do not meet."""


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    size = draw(st.integers(1, 7))
    edges = []
    for vertex in range(1, size):
        other = draw(st.integers(0, vertex - 1))
        edges.append(draw(st.sampled_from([(vertex, other), (other, vertex)])))
    return Tree(size, tuple(edges))


@given(trees())
def test_two_walks_that_share_a_vertex_share_the_meeting_vertex(tree: Tree) -> None:
    vertices = range(tree.size)
    walks = [tree.walk(u, v) for u, v in product(vertices, vertices) if tree.distance[u, v] >= 0]
    meeting = tree.meeting
    assert (meeting == meeting.T).all()
    for one, other in product(walks, walks):
        first = int(meeting[one[0], other[0]])
        if shared := [vertex for vertex in one if vertex in other]:
            assert shared[0] == first
        assert first < 0 or (tree.distance[one[0], first] >= 0 and tree.distance[other[0], first] >= 0)


def test_on_a_line_the_later_vertex_is_the_meeting_vertex() -> None:
    line = Tree.line(4)
    assert line.meeting.tolist() == np.maximum.outer(np.arange(4), np.arange(4)).tolist()
    assert line.walk(1, 3) == (1, 2, 3)
    with pytest.raises(PlanError, match="no way from vertex 3 to vertex 1"):
        line.walk(3, 1)


def test_edges_that_close_a_loop_are_refused() -> None:
    with pytest.raises(PlanError, match="closes a loop"):
        _ = Tree(3, ((0, 1), (1, 2), (0, 2))).distance
    with pytest.raises(PlanError, match="closes a loop"):
        _ = Tree(2, ((0, 1), (1, 0))).distance


def test_on_an_in_tree_paths_end_where_the_furthest_neighbour_is_met() -> None:
    arranged = arrange(meetings(CHAIN, "overlap"), Tree.towards([2, 2, -1]), np.array([0, 1, 1]))
    assert (arranged.ingress.tolist(), arranged.egress.tolist()) == ([0, 1, 1], [2, 2, 1])
    assert arranged.atom_vertex.tolist() == [2, 1]
    assert arranged.lengths.tolist() == [2, 2, 1]
    assert arranged.loads(np.array([1.0, 10.0, 100.0])).tolist() == [1.0, 110.0, 11.0]


def test_ingresses_without_paths_are_refused() -> None:
    wanted = meetings(CHAIN, "overlap")
    with pytest.raises(PlanError, match="never do"):
        arrange(wanted, Tree(3, ((0, 1), (0, 2))), np.array([1, 2, 2]))
    with pytest.raises(PlanError, match="two places"):
        arrange(wanted, Tree(3, ((0, 1), (0, 2))), np.array([1, 0, 2]))


def test_on_an_out_tree_the_mirror_image_of_an_in_tree_is_found() -> None:
    arranged = arrange(meetings(CHAIN, "overlap"), Tree(3, ((0, 1), (0, 2))), np.array([0, 0, 2]))
    assert [path(arranged, c) for c in range(3)] == [(0,), (0, 2), (2,)]


def path(arranged: Arrangement, c: int) -> tuple[int, ...]:
    return arranged.tree.walk(int(arranged.ingress[c]), int(arranged.egress[c]))


@pytest.mark.parametrize(("ordering", "pairs"), [("overlap", 0), ("acyclic", 3), ("causal", 3)])
def test_what_has_to_meet_depends_on_the_ordering(ordering: Ordering, pairs: int) -> None:
    wanted: Meetings = meetings(Membership.of({"s1": "ab", "s2": "bc", "s3": "ca"}), ordering)
    assert len(wanted.left) == len(wanted.right) == pairs
    assert wanted.ordered.tolist() == [pairs > 0] * 3


def test_twins_meet_themselves_and_classes_with_nobody_to_meet_are_left_alone() -> None:
    wanted = meetings(Membership.of({"s": "ab", "t": "ab", "u": "c"}, ["d"]), "acyclic")
    assert wanted.twins.tolist() == [0]
    assert wanted.ordered.tolist() == [True, False, False]
    arranged = arrange(wanted, Tree.line(2), np.array([1, 1, 1]))
    assert (arranged.ingress.tolist(), arranged.lengths.tolist()) == ([1, -1, -1], [1, 1, 1])
