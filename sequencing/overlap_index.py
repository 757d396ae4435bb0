"""Double overlaps while subscribers come and go.

The index counts the common subscribers of every pair of regions that has any. A join or leave of a subscriber with k
regions changes k counts, and touches nothing else: microseconds for the few regions that subscribers have, however many
regions and subscribers there are. Memory: an entry for each pair with a common subscriber (some 100 bytes), and a set
of regions for each subscriber that has joined or left something since the index was built.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from sequencing.errors import UsageError
from sequencing.membership import Membership
from sequencing.names import check_connection_name, check_region

DOUBLE = 2
"""With this many common subscribers, two of them could disagree about a pair of regions."""
NUMBER_BITS = 32
"""Bits of a region's number; two numbers are the key of a pair, which takes less memory than a tuple."""

Pair = tuple[str, str]


class OverlapIndex:
    """The double overlaps of a membership that changes; a pair's regions are in sorted order."""

    def __init__(self, membership: Membership | None = None) -> None:
        """Begin with a membership (None: no subscribers); takes about 1 s for a million subscribers."""
        base = membership if membership is not None else Membership({})
        self._base = base.regions_of
        self._changed: dict[str, set[str]] = {}
        self._regions = list(base.regions)
        self._number_of = {region: number for number, region in enumerate(self._regions)}
        common = sparse.triu(base.incidence.T @ base.incidence, k=1).tocoo()
        keys = common.row.astype(np.int64) << NUMBER_BITS | common.col
        self._common = dict(zip(keys.tolist(), common.data.tolist(), strict=True))
        self._double = int(np.count_nonzero(common.data >= DOUBLE))

    def __len__(self) -> int:
        """Return the number of double overlaps."""
        return self._double

    def __iter__(self) -> Iterator[Pair]:
        """Yield every double overlap, in no particular order."""
        return (self._pair(key) for key, count in self._common.items() if count >= DOUBLE)

    def regions_of(self, subscriber: str) -> frozenset[str]:
        """Return the regions that a subscriber has joined and not left; none for an unknown subscriber."""
        changed = self._changed.get(subscriber)
        return frozenset(changed) if changed is not None else self._base.get(subscriber, frozenset())

    def join(self, subscriber: str, region: str) -> tuple[Pair, ...]:
        """Subscribe, and return the pairs that became double overlaps.

        Joining a region again changes nothing. Raises `InvalidName`.
        """
        joined = self._regions_to_change(subscriber)
        if region in joined:
            return ()
        number = self._number(region)
        became = []
        for other in joined:
            key = self._key(number, self._number_of[other])
            count = self._common.get(key, 0) + 1
            self._common[key] = count
            if count == DOUBLE:
                became.append(key)
        joined.add(region)
        self._double += len(became)
        return tuple(sorted(map(self._pair, became)))

    def leave(self, subscriber: str, region: str) -> tuple[Pair, ...]:
        """Unsubscribe, and return the pairs that are no longer double overlaps.

        Raises `UsageError` if the subscriber has not joined the region.
        """
        if region not in self.regions_of(subscriber):
            raise UsageError(f"{subscriber!r} cannot leave {region!r}: it has not joined it")
        joined = self._regions_to_change(subscriber)
        joined.remove(region)
        number = self._number_of[region]
        ceased = []
        for other in joined:
            key = self._key(number, self._number_of[other])
            count = self._common[key] - 1
            if count:
                self._common[key] = count
            else:
                del self._common[key]
            if count == DOUBLE - 1:
                ceased.append(key)
        self._double -= len(ceased)
        return tuple(sorted(map(self._pair, ceased)))

    def _regions_to_change(self, subscriber: str) -> set[str]:
        regions = self._changed.get(subscriber)
        if regions is None:
            regions = set(self._base.get(check_connection_name(subscriber), frozenset()))
            self._changed[subscriber] = regions
        return regions

    def _number(self, region: str) -> int:
        number = self._number_of.get(region)
        if number is None:
            number = self._number_of[check_region(region)] = len(self._regions)
            self._regions.append(region)
        return number

    @staticmethod
    def _key(one: int, other: int) -> int:
        return one << NUMBER_BITS | other if one < other else other << NUMBER_BITS | one

    def _pair(self, key: int) -> Pair:
        one, other = self._regions[key >> NUMBER_BITS], self._regions[key & (1 << NUMBER_BITS) - 1]
        return (one, other) if one < other else (other, one)
