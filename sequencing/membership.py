"""The membership: which subscriber has which regions. It is the input of every plan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from scipy import sparse

from sequencing.errors import UsageError
from sequencing.joint import regions_in
from sequencing.names import NAME_BYTES_MAX, check_connection_name, check_region

UTF8_BYTES_MAX = 4
"""The most bytes of one character."""


@dataclass(frozen=True)
class Membership:
    """An immutable snapshot: subscriber name → its regions, and the regions that are known without a subscriber.

    ``joint``: the sets of regions, by name, that events are in at once (`sequencing.joint`). Their regions are known.
    """

    regions_of: Mapping[str, frozenset[str]]
    known_regions: frozenset[str] = frozenset()
    joint: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        regions_of: Mapping[str, Iterable[str]],
        known_regions: Iterable[str] = (),
        joint: frozenset[str] = frozenset(),
    ) -> Self:
        """Validate the names and freeze; repeated regions count once. Raises `InvalidName`."""
        return cls(
            {check_connection_name(s): frozenset(map(check_region, regions)) for s, regions in regions_of.items()},
            frozenset(map(check_region, known_regions)),
            joint,
        )

    @classmethod
    def from_incidence(
        cls, subscribers: Sequence[str], regions: Sequence[str], incidence: sparse.coo_array | sparse.csr_array
    ) -> Self:
        """Take a subscribers × regions matrix whose non-zeros are subscriptions; made for millions of them.

        The names belong to the rows and columns in any order; sorted names need no rearranging. No mapping is built:
        `regions_of` reads the rows of the matrix. Raises `InvalidName`, and `UsageError` for a repeated name or a
        matrix of another shape.
        """
        if incidence.shape != (len(subscribers), len(regions)):
            names = f"{len(subscribers)} subscribers and {len(regions)} regions"
            raise UsageError(f"the incidence matrix has the shape {incidence.shape}, but there are {names}")
        _check_names(subscribers, check_connection_name)
        _check_names(regions, check_region)
        rows, subscribers = _sorted(subscribers, "subscriber")
        columns, regions = _sorted(regions, "region")
        matrix = incidence.tocsr()
        if rows is not None:
            matrix = matrix[rows]
        if columns is not None:
            matrix = matrix[:, columns]
        matrix = _canonical(matrix)
        empty = np.flatnonzero(np.bincount(matrix.indices, minlength=len(regions)) == 0)
        return cls(IncidenceRows(subscribers, regions, matrix), frozenset(regions[column] for column in empty.tolist()))

    @cached_property
    def subscribers(self) -> tuple[str, ...]:
        """All subscribers, sorted: the rows of `incidence`."""
        if isinstance(self.regions_of, IncidenceRows):
            return self.regions_of.subscribers
        return tuple(sorted(self.regions_of))

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """All regions, sorted: the columns of `incidence`."""
        if isinstance(self.regions_of, IncidenceRows):
            return self.regions_of.regions
        return tuple(sorted(self.known_regions.union(*self.regions_of.values(), *map(regions_in, self.joint))))

    @cached_property
    def meeting(self) -> Membership:
        """What has to meet: the subscribers, and one with a made-up name for each set of `joint`."""
        if not self.joint:
            return self
        sets = {f"\n{name}": frozenset(regions_in(name)) for name in sorted(self.joint)}
        return Membership({**self.regions_of, **sets}, self.known_regions)

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """Subscribers × regions, 1 where subscribed."""
        if isinstance(self.regions_of, IncidenceRows):
            return self.regions_of.incidence
        column_of = {region: column for column, region in enumerate(self.regions)}
        lengths = [len(self.regions_of[s]) for s in self.subscribers]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        indices = np.fromiter(
            (column_of[region] for s in self.subscribers for region in self.regions_of[s]), np.int64, indptr[-1]
        )
        shape = (len(self.subscribers), len(self.regions))
        return _canonical(sparse.csr_array((np.ones(len(indices), np.int32), indices, indptr), shape=shape))


class IncidenceRows(Mapping[str, frozenset[str]]):
    """Subscriber → regions, read from the rows of an incidence matrix; a lookup searches the sorted names."""

    __slots__ = ("incidence", "regions", "subscribers")

    def __init__(self, subscribers: tuple[str, ...], regions: tuple[str, ...], incidence: sparse.csr_array) -> None:
        self.subscribers = subscribers
        self.regions = regions
        self.incidence = incidence

    def __getitem__(self, subscriber: str) -> frozenset[str]:
        row = bisect_left(self.subscribers, subscriber)
        if row == len(self.subscribers) or self.subscribers[row] != subscriber:
            raise KeyError(subscriber)
        start, end = self.incidence.indptr[row : row + 2].tolist()
        return frozenset(self.regions[column] for column in self.incidence.indices[start:end].tolist())

    def __iter__(self) -> Iterator[str]:
        return iter(self.subscribers)

    def __len__(self) -> int:
        return len(self.subscribers)


def _canonical(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the matrix with sorted columns in each row, and 1 wherever it was not 0."""
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.data = np.ones(matrix.nnz, np.int32)
    return matrix


def _sorted(names: Sequence[str], what: str) -> tuple[list[int] | None, tuple[str, ...]]:
    """Return the places of the names in sorted order (None if they are sorted), and the sorted names."""
    if all(before < after for before, after in pairwise(names)):
        return None, tuple(names)
    order = sorted(range(len(names)), key=names.__getitem__)
    arranged = tuple(names[place] for place in order)
    for before, after in pairwise(arranged):
        if before == after:
            raise UsageError(f"the {what} {before!r} is there twice")
    return order, arranged


def _check_names(names: Sequence[str], check: Callable[[object], str]) -> None:
    """Raise what ``check`` raises for the first name that it refuses; a million valid names take a moment."""
    try:
        short = max(map(len, names), default=0) * UTF8_BYTES_MAX <= NAME_BYTES_MAX
        # Among what is printable, only the plain blank is space.
        if short and all(map(str.strip, names)) and "".join(names).isprintable():
            return
    except TypeError:
        pass
    for name in names:
        check(name)
