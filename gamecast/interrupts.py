"""Ctrl-C in a process of ours, from its first line to its last: it ends with 130, and never with a traceback.

`KeyboardInterrupt` is for the time in which there is something to put away. Before that, while modules are imported, it
would come up in the middle of other people's code, and some of that loses it or says something else instead; and at the
very end there is nobody left who could catch it. Then the process ends at once.

This imports nothing of ours, so that it can be there first.
"""

from __future__ import annotations

import os
import signal
import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def end_at_once() -> None:
    """From now on, Ctrl-C ends the process, whatever it is at. Where it is ignored, as with nohup, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextmanager
def raised() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt` inside."""
    ends_at_once = signal.getsignal(signal.SIGINT) is _end
    if ends_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ends_at_once:
            signal.signal(signal.SIGINT, _end)


@contextmanager
def not_raised() -> Iterator[None]:
    """Have Ctrl-C end the process at once inside, if `raised` was what it did outside by default."""
    before = signal.getsignal(signal.SIGINT)
    end_at_once()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_process(work: Callable[[], int]) -> NoReturn:
    """End the process with the status that ``work`` returns, which imports what it needs by itself."""
    try:
        end_at_once()
        sys.unraisablehook = _unraisable
        sys.exit(work())
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


def _end(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that came in a place from which nothing can be raised, as in a weak reference's call."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        interrupt_main()
    else:
        sys.__unraisablehook__(unraisable)
