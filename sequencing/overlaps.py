"""Find the pairs of regions that must be ordered against each other, by sparse algebra.

*Double overlaps* (Lumezanu 2006, §3): with M the subscribers × regions incidence, MᵀM counts the common subscribers of
each pair of regions; a pair with two or more is double-overlapped, because those two could disagree.

*Observable pairs.* Ordering double overlaps alone leaves two things open. Take three subscribers and regions a, b, c
with s1 ∈ a,b; s2 ∈ b,c; s3 ∈ c,a: no pair is double-overlapped, yet s1 may deliver x∈a before y∈b, s2 y before z∈c, and
s3 z before x: a cycle. Nor does it order history. The order of two regions that only one subscriber has today is
followed by others: by the same subscriber, when it comes back, and by each that asks for the history of both. They
see the same order only if something has kept it. Hence the *observable* pairs: those that at least one subscriber has.
Each double overlap is one, and each step of a ring.

With all of them ordered, by a node or an atom, every subscriber's order is a part of one acyclic order
(`sequencing.conditions`). A replay of regions of which all pairs are ordered gets the same part.

*Causality* needs no further pairs: a chain of causes goes from one region to another at a subscriber that has both, if
subscribers publish only to regions that they subscribe to, and after the events that caused theirs.

*Twins.* Regions with the same subscribers are indistinguishable to this question, so one of them represents all.
Worlds in which a few servers see many regions have few classes of twins, however many regions they have.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse

from sequencing.membership import Membership
from sequencing.plan import Ordering

IntArray = npt.NDArray[np.int64]

DENSE_ENTRIES_MAX = 4_096
"""Up to this size a matrix of zeros and ones is multiplied faster as a dense one."""


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
    left, right = class_pairs_to_order(membership, classes, "overlap")
    within = sizes[twins_to_order(classes, "overlap")]
    return int(np.sum(sizes[left] * sizes[right]) + np.sum(within * (within - 1) // 2))


def class_pairs_to_order(membership: Membership, classes: TwinClasses, ordering: Ordering) -> tuple[IntArray, IntArray]:
    """Return the pairs (i < j) of classes whose regions an ordering has to order."""
    return _pairs_in_common(membership.incidence[:, classes.representatives], common_min=_observers_min(ordering))


def twins_to_order(classes: TwinClasses, ordering: Ordering) -> IntArray:
    """Return the classes whose own regions an ordering has to order against each other."""
    several = np.fromiter((len(member) > 1 for member in classes.members), bool, len(classes.members))
    return np.flatnonzero(several & (classes.subscribers >= _observers_min(ordering)))


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
    """Return the pairs (i < j) of columns with at least this many rows in common."""
    if incidence.shape[0] * incidence.shape[1] < DENSE_ENTRIES_MAX:
        dense = incidence.toarray().astype(np.int64)
        first, second = np.nonzero(np.triu(dense.T @ dense, k=1) >= common_min)
        return first, second
    common = sparse.triu(incidence.T @ incidence, k=1).tocoo()
    enough = common.data >= common_min
    return common.row[enough].astype(np.int64), common.col[enough].astype(np.int64)


def _observers_min(ordering: Ordering) -> int:
    """Return how many common subscribers a pair needs to be ordered."""
    return 2 if ordering == "overlap" else 1
