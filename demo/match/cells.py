"""Regions of a map: square cells, and those that a player's view touches.

The point (x, z) lies in the cell (⌊x/S⌋, ⌊z/S⌋) of side S, and each cell is a region, ``cell:⌊x/S⌋:⌊z/S⌋``. A view is
the circle of radius R around a point; it touches every cell that has a point at a distance of at most R. A cell owns
its lower edges and not its upper ones, so a circle that just reaches an upper edge does not touch the cell below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from demo.match.trace import FloatArray
from sequencing.errors import UsageError

Cell = tuple[int, int]
BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.int64]

VIEW_CELLS_MAX = 1024
"""A view that is 32 cells wide: beyond that a server has more regions than any game would give it."""


def region_of(x_m: float, z_m: float, *, cell_m: float) -> str:
    """Return the region of a point."""
    return region_name((math.floor(x_m / cell_m), math.floor(z_m / cell_m)))


def region_name(cell: Cell) -> str:
    """Return the region of a cell."""
    return f"cell:{cell[0]}:{cell[1]}"


def neighbours_of(cells: Iterable[Cell], *, cell_m: float, radius_m: float) -> Iterator[tuple[Cell, Cell]]:
    """Yield each pair of these cells that one view can touch, once."""
    apart = math.floor(2 * radius_m / cell_m) + 1
    known = set(cells)
    for x, z in sorted(known):
        for dx in range(apart + 1):
            for dz in range(-apart if dx else 1, apart + 1):
                if (x + dx, z + dz) in known:
                    yield (x, z), (x + dx, z + dz)


def cells_in_view(x_m: FloatArray, z_m: FloatArray, *, cell_m: float, radius_m: float) -> set[Cell]:
    """Return the cells that views from these points touch.

    Raises `UsageError` if a view is more than ``VIEW_CELLS_MAX`` cells.
    """
    points = np.unique(np.stack([x_m, z_m], axis=1), axis=0)
    touched: set[Cell] = set()
    for within, cells in _touched(points, cell_m=cell_m, radius_m=radius_m):
        touched.update(map(tuple, np.unique(cells[within], axis=0).tolist()))
    return touched


def cells_of_views(x_m: FloatArray, z_m: FloatArray, *, cell_m: float, radius_m: float) -> list[frozenset[Cell]]:
    """Return, for each of these points, the cells that the view from it touches; the same points share a set.

    Raises what `cells_in_view` raises.
    """
    points, place = np.unique(np.stack([x_m, z_m], axis=1), axis=0, return_inverse=True)
    touched: list[list[Cell]] = [[] for _ in points]
    for within, cells in _touched(points, cell_m=cell_m, radius_m=radius_m):
        for point, cell in zip(np.flatnonzero(within).tolist(), map(tuple, cells[within].tolist()), strict=True):
            touched[point].append(cell)
    views = [frozenset(cells) for cells in touched]
    return [views[point] for point in place.ravel().tolist()]


def _touched(points: FloatArray, *, cell_m: float, radius_m: float) -> Iterator[tuple[BoolArray, CellArray]]:
    """Yield for each step from a point's own cell to another: which points' views touch that one, and all these."""
    reach = math.ceil(radius_m / cell_m)
    if (2 * reach + 1) ** 2 > VIEW_CELLS_MAX:
        raise UsageError(
            f"a view of --radius-m {radius_m:g} over cells of --cell-m {cell_m:g} is more than {VIEW_CELLS_MAX} cells: "
            "make the cells larger or the radius smaller"
        )
    own = np.floor(points / cell_m).astype(np.int64)
    for dx in range(-reach, reach + 1):
        for dz in range(-reach, reach + 1):
            step = np.array([dx, dz])
            # The nearest edge is the lower one of a cell above, and the upper one, which is not its own, of one below.
            edge = (own + np.where(step < 0, step + 1, step)) * cell_m
            away = np.where(step == 0, 0.0, points - edge)
            distance_squared = (away**2).sum(axis=1)
            below = bool((step < 0).any())
            yield distance_squared < radius_m**2 if below else distance_squared <= radius_m**2, own + step
