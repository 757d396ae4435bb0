"""The regions and publishing rates of users, from `placement.workloads` or from a recorded match.

A scenario has *slots*, one for each game server. Users beyond the last slot start again at the first one. A scenario is
made from numbers and a seed, so every process of a distributed run makes the same one.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from random import Random

import numpy as np

from demo.match.hosting import build_workload
from demo.match.skirmish import generate_skirmish
from demo.match.trace import read_match
from placement.topology import FloatArray
from placement.workloads import BoolArray, grid_world, occupied, zipf_groups
from sequencing.errors import UsageError

WORKLOADS = ("grid", "zipf", "uniform", "trace")
AVATARS = 3
"""Avatars of each server of the grid."""
REGIONS_MAX = 16
"""Regions that a server of zipf or uniform has at most: a game server does not have all of many regions."""


@dataclass(frozen=True, slots=True)
class Step:
    """The actions of a server at one moment of a recorded match, ``t_s`` after its start."""

    t_s: float
    publishes: str = ""
    joins: frozenset[str] = frozenset()
    leaves: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Slot:
    """One server: its first regions, and the distribution of its events over regions.

    ``steps``: its actions in a recorded match, by time; empty if it publishes at a steady rate instead.
    """

    regions: tuple[str, ...]
    weights: Mapping[str, float]
    steps: tuple[Step, ...] = ()

    @cached_property
    def _cumulated(self) -> tuple[Sequence[str], Sequence[float]]:
        return tuple(self.weights), tuple(accumulate(self.weights.values()))

    def draw(self, random: Random) -> str:
        """Return the region of the next event."""
        names, sums = self._cumulated
        return names[min(bisect.bisect_right(sums, random.random() * sums[-1]), len(names) - 1)]


@dataclass(frozen=True)
class Scenario:
    """All slots of a run. ``hot``: the region that most slots have, which a crowd joins."""

    name: str
    slots: tuple[Slot, ...]
    hot: str
    duration_s: float = 0.0
    """Length of a recorded match, which then repeats; 0 for other workloads."""

    @property
    def regions(self) -> frozenset[str]:
        """All regions that a slot begins with or joins later."""
        goes_to = (region for slot in self.slots for step in slot.steps for region in step.joins)
        return frozenset(region for slot in self.slots for region in (*slot.regions, *slot.weights)) | set(goes_to)

    def slot(self, number: int) -> Slot:
        """Return the slot of a user."""
        return self.slots[number % len(self.slots)]

    @property
    def crowded(self) -> Slot:
        """The slot of a user of the crowd."""
        return Slot((self.hot,), {self.hot: 1.0})


def make_scenario(
    workload: str, *, servers: int, regions: int, seed: int, prefix: str = "", trace: Path | None = None
) -> Scenario:
    """Return a scenario. ``prefix`` begins all region names, so that runs on one network do not mix.

    ``grid``: `placement.workloads.grid_world`. ``zipf``: the group sizes of Lumezanu 2006, §4.1. ``uniform``: each
    region with the same probability, three for each server. ``trace``: the recorded match whose files have the prefix
    ``trace``, or a made-up skirmish. Raises `UsageError` and `InvalidInput`.
    """
    if trace is not None and workload != "trace":
        raise UsageError(f"--trace is for the workload 'trace', not for {workload!r}")
    random = np.random.default_rng(seed)
    match workload:
        case "grid":
            side = max(2, round(regions**0.5))
            members, rates = grid_world(servers, random, side=side, avatars=AVATARS, view_cells=0.3)
            return _drawn(workload, members, rates, prefix)
        case "zipf":
            return _drawn(workload, _bounded(zipf_groups(servers, regions, random), random), None, prefix)
        case "uniform":
            members = occupied(servers, regions, random, occupancy=min(1.0, 3 / regions))
            return _drawn(workload, _bounded(members, random), None, prefix)
        case "trace":
            return _recorded(trace, servers=servers, seed=seed, prefix=prefix)
    raise UsageError(f"there is no workload {workload!r}: choose from {', '.join(WORKLOADS)}")


def _bounded(members: BoolArray, random: np.random.Generator) -> BoolArray:
    """Return the members with at least one region and at most `REGIONS_MAX` regions for each server."""
    for row in members:
        had = np.flatnonzero(row)
        if not len(had):
            row[random.integers(len(row))] = True
        elif len(had) > REGIONS_MAX:
            row[random.choice(had, len(had) - REGIONS_MAX, replace=False)] = False
    return members


def _drawn(name: str, members: BoolArray, rates: FloatArray | None, prefix: str) -> Scenario:
    width = len(str(members.shape[1] - 1))
    names = [f"{prefix}r{number:0{width}}" for number in range(members.shape[1])]
    slots = []
    for row, rate in zip(members, members.astype(float) if rates is None else rates, strict=True):
        weights = {names[at]: float(rate[at]) for at in np.flatnonzero(rate).tolist()}
        slots.append(Slot(tuple(names[at] for at in np.flatnonzero(row).tolist()), weights))
    return Scenario(name, tuple(slots), names[int(members.sum(axis=0).argmax())])


def _recorded(trace: Path | None, *, servers: int, seed: int, prefix: str) -> Scenario:
    match = read_match(trace) if trace is not None else generate_skirmish(seed)
    workload = build_workload(match, servers=min(servers, len(match.players)), roam=True)
    began_s = min((changes[0].t_s for changes in workload.changes.values() if changes), default=0.0)
    steps: dict[str, list[Step]] = {server: [] for server in workload.servers}
    for server, changes in workload.changes.items():
        for change in changes:
            joins, leaves = (frozenset(prefix + name for name in names) for names in (change.joins, change.leaves))
            steps[server].append(Step(max(0.0, change.t_s - began_s), joins=joins, leaves=leaves))
    for each in workload.publications:
        steps[each.server].append(Step(max(0.0, each.t_s - began_s), publishes=prefix + each.region))
    slots = [_slot(sorted(own, key=lambda step: step.t_s)) for own in steps.values()]
    counts = sum((Counter(slot.weights) for slot in slots), Counter[str]())
    end_s = max(slot.steps[-1].t_s for slot in slots if slot.steps)
    return Scenario("trace", tuple(slots), counts.most_common(1)[0][0], duration_s=end_s + 1.0)


def _slot(steps: list[Step]) -> Slot:
    """Return a slot whose first regions are those that it joins at the very start."""
    first = frozenset[str]().union(*(step.joins for step in steps if step.t_s == 0))
    later = tuple(step for step in steps if step.t_s > 0 or step.publishes)
    return Slot(tuple(sorted(first)), Counter(step.publishes for step in steps if step.publishes), later)
