"""Check whether the union of all delivery orders is acyclic, and find a small cycle of it if it is not.

The union is the graph with an edge from each event to the next one that the same subscriber delivered. One subscriber's
order is a path in it, so its strongly connected components hold everything on which two or more subscribers disagree.
Two events that were delivered in opposite orders are in one component. Without a component of two or more events, there
is nothing to search.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from sequencing.checkers.history import History, IntArray
from sequencing.checkers.offence import Offence

EDGES_SEARCHED_MAX = 300_000
"""Enough to find the smallest cycle of small components; of large ones the first cycles found must do."""
CHORDS_EVENTS_MAX = 64
"""Cycles of more turns than this are not shortened by chords: the search is cubic, and such cycles do not occur."""


@dataclass(frozen=True, slots=True)
class Components:
    """The strongly connected components of the union of delivery orders."""

    count: int
    """The number of components of two or more events."""
    label: IntArray
    """The component of each event."""
    members: IntArray
    """The events that are in a component of two or more, ascending."""


def find_components(sequences: Sequence[IntArray], *, events_count: int) -> Components:
    """Return the components of the union of ``sequences``, each of which holds an event at most once.

    Takes O(deliveries).
    """
    if events_count == 0:
        return Components(0, np.empty(0, np.int64), np.empty(0, np.int64))
    before, after = consecutive(sequences, events_count=events_count)
    return _strong_components(before, after, events_count)


def consecutive(sequences: Sequence[IntArray], *, events_count: int) -> tuple[IntArray, IntArray]:
    """Return the distinct pairs of events that follow each other immediately in some sequence, sorted."""
    keys = [sequence[:-1] * events_count + sequence[1:] for sequence in sequences if len(sequence) > 1]
    if not keys:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    unique = np.unique(np.concatenate(keys))
    return unique // events_count, unique % events_count


def find_cycle(history: History, components: Components) -> Offence | None:
    """Return a cycle of the smallest component, in as few turns from one subscriber to another as the search found."""
    if not components.count:
        return None
    sizes = np.bincount(components.label)
    smallest = np.flatnonzero(sizes == sizes[sizes > 1].min())
    events = np.flatnonzero(components.label == smallest[0])
    inside = np.zeros(len(history.events), np.bool_)
    inside[events] = True
    restricted = [first[inside[first]] for first in history.firsts]
    before, after = consecutive(restricted, events_count=len(history.events))
    following: dict[int, list[int]] = {}
    for event, successor in zip(before.tolist(), after.tolist(), strict=True):
        following.setdefault(event, []).append(successor)
    cycle = _shortest_cycle(events.tolist(), following)
    turns = _shorten(*_turns(cycle, restricted))
    return Offence(
        kind="cycle",
        events=history.event_names([event for event, _ in turns]),
        regions=history.region_names([event for event, _ in turns]),
        subscribers=tuple(history.subscribers[subscriber] for _, subscriber in turns),
    )


def _strong_components(before: IntArray, after: IntArray, events_count: int) -> Components:
    shape = (events_count, events_count)
    graph = sparse.csr_array((np.ones(len(before), np.int8), (before, after)), shape=shape)
    _, numbers = csgraph.connected_components(graph, directed=True, connection="strong")
    label = numbers.astype(np.int64)
    sizes = np.bincount(label)
    return Components(int(np.count_nonzero(sizes > 1)), label, np.flatnonzero(sizes[label] > 1))


def _shortest_cycle(starts: Sequence[int], following: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the shortest cycle through one of the starts that are tried within the limit; every start is on one."""
    best: list[int] = []
    edges_searched = 0
    for start in starts:
        reached_from = {start: start}
        queue = deque([start])
        is_closed = False
        while queue and not is_closed:
            event = queue.popleft()
            for successor in following.get(event, ()):
                edges_searched += 1
                if successor == start:
                    is_closed = True
                    cycle = [event]
                    while cycle[-1] != start:
                        cycle.append(reached_from[cycle[-1]])
                    if not best or len(cycle) < len(best):
                        best = cycle[::-1]
                    break
                if successor not in reached_from:
                    reached_from[successor] = event
                    queue.append(successor)
        if edges_searched > EDGES_SEARCHED_MAX or len(best) == 2:
            break
    return best


Turns = list[tuple[int, int]]
"""Events of a cycle, each with the subscriber that delivered it before the next one of the list."""
Orders = dict[int, dict[int, int]]
"""Subscriber → event → place, for the events of a cycle."""


def _turns(cycle: Sequence[int], sequences: Sequence[IntArray]) -> tuple[Turns, Orders]:
    """Keep only the events at which no subscriber leads from the event before to the event after."""
    orders: Orders = {}
    for subscriber, sequence in enumerate(sequences):
        held = np.flatnonzero(np.isin(sequence, cycle))
        if len(held) > 1:
            orders[subscriber] = dict(zip(sequence[held].tolist(), held.tolist(), strict=True))
    steps = [_leaders(orders, one, other) for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    # Begin where a run of one subscriber must begin, lest the first run be cut in two.
    offset = next((at for at in range(len(cycle)) if not steps[at - 1] & steps[at]), 0)
    turns: Turns = []
    leaders: set[int] = set()
    for at in (*range(offset, len(cycle)), *range(offset)):
        shared = leaders & steps[at]
        event = turns.pop()[0] if shared else cycle[at]
        leaders = shared or steps[at]
        turns.append((event, min(leaders)))
    return turns, orders


def _shorten(turns: Turns, orders: Orders) -> Turns:
    """Cut the cycle by chords until no subscriber leads from one of its events past the next one."""
    while 2 < len(turns) <= CHORDS_EVENTS_MAX:
        events = [event for event, _ in turns]
        chords = (
            (skipped, at, leaders)
            for skipped in range(len(turns) - 2, 0, -1)
            for at in range(len(turns))
            if (leaders := _leaders(orders, events[at], events[(at + skipped + 1) % len(turns)]))
        )
        chord = next(chords, None)
        if chord is None:
            break
        skipped, at, leaders = chord
        kept = [(at + skipped + 1 + step) % len(turns) for step in range(len(turns) - skipped - 1)]
        turns = [(events[at], min(leaders)), *(turns[one] for one in kept)]
    return turns


def _leaders(orders: Orders, one: int, other: int) -> set[int]:
    """Return the subscribers that delivered ``one`` before ``other``."""
    return {s for s, places in orders.items() if one in places and other in places and places[one] < places[other]}
