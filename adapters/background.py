"""Background tasks that end only when they are done: no failure stays unnoticed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from adapters.backoff import Backoff

REPEAT_S = 30.0
"""How long the traceback of a task that keeps failing is not logged again."""

_log = logging.getLogger("gamecast")


def keep_running(
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    name: str,
    on_failure: Callable[[Exception], None] | None = None,
) -> asyncio.Task[None]:
    """Return a task that runs ``work`` until it returns; the caller owns it, and cancels or awaits it.

    If the work raises, the traceback is logged, ``on_failure`` is called, and after a growing wait it runs again.
    """
    return asyncio.create_task(_keep(work, name, on_failure), name=name)


async def _keep(
    work: Callable[[], Coroutine[Any, Any, None]], name: str, on_failure: Callable[[Exception], None] | None
) -> None:
    backoff, said_at_s = Backoff(), -inf
    while True:
        try:
            await work()
            return
        except Exception as error:  # noqa: BLE001 - the traceback is logged
            if time.monotonic() - said_at_s >= REPEAT_S:
                said_at_s = time.monotonic()
                _log.exception("%s failed, and begins again", name)
            if on_failure is not None:
                on_failure(error)
        await backoff.wait()
