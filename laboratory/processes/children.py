"""Child processes that may be killed, stopped and started again, and that leave nothing behind.

Whatever ends this process, its children end too: each waits for it in a thread, and a small shell, the `Guard`, kills
those that are stopped and cannot wait.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from laboratory.processes.worker import end_with_parent, spawn

TELL = signal.SIGUSR1
"""Has a child log what it is doing: of use if one hangs."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Return a context in which to start processes: they hear of no Ctrl-C before they can say that they ignore it.

    One that comes meanwhile is raised at its end. In another thread than the main one, nothing is raised anyway.
    """
    held = False

    def hold(*_: object) -> None:
        nonlocal held
        held = True

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # A thread that does not block it may take it: Python has the main thread handle it all the same.
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, hold) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if held:
            signal.raise_signal(signal.SIGINT)


class Guard:
    """Kills processes, and removes a directory, when the process that made it has ended for any reason."""

    # Lines are "+PID", "-PID" and "keep"; the kernel closes the pipe with the process that holds its other end.
    _SCRIPT = """
        PATH=$PATH:/usr/bin:/bin
        trap '' HUP INT TERM
        alive=' '
        while read -r line; do
            pid=${line#?}
            case $line in
                keep) set -- '' ;;
                +*) alive="$alive$pid " ;;
                -*) case $alive in *" $pid "*) alive="${alive%%" $pid "*} ${alive#*" $pid "}" ;; esac ;;
            esac
        done
        for pid in $alive; do kill -9 "$pid"; done
        if [ -n "$1" ]; then rm -rf "$1" || { sleep 1; rm -rf "$1"; }; fi
    """

    def __init__(self, directory: Path | None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", self._SCRIPT, "gamecast-guard", str(directory or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """Kill this process too."""
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """To be called before a dead process is waited for: its id may be another's soon."""
        self._tell(f"-{pid}\n")

    def keep(self) -> None:
        """Do not remove the directory."""
        self._tell("keep\n")

    def close(self) -> None:
        """Return when the rest is killed and removed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()


class Child:
    """One process, through all its lives. Not safe for use from several threads."""

    def __init__(self, name: str, work: Callable[..., Any], task: tuple[Any, ...], log_file: Path, guard: Guard):
        """``work(*task)`` is its work; its outputs are appended to ``log_file``."""
        self.name = name
        self._work = work
        self._task = task
        self._log_file = log_file
        self._guard = guard
        self._process: SpawnProcess | None = None

    @property
    def pid(self) -> int:
        """Of the process, which was started."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, stopped or not."""
        return self._process is not None and not wait([self._process.sentinel], timeout=0)

    def start(self) -> None:
        """Start it, for the first time or again."""
        self._reap()
        process = spawn.Process(target=_run, args=(self._work, self._task, str(self._log_file)), daemon=True)
        with interrupts_held():
            process.start()
            self._process = process
            self._guard.watch(self.pid)

    def kill(self) -> None:
        """SIGKILL; harmless when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def ended(self) -> int | None:
        """Return how it ended by itself: its exit status, negative for a signal; None while it runs, or was killed."""
        return None if self._process is None or self.running else self._reap()

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; return whether there was a process to take it."""
        if self.running:
            os.kill(self.pid, number)
            return True
        return False

    def _reap(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.pid is not None
        with suppress(BrokenPipeError):
            self._guard.forget(process.pid)
        process.join()
        status = process.exitcode
        process.close()
        return status


def _run(work: Callable[..., Any], task: tuple[Any, ...], log_file: str) -> None:
    end_with_parent()
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for output in (1, 2):
        os.dup2(log, output)
    faulthandler.register(TELL, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    work(*task)
