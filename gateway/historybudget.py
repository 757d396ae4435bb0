"""How much history a session or an event stream reads after it has requested a replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


class HistoryBudget:
    """Counts, among delivered events, those that were published before they were requested."""

    def __init__(self) -> None:
        self._until_ns = 0

    def asked_for(self) -> None:
        """Note that a replay begins now."""
        self._until_ns = time.time_ns()

    def events_in(self, batch: Sequence[Any]) -> int:
        """Return how many events of a batch are from history, by their publishers' clocks; gaps cost nothing."""
        if not self._until_ns:
            return 0
        sent_ns = [item.sent_at_ns for item in batch if hasattr(item, "sent_at_ns")]
        past = sum(1 for at_ns in sent_ns if at_ns < self._until_ns)
        if sent_ns and not past:
            self._until_ns = 0
        return past
