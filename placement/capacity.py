"""Cut a line so that no block carries more than a capacity and as little as possible crosses: the best possible cuts.

Boundary i lies before slot i. What crosses it, c(i), has to be carried on both sides of it, so a block from boundary
i to boundary j carries c(i) and what enters there, that is e(j) − f(i): e(j) has entered before j, and f(i) = e(i) −
c(i) has left by i. Both only grow along the line. Hence, for a capacity t, the blocks that may end at j begin no
earlier than where f reaches e(j) − t, and

    cost_k(j) = min { cost_{k-1}(i) + c(i) : f(i) ≥ e(j) − t, i < j }

is a minimum over a window: slots × log slots for each block. To begin as late as possible, and so to reach
as far as possible, is best for whether a capacity can be kept at all, which finds the least peak by halving.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sequencing.overlaps import IntArray

HALVINGS = 40
"""The least peak is found to one part in 2⁴⁰ of the load, far below what rates are known to."""
TOLERANCE = 1e-9

FloatArray = npt.NDArray[np.float64]


class CutLine:
    """A line of slots: ``rate[p]`` events/s enter at slot p and leave behind ``last_slot[p]``; ``weight`` is what
    crossing costs."""

    def __init__(self, rate: FloatArray, weight: FloatArray, last_slot: IntArray) -> None:
        self.slots = len(rate)
        self.entered = np.concatenate([[0.0], np.cumsum(rate)])
        self.left = np.concatenate([[0.0], np.cumsum(np.bincount(last_slot, rate, self.slots))])
        begun = np.concatenate([[0.0], np.cumsum(weight)])
        ended = np.concatenate([[0.0], np.cumsum(np.bincount(last_slot, weight, self.slots))])
        self.crossing = np.maximum(begun - ended, 0.0)
        self.slack = TOLERANCE * float(self.entered[-1])

    def least_peak(self, blocks: int) -> float:
        """Return the least load (events/s) of the busiest of this many blocks, over all ways to cut."""
        low, high = 0.0, float(self.entered[-1])
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._reaches_end(middle, blocks) else (middle, high)
        return high

    def cut(self, blocks: int, capacity: float) -> IntArray | None:
        """Return the block of each slot such that the least weight crosses, None if the capacity cannot be kept."""
        boundaries = np.arange(self.slots + 1)
        earliest = np.searchsorted(self.left, self.entered - capacity - self.slack)
        cost = np.where(earliest == 0, 0.0, np.inf)
        cost[0] = 0.0
        best, previous = (float(cost[-1]), 0), []
        for block in range(1, blocks):
            begin = _argmin_windows(cost + self.crossing, np.minimum(earliest, boundaries), boundaries)
            following = np.where(begin >= 0, (cost + self.crossing)[begin], np.inf)
            previous.append(begin)
            cost = following
            if cost[-1] < best[0]:
                best = float(cost[-1]), block
        if not np.isfinite(best[0]):
            return None
        at, cuts = self.slots, []
        for block in range(best[1], 0, -1):
            at = int(previous[block - 1][at])
            cuts.append(at)
        block_of = np.zeros(self.slots + 1, np.int64)
        np.add.at(block_of, cuts, 1)
        return np.cumsum(block_of)[: self.slots]

    def _reaches_end(self, capacity: float, blocks: int) -> bool:
        at = 0
        for _ in range(blocks):
            limit = self.left[at] + capacity + self.slack
            at = int(np.searchsorted(self.entered, limit, side="right")) - 1
            if at >= self.slots:
                return True
        return False


def _argmin_windows(values: FloatArray, start: IntArray, end: IntArray) -> IntArray:
    """Return where ``values[start:end]`` is least for each pair of ends, -1 for an empty window or one without a
    finite value."""
    lengths = end - start
    least = np.full(len(start), -1, np.int64)
    best = np.arange(len(values))
    span = 1
    while True:
        here = np.flatnonzero((lengths >= span) & (lengths < 2 * span))
        if len(here):
            first, second = best[start[here]], best[end[here] - span]
            least[here] = np.where(values[second] < values[first], second, first)
        if 2 * span > len(values):
            break
        first, second = best[:-span], best[span:]
        best = np.where(values[second] < values[first], second, first)
        span *= 2
    least[(least >= 0) & ~np.isfinite(values[least])] = -1
    return least
