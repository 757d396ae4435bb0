"""The log of a repeated failure: its begin, from time to time its duration, and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

REPEAT_S = 30.0
"""How long an outage is not logged again: developers read this log, too."""


class Outage:
    """The failures of one operation, from the first failure to the next success."""

    def __init__(self, logger: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``what``: begins each line. ``clock``: in seconds."""
        self._logger, self._what, self._clock = logger, what, clock
        self._began: float | None = None
        self._said = 0.0
        self._unsaid = 0

    def failed(self, error: Exception) -> None:
        """Log a failure, unless a similar one was logged recently."""
        now = self._clock()
        if self._began is None:
            self._began = self._said = now
            self._logger.warning("%s: %r", self._what, error)
            return
        self._unsaid += 1
        if now - self._said >= REPEAT_S:
            self._logger.warning(
                "%s: still failing after %.0f s (%d more failures): %r",
                self._what,
                now - self._began,
                self._unsaid,
                error,
            )
            self._said, self._unsaid = now, 0

    def over(self) -> None:
        """Note a success. The end of an outage is logged if it was logged more than once, or was long."""
        if self._began is None:
            return
        if self._unsaid or self._said > self._began:
            self._logger.warning("%s: works again, after %.1f s", self._what, self._clock() - self._began)
        self._began, self._unsaid = None, 0
