"""A placed sequencing network: nodes on hosts, a path for each region, atoms, and what each node carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placement.stretch import Routes
from placement.topology import FloatArray, IntArray, Topology
from placement.workloads import Workload
from sequencing.plan import Atom, AtomId, Ordering, Plan


@dataclass(frozen=True, slots=True)
class PlacedAtom:
    """It orders the events of these regions, on this node."""

    regions: tuple[int, ...]
    node: int


@dataclass(frozen=True)
class Placed:
    """``hosts[n]``: the topology's host of node n; ``paths[r]``: the nodes that events of region r pass, in order."""

    hosts: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    atoms: tuple[PlacedAtom, ...]

    def routes(self, topology: Topology) -> Routes:
        """Return how long events are inside the network."""
        standing = np.array(self.hosts, np.int64)
        between = topology.ms_from(standing)[:, standing]
        within = [sum(float(between[a, b]) for a, b in pairwise(path)) for path in self.paths]
        ends = np.array([(path[0], path[-1]) for path in self.paths], np.int64).reshape(-1, 2)
        return Routes(standing[ends[:, 0]], standing[ends[:, 1]], np.array(within))

    def handled(self, rates: FloatArray) -> FloatArray:
        """Return the events/s that pass each node; ``rates``: events/s of each region."""
        loads = np.zeros(len(self.hosts))
        for path, rate in zip(self.paths, rates.tolist(), strict=True):
            loads[list(path)] += rate
        return loads

    def ordered(self, rates: FloatArray) -> FloatArray:
        """Return the events/s that get a number of some atom at each node."""
        inside: list[set[int]] = [set() for _ in self.hosts]
        for atom in self.atoms:
            inside[atom.node].update(atom.regions)
        return np.array([rates[sorted(regions)].sum() for regions in inside])

    def atoms_of(self, regions: int) -> IntArray:
        """Return for each of so many regions how many atoms number its events."""
        counts = np.zeros(regions, np.int64)
        for atom in self.atoms:
            counts[list(atom.regions)] += 1
        return counts

    def plan(
        self, workload: Workload, *, ordering: Ordering, names: Sequence[str] | None = None, epoch: int = 1
    ) -> Plan:
        """Return it as the core's plan; nodes are named n1, n2, … unless given other names.

        There may be more names than nodes: the others are in the plan, and nothing passes them. Atoms of regions that
        end at one node are left out: they have that node's order.
        """
        called = list(names) if names is not None else [f"n{number}" for number in range(1, len(self.hosts) + 1)]
        paths: Mapping[str, tuple[str, ...]] = {
            region: tuple(called[node] for node in path)
            for region, path in zip(workload.regions, self.paths, strict=True)
        }
        atoms = tuple(
            Atom(AtomId(number), tuple(workload.regions[region] for region in atom.regions), called[atom.node])
            for number, atom in enumerate(filter(self._is_needed, self.atoms), start=1)
        )
        return Plan(epoch, 1, ordering, dict.fromkeys(called, ""), paths, atoms)

    def _is_needed(self, atom: PlacedAtom) -> bool:
        return len({self.paths[region][-1] for region in atom.regions}) > 1
