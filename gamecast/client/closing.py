"""Close connections in bounded time, even if a server does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any

FOLLOWING_ENDS_S = 0.5
HALVES_END_S = 1.5
CLOSE_S_MAX = 2.0
"""How long `Client.close` waits for servers that do not answer. Seconds from its start until each step is cancelled:
following the network; publishing and reading; and reporting to the network that the client disconnects."""

_log = logging.getLogger("gamecast")

_still_closing: set[asyncio.Task[None]] = set()
"""Held here, because the event loop has only weak references to its tasks."""


async def until(when: float, ending: Awaitable[object]) -> None:
    """Wait for a step of closing, and cancel it at a time of the event loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(when):
            await ending


async def close_until(when: float, closing: Coroutine[Any, Any, None]) -> None:
    """Wait for the last step of closing until a time of the event loop. It then continues in the background.

    Cancelled half way, it would leak sockets.
    """
    task = asyncio.create_task(closing, name="gamecast closing")
    done, _ = await asyncio.wait((task,), timeout=max(0.0, when - asyncio.get_running_loop().time()))
    if done:
        task.result()
        return
    _still_closing.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Task[None]) -> None:
    _still_closing.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("closing a connection in the background failed: %s", error)
