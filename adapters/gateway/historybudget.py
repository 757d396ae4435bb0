"""What a session or event stream reads of the past, after it has asked for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any


class HistoryBudget:
    """Tells, of what is delivered, how much was published before it was asked for."""

    def __init__(self) -> None:
        self._until_ns = 0

    def asked_for(self) -> None:
        """Note that from now on something of the past comes."""
        self._until_ns = time.time_ns()

    def events_in(self, batch: Sequence[Any]) -> int:
        """Return how many events of a batch are of the past, by their publishers' clocks; gaps cost nothing."""
        if not self._until_ns:
            return 0
        sent_ns = [item.sent_at_ns for item in batch if hasattr(item, "sent_at_ns")]
        past = sum(1 for at_ns in sent_ns if at_ns < self._until_ns)
        if sent_ns and not past:
            self._until_ns = 0
        return past
