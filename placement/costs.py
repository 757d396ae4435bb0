"""The cost for each class of regions to enter and to leave a sequencing network at each host.

Every objective is a sum over deliveries of their delay, each weighted by how much its destination counts:

    Σ_regions Σ_publishers p Σ_destinations d ≠ p   rate(p) · worth(d) · (d(p, in) + within + d(out, d))

This splits into a part that only the ingress decides (``up``), a part that only the egress decides (``down``), and the
way between, which counts ``weight``. With worth(d) = 1 it is the mean delay; with worth(d) = 1 / (direct delay of all
that d receives), the mean stretch over destinations. The worst destination and percentiles are not sums: they are
approached by giving more weight to destinations that are far from good (`placement.placing`).

Everything is divided by the sum of the weights, so costs are weighted means in ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.central import weighted_sums
from placement.stretch import Distances
from placement.topology import FloatArray, IntArray
from sequencing.arrangement import Meetings

SHORTLIST_OF_ALL = 48
"""Hosts that serve all regions together best: room for a chain of nodes there, and for some of them to be elsewhere."""
SHORTLIST_OF_CLASS = 2


@dataclass(frozen=True)
class Costs:
    """Of the items to be placed: classes that need an atom, and then regions that need none.

    ``up``, ``down``: items × hosts in ms, weighted; ``weight``: of each item's way inside; ``rates`` in events/s;
    ``left``, ``right``: which items have to meet. ``regions[i]``: the regions of item i. ``twins``: whether an item
    needs an atom for its own regions. ``capacity``: events/s that a node on each host may carry, None if that does not
    depend on the host.
    """

    up: FloatArray
    down: FloatArray
    weight: FloatArray
    rates: FloatArray
    left: IntArray
    right: IntArray
    regions: tuple[IntArray, ...]
    twins: frozenset[int]
    capacity: FloatArray | None = None

    @classmethod
    def of(cls, distances: Distances, wanted: Meetings, worth: FloatArray) -> Costs:
        """Sum them; ``worth``: of each subscriber as a destination."""
        work = distances.workload
        classes = np.flatnonzero(wanted.ordered).tolist()
        members = wanted.classes.members
        loose = [member for c, member in enumerate(members) if not wanted.ordered[c]]
        singles = [region for member in loose for region in np.split(member, len(member))]
        regions = (*(members[c] for c in classes), *singles)
        item_of = np.full(len(members), -1, np.int64)
        item_of[classes] = np.arange(len(classes))
        up, down, weight = weighted_sums(distances, worth)
        total = float(weight.sum()) or 1.0
        up, down, weight = up / total, down / total, weight / total
        by_item = [np.asarray(member) for member in regions]
        return cls(
            np.array([up[member].sum(axis=0) for member in by_item]).reshape(len(by_item), -1),
            np.array([down[member].sum(axis=0) for member in by_item]).reshape(len(by_item), -1),
            np.array([weight[member].sum() for member in by_item]),
            np.array([work.region_rates[member].sum() for member in by_item]),
            item_of[wanted.left],
            item_of[wanted.right],
            regions,
            frozenset(item_of[wanted.twins].tolist()),
        )

    @property
    def ordered(self) -> int:
        """The number of items that need an atom; they come first."""
        paired = max(int(self.left.max(initial=-1)), int(self.right.max(initial=-1)))
        return 1 + max(paired, max(self.twins, default=-1))

    @cached_property
    def whole(self) -> FloatArray:
        """The cost of each host if all items that need an atom pass it and no other."""
        inside = slice(self.ordered or None)
        summed: FloatArray = (self.up[inside] + self.down[inside]).sum(axis=0)
        return summed

    def regions_of(self, pair: tuple[int, int]) -> tuple[int, ...]:
        """Return the regions of two items, or of one that is given twice."""
        return tuple(region for item in dict.fromkeys(pair) for region in self.regions[item].tolist())

    def shortlist(self, *, of_all: int = SHORTLIST_OF_ALL, of_class: int = SHORTLIST_OF_CLASS) -> IntArray:
        """Return promising hosts: the best for all items together, and the best for each."""
        chosen = [np.argsort(self.whole, kind="stable")[:of_all]]
        each = self.up + self.down
        chosen += [np.argsort(row, kind="stable")[:of_class] for row in each]
        return np.unique(np.concatenate(chosen))

    def on(self, hosts: IntArray) -> Costs:
        """Return the costs for some hosts, which are then numbered as they stand here."""
        return Costs(
            self.up[:, hosts],
            self.down[:, hosts],
            self.weight,
            self.rates,
            self.left,
            self.right,
            self.regions,
            self.twins,
            None if self.capacity is None else self.capacity[hosts],
        )

    def of_items(self, items: IntArray) -> Costs:
        """Return the costs for some items that meet no other items; they are then numbered as they stand here."""
        number = {item: place for place, item in enumerate(items.tolist())}
        inside = np.isin(self.left, items)
        return Costs(
            self.up[items],
            self.down[items],
            self.weight[items],
            self.rates[items],
            np.array([number[item] for item in self.left[inside].tolist()], np.int64),
            np.array([number[item] for item in self.right[inside].tolist()], np.int64),
            tuple(self.regions[item] for item in items.tolist()),
            frozenset(number[item] for item in self.twins if item in number),
            self.capacity,
        )
