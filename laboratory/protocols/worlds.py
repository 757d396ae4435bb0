"""Worlds for the classic protocols: as bad as their declared assumptions allow, and no worse.

A world does everything that a protocol does not exclude: links overtake where FIFO is not assumed, senders are outside
where groups need not be closed, groups overlap where one is not required, processes crash where that is survived. A
crash may come in the middle of a step, when some of its packets are sent and others are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from classic.protocols.process import Joinable, Process
from classic.protocols.setup import Assumption, Setup

NAMES = "abcdef"
PUBLISH_UNTIL_MS = 120.0
"""Short beside the slowest packets, so that many are in flight at once."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A process publishes to a group, at a time."""

    at_ms: float
    process: str
    group: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A process crashes in a step, counted by number, when it has carried out some effects of it."""

    process: str
    step: int
    effects: int


@dataclass(frozen=True, slots=True)
class World:
    """All that is drawn before a run. ``reply``: the probability that a delivery is answered by publishing at once."""

    seed: int
    setup: Setup
    publications: tuple[Publication, ...]
    reply: float
    replies_max: int
    crashes: tuple[Crash, ...] = ()
    joins: tuple[tuple[float, str], ...] = ()
    leaves: tuple[tuple[float, str], ...] = ()
    wrong_suspicion: tuple[float, str, str] | None = None
    """At a time, a process wrongly suspects another."""
    loss: float = 0.0
    """The probability that a lossy packet is lost."""
    loses_all: bool = False
    """That any packet may be lost, also those that a protocol relies on."""

    @property
    def late(self) -> frozenset[str]:
        """The processes that join during the run."""
        return frozenset(process for _, process in self.joins)


def draw(protocol: type[Process], seed: int, *, dropping: Iterable[Assumption] = ()) -> World:
    """Draw the world of a seed; ``dropping``: assumptions that it need not respect, to show that they are needed."""
    random = Random(f"{protocol.__name__} {seed}")
    assumed = protocol.assumes - set(dropping)
    processes = tuple(NAMES[: random.randint(3, len(NAMES))])
    groups, joins = _draw_groups(random, protocol, assumed, processes)
    setup = Setup(
        processes,
        groups,
        tree=_draw_tree(random, processes),
        open_groups=Assumption.CLOSED_GROUPS not in assumed,
        fifo_links=Assumption.FIFO_LINKS in assumed,
        lossy_links=Assumption.RELIABLE_LINKS not in assumed,
        crashes=Assumption.NO_CRASHES not in assumed,
    )
    publications = tuple(
        Publication(random.uniform(0, PUBLISH_UNTIL_MS), *_draw_destination(random, setup))
        for _ in range(random.randint(3, 12))
    )
    world = World(seed, setup, publications, random.choice((0.0, 0.3, 0.6)), random.randint(0, 8), joins=joins)
    if setup.lossy_links:
        loses_all = Assumption.RELIABLE_LINKS in protocol.assumes
        world = replace(world, loss=random.choice((0.05, 0.2)), loses_all=loses_all)
    if setup.crashes:
        world = replace(world, crashes=_draw_crashes(random, processes))
        if Assumption.CRASHES_REPORTED in assumed and random.random() < 0.3:
            suspecting, suspected = random.sample([p for p in processes if p not in world.late], 2)
            world = replace(world, wrong_suspicion=(random.uniform(0, PUBLISH_UNTIL_MS), suspecting, suspected))
        if issubclass(protocol, Joinable) and random.random() < 0.2:
            leaving = random.choice([p for p in processes if p not in world.late])
            world = replace(world, leaves=((random.uniform(0, PUBLISH_UNTIL_MS), leaving),))
    elif issubclass(protocol, Joinable):
        # A joining process asks the first. Neighbours may leave at once, and the others' places then change.
        leaving_ones = random.sample(processes[1:], random.randint(0, len(processes) - 1))
        leaves = tuple((random.uniform(0, PUBLISH_UNTIL_MS), process) for process in leaving_ones)
        world = replace(world, leaves=tuple(leave for leave in leaves if leave[1] not in world.late))
    return world


def choose_group(random: Random, setup: Setup, process: str) -> str | None:
    """Return a group that a process may publish to, if there is one."""
    one_to_one = all(len(members) == 1 for members in setup.groups.values())
    allowed = [
        group
        for group, members in setup.groups.items()
        if (process not in members if one_to_one else setup.open_groups or process in members)
    ]
    return random.choice(allowed) if allowed else None


def _draw_groups(
    random: Random, protocol: type[Process], assumed: Iterable[Assumption], processes: tuple[str, ...]
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[float, str], ...]]:
    def some(least: int) -> tuple[str, ...]:
        chosen = set(random.sample(processes, random.randint(least, len(processes))))
        return tuple(process for process in processes if process in chosen)

    if issubclass(protocol, Joinable):
        late = processes[-1:] if random.random() < 0.4 else ()
        joins = tuple((random.uniform(0, PUBLISH_UNTIL_MS), process) for process in late)
        return {"all": tuple(p for p in processes if p not in late)}, joins
    if Assumption.BROADCAST in assumed:
        return {"all": processes}, ()
    if Assumption.ONE_TO_ONE in assumed:
        return {f"to {process}": (process,) for process in processes}, ()
    if Assumption.ONE_GROUP in assumed:
        return {"group": some(2)}, ()
    return {f"g{i}": some(2) for i in range(1, random.randint(2, 5))}, ()


def _draw_destination(random: Random, setup: Setup) -> tuple[str, str]:
    process = random.choice([p for p in setup.processes if choose_group(random, setup, p) is not None])
    group = choose_group(random, setup, process)
    assert group is not None
    return process, group


def _draw_tree(random: Random, processes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    order = random.sample(processes, len(processes))
    shape = random.choice(("any", "line", "star"))
    if shape == "line":
        return tuple(pairwise(order))
    if shape == "star":
        return tuple((order[0], other) for other in order[1:])
    return tuple((random.choice(order[:i]), order[i]) for i in range(1, len(order)))


def _draw_crashes(random: Random, processes: tuple[str, ...]) -> tuple[Crash, ...]:
    """At least two processes stay: agreement is about more than one."""
    victims = random.sample(processes, random.randint(0, len(processes) - 2))
    return tuple(Crash(victim, random.randint(1, 20), random.randint(0, len(processes))) for victim in victims)
