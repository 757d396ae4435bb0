"""End a gamecast process with one exit status, and one line that says why. docs/exit-statuses.md has the table.

A script must be able to tell the outcomes apart without reading the text. A broken promise (1) must not look like a
full disk, an absent server or a slow machine (3), nor like a wrong option (2). So no command decides the meaning of an
exception itself: it raises the exception, and `ended` turns it into a status. A command returns a status only for what
it has judged (0, 1, 4).
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from subprocess import CalledProcessError, TimeoutExpired
from typing import NamedTuple, TextIO

from launcher.interrupts import INTERRUPTED
from sequencing.errors import GamecastError, UsageError, unwritable
from sequencing.extras import missing_from

__all__ = [
    "BROKEN",
    "BUG",
    "CANNOT_TELL",
    "DONE",
    "INFRASTRUCTURE",
    "INTERRUPTED",
    "WRONG_USE",
    "Ending",
    "ended",
    "ending_of",
]

DONE = 0
BROKEN = 1
"""A promise was broken, or a result does not meet a requested bound or condition."""
WRONG_USE = 2
"""Wrong use, including unreadable input and an extra that is not installed."""
INFRASTRUCTURE = 3
"""A required service was unavailable (unreachable, refused, timed out, or full), or SIGTERM stopped the work early."""
CANNOT_TELL = 4
"""It is unknown whether the promises were kept: no violation was found, but records are incomplete."""
BUG = 70
"""A bug in gamecast: EX_SOFTWARE of sysexits.h. Nothing was judged."""


class Ending(NamedTuple):
    """An exit status, and the line for standard error, or None for no line."""

    status: int
    said: str | None = None


def ending_of(error: BaseException) -> Ending:
    """Return the exit status and the error line for an exception."""
    match error:
        case KeyboardInterrupt():
            return Ending(INTERRUPTED)
        case SystemExit(__context__=BrokenPipeError() as cause):
            return ending_of(cause)  # rich's consoles turn a broken pipe into exit status 1
        case SystemExit(code=code):
            return Ending(code) if isinstance(code, int) else Ending(WRONG_USE if code else DONE, code and str(code))
        case BaseExceptionGroup():
            return min((ending_of(each) for each in _leaves(error)), key=_weight)
        case UsageError():
            return Ending(WRONG_USE, str(error))
        case GamecastError():
            return Ending(INFRASTRUCTURE, str(error))
        case ModuleNotFoundError() if (missing := missing_from(error, "this command")) is not None:
            return Ending(WRONG_USE, str(missing))
        case BrokenPipeError() | OSError(errno=errno.EBADF):
            return Ending(INFRASTRUCTURE, "cannot write the output: it was closed")
        case TimeoutError() | TimeoutExpired():
            return Ending(INFRASTRUCTURE, f"an operation took too long: {str(error) or 'no answer'}")
        case OSError():
            return _ending_of_system(error)
        case UnicodeError():
            return Ending(WRONG_USE, f"a text has the wrong encoding: {error}")
        case CalledProcessError() | BrokenExecutor():
            return Ending(INFRASTRUCTURE, f"a required process ended: {error}")
        case EOFError():
            return Ending(INFRASTRUCTURE, "a required process ended without an answer")
        case MemoryError():
            return Ending(INFRASTRUCTURE, "the memory is full")
        case _ if _is_redis_away(error):
            return Ending(INFRASTRUCTURE, f"a Redis server does not answer: {error}")
    return Ending(BUG, f"this is a bug in gamecast, please report the traceback above: {_named(error)}")


def ended(work: Callable[[], int | None], *, name: str, ending: Callable[[BaseException], Ending] = ending_of) -> int:
    """Run the work of a process and return its exit status. On an error, first print one line to standard error.

    ``work``: returns a status that it has judged, or None for 0. ``name``: the start of the line. ``ending``: replaces
    `ending_of` for callers that know more exceptions. The status also says whether all output reached standard output.
    The streams are flushed, so the interpreter has nothing to complain about when it ends.
    """
    with suppress(OSError, ValueError):
        _stand_in()
        _take_any_letter()
    try:
        status = work() or DONE
        _flush(sys.stdout)
    except BaseException as error:  # noqa: BLE001 - the last handler of the process
        status, said = ending(error)
        if status == BUG and not isinstance(error, SystemExit):  # a SystemExit of this status was reported already
            _say("".join(traceback.format_exception(error)).rstrip())
        if said is not None:
            _say(f"{name}: {' '.join(said.split())}")
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    return status


def _ending_of_system(error: OSError) -> Ending:
    if error.filename is None:
        return Ending(INFRASTRUCTURE, f"the operating system refused a call: {error.strerror or _named(error)}")
    return ending_of(unwritable(" or ".join(str(name) for name in (error.filename, error.filename2) if name), error))


def _is_redis_away(error: BaseException) -> bool:
    exceptions = sys.modules.get("redis.exceptions")  # if redis is not loaded, it cannot have raised
    return exceptions is not None and isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _weight(ending: Ending) -> int:
    """Return the rank of an ending among several at once: interrupts first, then bugs, then the most certain result."""
    order = (INTERRUPTED, BUG, BROKEN, WRONG_USE, INFRASTRUCTURE, CANNOT_TELL, DONE)
    return order.index(ending.status) if ending.status in order else 0


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _stand_in() -> None:
    """Open the descriptors of closed standard streams, so that no socket gets their numbers.

    Otherwise code that writes to a standard stream would write to that socket. Writing to a standard output that was
    closed fails, as on a full disk.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)
            if number == 1:
                sys.stdout = os.fdopen(1, "w", closefd=False)


def _take_any_letter() -> None:
    """Escape characters that the terminal's encoding lacks: names of files, regions and players may have any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush(stream: TextIO | None) -> None:
    if stream is not None and not stream.closed:
        stream.flush()


def _let_go(stream: TextIO | None) -> None:
    """Drop output that a stream cannot write: the interpreter would try again at its end, and complain."""
    try:
        _flush(stream)
    except (OSError, ValueError):
        assert stream is not None
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _say(line: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
