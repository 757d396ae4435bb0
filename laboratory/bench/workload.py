"""The load that every peer of the bench carries: the world, its events, and the phases of one trial."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from demo.match.roaming import agenda, settled

Payload = dict[str, Any]

FAN_OUT = 3
"""Of a region of the ring."""
DENSE_REGIONS, DENSE_REGIONS_EACH = 77, 40
MOMENT_S = 10.0
ASYNCIO, UVLOOP = "asyncio", "uvloop"
PUBLISHERS = 2


@dataclass(frozen=True, slots=True)
class World:
    """``members``: of each subscriber, its regions; ``weights``: how often an event is one of each region."""

    title: str
    members: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(f"region-{index:03d}" for index in range(len(self.weights)))

    @property
    def subscribers(self) -> tuple[str, ...]:
        return tuple(f"server-{index:03d}" for index in range(len(self.members)))

    def fan_out(self) -> tuple[int, ...]:
        """The number of subscribers of each region."""
        having = Counter(region for regions in self.members for region in regions)
        return tuple(having[region] for region in range(len(self.weights)))

    def sharing_pairs(self) -> list[tuple[int, int, frozenset[int]]]:
        """Every two subscribers that have a region in common, with those regions."""
        regions = [frozenset(regions) for regions in self.members]
        return [
            (one, other, regions[one] & regions[other])
            for one, other in combinations(range(len(regions)), 2)
            if regions[one] & regions[other]
        ]


def ring(size: int) -> World:
    """`size` subscribers on as many regions: subscriber i has the regions i, i+1 and i+2, modulo `size`."""
    members = tuple(tuple((subscriber + step) % size for step in range(FAN_OUT)) for subscriber in range(size))
    return World(f"{size} subscribers, {size} regions", members, (1.0,) * size)


def dense(size: int) -> World:
    """Subscribers that have 40 of 77 regions each, at random: a world in which each sees half of everything."""
    dice = random.Random(size)
    members = tuple(tuple(sorted(dice.sample(range(DENSE_REGIONS), DENSE_REGIONS_EACH))) for _ in range(size))
    title = f"{size} subscribers with {DENSE_REGIONS_EACH} of {DENSE_REGIONS} regions each"
    return World(title, members, (1.0,) * DENSE_REGIONS)


def hot(size: int) -> World:
    """Subscribers that all have one region, and no other."""
    return World(f"{size} subscribers of one region", ((0,),) * size, (1.0,))


def match(size: int, trace: Path | None) -> World:
    """The servers of a match at the moment, of one each 10 s, when most pairs of regions have two servers in common.

    Events are as they are in all of it. A server that has no region at that moment is left out.

    ``trace``: the prefix of the files of a recorded one, else a made-up skirmish. Raises `UsageError`, `InvalidInput`.
    """
    from demo.match.hosting import build_workload
    from demo.match.skirmish import generate_skirmish
    from demo.match.trace import read_match

    played = read_match(trace) if trace is not None else generate_skirmish(1)
    workload = build_workload(played, servers=size, roam=True)
    now = settled(workload.changes)
    most, chosen = _overlaps(now.values()), [*now.values()]
    due_s = -math.inf
    for server, change in agenda(workload.changes):
        if change.t_s >= due_s:
            due_s = change.t_s + MOMENT_S
            if (overlaps := _overlaps(now.values())) > most:
                most, chosen = overlaps, [*now.values()]
        now[server] = now[server] - change.leaves | change.joins
    chosen = [regions for regions in chosen if regions]
    places = {region: place for place, region in enumerate(sorted(frozenset[str]().union(*chosen)))}
    published = Counter(each.region for each in workload.publications)
    members = tuple(tuple(sorted(places[region] for region in regions)) for regions in chosen)
    weights = tuple(published[region] + 1.0 for region in places)
    each = sum(map(len, members)) / len(members)
    return World(f"{len(members)} servers of a match, {len(places)} regions, {each:.0f} each", members, weights)


def _overlaps(members: Iterable[frozenset[str]]) -> int:
    shared = Counter(pair for regions in members for pair in combinations(sorted(regions), 2))
    return sum(servers > 1 for servers in shared.values())


@dataclass(frozen=True, slots=True)
class Phases:
    """One trial: a warm-up, then `events` as fast as the peer allows, then `paced_s` seconds of `rate_per_s` events/s.

    `tick_hz`: the paced events are published as servers do that tick so often: together, at each tick. None: each when
    it is due. `loop`: of asyncio's loops, the one that both processes run.

    In the fast phases at most `window_events` events are in flight. So a peer that would rather lose events than wait,
    or buffer them without a limit, is neither helped nor harmed. When the window is full, publishers wait until half of
    the events have been delivered to all. The first 0.2 s of the paced phase are not measured.

    Before they begin, both processes freeze what they have imported. Otherwise every full garbage collection walks the
    bench itself (70,000 objects, 45 ms), and more often for a peer that has more events in flight.
    """

    events: int
    paced_s: float
    rate_per_s: int
    window_events: int
    seed: int
    tick_hz: int | None = None
    loop: str = ASYNCIO

    @property
    def warm_up(self) -> range:
        return range(max(1, self.events // 10))

    @property
    def fast(self) -> range:
        return range(self.warm_up.stop, self.warm_up.stop + self.events)

    @property
    def paced(self) -> range:
        return range(
            self.fast.stop, self.fast.stop + self._paced_warm_up + max(1, round(self.paced_s * self.rate_per_s))
        )

    @property
    def measured_from(self) -> int:
        """The first event whose delay counts."""
        return self.paced.start + self._paced_warm_up

    @property
    def _paced_warm_up(self) -> int:
        return self.rate_per_s // 5

    def schedule(self, events: range, index: int, publishers: int) -> Iterator[tuple[float, range]]:
        """When a publisher has which of its paced events to publish, in seconds from the beginning.

        It is ``index`` of ``publishers``, which take turns, or tick one after the other.
        """
        if self.tick_hz is None:
            for turn in range(len(events)):
                yield (turn * publishers + index) / self.rate_per_s, events[turn : turn + 1]
            return
        per_tick = self.rate_per_s / publishers / self.tick_hz
        tick = done = 0
        while done < len(events):
            until = min(len(events), round((tick + 1) * per_tick))
            if until > done:
                yield (tick + index / publishers) / self.tick_hz, events[done:until]
            tick, done = tick + 1, until

    def regions(self, world: World) -> list[int]:
        """The region of each event; the same in every process and for every peer."""
        regions = range(len(world.weights))
        return random.Random(self.seed).choices(regions, world.weights, k=self.paced.stop)


def payload_of(event: int, due_s: float | None = None) -> Payload:
    """About 190 bytes of JSON, stamped with the clock that all processes of a machine share.

    ``due_s``: when it was to be published, now by default. Otherwise a publisher that waits for each publication and
    falls behind would hide how long its events had to wait.
    """
    return {
        "id": event,
        "sent_at_ns": time.monotonic_ns() if due_s is None else int(due_s * 1e9),
        "kind": "ability_cast",
        "actor": "player-0417",
        "target": "player-1138",
        "ability": "frost-nova",
        "position": [1043.25, -221.5, 12.75],
        "damage": 37,
        "critical": False,
    }
