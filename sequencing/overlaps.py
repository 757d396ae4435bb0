"""Which pairs of regions must be ordered against each other, by sparse algebra.

*Double overlaps* (seed 002 §3): with M the subscribers × regions incidence, MᵀM counts the common subscribers of
each pair of regions; a pair with two or more is double-overlapped, because those two could disagree.

*Rings.* Ordering double overlaps alone does not make the union of all delivery orders acyclic. Take three
subscribers and regions a, b, c with s1 ∈ a,b; s2 ∈ b,c; s3 ∈ c,a: no pair is double-overlapped, yet s1 may deliver
x∈a before y∈b, s2 y before z∈c, and s3 z before x. In general a cycle x₁ <ₛ₁ x₂ <ₛ₂ … <ₛₖ x₁ walks the bipartite
incidence graph from region to subscriber to region and closes, so it lies within one of that graph's blocks
(biconnected components): both edges (s, a) and (s, b) of each step do. Conversely a block that holds both lets the
cycle close. Hence the *observable* pairs: a, b such that some subscriber's two edges to them share a block. A double
overlap is the shortest such ring (a cycle of four edges) and is always among them; a region with a single subscriber
never is. Ordering exactly the observable pairs makes the union of all delivery orders acyclic; ordering fewer does not.

*Causality* needs no further pairs, provided that subscribers publish what they were moved to after what moved them. Let
s have regions a and b, and let a chain of causes lead from x∈a to y∈b. Each of its steps is at a subscriber, from a
region that it delivers to one that it publishes to. If the chain leads around s, then s closes it to a cycle that holds
both its edges, and the pair is observable. If not, s itself is on every chain from a to b, and had delivered x before
it published what the chain went on with.

*Twins.* Regions with the same subscribers are indistinguishable to this question, so one of them stands for all:
worlds in which a few servers see many regions have few classes of twins however many regions they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sequencing.blocks import NO_BLOCK, blocks
from sequencing.membership import Membership
from sequencing.plan import Ordering

IntArray = npt.NDArray[np.int64]

DENSE_ENTRIES_MAX = 4_096
"""Up to this size a matrix of zeros and ones is multiplied faster with its zeros."""


@dataclass(frozen=True, slots=True)
class TwinClasses:
    """Regions grouped by equal sets of subscribers: ``members[c]`` are the region indices of class c."""

    members: tuple[IntArray, ...]
    subscribers: IntArray
    """The number of subscribers that each class has."""

    @property
    def representatives(self) -> IntArray:
        """One region of each class."""
        return np.array([member[0] for member in self.members], np.int64)


def count_double_overlaps(membership: Membership) -> int:
    """Return the number of pairs of regions with two or more subscribers in common."""
    classes = twin_classes(membership)
    sizes = np.array([len(member) for member in classes.members], np.int64)
    left, right = overlapped_class_pairs(membership, classes)
    within = np.where(classes.subscribers >= 2, sizes * (sizes - 1) // 2, 0)
    return int(np.sum(sizes[left] * sizes[right]) + np.sum(within))


def class_pairs_to_order(membership: Membership, classes: TwinClasses, ordering: Ordering) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes that an ordering is to order: the double-overlapped, or all observable."""
    pairs = overlapped_class_pairs if ordering == "overlap" else observable_class_pairs
    return pairs(membership, classes)


def overlapped_class_pairs(membership: Membership, classes: TwinClasses) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes whose regions are double-overlapped."""
    return _pairs_in_common(membership.incidence[:, classes.representatives], common_min=2)


def observable_class_pairs(membership: Membership, classes: TwinClasses) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes whose regions' order can be observed, directly or around a ring."""
    # Two of each class: on whatever cycle a third twin lies, one of the others can take its place.
    kept = np.sort(np.concatenate([np.empty(0, np.int64), *(member[:2] for member in classes.members)]))
    split = _split_by_block(membership.incidence[:, kept])
    return _pairs_in_common(split[:, np.searchsorted(kept, classes.representatives)], common_min=1)


def twin_classes(membership: Membership) -> TwinClasses:
    """Group the regions by their sets of subscribers; classes are ordered by their first region."""
    by_region = membership.incidence.tocsc()
    by_region.sort_indices()
    members: dict[bytes, list[int]] = {}
    for region, (start, end) in enumerate(pairwise(by_region.indptr)):
        members.setdefault(by_region.indices[start:end].tobytes(), []).append(region)
    counts = np.diff(by_region.indptr)
    groups = tuple(np.array(group, np.int64) for group in members.values())
    return TwinClasses(groups, np.array([counts[group[0]] for group in groups], np.int64))


def _pairs_in_common(incidence: sparse.csr_array, *, common_min: int) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of columns with so many rows in common."""
    if incidence.shape[0] * incidence.shape[1] < DENSE_ENTRIES_MAX:
        dense = incidence.toarray().astype(np.int64)
        first, second = np.nonzero(np.triu(dense.T @ dense, k=1) >= common_min)
        return first, second
    common = sparse.triu(incidence.T @ incidence, k=1).tocoo()
    enough = common.data >= common_min
    return common.row[enough].astype(np.int64), common.col[enough].astype(np.int64)


def _split_by_block(incidence: sparse.csr_array) -> sparse.csr_array:
    """Return the incidence with a row for each (subscriber, block) and without edges that lie on no cycle."""
    block_of = blocks(incidence)
    inside = block_of != NO_BLOCK
    subscribers = np.repeat(np.arange(incidence.shape[0], dtype=np.int64), np.diff(incidence.indptr))[inside]
    unique, rows = np.unique(subscribers * (len(block_of) + 1) + block_of[inside], return_inverse=True)
    columns = incidence.indices[inside]
    return sparse.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=(len(unique), incidence.shape[1]))
