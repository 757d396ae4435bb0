"""Worlds for the classic protocols: as bad as their declared assumptions allow, and no worse.

A world does everything that a protocol does not exclude: links overtake where FIFO is not assumed, senders are outside
where groups need not be closed, groups overlap where one is not required, processes crash where that is survived. A
crash may come in the middle of a step, when some of its packets are sent and others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from classic.protocols.process import Joinable, Process, Regrouping
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
class Change:
    """A process asks to join, at a member or where the protocol likes, or to leave; ``group``: where there are many."""

    at_ms: float
    process: str
    joins: bool
    at: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """All that is drawn before a run. ``reply``: the probability that a delivery is answered by publishing at once."""

    seed: int
    setup: Setup
    publications: tuple[Publication, ...]
    reply: float
    replies_max: int
    crashes: tuple[Crash, ...] = ()
    changes: tuple[Change, ...] = ()
    wrong_suspicions: tuple[tuple[float, str, str], ...] = ()
    """Each at a time: a process wrongly suspects another."""
    loss: float = 0.0
    """The probability that a lossy packet is lost."""
    loses_all: bool = False
    """That any packet may be lost, also those that a protocol relies on."""

    @property
    def late(self) -> frozenset[str]:
        """The processes that are no members at first."""
        if not any(change.joins and not change.group for change in self.changes):
            return frozenset()
        return frozenset(self.setup.processes) - {p for members in self.setup.groups.values() for p in members}


def draw(protocol: type[Process], seed: int, *, dropping: Iterable[Assumption] = ()) -> World:
    """Draw the world of a seed; ``dropping``: assumptions that it need not respect, to show that they are needed."""
    random = Random(f"{protocol.__name__} {seed}")
    assumed = protocol.assumes - set(dropping)
    processes = tuple(NAMES[: random.randint(3, len(NAMES))])
    groups = _draw_groups(random, protocol, assumed, processes)
    setup = Setup(
        processes,
        groups,
        tree=_draw_tree(random, processes),
        open_groups=Assumption.CLOSED_GROUPS not in assumed,
        fifo_links=Assumption.FIFO_LINKS in assumed,
        lossy_links=Assumption.RELIABLE_LINKS not in assumed,
        crashes=Assumption.NO_CRASHES not in assumed,
        majority_stays=Assumption.MAJORITY_STAYS in assumed,
    )
    publications = tuple(
        Publication(random.uniform(0, PUBLISH_UNTIL_MS), *_draw_destination(random, setup))
        for _ in range(random.randint(3, 12))
    )
    world = World(seed, setup, publications, random.choice((0.0, 0.3, 0.6)), random.randint(0, 8))
    if setup.lossy_links:
        loses_all = Assumption.RELIABLE_LINKS in protocol.assumes
        world = replace(world, loss=random.choice((0.05, 0.2)), loses_all=loses_all)
    if setup.crashes:
        world = replace(world, crashes=_draw_crashes(random, setup))
        if Assumption.CRASHES_REPORTED in assumed and random.random() < 0.3:
            [founders] = setup.groups.values()
            # Where those who are suspected have to go, two can suspect each other, and none is left.
            count = random.choice((1, 3, 12)) if Assumption.MAJORITY_STAYS in assumed else 1
            if len(founders) > 1:
                world = replace(world, wrong_suspicions=tuple(_draw_suspicions(random, founders, count)))
    if issubclass(protocol, Joinable):
        world = replace(world, changes=_draw_changes(random, setup, protocol))
    if issubclass(protocol, Regrouping):
        world = replace(world, changes=_draw_regroupings(random, setup))
    return world


def _draw_regroupings(random: Random, setup: Setup) -> tuple[Change, ...]:
    """Processes join and leave groups, among them a new one; a request may also be what is already so."""
    span_ms = random.choice((5.0, PUBLISH_UNTIL_MS))
    begin_ms = random.uniform(0, PUBLISH_UNTIL_MS - span_ms)
    groups = (*setup.groups, "new")
    times = sorted(random.uniform(begin_ms, begin_ms + span_ms) for _ in range(random.choice((0, 2, 5, 10))))
    return tuple(
        Change(at_ms, random.choice(setup.processes), random.random() < 0.6, group=random.choice(groups))
        for at_ms in times
    )


def _draw_changes(random: Random, setup: Setup, protocol: type[Joinable]) -> tuple[Change, ...]:
    """All processes that are no members at first join. Any may leave, and come back where the protocol has it."""
    [founders] = setup.groups.values()
    leaving = random.choice((0.0, 0.2, 0.6))
    span_ms = random.choice((5.0, PUBLISH_UNTIL_MS))  # all at once, or one after the other
    begin_ms = random.uniform(0, PUBLISH_UNTIL_MS - span_ms)
    changes: list[Change] = []
    for process in setup.processes:
        joins = process not in founders
        times = sorted(random.uniform(begin_ms, begin_ms + span_ms) for _ in range(4))
        for at_ms in times:
            if not joins and random.random() >= leaving:
                break
            at = random.choice(("", *(founders if random.random() < 0.8 else setup.processes)))
            changes.append(Change(at_ms, process, joins, at if joins else ""))
            if not joins and not protocol.comes_back:
                break
            joins = not joins
    return tuple(changes)


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
) -> dict[str, tuple[str, ...]]:
    def some(least: int) -> tuple[str, ...]:
        chosen = set(random.sample(processes, random.randint(least, len(processes))))
        return tuple(process for process in processes if process in chosen)

    if issubclass(protocol, Joinable):
        late = random.choice((0, 0, 1, random.randint(1, len(processes) - 1)))
        return {"all": processes[: len(processes) - late]}
    if Assumption.BROADCAST in assumed:
        return {"all": processes}
    if Assumption.ONE_TO_ONE in assumed:
        return {f"to {process}": (process,) for process in processes}
    if Assumption.ONE_GROUP in assumed:
        return {"group": some(2)}
    return {f"g{i}": some(2) for i in range(1, random.randint(2, 5))}


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


def _draw_crashes(random: Random, setup: Setup) -> tuple[Crash, ...]:
    """At least two processes stay: agreement is about more than one."""
    victims = random.sample(setup.processes, random.randint(0, len(setup.processes) - 2))
    crashes = [Crash(v, random.randint(1, 20), random.randint(0, len(setup.processes))) for v in victims]
    if setup.majority_stays:
        crashes = [c for i, c in enumerate(crashes) if _leave_a_majority(setup, victims[: i + 1], c.process)]
    return tuple(crashes)


def _draw_suspicions(random: Random, founders: tuple[str, ...], count: int) -> Iterator[tuple[float, str, str]]:
    for _ in range(count):
        suspecting, suspected = random.sample(founders, 2)
        yield random.uniform(0, PUBLISH_UNTIL_MS), suspecting, suspected


def _leave_a_majority(setup: Setup, victims: list[str], victim: str) -> bool:
    """Whether in each group of a victim more than half of the members are left, even if all victims so far crash."""
    members = [setup.members(group) for group in setup.groups_of(victim)]
    return all(2 * len(set(group) & set(victims)) < len(group) for group in members)
