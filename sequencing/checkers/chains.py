"""Events cut into chains: sets with one order that every subscriber's delivery order respects.

A region whose order holds is one chain: any linear extension of its subscribers' orders. Against a chain, the
deliveries of a subscriber before some event are an initial piece, described by one number. So inversions can be counted
without comparing pairs of events (`sequencing.checkers.inversions`). A region whose order is broken is cut into several
chains, so that the pairs inside it become pairs across chains and are counted like all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sequencing.checkers.cycles import consecutive, find_components
from sequencing.checkers.history import IntArray


@dataclass(frozen=True, slots=True)
class Chains:
    """A partition of events into chains, largest chain first; rank r is an event's place in chain order.

    Chain c holds ranks ``start[c]`` to ``start[c + 1] - 1``.
    """

    start: IntArray
    rank_of_event: IntArray
    event_of_rank: IntArray
    chain_of_rank: IntArray

    @property
    def sizes(self) -> IntArray:
        """The number of events of each chain."""
        return np.diff(self.start)

    def __len__(self) -> int:
        return len(self.start) - 1


def cut_into_chains(sequences: Sequence[IntArray], *, region_of_event: IntArray) -> Chains:
    """Cut the events 0 … len(region_of_event) - 1 into chains that lie within one region each.

    ``sequences`` hold each event at most once. Takes O(deliveries) where region order holds, and for the events on
    which a region's subscribers disagree, O(such events × chains that they need).
    """
    events_count = len(region_of_event)
    by_region = [_region_runs(sequence, region_of_event) for sequence in sequences]
    runs = [run for runs in by_region for run in runs]
    components = find_components(runs, events_count=events_count)
    before, after = consecutive(runs, events_count=events_count)
    label = components.label
    component_rank = _linear_extension(label[before], label[after], int(label.max()) + 1)
    layer, turn = _layers(sequences, components.members, label, events_count=events_count)
    chain = np.unique(region_of_event * (int(layer.max()) + 1) + layer, return_inverse=True)[1]
    sizes = np.bincount(chain)
    chain = np.argsort(np.argsort(-sizes, kind="stable"), kind="stable")[chain]
    event_of_rank = np.lexsort((turn, component_rank[label], chain))
    rank_of_event = np.empty(events_count, np.int64)
    rank_of_event[event_of_rank] = np.arange(events_count)
    start = np.concatenate([[0], np.cumsum(np.bincount(chain))])
    return Chains(start, rank_of_event, event_of_rank, chain[event_of_rank])


def _region_runs(sequence: IntArray, region_of_event: IntArray) -> list[IntArray]:
    """Return the subscriber's events region by region, in delivery order."""
    if len(sequence) == 0:
        return []
    region = region_of_event[sequence]
    order = np.argsort(region, kind="stable")
    return np.split(sequence[order], np.flatnonzero(np.diff(region[order])) + 1)


def _linear_extension(before: IntArray, after: IntArray, count: int) -> IntArray:
    """Return a rank for each of the nodes 0 … count - 1 that increases along every edge; loops are ignored."""
    edges = before != after
    keys = np.unique(before[edges] * count + after[edges])
    before, after = keys // count, keys % count
    first_edge = np.searchsorted(before, np.arange(count + 1)).tolist()
    successors = after.tolist()
    waiting_for = np.bincount(after, minlength=count).tolist()
    ready = [node for node in range(count) if waiting_for[node] == 0]
    for node in ready:
        for successor in successors[first_edge[node] : first_edge[node + 1]]:
            waiting_for[successor] -= 1
            if waiting_for[successor] == 0:
                ready.append(successor)
    if len(ready) != count:
        raise AssertionError("the condensation of a graph has a cycle")
    rank = np.empty(count, np.int64)
    rank[ready] = np.arange(count)
    return rank


def _layers(
    sequences: Sequence[IntArray], disputed: IntArray, component: IntArray, *, events_count: int
) -> tuple[IntArray, IntArray]:
    """Return each event's layer, and its turn within the layer, for events that are in components of two or more.

    Events of one component and one layer are in the same order, that of their turns, for every subscriber that
    delivered both. All others are layer 0, turn 0: as components are in a linear extension, layer 0 of all components
    together is a chain again, and so is every other layer.
    """
    layer = np.zeros(events_count, np.int64)
    turn = np.zeros(events_count, np.int64)
    if not len(disputed):
        return layer, turn
    place = np.full((len(disputed), len(sequences)), -1, np.int64)
    index = np.full(events_count, -1, np.int64)
    index[disputed] = np.arange(len(disputed))
    for subscriber, sequence in enumerate(sequences):
        held = np.flatnonzero(index[sequence] >= 0)
        place[index[sequence[held]], subscriber] = held
    # Any order of trying is correct; sorting by the mean place of an event keeps the number of layers low.
    mean = np.where(place >= 0, place, 0).sum(axis=1) / np.maximum((place >= 0).sum(axis=1), 1)
    order = np.lexsort((mean, component[disputed]))
    bounds = np.flatnonzero(np.diff(component[disputed][order])) + 1
    for members in np.split(order, bounds):
        layer[disputed[members]] = _first_fit(place[members])
        turn[disputed[members]] = np.arange(len(members))
    return layer, turn


def _first_fit(places: npt.NDArray[np.int64]) -> IntArray:
    """Put each row into the first layer whose last places all lie before its own; -1 is an unknown place."""
    last = np.full((8, places.shape[1]), -1, np.int64)
    layers = np.empty(len(places), np.int64)
    used = 0
    for row, place in enumerate(places):
        delivered = np.flatnonzero(place >= 0)
        fits = np.flatnonzero((last[:used, delivered] < place[delivered]).all(axis=1))
        chosen = int(fits[0]) if len(fits) else used
        used = max(used, chosen + 1)
        if used == len(last):
            last = np.concatenate([last, np.full_like(last, -1)])
        last[chosen, delivered] = place[delivered]
        layers[row] = chosen
    return layers
