"""Count the pairs of events that two subscribers delivered in opposite orders, without comparing pairs of events.

Take two chains A and B (`sequencing.checkers.chains`), an event a of A, and a subscriber s that delivered it. The
events of B that s delivered before a are an initial piece of the events of B that s delivered. Call the last event of
the piece f(s), and the first event of B that s delivered after a, g(s). An event b of B is inverted with a if some
subscriber of both puts it before a, so b ≤ f(s), and some other puts it after a, so b ≥ g(t). If all delivered the same
events of B, g(t) = f(t) + 1, and the number of events inverted with a is max f - min f. Otherwise the events of B are
sorted into classes by the subscribers that delivered them: within a class, the inverted ones are exactly those from
min g to max f over the class's subscribers.

Each pair is counted once, from the event that is in the smaller chain, and exactly. It takes O(deliveries × chains per
subscriber) array operations: with region order intact, a chain is a region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sequencing.checkers.chains import Chains, cut_into_chains
from sequencing.checkers.history import History, IntArray
from sequencing.checkers.offence import Offence

BoolArray = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int32]
Rows = slice | IntArray

CELLS_MAX = 4_000_000
"""Events × subscribers compared at once if subscribers delivered different events: about 32 MB."""


@dataclass(frozen=True, slots=True)
class Inversions:
    """The number of distinct inverted pairs, and an event of one of them (-1 where there is none)."""

    count: int
    event: int


@dataclass(frozen=True, slots=True)
class _View:
    """The deliveries of one subscriber, arranged by chain.

    Chain c's piece begins at ``offset[c]`` of ``place`` (-1: the subscriber delivered nothing of c) and has an entry
    for each event of c: the place of its delivery, or ``absent`` where it was not delivered.
    """

    place: IntArray
    offset: IntArray
    absent: int

    def piece(self, chain: int, size: int) -> IntArray:
        return self.place[self.offset[chain] : self.offset[chain] + size]


def count_inversions(history: History, disputed: IntArray) -> Inversions:
    """Count the inverted pairs among the ``disputed`` events: those on cycles, since no other event is in such a pair.

    The event returned is, of those in the smaller chain of their pair, one that was delivered earliest.
    """
    if not len(disputed):
        return Inversions(0, -1)
    index = np.full(len(history.events), -1, np.int64)
    index[disputed] = np.arange(len(disputed))
    sequences = [kept[kept >= 0] for kept in (index[first] for first in history.firsts)]
    chains = cut_into_chains(sequences, region_of_event=history.region_of_event[disputed])
    views = [_view(chains.rank_of_event[sequence], chains) for sequence in sequences]
    earliest = history.earliest()[disputed][chains.event_of_rank]
    count, worst = _count_across(chains, views, earliest)
    return Inversions(count, -1 if worst < 0 else int(disputed[chains.event_of_rank[worst]]))


def find_inversion(history: History, event: int) -> Offence | None:
    """Return the earliest delivered event that is inverted with ``event``, and two subscribers that show it."""
    places = [history.places(subscriber) for subscriber in range(len(history.subscribers))]
    before = np.zeros(len(history.events), np.bool_)
    after = np.zeros(len(history.events), np.bool_)
    for place in places:
        if place[event] >= 0:
            before |= (place >= 0) & (place < place[event])
            after |= place > place[event]
    inverted = np.flatnonzero(before & after)
    if not len(inverted):
        return None
    other = int(inverted[np.argmin(history.earliest()[inverted])])
    both = [s for s, place in enumerate(places) if place[event] >= 0 and place[other] >= 0]
    first = both[0]
    pair = (event, other) if places[first][event] < places[first][other] else (other, event)
    second = next(s for s in both if places[s][pair[0]] > places[s][pair[1]])
    return Offence(
        kind="inversion",
        events=history.event_names(pair),
        regions=history.region_names(pair),
        subscribers=(history.subscribers[first], history.subscribers[second]),
    )


def _view(ranks: IntArray, chains: Chains) -> _View:
    held = np.unique(chains.chain_of_rank[ranks])
    sizes = chains.sizes[held]
    offset = np.full(len(chains), -1, np.int64)
    offset[held] = np.cumsum(sizes) - sizes
    place = np.full(int(sizes.sum()), len(ranks), np.int64)
    chain = chains.chain_of_rank[ranks]
    place[offset[chain] + ranks - chains.start[chain]] = np.arange(len(ranks))
    return _View(place, offset, absent=len(ranks))


def _count_across(chains: Chains, views: Sequence[_View], earliest: IntArray) -> tuple[int, int]:
    """Return the number of inverted pairs and the rank of an event of one, or -1."""
    holds = np.array([view.offset >= 0 for view in views])
    sizes = chains.sizes
    count, worst = 0, -1
    for chain in range(len(chains)):
        holders = np.flatnonzero(holds[:, chain])
        # Chains are sorted by size, so the others are smaller: the rows are events of the smaller chain of each pair.
        others = chain + 1 + np.flatnonzero(np.count_nonzero(holds[holders, chain + 1 :], axis=0) >= 2)
        if not len(others):
            continue
        held_by = [views[holder] for holder in holders.tolist()]
        pieces = [view.piece(chain, int(sizes[chain])) for view in held_by]
        seen = np.array([piece < view.absent for view, piece in zip(held_by, pieces, strict=True)])
        gathering = _Gathering(chains, held_by, others)
        inverted = _inverted_alike(gathering, pieces) if seen.all() else _inverted_apart(gathering, pieces, seen)
        offending = np.flatnonzero(inverted)
        if not len(offending):
            continue
        count += int(inverted[offending].sum())
        ranks = _ranges(chains.start[others], sizes[others])
        candidates = np.arange(ranks.start, ranks.stop)[offending] if isinstance(ranks, slice) else ranks[offending]
        candidate = int(candidates[np.argmin(earliest[candidates])])
        if worst < 0 or earliest[candidate] < earliest[worst]:
            worst = candidate
    return count, worst


@dataclass(frozen=True, slots=True)
class _Gathering:
    """The events of some chains as rows, and some subscribers' views of them."""

    chains: Chains
    views: Sequence[_View]
    others: IntArray

    def __len__(self) -> int:
        return int(self.chains.sizes[self.others].sum())

    def of(self, view: _View) -> tuple[Rows, IntArray]:
        """Return the rows of the chains that the subscriber holds, and the places of its deliveries."""
        sizes = self.chains.sizes[self.others]
        held = view.offset[self.others] >= 0
        first_row = np.cumsum(sizes) - sizes
        rows = _ranges(first_row[held], sizes[held])
        return rows, view.place[_ranges(view.offset[self.others[held]], sizes[held])]

    def parts(self, rows_max: int) -> list[_Gathering]:
        """Return gatherings of about ``rows_max`` rows, in the same order."""
        part = np.cumsum(self.chains.sizes[self.others]) // rows_max
        groups = np.split(self.others, np.flatnonzero(np.diff(part)) + 1)
        return [_Gathering(self.chains, self.views, group) for group in groups]


def _inverted_alike(gathering: _Gathering, pieces: Sequence[IntArray]) -> IntArray:
    """Return max f - min f for each row, where all subscribers delivered the whole chain."""
    high = np.full(len(gathering), -1, np.int32)
    # Read as unsigned, "not delivered" is the greatest number instead of the smallest, as a minimum needs.
    low = np.full(len(gathering), -1, np.int32).view(np.uint32)
    for view, piece in zip(gathering.views, pieces, strict=True):
        delivered_before = _by_place(np.arange(len(piece) + 1), piece, absent=view.absent, value_of_absent=-1)
        rows, places = gathering.of(view)
        before = delivered_before[places]
        high[rows] = np.maximum(high[rows], before)
        low[rows] = np.minimum(low[rows], before.view(np.uint32))
    # A row that none of these subscribers delivered is -1 in both.
    return high.astype(np.int64) - low.view(np.int32)


def _inverted_apart(gathering: _Gathering, pieces: Sequence[IntArray], seen: BoolArray) -> IntArray:
    """Return the number of inverted events for each row, where subscribers delivered different parts of the chain."""
    classes, class_of_event = np.unique(seen, axis=1, return_inverse=True)
    up_to = [
        (np.flatnonzero(classes[:, one]), np.concatenate([[0], np.cumsum(class_of_event.ravel() == one)]))
        for one in np.flatnonzero(np.count_nonzero(classes, axis=0) >= 2)
    ]
    rows_max = max(1, CELLS_MAX // len(pieces))
    return np.concatenate([_inverted_by_class(part, pieces, up_to) for part in gathering.parts(rows_max)])


def _inverted_by_class(
    gathering: _Gathering, pieces: Sequence[IntArray], up_to: Sequence[tuple[IntArray, IntArray]]
) -> IntArray:
    size = len(pieces[0])
    last = np.full((len(pieces), len(gathering)), -1, np.int32)
    first = np.full((len(pieces), len(gathering)), size, np.int32)
    for holder, (view, piece) in enumerate(zip(gathering.views, pieces, strict=True)):
        held = np.flatnonzero(piece < view.absent)
        rows, places = gathering.of(view)
        f = _by_place(np.append(-1, held), piece[held], absent=view.absent, value_of_absent=-1)
        g = _by_place(np.append(held, size), piece[held], absent=view.absent, value_of_absent=size)
        last[holder, rows] = f[places]
        first[holder, rows] = g[places]
    inverted = np.zeros(len(gathering), np.int64)
    suspects = np.flatnonzero(last.max(axis=0) >= first.min(axis=0))
    last, first = last[:, suspects], first[:, suspects]
    for members, members_up_to in up_to:
        high = last[members].max(axis=0)
        low = first[members].min(axis=0)
        inverted[suspects] += np.maximum(members_up_to[high + 1] - members_up_to[low], 0)
    return inverted


def _by_place(values: IntArray, places: IntArray, *, absent: int, value_of_absent: int) -> Places:
    """Return a table from places to values: ``values[i]`` where i of the ``places`` lie before."""
    table = np.empty(absent + 1, np.int32)
    table[:absent] = np.repeat(values.astype(np.int32), np.diff(places, prepend=-1, append=absent - 1))
    table[absent] = value_of_absent
    return table


def _ranges(start: IntArray, length: IntArray) -> Rows:
    """Return the indices of several ranges, one after the other; a slice where they are one."""
    if len(start) == 0:
        return slice(0, 0)
    if np.array_equal(start[1:], start[:-1] + length[:-1]):
        return slice(int(start[0]), int(start[-1] + length[-1]))
    shift: IntArray = start - (np.cumsum(length) - length)
    indices: IntArray = np.arange(int(length.sum())) + np.repeat(shift, length)
    return indices
