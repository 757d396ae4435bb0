"""What the commands that run until they are stopped share."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import click

from adapters.backoff import Backoff
from sequencing.errors import GamecastError

T = TypeVar("T")

END_S_MAX = 1.5
"""How long an end in good order may take: a server that hangs must not keep us."""

BROKEN_OFF = 1

expect_option = click.option(
    "--expect",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Declare overlaps that are expected, rows of region,neighbour: walking on to a neighbour takes no new epoch.",
)

wait_option = click.option(
    "--wait-s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long to wait for a Redis that is not there at the start.",
)


async def once_there(begin: Callable[[], Awaitable[T]], *, wait_s: float, stop: asyncio.Event) -> T | None:
    """Return what ``begin`` returns, tried again while that may help; None when stopped meanwhile.

    Says on standard error that it waits. Raises the error of the last try, ``wait_s`` after the first.
    """
    backoff = Backoff()
    deadline = time.monotonic() + wait_s
    while not stop.is_set():
        try:
            return await begin()
        except GamecastError as error:
            left_s = deadline - time.monotonic()
            if not error.retriable or left_s <= 0:
                raise
            if not backoff.failures:
                click.echo(f"{error} Trying again for {wait_s:g} s.", err=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(backoff.next_s(), left_s))
    return None


def stopping(end_s_max: float = END_S_MAX) -> asyncio.Event:
    """Return what SIGINT and SIGTERM set; ``end_s_max`` after that the process ends, whatever it is at.

    That does no harm to those who go on even after a ``kill -9``: a lease runs out, links are carried again from where
    they were, and private servers have their watchdogs.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if not stop.is_set():
            stop.set()
            loop.call_later(end_s_max, _end_at_once, end_s_max)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stop


def _end_at_once(after_s: float) -> None:
    print(f"gamecast: what was under way did not end within {after_s:g} s, and is broken off", file=sys.stderr)
    sys.stderr.flush()
    os._exit(BROKEN_OFF)
