"""Lumezanu 2006's Figures 3 and 4: sequencing nodes by the number of groups, and by their expected occupancy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from laboratory.placing.baselines import OVERLAP_MIN, sequencing_nodes
from placement.topology import FloatArray, IntArray
from placement.workloads import BoolArray, occupied, zipf_groups

GROUPS_SHOWN = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64)
OCCUPANCIES_SHOWN = (
    0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.15, 0.16, 0.18, 0.2, 0.25, 0.3,
    0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 1.0,
)  # fmt: skip
OCCUPANCY_GROUPS = 32
CLAIMED_WORST = {8: 2.5, 64: 5.0}
"""Lumezanu 2006 §4.2: the maximum stretch that it reports, by number of groups."""
LEVELLING, PEAK, ALONE = 20, 0.15, 0.9
"""Lumezanu 2006 §4.3 and §4.4: beyond how many groups nodes grow more slowly; at which occupancy there are most, and
above which there is one."""
ORDER = 7
"""A stream of chance of its own: the order in which groups are added."""


@dataclass(frozen=True, slots=True)
class Curve:
    """``at[i]``: groups or occupancy; ``nodes``, ``overlaps``: runs × len(at)."""

    at: tuple[float, ...]
    nodes: IntArray
    overlaps: IntArray

    @property
    def mean(self) -> FloatArray:
        """Sequencing nodes, over the runs."""
        found: FloatArray = self.nodes.mean(axis=0)
        return found

    @property
    def peak(self) -> float:
        """Where there are most nodes, on average."""
        return self.at[int(self.mean.argmax())]


def by_groups(seeds: range, *, subscribers: int, largest: float) -> Curve:
    """Return the curve of Figure 3: the paper's heuristic on Zipf groups."""

    def drawn(seed: int, groups: float) -> BoolArray:
        return zipf_groups(subscribers, int(groups), np.random.default_rng([seed, int(groups)]), largest=largest)

    return _curve(seeds, GROUPS_SHOWN, drawn)


def by_occupancy(seeds: range, *, subscribers: int) -> Curve:
    """Return the curve of Figure 4: the paper's heuristic if each subscriber is in each group with one probability."""

    def drawn(seed: int, occupancy: float) -> BoolArray:
        random = np.random.default_rng([seed, round(1000 * occupancy)])
        return occupied(subscribers, OCCUPANCY_GROUPS, random, occupancy=occupancy)

    return _curve(seeds, OCCUPANCIES_SHOWN, drawn)


def _curve(seeds: range, at: tuple[float, ...], drawn: Callable[[int, float], BoolArray]) -> Curve:
    nodes, overlaps = (np.zeros((len(seeds), len(at)), np.int64) for _ in range(2))
    for run, seed in enumerate(seeds):
        for place, value in enumerate(at):
            members = drawn(seed, value)
            order = np.random.default_rng([seed, ORDER]).permutation(members.shape[1])
            nodes[run, place] = len(sequencing_nodes(members, order))
            common = members.T.astype(np.int64) @ members.astype(np.int64)
            overlaps[run, place] = int((np.triu(common, k=1) >= OVERLAP_MIN).sum())
    return Curve(tuple(map(float, at)), nodes, overlaps)
