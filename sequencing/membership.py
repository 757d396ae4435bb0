"""Who subscribes to what: the input of every plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from sequencing.names import check_connection_name, check_region


@dataclass(frozen=True)
class Membership:
    """An immutable snapshot: subscriber name → its regions, and the regions that are known without a subscriber."""

    regions_of: Mapping[str, frozenset[str]]
    known_regions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, regions_of: Mapping[str, Iterable[str]], known_regions: Iterable[str] = ()) -> Membership:
        """Validate the names and freeze; repeated regions count once. Raises `InvalidName`."""
        return cls(
            {check_connection_name(s): frozenset(map(check_region, regions)) for s, regions in regions_of.items()},
            frozenset(map(check_region, known_regions)),
        )

    @cached_property
    def subscribers(self) -> tuple[str, ...]:
        """All subscribers, sorted: the rows of `incidence`."""
        return tuple(sorted(self.regions_of))

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """All regions, sorted: the columns of `incidence`."""
        return tuple(sorted(self.known_regions.union(*self.regions_of.values())))

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """Subscribers × regions, 1 where subscribed."""
        column_of = {region: column for column, region in enumerate(self.regions)}
        lengths = [len(self.regions_of[s]) for s in self.subscribers]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = np.fromiter(
            (column_of[region] for s in self.subscribers for region in self.regions_of[s]), np.int64, indptr[-1]
        )
        shape = (len(self.subscribers), len(self.regions))
        matrix = sparse.csr_array((np.ones(len(indices), np.int32), indices, indptr), shape=shape)
        matrix.sort_indices()
        return matrix
