"""The figures of a plan: path lengths, loads, components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from sequencing.membership import Membership
from sequencing.overlaps import class_pairs_to_order, twin_classes, twins_to_order
from sequencing.plan import Plan

CONDITIONS: Mapping[str, str] = {
    "C1": "each region has one path",
    "C2": "the paths close no loop",
    "C3": "every link has one direction",
    "C4": "what overlaps ends at one node or meets in an atom",
}


@dataclass(frozen=True)
class PlanFigures:
    """The figures of a plan for a membership; ``rates``: events/s of a region, 1 where not given."""

    plan: Plan
    membership: Membership
    rates: Mapping[str, float]
    overlaps: int
    """Pairs of regions with two or more subscribers in common."""
    violations: Mapping[str, str]
    """The result of `sequencing.conditions.violations`."""
    reckoned: Membership | None = None
    """The members that were counted, if these are not the membership."""

    @cached_property
    def path_nodes(self) -> np.ndarray:
        """The number of nodes on each region's path."""
        return np.array([len(path) for path in self.plan.paths.values()], np.int64)

    @cached_property
    def load_of_node(self) -> Mapping[str, float]:
        """Events/s that come through each node: the rates of the regions whose paths visit it."""
        load = dict.fromkeys(self.plan.nodes, 0.0)
        for region, path in self.plan.paths.items():
            rate = self.rates.get(region, 1.0)
            for node in path:
                load[node] += rate
        return load

    @cached_property
    def ingress_rate_of_node(self) -> Mapping[str, float]:
        """Events/s that enter the network at each node."""
        entering = dict.fromkeys(self.plan.nodes, 0.0)
        for region, path in self.plan.paths.items():
            entering[path[0]] += self.rates.get(region, 1.0)
        return entering

    @cached_property
    def busiest_receiver(self) -> float:
        """Events/s that the busiest subscriber receives: what a node should not exceed (Lumezanu 2006, §1)."""
        rates = np.array([self.rates.get(region, 1.0) for region in self.membership.regions], float)
        received = self.membership.incidence @ rates
        return float(received.max(initial=0.0))

    @cached_property
    def components(self) -> int:
        """Groups of regions that need an order among each other, directly or through other regions."""
        membership = self.reckoned or self.membership
        classes = twin_classes(membership)
        left, right = class_pairs_to_order(membership, classes, self.plan.ordering)
        needing = np.union1d(twins_to_order(classes, self.plan.ordering), np.r_[left, right])
        size = len(classes.members)
        tied = sparse.csr_array((np.ones(len(left), np.int8), (left, right)), shape=(size, size))
        return len(np.unique(csgraph.connected_components(tied, directed=False)[1][needing]))

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        return {
            "regions": len(self.plan.paths),
            "subscribers": len(self.membership.subscribers),
            "subscriptions": int(self.membership.incidence.nnz),
            "ordering": self.plan.ordering,
            "overlaps": self.overlaps,
            "atoms": len(self.plan.atoms),
            "nodes": len(self.plan.nodes),
            "links": len(self.plan.links),
            "components": self.components,
            "path_nodes": {
                "mean": float(self.path_nodes.mean()) if len(self.path_nodes) else 0.0,
                "max": int(self.path_nodes.max(initial=0)),
            },
            "node_load": {
                "max": max(self.load_of_node.values(), default=0.0),
                "busiest_receiver": self.busiest_receiver,
                "of_nodes": dict(self.load_of_node),
            },
            "conditions": {condition: condition not in self.violations for condition in CONDITIONS},
        }
