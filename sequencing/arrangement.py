"""Lay paths on an oriented tree, so that regions that must be ordered against each other meet.

The vertices of the tree become sequencing nodes. A region's path is a directed path of the tree; twins share theirs.

**An ingress for each class determines the paths.** Let R(u) be the vertices that can be reached from u along the
edges. Take two classes that enter at u and v. R(u) and R(v) are subtrees, so what they have in common is a subtree S;
if it is not empty, both walks enter it at the same vertex m: the walk from u to v's entry passes u's entry and the
other way round, and no edge runs both ways. Any two directed paths from u and from v that share a vertex share m. So
the only choice is where each class enters; its path has to pass the meeting vertices m with all its neighbours, and
ends at the furthest of them. It exists if these lie on one directed path. Twins lose nothing by sharing theirs:
subtrees that meet pairwise have a vertex in common (Helly), so two twins and each of their neighbours meet in one
vertex, and the part that the twins' paths share already passes all of these.

**The conditions** (Lumezanu 2006, §3.2 asks for C1 and C2; see `sequencing.conditions` for C3 and C4):

- C1: a path is a walk from the ingress to the furthest meeting vertex of a tree, without a repeat;
- C2: all paths use edges of one tree;
- C3: every edge is used in its own direction;
- C4: the atom of two classes lives on their meeting vertex, which both paths pass.

**Families.** On an *in-tree*, whose edges all run towards a root, any two walks meet and the meeting vertices of one
class lie above it in a row: every choice of ingresses is a plan. A *line* is an in-tree whose meeting vertex is the
later of the two (a path decomposition of the overlap graph); other in-trees are tree decompositions with vertical
bags. Reversing all edges turns in-trees into out-trees with paths of the same lengths. On other oriented trees some
choices have no paths, but everything on one vertex always has. A forest is a tree with some unused edges, so trees
cover all possible plans.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sequencing.errors import PlanError
from sequencing.membership import Membership
from sequencing.overlaps import IntArray, TwinClasses, class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import Ordering


@dataclass(frozen=True)
class Meetings:
    """The classes of twins that have to meet: the pairs ``left[i] < right[i]``, and each class in ``twins`` with
    itself.
    """

    classes: TwinClasses
    left: IntArray
    right: IntArray
    twins: IntArray

    @cached_property
    def ordered(self) -> npt.NDArray[np.bool_]:
        """For each class, whether it meets any. The other classes may be anywhere."""
        ordered = np.zeros(len(self.classes.members), bool)
        ordered[self.left] = ordered[self.right] = ordered[self.twins] = True
        return ordered


def meetings(membership: Membership, ordering: Ordering) -> Meetings:
    """Return the pairs that have to meet: double overlaps for ``overlap``, else observable pairs, and joint ones."""
    together = membership.meeting
    classes = twin_classes(together)
    left, right = class_pairs_to_order(together, classes, ordering)
    return Meetings(classes, left, right, twins_to_order(classes, ordering))


@dataclass(frozen=True)
class Tree:
    """An oriented forest on the vertices 0 … size-1; raises `PlanError` where the edges, undirected, close a loop."""

    size: int
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def line(cls, size: int) -> Tree:
        """Return 0 → 1 → … → size-1."""
        return cls(size, tuple((at, at + 1) for at in range(size - 1)))

    @classmethod
    def towards(cls, parents: Iterable[int]) -> Tree:
        """Return the in-tree in which each vertex has an edge to its parent, roots (-1) none."""
        parents = tuple(parents)
        return cls(len(parents), tuple((vertex, parent) for vertex, parent in enumerate(parents) if parent >= 0))

    @cached_property
    def distance(self) -> IntArray:
        """size × size: edges on the walk from the row's vertex to the column's, -1 where there is no walk."""
        edges = np.full((self.size, self.size), -1, np.int64)
        for vertex in self._sinks_first:
            for after in self._after[vertex]:
                edges[vertex] = np.maximum(edges[vertex], np.where(edges[after] >= 0, edges[after] + 1, -1))
            edges[vertex, vertex] = 0
        return edges

    @cached_property
    def meeting(self) -> IntArray:
        """size × size: the first vertex on both walks, -1 where the two never meet."""
        reaches = self.distance >= 0
        common = np.full((self.size, self.size), -1, np.int64)
        vertices = np.arange(self.size)
        for vertex in self._sinks_first:
            for after in self._after[vertex]:
                common[vertex] = np.maximum(common[vertex], common[after])
            common[vertex][reaches[vertex]] = vertices[reaches[vertex]]
            common[vertex][reaches[:, vertex]] = vertex
        return common

    def walk(self, start: int, end: int) -> tuple[int, ...]:
        """Return the vertices from ``start`` to ``end``, both included; raises `PlanError` if no walk leads there."""
        if self.distance[start, end] < 0:
            raise PlanError(f"there is no way from vertex {start} to vertex {end}")
        vertices = [start]
        while vertices[-1] != end:
            vertices.append(next(after for after in self._after[vertices[-1]] if self.distance[after, end] >= 0))
        return tuple(vertices)

    @cached_property
    def _after(self) -> list[list[int]]:
        after: list[list[int]] = [[] for _ in range(self.size)]
        for here, there in self.edges:
            after[here].append(there)
        return after

    @cached_property
    def _sinks_first(self) -> list[int]:
        """The vertices, each after those that its edges lead to. C2 is checked at the same time."""
        joined = list(range(self.size))

        def group(vertex: int) -> int:
            while joined[vertex] != vertex:
                joined[vertex] = vertex = joined[joined[vertex]]
            return vertex

        for here, there in self.edges:
            if group(here) == group(there):
                raise PlanError(f"the edge {here} → {there} closes a loop")
            joined[group(here)] = group(there)
        before: list[list[int]] = [[] for _ in range(self.size)]
        for here, there in self.edges:
            before[there].append(here)
        waiting = [len(after) for after in self._after]
        order = [vertex for vertex in range(self.size) if not waiting[vertex]]
        for vertex in order:
            for here in before[vertex]:
                waiting[here] -= 1
                if not waiting[here]:
                    order.append(here)
        return order


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Paths on a tree: class c enters at ``ingress[c]`` and leaves at ``egress[c]``; both -1 for classes without an
    atom.

    ``atom_vertex[i]`` is where the atom of the i-th pair of the meetings lives; that of a class with itself lives at
    the class's ingress.
    """

    meetings: Meetings
    tree: Tree
    ingress: IntArray
    egress: IntArray
    atom_vertex: IntArray

    @property
    def lengths(self) -> IntArray:
        """The number of vertices on each class's path; 1 for classes without an atom."""
        inside = self.meetings.ordered
        counts = np.ones(len(self.ingress), np.int64)
        counts[inside] += self.tree.distance[self.ingress[inside], self.egress[inside]]
        return counts

    def loads(self, rates: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the events/s that pass each vertex; ``rates``: events/s of each class. Classes without an atom are
        left out."""
        size, inside = self.tree.size, self.meetings.ordered
        kinds = self.ingress[inside] * size + self.egress[inside]
        unique, kind_of = np.unique(kinds, return_inverse=True)
        loads = np.zeros(size)
        for kind, rate in zip(unique.tolist(), np.bincount(kind_of, rates[inside]).tolist(), strict=True):
            loads[list(self.tree.walk(*divmod(kind, size)))] += rate
        return loads


def arrange(wanted: Meetings, tree: Tree, ingress: IntArray) -> Arrangement:
    """Return the shortest paths from the given ingresses (one for each class; ignored for classes without an atom).

    Raises `PlanError` where they have none, which on an in-tree cannot happen.
    """
    ingress = np.where(wanted.ordered, ingress, -1)
    meeting = tree.meeting[ingress[wanted.left], ingress[wanted.right]]
    if (meeting < 0).any():
        raise PlanError("two classes that must meet enter where their walks never do")
    classes = np.concatenate([wanted.left, wanted.right])
    passes = np.concatenate([meeting, meeting])
    away = tree.distance[ingress[classes], passes]
    furthest = np.zeros(len(ingress), np.int64)
    np.maximum.at(furthest, classes, away)
    egress = ingress.copy()
    ends = away == furthest[classes]
    egress[classes[ends]] = passes[ends]
    if (tree.distance[passes, egress[classes]] < 0).any():
        raise PlanError("a class would have to leave the tree in two places")
    return Arrangement(wanted, tree, ingress, egress, meeting)
