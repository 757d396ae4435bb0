"""Lay the regions on a line, so that every path can be an interval of it.

Give each class of twin regions a slot on a line and let the atom of two classes live in the later of their slots. A
class's frames then enter at its own slot and leave at the slot of its last neighbour. Whatever the order of the line:

- C1: a region's slots form one interval, hence one path;
- C2: the union of intervals of a line is a forest;
- C3: every path runs from left to right;
- C4: the atom of a pair lies in the later slot, which the earlier class's interval reaches by construction.

So a plan always exists (this is a path decomposition of the overlap graph); the order only decides how long the
intervals are. Reverse Cuthill–McKee keeps neighbours close, component by component.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from sequencing.membership import Membership
from sequencing.overlaps import IntArray, TwinClasses, observable_class_pairs, overlapped_class_pairs, twin_classes
from sequencing.plan import Ordering


@dataclass(frozen=True, slots=True)
class SlottedAtom:
    """An atom before it has a node: the classes it orders (one or two) and its slot on the line."""

    classes: tuple[int, ...]
    slot: int


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Classes on a line. Slot p holds class ``line[p]``; its frames occupy the slots p … ``last_slot[p]``."""

    classes: TwinClasses
    line: IntArray
    last_slot: IntArray
    atoms: tuple[SlottedAtom, ...]
    unordered: IntArray
    """Classes without an atom: they need no place on the line."""


def arrange(membership: Membership, ordering: Ordering) -> Arrangement:
    """Arrange the regions of a membership for an ordering."""
    classes = twin_classes(membership)
    pairs = observable_class_pairs if ordering == "acyclic" else overlapped_class_pairs
    left, right = pairs(membership, classes)
    twins = [c for c, member in enumerate(classes.members) if len(member) > 1 and classes.subscribers[c] > 1]
    count = len(classes.members)
    graph = sparse.csr_array((np.ones(len(left), np.int8), (left, right)), shape=(count, count))
    graph = (graph + graph.T).tocsr()
    ordered = np.zeros(count, bool)
    ordered[left] = ordered[right] = ordered[twins] = True
    line = _line(graph, ordered)
    slot_of = np.full(count, -1, np.int64)
    slot_of[line] = np.arange(len(line))
    last_slot = np.arange(len(line))
    np.maximum.at(last_slot, slot_of[left], slot_of[right])
    np.maximum.at(last_slot, slot_of[right], slot_of[left])
    atoms = [SlottedAtom((c,), int(slot_of[c])) for c in twins]
    slots = np.maximum(slot_of[left], slot_of[right])
    atoms += [SlottedAtom((a, b), s) for a, b, s in zip(left.tolist(), right.tolist(), slots.tolist(), strict=True)]
    return Arrangement(classes, line, last_slot, tuple(atoms), np.flatnonzero(~ordered))


def _line(graph: sparse.csr_array, ordered: np.ndarray) -> IntArray:
    """Return the classes that need order: one component after the other, reverse Cuthill–McKee within each."""
    if not ordered.any():
        return np.empty(0, np.int64)
    _, component_of = csgraph.connected_components(graph, directed=False)
    order = np.asarray(csgraph.reverse_cuthill_mckee(graph, symmetric_mode=True), np.int64)
    order = order[ordered[order]]
    by_component: IntArray = order[np.argsort(component_of[order], kind="stable")]
    return by_component
