"""How a process of ours ends: one exit status, and one line that says why. docs/exit-statuses.md has the table.

Whoever calls us from a script must be able to tell what happened without reading: a broken promise (1) is never what a
full disk, an absent server or a slow machine look like (3), nor a wrong word on the command line (2). So no command
decides by itself what an exception means: it raises, and `ended` turns what was raised into a status. Only what a
command has judged (0, 1, 4) does it return.
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
"""A promise was broken, or something misses what was asked of it."""
WRONG_USE = 2
"""Also an input that cannot be read, and an extra that is not installed."""
INFRASTRUCTURE = 3
"""What we need was not there, refused, took too long, or had no room; also what was broken off."""
CANNOT_TELL = 4
"""Nothing is known to be broken, and not enough is known to say that nothing is."""
BUG = 70
"""Ours: EX_SOFTWARE of sysexits.h. Nothing was judged."""


class Ending(NamedTuple):
    """An exit status, and what is said on standard error; None is for what needs no word."""

    status: int
    said: str | None = None


def ending_of(error: BaseException) -> Ending:
    """Return what an exception means for whoever started the process."""
    match error:
        case KeyboardInterrupt():
            return Ending(INTERRUPTED)
        case SystemExit(__context__=BrokenPipeError() as cause):
            return ending_of(cause)  # consoles of rich end the process with 1
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
            return Ending(INFRASTRUCTURE, "nobody reads what is written any more")
        case TimeoutError() | TimeoutExpired():
            return Ending(INFRASTRUCTURE, f"something took too long: {str(error) or 'no answer'}")
        case OSError():
            return _ending_of_system(error)
        case UnicodeError():
            return Ending(WRONG_USE, f"a text is not in the encoding that it should have: {error}")
        case CalledProcessError() | BrokenExecutor():
            return Ending(INFRASTRUCTURE, f"a process that was needed has ended: {error}")
        case EOFError():
            return Ending(INFRASTRUCTURE, "a process that was needed ended without a word")
        case MemoryError():
            return Ending(INFRASTRUCTURE, "the memory is full")
        case _ if _is_redis_away(error):
            return Ending(INFRASTRUCTURE, f"a Redis server does not answer: {error}")
    return Ending(BUG, f"this is a bug of gamecast's, please report what stands above: {_named(error)}")


def ended(work: Callable[[], int | None], *, name: str, ending: Callable[[BaseException], Ending] = ending_of) -> int:
    """Do what the process is for; return its exit status, after a line on standard error where something went wrong.

    ``work``: returns a status that it has judged, None for 0. ``name``: what the line begins with. ``ending``: for who
    knows more exceptions than `ending_of`. What was written to standard output has arrived, or the status says that it
    has not; nothing is left that the interpreter could complain of when it ends.
    """
    with suppress(OSError, ValueError):
        _stand_in()
        _take_any_letter()
    try:
        status = work() or DONE
        _flush(sys.stdout)
    except BaseException as error:  # noqa: BLE001 - this is where all of them end
        status, said = ending(error)
        if status == BUG and not isinstance(error, SystemExit):  # which says that this was told already
            _say("".join(traceback.format_exception(error)).rstrip())
        if said is not None:
            _say(f"{name}: {' '.join(said.split())}")
    for stream in (sys.stdout, sys.stderr):
        _let_go(stream)
    return status


def _ending_of_system(error: OSError) -> Ending:
    if error.filename is None:
        return Ending(INFRASTRUCTURE, f"the system refuses something: {error.strerror or _named(error)}")
    return ending_of(unwritable(" or ".join(str(name) for name in (error.filename, error.filename2) if name), error))


def _is_redis_away(error: BaseException) -> bool:
    exceptions = sys.modules.get("redis.exceptions")  # only what is loaded can have raised
    return exceptions is not None and isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _weight(ending: Ending) -> int:
    """Of several that failed at once: first who stopped us, then our own bugs, then whatever is surest."""
    order = (INTERRUPTED, BUG, BROKEN, WRONG_USE, INFRASTRUCTURE, CANNOT_TELL, DONE)
    return order.index(ending.status) if ending.status in order else 0


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _stand_in() -> None:
    """Take the numbers of standard streams that are closed, before a socket gets them that others then write to.

    What is written to a standard output that is not there fails, as on a full disk.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)
            if number == 1:
                sys.stdout = os.fdopen(1, "w", closefd=False)


def _take_any_letter() -> None:
    """Have what the terminal has no letter for come as an escape: names of files, regions and players are anybody's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush(stream: TextIO | None) -> None:
    if stream is not None and not stream.closed:
        stream.flush()


def _let_go(stream: TextIO | None) -> None:
    """Lose what a stream cannot get rid of, for the interpreter would try that again when it ends, and complain."""
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
