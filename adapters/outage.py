"""What is logged of something that fails again and again: its begin, now and then that it lasts, and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REPEAT_S = 30.0
"""So long is nothing more said of an outage: who plays beside it reads the log, too."""


class Outage:
    """The failures of one thing, from the first to the next success."""

    def __init__(self, logger: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``what``: begins each line. ``clock``: in seconds."""
        self._logger, self._what, self._clock = logger, what, clock
        self._began: float | None = None
        self._said = 0.0
        self._unsaid = 0

    def failed(self, error: Exception) -> None:
        """Log a failure, unless one like it was logged lately."""
        now = self._clock()
        if self._began is None:
            self._began = self._said = now
            self._logger.warning("%s: %r", self._what, error)
            return
        self._unsaid += 1
        if now - self._said >= REPEAT_S:
            self._logger.warning(
                "%s: still, for %.0f s (%d failures more): %r", self._what, now - self._began, self._unsaid, error
            )
            self._said, self._unsaid = now, 0

    def over(self) -> None:
        """Note a success. The end of an outage that was logged more than once, or lasted, is logged."""
        if self._began is None:
            return
        if self._unsaid or self._said > self._began:
            self._logger.warning("%s: works again, after %.1f s", self._what, self._clock() - self._began)
        self._began, self._unsaid = None, 0
