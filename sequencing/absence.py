"""Which nodes have not answered for too long, so that a leader gives them up."""

from __future__ import annotations

from collections.abc import Collection, Mapping

PAUSE_S_MAX = 12.0
"""A leader that has not asked for longer than this was stopped itself, and knows nothing of the time between. A call to
a server that hangs takes 10 s."""


class Absence:
    """Since when each node has not answered this leader. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._asked: dict[str, float] = {}

    def note(self, asked: Collection[str], answered: Collection[str], now_s: float) -> None:
        """Note which of the nodes that were asked have answered."""
        for node in asked:
            has_paused = now_s - self._asked.get(node, now_s) > PAUSE_S_MAX
            self._asked[node] = now_s
            if node in answered:
                self._since.pop(node, None)
            elif has_paused or node not in self._since:
                self._since[node] = now_s

    def too_long(self, limits_s: Mapping[str, float], now_s: float) -> frozenset[str]:
        """Return the nodes that have been silent for longer than their limits; those without one are awaited."""
        silent = ((node, now_s - since) for node, since in self._since.items())
        return frozenset(node for node, silent_s in silent if silent_s > limits_s.get(node, silent_s))
