"""Grid worlds: subscribers that stand in a grid of regions and see the cells near them.

Large game worlds look like this to a planner: millions of views, each of them local. The same seed makes the same
world.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
from scipy import sparse

from sequencing.errors import UsageError
from sequencing.membership import Membership
from sequencing.record import Pair, pair_of

VIEW_CELLS = 0.3
"""Radius of a view in cells. A circle of radius r < ½ touches 1 + 4r + πr² cells on average: here 2.5."""


def grid_world(subscribers: int, regions: int, *, seed: int = 1) -> Membership:
    """Return a world of about square shape; each subscriber has the regions that a circle around its place touches.

    About 2.5 each, from 1 to 4. Takes some 2 s for 1,000,000 subscribers and 100,000 regions. Raises `UsageError`.
    """
    incidence = grid_incidence(subscribers, regions, seed=seed)
    columns = math.isqrt(regions)
    digits = len(str(columns + 2))
    names = [f"cell:{region // columns:0{digits}}:{region % columns:0{digits}}" for region in range(regions)]
    digits = len(str(subscribers))
    return Membership.from_incidence([f"s{number:0{digits}}" for number in range(subscribers)], names, incidence)


_CELL = re.compile(r"(.*):(-?\d+):(-?\d+)")


def grid_overlaps(regions: Iterable[str]) -> frozenset[Pair]:
    """Return the pairs of cells, regions that are called ``NAME:COLUMN:ROW``, that touch each other, corners included.

    Raises `UsageError` when no two do.
    """
    cell_of = {(name, int(x), int(y)): region for region in regions for name, x, y in _CELL.findall(region)}
    pairs = frozenset(
        pair_of(region, cell_of[name, x + dx, y + dy])
        for (name, x, y), region in cell_of.items()
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1))
        if (name, x + dx, y + dy) in cell_of
    )
    if not pairs:
        raise UsageError("no two regions are called like neighbours in a grid, NAME:3:7 and NAME:3:8")
    return pairs


def grid_incidence(subscribers: int, regions: int, *, seed: int = 1) -> sparse.csr_array:
    """Return the subscribers × regions matrix of a grid world; regions are numbered row by row."""
    if subscribers < 0 or regions < 1:
        raise UsageError(f"a grid world has subscribers and at least one region, not {subscribers} and {regions}")
    random = np.random.default_rng(seed)
    columns = math.isqrt(regions)
    standing = random.integers(0, regions, subscribers)
    column, row = standing % columns, standing // columns
    east, south = random.random(subscribers), random.random(subscribers)
    away_east, away_south = {-1: east, 0: 0 * east, 1: 1 - east}, {-1: south, 0: 0 * south, 1: 1 - south}
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            near = away_east[dx] ** 2 + away_south[dy] ** 2 <= VIEW_CELLS**2
            region = (row + dy) * columns + column + dx
            exists = (column + dx >= 0) & (column + dx < columns) & (region >= 0) & (region < regions)
            who = np.flatnonzero(near & exists)
            seen.append((who, region[who]))
    subscriber, region = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    ones = np.ones(len(subscriber), np.int32)
    return sparse.csr_array((ones, (subscriber, region)), shape=(subscribers, regions))
