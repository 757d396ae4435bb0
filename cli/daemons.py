"""What the commands that run until they are stopped share."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from adapters.backoff import Backoff
from launcher.ending import INFRASTRUCTURE, INTERRUPTED
from sequencing.errors import GamecastError

T = TypeVar("T")

END_S_MAX = 1.5
"""How long an end in good order may take: a server that hangs must not keep us."""

overlaps_option = click.option(
    "--overlaps",
    "overlaps_file",
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


def run_until_stopped(work: Callable[[Stop], Coroutine[Any, Any, T]], *, end_s_max: float | None = END_S_MAX) -> T:
    """Run what ends soon after the `Stop` that it is given is set, and return what it returns.

    Raises `KeyboardInterrupt` after SIGINT, when it has ended.
    """

    async def working() -> tuple[T, bool]:
        stop = Stop(end_s_max)
        return await work(stop), stop.interrupted

    done, interrupted = asyncio.run(working())
    if interrupted:
        raise KeyboardInterrupt
    return done


class Stop(asyncio.Event):
    """What SIGINT and SIGTERM set; ``end_s_max`` after that the process ends, whatever it is at, unless None.

    That does no harm to those who go on even after a ``kill -9``: a lease runs out, links are carried again from where
    they were, and private servers have their watchdogs.
    """

    def __init__(self, end_s_max: float | None) -> None:
        """Begin to listen for signals, in the running event loop."""
        super().__init__()
        self.interrupted = False
        """Whether it was SIGINT: somebody at a terminal."""
        self._end_s_max = end_s_max
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self.is_set():
            self.interrupted = number is signal.SIGINT
            self.set()
            if self._end_s_max is not None:
                asyncio.get_running_loop().call_later(self._end_s_max, self._end_at_once, self._end_s_max)

    def _end_at_once(self, after_s: float) -> None:
        print(f"gamecast: what was under way did not end within {after_s:g} s, and is broken off", file=sys.stderr)
        sys.stderr.flush()
        os._exit(INTERRUPTED if self.interrupted else INFRASTRUCTURE)
