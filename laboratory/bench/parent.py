"""Make processes of the bench end with their parent, however it ends, and report failures to it in one line."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait
from traceback import print_exception

from sequencing.errors import GamecastError


def end_with_parent() -> None:
    """End this process when its parent has ended; the terminal's ^C is for the parent, which then ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def told(error: BaseException) -> str:
    """Return the line that reports an error to the parent; an error that is not gamecast's leaves its traceback,
    too."""
    if isinstance(error, GamecastError):
        return str(error)
    print_exception(error)
    return f"{type(error).__name__}: {error}"


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
