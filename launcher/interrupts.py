"""Ctrl-C in a process of ours, from its first line to its last: it ends with 130, and never with a traceback.

`KeyboardInterrupt` is for the time in which there is something to put away. Before that, while modules are imported, it
would come up in the middle of other people's code, some of which loses it, says something else instead, or crashes; and
at the very end there is nobody left who could catch it. Then the process ends at once.

This is imported before everything else, and so imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from _thread import get_ident, start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def end_process(work: Callable[[], int]) -> NoReturn:
    """End the process with the status that ``work`` returns, which imports what it needs by itself."""
    try:
        end_at_once()
        sys.unraisablehook = _unraisable
        sys.exit(work())
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def end_at_once() -> None:
    """From now on, Ctrl-C ends the process, whatever it is at. Where it is ignored, as with nohup, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


class Raised:
    """A context in which Ctrl-C raises `KeyboardInterrupt`, where it would end the process at once."""

    def __enter__(self) -> None:
        self._ended = signal.getsignal(signal.SIGINT) is _end
        if self._ended:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._ended:
            signal.signal(signal.SIGINT, _end)


class NotRaised:
    """A context in which Ctrl-C ends the process at once, where it would raise `KeyboardInterrupt`."""

    def __enter__(self) -> None:
        self._raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        end_at_once()

    def __exit__(self, *_: object) -> None:
        if self._raised:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that came in a place from which nothing can be raised, as in a weak reference's call.

    A little later, since this is still such a place.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        start_new_thread(_interrupt_later, (get_ident(),))
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_later(thread: int) -> None:
    time.sleep(0.01)
    signal.pthread_kill(thread, signal.SIGINT)
