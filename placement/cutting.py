"""Cut an arrangement's line into consecutive blocks, one for each sequencing node.

Every region whose interval spans a cut pays a hop there, so a cut should fall where little crosses; and no node should
carry much more than its share. Each cut is therefore sought near its even share of the load, within `SLACK`, where the
least rate crosses. Components of the overlap graph lie one after the other on the line, so that a cut between two of
them crosses nothing and is preferred.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sequencing.overlaps import IntArray

SLACK = 0.25
"""How far from its even share (as a part of one share) a cut may move to find a place that less rate crosses."""


def cut(rate: npt.NDArray[np.float64], last_slot: IntArray, blocks: int) -> IntArray:
    """Return the block (0 … blocks-1, non-decreasing) of each slot.

    ``rate[p]``: events/s that enter at slot p; ``last_slot[p]``: where they leave. With fewer slots than blocks, some
    blocks stay empty.
    """
    slots = len(rate)
    if not rate.any():
        rate = np.ones(slots)
    if slots == 0 or blocks <= 1:
        return np.zeros(slots, np.int64)
    crossing = _crossing(rate, last_slot)
    entered = np.cumsum(rate)
    share = entered[-1] / blocks
    cuts: list[int] = []
    for number in range(1, blocks):
        after = cuts[-1] + 1 if cuts else 0
        low = int(np.searchsorted(entered, (number - SLACK) * share))
        high = int(np.searchsorted(entered, (number + SLACK) * share))
        low, high = max(low, after), min(max(high, low), slots - 2)
        if low > high:
            continue
        window = crossing[low : high + 1]
        middle = int(np.searchsorted(entered, number * share)) - low
        best = np.flatnonzero(window == window.min())
        cuts.append(low + int(best[np.argmin(np.abs(best - middle))]))
    block_of = np.zeros(slots, np.int64)
    for at in cuts:
        block_of[at + 1 :] += 1
    return block_of


def _crossing(rate: npt.NDArray[np.float64], last_slot: IntArray) -> npt.NDArray[np.float64]:
    """Return, for each p, the rate whose interval spans the boundary between slots p and p+1."""
    change = np.zeros(len(rate) + 1)
    change[: len(rate)] += rate
    np.subtract.at(change, last_slot, rate)
    return np.cumsum(change)[: len(rate)]
