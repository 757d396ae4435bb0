"""How a session ends: the exception with the reason, and the choice among several reasons."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from sequencing.errors import NetworkRestarted, SessionExpired, Superseded

ABNORMAL = 1006
"""The close code of a broken socket; never sent."""
ENDS_CONNECTION = Superseded, SessionExpired, NetworkRestarted
"""Errors after which a connection is useless: its client needs another one."""


class Ended(Exception):
    """The session ends."""

    def __init__(self, close_code: int, reason: str) -> None:
        super().__init__(reason)
        self.close_code, self.reason = close_code, reason


def most_telling(errors: BaseExceptionGroup[Any]) -> tuple[int, str]:
    """Return the most informative reason of a group of `Ended`: any other one comes before the client's disconnect."""
    worst = 0, ""
    pending: list[Any] = [errors]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending += error.exceptions
        elif (error.close_code, error.reason) > worst:
            worst = error.close_code, error.reason
    return worst


def is_cancelled(error: BaseException) -> bool:
    """Return whether an error means that the current task is cancelled.

    A task that waits for a socket gets the same error when another waiting task was cancelled: in aiohttp, both tasks
    share a future.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def forget_frames(*errors: BaseException) -> None:
    """Let a session that ends be freed at once: its frames refer to these errors, and the errors to its frames."""
    for error in errors:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = error.__context__ = None
        if isinstance(error, BaseExceptionGroup):
            forget_frames(*error.exceptions)
