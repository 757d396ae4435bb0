"""Helpers for commands that run until they are stopped."""

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
from adapters.redis.leadercontrol import LeaderControl
from cli.logs import daemon_logger, is_json
from gamecast.client.configuration import Limits
from launcher.ending import BUG, INFRASTRUCTURE, INTERRUPTED, ending_of
from sequencing.errands import Seen
from sequencing.errors import GamecastError

logger, leading = daemon_logger("waiting"), daemon_logger("leader")

T = TypeVar("T")

END_S_MAX = 1.5
"""Seconds that an orderly stop may take: a server that hangs must not keep the process."""

overlaps_option = click.option(
    "--overlaps",
    "overlaps_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Declare expected overlaps, rows of region,neighbour: joining a neighbour then takes no new epoch.",
)

_OF_LEADERS = (
    click.option(
        "--retention-events",
        type=click.IntRange(min=1),
        default=Limits().retention_events,
        show_default=True,
        help="How many events of each region its node keeps, in the plans that this candidate makes.",
    ),
    click.option(
        "--resume-s",
        type=click.FloatRange(min=0, min_open=True),
        default=Limits().resume_s,
        show_default=True,
        help="Seconds that a disconnected subscriber keeps its place. If it reconnects in time, it resumes in the same "
        "order.",
    ),
)


def leading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a leader candidate decides for the network."""
    for option in reversed(_OF_LEADERS):
        command = option(command)
    return command


wait_option = click.option(
    "--wait-s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long to wait at the start for a Redis that is unavailable.",
)


async def once_there(begin: Callable[[], Awaitable[T]], *, wait_s: float, stop: asyncio.Event) -> T | None:
    """Return the result of ``begin``, retried while an error may pass; None if stopped meanwhile.

    Reports the wait on standard error. Raises the error of the last try, ``wait_s`` after the first.
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
                logger.warning("%s Trying again for %g s.", error, wait_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(backoff.next_s(), left_s))
    return None


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Return the result of ``work``; None if stopped meanwhile: then ``work`` is cancelled, and has ended.

    What fails only because it is stopped is no error: Ctrl-C reaches the processes that are being started, too.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            return await working
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait((working, stopping))
    error = None if working.cancelled() else working.exception()
    if error is not None and ending_of(error).status == BUG:
        raise error
    return None


def run_until_stopped(work: Callable[[Stop], Coroutine[Any, Any, T]], *, end_s_max: float | None = END_S_MAX) -> T:
    """Run ``work``, which ends soon after its `Stop` is set, and return its result.

    Raises `KeyboardInterrupt` after SIGINT, once the work has ended. Where the log is JSON, the error that ends
    the work is a line of it, too.
    """

    async def working() -> tuple[T, bool]:
        stop = Stop(end_s_max)
        return await work(stop), stop.interrupted

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        try:
            done, interrupted = runner.run(working())
        except Exception as error:
            ending = ending_of(error)
            if ending.said is None or ending.status == BUG or not is_json():
                raise
            logger.error(ending.said)  # noqa: TRY400 - a line like the one that others print, without a traceback
            raise SystemExit(ending.status) from error
    if interrupted:
        raise KeyboardInterrupt
    return done


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes an event loop of uvloop where that is installed (``gamecast[fast]``), None for asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


class Stop(asyncio.Event):
    """An event that SIGINT and SIGTERM set. Unless ``end_s_max`` is None, the process exits that long afterwards.

    That is harmless, as after a ``kill -9``: a lease expires, relays resume links where they were, and watchdogs
    stop private servers.
    """

    def __init__(self, end_s_max: float | None) -> None:
        """Register for the signals, in the running event loop."""
        super().__init__()
        self.interrupted = False
        """Whether the signal was SIGINT: Ctrl-C at a terminal."""
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
        print(f"gamecast: the work did not stop within {after_s:g} s; exiting now", file=sys.stderr)
        sys.stderr.flush()
        os._exit(INTERRUPTED if self.interrupted else INFRASTRUCTURE)


class TellingControl(LeaderControl):
    """Logs when the candidate that uses it begins and ceases to lead."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._leads = False

    async def look(self, token: str, lease_ms: int, *, begins: bool = True) -> Seen | None:
        """See `Control.look`."""
        seen = await super().look(token, lease_ms, begins=begins)
        self._tell(seen is not None)
        return seen

    async def resign(self, token: str) -> None:
        """See `Control.resign`."""
        await super().resign(token)
        self._tell(False)

    def _tell(self, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            leading.info("leads" if leads else "leads no more")
