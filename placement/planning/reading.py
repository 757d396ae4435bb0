"""Memberships and rates from files: ``subscriber,region`` and ``region,rate``."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from placement.planning.rows import MalformedRow, Skipped, read_rows
from sequencing.errors import InvalidName, UsageError
from sequencing.membership import Membership
from sequencing.names import check_connection_name, check_region
from sequencing.record import Pair, pair_of

PROGRESS_ROWS = 50_000
"""Often enough for a bar that moves, seldom enough to cost nothing."""


@dataclass(frozen=True, slots=True)
class MembershipFile:
    """A membership, and what its file was like: rows (good ones), rows said before, rows skipped."""

    membership: Membership
    rows: int
    duplicates: int
    skipped: Skipped


def read_membership(
    file: Path, *, skip_bad: bool = False, on_progress: Callable[[int], None] | None = None
) -> MembershipFile:
    """Read ``subscriber,region`` rows, CSV or JSON Lines (see `placement.planning.rows`); ``-`` is standard input.

    A row without a subscriber (an empty cell, null) says that the region exists. Takes some 2 s a million rows. Raises
    `InvalidInput` for the first malformed row, naming file and line, unless ``skip_bad``.
    """
    reader = _Reader(on_progress)
    skipped = Skipped()
    read_rows(file, ("subscriber", "region"), reader.take, skipped=skipped if skip_bad else None)
    membership = reader.membership()
    subscriptions = len(reader.subscriber)
    return MembershipFile(membership, reader.rows, subscriptions - membership.incidence.nnz, skipped)


class _Reader:
    """Numbers the names as they come; names are checked when they are new."""

    def __init__(self, on_progress: Callable[[int], None] | None) -> None:
        self.rows = 0
        self.subscriber, self.region = array("q"), array("q")
        self._subscribers: dict[str, int] = {}
        self._regions: dict[str, int] = {}
        self._on_progress = on_progress

    def take(self, subscriber: str, region: str) -> None:
        row = self._subscribers.get(subscriber)
        column = self._regions.get(region)
        try:
            if row is None and subscriber:
                check_connection_name(subscriber)
            if column is None:
                check_region(region)
        except InvalidName as error:
            raise MalformedRow(str(error)) from error
        if column is None:
            column = self._regions[region] = len(self._regions)
        if subscriber:
            if row is None:
                row = self._subscribers[subscriber] = len(self._subscribers)
            self.subscriber.append(row)
            self.region.append(column)
        self.rows += 1
        if self._on_progress is not None and self.rows % PROGRESS_ROWS == 0:
            self._on_progress(PROGRESS_ROWS)

    def membership(self) -> Membership:
        ones = np.ones(len(self.subscriber), np.int32)
        places = np.frombuffer(self.subscriber, np.int64), np.frombuffer(self.region, np.int64)
        shape = (len(self._subscribers), len(self._regions))
        return Membership.from_incidence(
            list(self._subscribers), list(self._regions), sparse.coo_array((ones, places), shape=shape)
        )


def read_overlaps(file: Path) -> frozenset[Pair]:
    """Read ``region,neighbour`` rows: overlaps that are expected. Raises `InvalidInput`."""
    pairs: set[Pair] = set()

    def take(region: str, neighbour: str) -> None:
        try:
            pairs.add(pair_of(region, neighbour))
        except UsageError as error:
            raise MalformedRow(str(error)) from error

    read_rows(file, ("region", "neighbour"), take)
    return frozenset(pairs)


def read_rates(file: Path) -> dict[str, float]:
    """Read ``region,rate`` rows, events/s; a repeated region has its last rate. Raises `InvalidInput`."""
    rates: dict[str, float] = {}

    def take(region: str, rate: str) -> None:
        try:
            number = float(rate)
        except ValueError:
            number = math.nan
        if not 0 <= number < math.inf:
            raise MalformedRow(f"the rate of {region!r} is not a number of events/s: {rate!r}")
        try:
            rates[check_region(region)] = number
        except InvalidName as error:
            raise MalformedRow(str(error)) from error

    read_rows(file, ("region", "rate"), take)
    return rates
