"""Handle Ctrl-C from the first line of a gamecast process to its last: status 130, and never a traceback.

`KeyboardInterrupt` is raised only while there is something to clean up. Before that, while modules are imported, it
would be raised in third-party code, which may lose it, report another error, or crash. At the very end no code is left
to catch it. In both cases the process ends at once.

This module is imported before all others, so it imports almost nothing.
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
"""128 plus the number of SIGINT, as in shells."""


def end_process(work: Callable[[], int]) -> NoReturn:
    """Run ``work`` and end the process with its status. ``work`` imports the modules that it needs itself."""
    try:
        end_at_once()
        sys.unraisablehook = _unraisable
        sys.exit(work())
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def end_at_once() -> None:
    """Make Ctrl-C end the process at once from now on. If SIGINT is ignored, as with nohup, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


class Raised:
    """A context in which Ctrl-C raises `KeyboardInterrupt` instead of ending the process at once."""

    def __enter__(self) -> None:
        self._ended = signal.getsignal(signal.SIGINT) is _end
        if self._ended:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._ended:
            signal.signal(signal.SIGINT, _end)


class NotRaised:
    """A context in which Ctrl-C ends the process at once instead of raising `KeyboardInterrupt`."""

    def __enter__(self) -> None:
        self._raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        end_at_once()

    def __exit__(self, *_: object) -> None:
        if self._raised:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again if it came where nothing can be raised, as in a weak reference's callback.

    It is raised a little later, since this hook is such a place too.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        start_new_thread(_interrupt_later, (get_ident(),))
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_later(thread: int) -> None:
    time.sleep(0.01)
    signal.pthread_kill(thread, signal.SIGINT)
