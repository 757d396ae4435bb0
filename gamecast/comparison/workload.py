"""What protocols are compared on: where processes are, who is in which group, and who publishes when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import dist
from random import Random

from sequencing.protocols.setup import Setup

HOP_MS = 1.0
"""What any packet takes, however near."""
ACROSS_MS = 40.0
"""What it takes from one side of the plane to the other: a continent."""
PAYLOAD = "x" * 100


@dataclass(frozen=True, slots=True)
class Workload:
    """``delay_ms``: one-way, of each ordered pair; ``publications``: time, process, group, in the order of time."""

    name: str
    setup: Setup
    delay_ms: Mapping[tuple[str, str], float]
    publications: tuple[tuple[float, str, str], ...]


def draw_workload(
    *, processes: int, groups: int, group_size: int, rate: float, seconds: float, seed: int, name: str = ""
) -> Workload:
    """Draw processes on a plane, groups of neighbours, and publishing at random times.

    ``groups`` of 1 is one group of all. ``rate``: events/s of each process. As in a game world, a group is a place and
    those who are near it, so that groups overlap where they are near each other.
    """
    random = Random(f"{processes} {groups} {group_size} {seed}")
    names = tuple(f"p{i:02}" for i in range(processes))
    place = {name: (random.random(), random.random()) for name in names}
    delay = {(a, b): HOP_MS + ACROSS_MS * dist(place[a], place[b]) for a in names for b in names if a != b}
    if groups == 1:
        members = {"all": names}
    else:
        members = {}
        for number in range(groups):
            middle = (random.random(), random.random())
            near = sorted(names, key=lambda name: dist(place[name], middle))[:group_size]
            members[f"g{number:02}"] = tuple(name for name in names if name in near)
    setup = Setup(names, members, tree=_spanning_tree(names, delay))
    random = Random(f"{rate} {seed}")  # so that the same places serve all rates
    publications: list[tuple[float, str, str]] = []
    for process in names:
        own, at_ms = setup.groups_of(process), random.expovariate(rate) * 1000
        while own and at_ms < seconds * 1000:
            publications.append((at_ms, process, random.choice(own)))
            at_ms += random.expovariate(rate) * 1000
    return Workload(name, setup, delay, tuple(sorted(publications)))


def _spanning_tree(names: tuple[str, ...], delay: Mapping[tuple[str, str], float]) -> tuple[tuple[str, str], ...]:
    """The tree of least total delay (Prim), from the first process on."""
    tree: list[tuple[str, str]] = []
    inside, outside = {names[0]}, set(names[1:])
    while outside:
        edge = min(((a, b) for a in inside for b in outside), key=lambda pair: (delay[pair], pair))
        tree.append(edge)
        inside.add(edge[1])
        outside.remove(edge[1])
    return tuple(tree)
