"""The paths of game servers while a match is replayed: which regions each joins and leaves, and when.

*The rule.* A server is in the cells that the views of its players touch. It joins a cell when the first view touches
it, and leaves it when no view has touched it for `LINGER_S`: so a player that walks along an edge does not make it join
and leave, and a squad that is back at once finds everything in place. A player sees nothing before the first position,
or between leaving the game and the next position.

Times are the trace's, in seconds. All of this is known before the replay begins, and nothing here waits.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise

from demo.match.cells import Cell, region_name

LINGER_S = 10.0
"""How long a server stays in a region that none of its players sees any more."""

View = tuple[float, frozenset[Cell]]
"""From this time on, until the player's next one, the player's view touches these cells."""


@dataclass(frozen=True, slots=True)
class Change:
    """The actions of a server at one moment: it joins regions, leaves others, or both. Never empty."""

    t_s: float
    joins: frozenset[str]
    leaves: frozenset[str]


def changes_of(players: Iterable[Sequence[View]], *, end_s: float, linger_s: float = LINGER_S) -> tuple[Change, ...]:
    """Return what a server does that hosts these players, up to before ``end_s``, in order.

    Each player's views are by time; of several at one time the last counts.
    """
    seen: dict[Cell, list[tuple[float, float]]] = {}
    for views in players:
        for (since, cells), (until, _) in pairwise([*views, (math.inf, frozenset())]):
            if since < until:
                for cell in cells:
                    seen.setdefault(cell, []).append((since, until))
    joins: dict[float, list[str]] = {}
    leaves: dict[float, list[str]] = {}
    for cell, spans in seen.items():
        for since, until in _joined_up(spans, linger_s):
            joins.setdefault(since, []).append(region_name(cell))
            leaves.setdefault(until, []).append(region_name(cell))
    return tuple(
        Change(t_s, frozenset(joins.get(t_s, ())), frozenset(leaves.get(t_s, ())))
        for t_s in sorted(joins.keys() | leaves.keys())
        if t_s < end_s
    )


def settled(changes: Mapping[str, Sequence[Change]]) -> dict[str, frozenset[str]]:
    """Return the regions that each server is in before the replay begins: those where players are seen first of all.

    A match begins when its servers are set up; players that come later are followed while it runs.
    """
    first_s = _first_s(changes)
    return {
        server: own[0].joins if own and own[0].t_s == first_s else frozenset[str]() for server, own in changes.items()
    }


def agenda(changes: Mapping[str, Sequence[Change]]) -> Iterator[tuple[str, Change]]:
    """Yield the later actions: server and change, by time, servers of one moment in their order."""
    first_s = _first_s(changes)
    own_agendas = ([(change.t_s, server, change) for change in own] for server, own in changes.items())
    for t_s, server, change in heapq.merge(*own_agendas, key=lambda entry: entry[0]):
        if t_s > first_s:
            yield server, change


def regions_ever(changes: Iterable[Change]) -> frozenset[str]:
    """Return every region that is joined at some time."""
    return frozenset[str]().union(*(change.joins for change in changes))


def most_overlaps(changes: Mapping[str, Sequence[Change]]) -> int:
    """Return how many pairs of regions two or more servers are in at the same time, at most."""
    present: dict[str, set[str]] = {server: set() for server in changes}
    servers_of: Counter[frozenset[str]] = Counter()
    overlaps = most = 0
    start = ((server, Change(-math.inf, joins, frozenset())) for server, joins in settled(changes).items())
    for _, together in groupby(chain(start, agenda(changes)), key=lambda entry: entry[1].t_s):
        for server, change in together:
            for region in change.leaves:
                present[server].discard(region)
                for other in present[server]:
                    servers_of[frozenset((region, other))] -= 1
                    overlaps -= servers_of[frozenset((region, other))] == 1
            for region in change.joins:
                for other in present[server]:
                    servers_of[frozenset((region, other))] += 1
                    overlaps += servers_of[frozenset((region, other))] == 2
                present[server].add(region)
        most = max(most, overlaps)
    return most


def _first_s(changes: Mapping[str, Sequence[Change]]) -> float:
    return min((own[0].t_s for own in changes.values() if own), default=math.inf)


def _joined_up(spans: list[tuple[float, float]], linger_s: float) -> Iterator[tuple[float, float]]:
    """Yield the stays, [from, to) each, that spans of being seen make."""
    spans.sort()
    since, until = spans[0]
    for begun, ended in spans:
        if begun > until + linger_s:
            yield since, until + linger_s
            since = begun
        until = max(until, ended)
    yield since, until + linger_s
