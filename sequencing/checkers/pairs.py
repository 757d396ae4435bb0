"""Count, for each two subscribers, the pairs of events in which their orders differ: the demo's table of servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sequencing.checkers.history import DeliverySequence, History, IntArray


@dataclass(frozen=True, slots=True)
class PairOrder:
    """Two subscribers, the number of events that both delivered, and how many pairs of those in opposite orders."""

    subscribers: tuple[str, str]
    common: int
    inversions: int


def compare_pairs(sequences: Iterable[DeliverySequence] | History) -> tuple[PairOrder, ...]:
    """Compare every two subscribers that have two or more events in common, sorted by name.

    Takes O(n log n) for each pair; there are subscribers²/2 pairs, so ask for this with tens of subscribers, not
    thousands. Raises what `History.of` raises.
    """
    history = sequences if isinstance(sequences, History) else History.of(sequences)
    compared = []
    for one, other in combinations(range(len(history.subscribers)), 2):
        places = history.places(other)[history.firsts[one]]
        common = places[places >= 0]
        if len(common) >= 2:
            names = (history.subscribers[one], history.subscribers[other])
            compared.append(PairOrder(names, len(common), count_descending_pairs(common)))
    return tuple(compared)


def count_descending_pairs(numbers: IntArray) -> int:
    """Return how many pairs i < j have numbers[i] > numbers[j]; the numbers are distinct.

    Goes through the binary digits of their ranks from the highest: a pair descends at the highest digit in which it
    differs. Before each digit the ranks are in groups of equal higher digits, and inside a group in their first order.
    """
    if bool((numbers[1:] > numbers[:-1]).all()):
        return 0
    ranks = np.empty(len(numbers), np.int64)
    ranks[np.argsort(numbers)] = np.arange(len(numbers))
    descending = 0
    for digit in range(len(numbers).bit_length() - 1, -1, -1):
        one = (ranks >> digit) & 1
        ones_before = np.cumsum(one) - one
        # Ranks are 0 … n - 1 without a hole, so the group with higher digits h begins at place h · 2^(digit + 1).
        group_start = (ranks >> (digit + 1)) << (digit + 1)
        ones_before_in_group = ones_before - ones_before[group_start]
        descending += int(ones_before_in_group[one == 0].sum())
        zeros_before_in_group = np.arange(len(ranks)) - group_start - ones_before_in_group
        half_start = (ranks >> digit) << digit
        place = half_start + np.where(one == 1, ones_before_in_group, zeros_before_in_group)
        sorted_further = np.empty_like(ranks)
        sorted_further[place] = ranks
        ranks = sorted_further
    return descending
