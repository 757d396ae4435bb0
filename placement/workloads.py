"""Subscribers, their hosts, regions and rates: seeded workloads for simulators, benches and load tests.

Each is made from numbers alone (a topology's delays, where it matters) and a random source that is given; the same
random state gives the same workload.

- `paper`: that of Lumezanu 2006, §4.1: hosts in clusters, group sizes by Zipf's law. Where the paper is silent, these
  are our choices: the group of rank r has ``largest / r`` of all subscribers (at least two), drawn uniformly; clusters
  are of equal size, each the hosts nearest to a host drawn uniformly; every member publishes one event to each of its
  groups.
- `occupied`: that of Lumezanu 2006, §4.4: each subscriber is in each group with one probability.
- `correlated`: geographically correlated groups, which Lumezanu 2006, §5 leaves as future work: a group's members are
  the subscribers nearest to a subscriber drawn uniformly, each replaced by any other with the probability ``stray``.
- `grid_world`: avatars that wander over a grid of square cells; a subscriber has the cells that its avatars see.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from placement.topology import FloatArray, IntArray, Topology
from sequencing.errors import UsageError
from sequencing.membership import Membership

BoolArray = npt.NDArray[np.bool_]

MEMBERS_MIN = 2
"""A group with one member has no other to send to."""
STEP_CELLS = 0.5
"""How far an avatar wanders in one step, in cells, as the scale of a normal distribution for each axis."""


@dataclass(frozen=True)
class Workload:
    """``hosts[s]``: the topology's host that subscriber s stands on; ``members``: subscribers × regions.

    ``rates``: events/s of each subscriber to each region, subscribers × regions. A publisher has the
    region, unless the region has no subscriber.

    A row may be several subscribers that stand on one host, have the same regions and publish alike: ``alike`` is how
    many, None for one each, and ``rates`` are those of all of them. ``asked`` is the membership with each of them.
    """

    hosts: IntArray
    members: BoolArray
    rates: FloatArray
    names: tuple[str, ...]
    regions: tuple[str, ...]
    alike: FloatArray | None = None
    asked: Membership | None = None

    @classmethod
    def of(cls, hosts: IntArray, members: BoolArray, rates: FloatArray | None = None) -> Workload:
        """Name subscribers s0, s1, … and regions r0, r1, …; without rates each member publishes 1 event/s to each of
        its regions."""
        names, regions = _numbered("s", len(members)), _numbered("r", members.shape[1])
        return cls(hosts, members, members.astype(float) if rates is None else rates, names, regions)

    @cached_property
    def membership(self) -> Membership:
        """The same as a membership; its regions are in the order of the columns."""
        if self.asked is not None:
            return self.asked
        regions_of = {
            name: [self.regions[region] for region in np.flatnonzero(row).tolist()]
            for name, row in zip(self.names, self.members, strict=True)
        }
        return Membership.of(regions_of, known_regions=self.regions)

    @cached_property
    def counts(self) -> FloatArray:
        """How many subscribers each row is."""
        return np.ones(len(self.names)) if self.alike is None else self.alike

    @cached_property
    def inside(self) -> FloatArray:
        """``rates`` of those who have the region."""
        return np.where(self.members, self.rates, 0.0)

    @cached_property
    def own(self) -> FloatArray:
        """Events/s that each subscriber of a row publishes to regions that it has."""
        summed: FloatArray = self.inside.sum(axis=1) / self.counts
        return summed

    @cached_property
    def region_rates(self) -> FloatArray:
        """Events/s of each region."""
        summed: FloatArray = self.rates.sum(axis=0)
        return summed

    @cached_property
    def received(self) -> FloatArray:
        """Events/s that each subscriber of a row receives, its own included."""
        rates: FloatArray = self.members @ self.region_rates
        return rates


def zipf_groups(subscribers: int, groups: int, random: np.random.Generator, *, largest: float = 1.0) -> BoolArray:
    """Return members, subscribers × groups: the group of rank r has largest · subscribers / r members, at least 2."""
    members = np.zeros((subscribers, groups), bool)
    for group in range(groups):
        size = min(subscribers, max(MEMBERS_MIN, round(largest * subscribers / (group + 1))))
        members[random.choice(subscribers, size, replace=False), group] = True
    return members


def clustered_hosts(
    topology: Topology, allowed: IntArray, subscribers: int, random: np.random.Generator, *, clusters: int
) -> IntArray:
    """Return a host for each subscriber, no two the same: clusters of equal size around hosts drawn uniformly.

    ``allowed``: the hosts that subscribers may stand on. Raises `UsageError` if these are too few.
    """
    if len(allowed) < subscribers:
        raise UsageError(f"{subscribers} subscribers cannot stand on {len(allowed)} hosts, each on its own")
    free = np.zeros(len(topology.names), bool)
    free[allowed] = True
    centres = random.choice(allowed, min(clusters, subscribers), replace=False)
    chosen: list[int] = []
    for part, away in zip(np.array_split(np.arange(subscribers), len(centres)), topology.ms_from(centres), strict=True):
        nearest = np.flatnonzero(free)[np.argsort(away[free], kind="stable")][: len(part)]
        free[nearest] = False
        chosen += nearest.tolist()
    return np.array(chosen, np.int64)


def paper(
    topology: Topology,
    allowed: IntArray,
    random: np.random.Generator,
    *,
    groups: int,
    subscribers: int = 128,
    clusters: int = 16,
    largest: float = 1.0,
) -> Workload:
    """Return the workload of Lumezanu 2006, §4.1."""
    hosts = clustered_hosts(topology, allowed, subscribers, random, clusters=clusters)
    return Workload.of(hosts, zipf_groups(subscribers, groups, random, largest=largest))


def occupied(subscribers: int, groups: int, random: np.random.Generator, *, occupancy: float) -> BoolArray:
    """Return members, subscribers × groups, each with the probability ``occupancy`` (Lumezanu 2006, §4.4)."""
    drawn: BoolArray = random.random((subscribers, groups)) < occupancy
    return drawn


def correlated_groups(
    topology: Topology, hosts: IntArray, groups: int, random: np.random.Generator, *, size: int, stray: float = 0.0
) -> BoolArray:
    """Return members, subscribers × groups: each group the ``size`` subscribers nearest to one drawn uniformly.

    ``stray``: how likely a member is replaced by a subscriber drawn uniformly, so 1.0 is no correlation at all.
    """
    subscribers = len(hosts)
    members = np.zeros((subscribers, groups), bool)
    away = topology.ms_from(hosts)[:, hosts]
    for group in range(groups):
        centre = int(random.integers(subscribers))
        # Subscribers at one place are equally near: which of them is chosen is left to chance.
        near = np.lexsort((random.random(subscribers), away[centre]))[:size]
        kept = near[random.random(len(near)) >= stray]
        others = np.setdiff1d(np.arange(subscribers), kept)
        members[kept, group] = True
        members[random.choice(others, len(near) - len(kept), replace=False), group] = True
    return members


def grid_world(
    subscribers: int,
    random: np.random.Generator,
    *,
    side: int,
    avatars: int,
    view_cells: float = 1.0,
    steps: int = 0,
) -> tuple[BoolArray, FloatArray]:
    """Return members and rates of a grid of side × side cells after some steps of wandering.

    Each subscriber is a server with ``avatars`` avatars, which begin around a point of its own; it has the cells that
    come within ``view_cells`` of an avatar. Each avatar publishes 1 event/s to its cell.
    """
    homes = random.uniform(0, side, (subscribers, 1, 2))
    places = homes + random.normal(0, 1, (subscribers, avatars, 2))
    for _ in range(steps):
        places = places + random.normal(0, STEP_CELLS, places.shape)
    places = np.clip(places, 0, np.nextafter(side, 0))
    corners = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 2)
    inside = np.clip(places[:, :, None, :], corners, corners + 1)
    seen = np.hypot(*np.moveaxis(inside - places[:, :, None, :], -1, 0)) <= view_cells
    cell_of = places.astype(int) @ np.array([side, 1])
    rates = np.zeros((subscribers, side * side))
    np.add.at(rates, (np.repeat(np.arange(subscribers), avatars), cell_of.ravel()), 1.0)
    members: BoolArray = seen.any(axis=1)
    return members, rates


def _numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return names that sort as their numbers do."""
    width = len(str(max(count - 1, 0)))
    return tuple(f"{letter}{number:0{width}}" for number in range(count))
