"""A watchdog process: it ends a server and removes its directory when the process that started them has ended.

An exit handler cannot guarantee this, because it does not run after kill -9. Linux's parent-death signal fires when the
*thread* that forked ends. So the watchdog is a small shell that reads from a pipe. Only the starting process has the
other end, and the kernel closes that end with the process, however it ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Watchdog:
    """Watches one directory and one server at a time in it; blocks only in `close`, for milliseconds."""

    # Ids arrive line by line; an empty line means that there is no server to kill. The server leads its own process
    # group, so that its forks, which rewrite files, end with it and write nothing while the directory is removed.
    _SCRIPT = """
        PATH=$PATH:/usr/bin:/bin
        trap '' HUP INT TERM
        server=
        while read -r line; do server=$line; done
        if [ -n "$server" ]; then kill -9 "-$server"; fi
        rm -rf "$1" || { sleep 1; rm -rf "$1"; }
    """
    # The process that becomes the server reports the id: if Python did, a kill in between would leave an orphan.
    _LAUNCH = 'echo $$; log=$1; shift; exec "$@" >>"$log" 2>&1'

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        read_end, self._pipe = os.pipe()
        try:
            with _out_of_reach_of_ctrl_c():
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", self._SCRIPT, "gamecast-watchdog", str(directory)],
                    stdin=read_end,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read_end)
        _open_pipes.add(self._pipe)

    def launch(self, *command: str, log_file: Path) -> subprocess.Popen[bytes]:
        """Start a server to watch; it must not put itself into the background."""
        with _out_of_reach_of_ctrl_c():
            return subprocess.Popen(
                ["/bin/sh", "-c", self._LAUNCH, "gamecast-launch", str(log_file), *command],
                stdin=subprocess.DEVNULL,
                stdout=self._pipe,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # the terminal's ^C is for this process, which stops the server in its own time
            )

    def forget_server(self) -> None:
        """Forget the server. Call this after it has ended: another process may get its id soon."""
        with suppress(BrokenPipeError):  # the watchdog was killed: it watches nothing
            os.write(self._pipe, b"\n")

    def close(self) -> None:
        """Close the watchdog; return when the server and the directory are gone."""
        _open_pipes.discard(self._pipe)
        os.close(self._pipe)
        if self._process.wait() != 0:  # it was killed
            shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def _out_of_reach_of_ctrl_c() -> Iterator[None]:
    """Start processes that a terminal's ^C does not end, not even before they have a session of their own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close_pipes_in_fork() -> None:
    """Close the pipes in a forked child, which must not keep its parent's watchdogs waiting."""
    for pipe in _open_pipes:
        os.close(pipe)
    _open_pipes.clear()


_open_pipes: set[int] = set()
os.register_at_fork(after_in_child=_close_pipes_in_fork)
