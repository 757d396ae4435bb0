"""Ctrl-C that comes where nothing can be raised, or while processes are started: it is late, and never lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import NoReturn

import pytest

from laboratory.processes.children import interrupts_held
from launcher.ending import INTERRUPTED
from tests.patience import scaled

LOST = """
import signal, time
from launcher.interrupts import Raised, end_process

class Loses:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def work():
    with Raised():
        Loses()
        time.sleep(30)
    return 0

end_process(work)
"""


def test_an_interrupt_in_a_place_from_which_nothing_can_be_raised_is_raised_after_it() -> None:
    command = [sys.executable, "-c", LOST]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(25))
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "")


@pytest.mark.parametrize("taken_by", ["this thread", "another thread"])
def test_an_interrupt_while_processes_are_started_is_raised_when_they_are(taken_by: str) -> None:
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    started = False

    def start() -> NoReturn:
        nonlocal started
        with interrupts_held():
            takes = other if taken_by == "another thread" else threading.main_thread()
            signal.pthread_kill(takes.ident or 0, signal.SIGINT)
            time.sleep(scaled(0.2))  # until the signal has come
            started = True
        pytest.fail("the interrupt is lost")

    with pytest.raises(KeyboardInterrupt):
        start()
    over.set()
    assert started
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_processes_are_started_by_another_thread_as_well() -> None:
    handlers: list[object] = []

    def start() -> None:
        with interrupts_held():
            handlers.append(signal.getsignal(signal.SIGINT))

    starting = threading.Thread(target=start)
    starting.start()
    starting.join()
    assert handlers == [signal.default_int_handler]
