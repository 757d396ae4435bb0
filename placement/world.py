"""A world to be arranged, in numbers: what must meet, its weights, and a bound for every arrangement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.objective import FloatArray, PlanObjective, path_weights
from sequencing.arrangement import Meetings
from sequencing.overlaps import IntArray


@dataclass(frozen=True, slots=True)
class Items:
    """Items that enter somewhere: ``weights`` of path lengths, ``rates`` in events/s, and the ``neighbours`` that each
    item meets.
    """

    weights: Sequence[float]
    rates: Sequence[float]
    neighbours: Sequence[Sequence[int]]


@dataclass(frozen=True)
class World:
    """The task of an arrangement: the meetings, the events/s of each region, how arrangements are valued, and the
    number of nodes."""

    wanted: Meetings
    rates: FloatArray
    objective: PlanObjective
    nodes: int

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of each region's path length."""
        return path_weights(self.rates)

    @cached_property
    def class_rates(self) -> FloatArray:
        """Events/s of each class."""
        return self._by_class(self.rates)

    @cached_property
    def class_weights(self) -> FloatArray:
        """The weight of each class's path length."""
        return self._by_class(self.weights)

    @cached_property
    def loose(self) -> IntArray:
        """The regions that need no atom, the busiest first."""
        members = self.wanted.classes.members
        groups = [members[c] for c in np.flatnonzero(~self.wanted.ordered).tolist()]
        regions = np.sort(np.concatenate(groups)) if groups else np.empty(0, np.int64)
        busiest_first: IntArray = regions[np.argsort(-self.rates[regions], kind="stable")]
        return busiest_first

    @cached_property
    def vertices(self) -> int:
        """The useful number of vertices: no more than nodes, nor than items to put on them."""
        return max(1, min(self.nodes, int(self.wanted.ordered.sum()) + len(self.loose)))

    @cached_property
    def items(self) -> Items:
        """The classes that need an atom, ascending, and then the loose regions; for small worlds."""
        wanted = self.wanted
        classes = np.flatnonzero(wanted.ordered)
        item_of = np.full(len(wanted.ordered), -1, np.int64)
        item_of[classes] = np.arange(len(classes))
        neighbours: list[list[int]] = [[] for _ in range(len(classes) + len(self.loose))]
        for a, b in zip(item_of[wanted.left].tolist(), item_of[wanted.right].tolist(), strict=True):
            neighbours[a].append(b)
            neighbours[b].append(a)
        weights = np.concatenate([self.class_weights[classes], self.weights[self.loose]]).tolist()
        rates = np.concatenate([self.class_rates[classes], self.rates[self.loose]]).tolist()
        return Items(weights, rates, neighbours)

    @cached_property
    def clique(self) -> tuple[Sequence[int], float]:
        """Classes all of which must meet each other, and their events/s: in any arrangement, some node carries them
        all.

        (Subtrees that meet pairwise have a vertex in common.) Found greedily, so there may be a heavier one.
        """
        rates, wanted = self.class_rates, self.wanted
        if not wanted.ordered.any():
            return (), 0.0
        pair_rates = rates[wanted.left] + rates[wanted.right]
        single = int(np.flatnonzero(wanted.ordered)[np.argmax(rates[wanted.ordered])])
        if not len(pair_rates) or rates[single] > pair_rates.max():
            return (single,), float(rates[single])
        heaviest = int(np.argmax(pair_rates))
        chosen = [int(wanted.left[heaviest]), int(wanted.right[heaviest])]
        common = np.intersect1d(self._neighbours(chosen[0]), self._neighbours(chosen[1]))
        while len(common):
            following = int(common[np.argmax(rates[common])])
            chosen.append(following)
            common = np.intersect1d(common, self._neighbours(following))
        return chosen, float(rates[chosen].sum())

    @cached_property
    def least_value(self) -> float:
        """A value that no arrangement is below: one node for each path, the load even, and a clique on one node."""
        even = float(self.rates.sum()) / self.nodes
        single = float(self.rates[self.loose].max(initial=0.0))
        return self.objective.value(1.0, max(even, single, self.clique[1]))

    def _neighbours(self, c: int) -> IntArray:
        left, right = self.wanted.left, self.wanted.right
        return np.concatenate([right[left == c], left[right == c]])

    def _by_class(self, values: FloatArray) -> FloatArray:
        members = self.wanted.classes.members
        sizes = np.fromiter(map(len, members), np.int64, len(members))
        class_of = np.repeat(np.arange(len(members)), sizes)
        regions = np.concatenate(members) if members else np.empty(0, np.int64)
        summed: FloatArray = np.bincount(class_of, values[regions], len(members)).astype(float)
        return summed
