"""The data that the publishers and the subscribers of a capacity measurement have in common."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from laboratory.bench.workload import World


@dataclass(frozen=True, slots=True)
class Task:
    """The task of both processes: the control URL, the world, and a name that no other measurement has."""

    url: str
    world: World
    name: str

    @property
    def regions(self) -> list[str]:
        """The regions of the world, under names of their own."""
        return [f"{self.name}-{region}" for region in self.world.regions]


def regions_of(seed: int, regions: int, events: int) -> list[int]:
    """Return the region of each event of a run; the same in both processes."""
    return Random(seed).choices(range(regions), k=events)
