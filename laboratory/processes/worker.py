"""A process that does one piece of work for this one and answers over a pipe: what each measurement spawns."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from traceback import print_exception
from typing import Any, Self

from sequencing.errors import GamecastError, ProcessFailed

spawn = get_context("spawn")


class Worker:
    """``work(*task, pipe)`` runs in a process of its own, which ends with this one. A context manager, which kills it.

    If it returns a coroutine, an event loop of that process runs it.

    What the work sends, (word, what) each, is heard in order; then comes ("done", what it returned), or ("failed", a
    line) for an error.
    """

    def __init__(self, work: Callable[..., Any], *task: Any) -> None:
        self._name = work.__name__.strip("_")
        self.pipe, far = spawn.Pipe()
        self._process = spawn.Process(target=_run, args=(work, task, far), daemon=True)
        self._process.start()
        far.close()
        self.is_done = False
        """Whether the last word was heard."""

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    def say(self, what: object) -> None:
        """Send it a request; raises `ProcessFailed` if it has ended."""
        try:
            self.pipe.send(what)
        except OSError as error:
            raise ProcessFailed(f"the process of {self._name} has ended") from error

    def hear(self, seconds_max: float | None = None) -> Any:
        """Return what it sends next; raises `ProcessFailed`."""
        return self.hear_word(seconds_max)[1]

    def hear_word(self, seconds_max: float | None = None) -> tuple[str, Any]:
        """Return what it sends next, with its word; raises `ProcessFailed`."""
        if not self.pipe.poll(seconds_max):
            raise ProcessFailed(f"the process of {self._name} said nothing for {seconds_max:g} s")
        try:
            word, what = self.pipe.recv()
        except (EOFError, ConnectionResetError):  # the latter if a request was not read
            self._process.join()
            raise ProcessFailed(f"the process of {self._name} ended with status {self._process.exitcode}") from None
        if word == "failed":
            raise ProcessFailed(f"the process of {self._name} failed: {what}")
        self.is_done = word == "done"
        return word, what

    def end(self, *, gently_s: float = 0.0) -> None:
        """Kill it. ``gently_s``: first close the pipe, and wait so long for it to end by itself."""
        self.pipe.close()
        if gently_s:
            self._process.join(gently_s)
        self._process.kill()
        self._process.join()
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def ask(workers: Sequence[Worker], requests: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send each worker a request for `serve`; return the answers. Raises `ProcessFailed`."""
    for worker, request in zip(workers, requests, strict=True):
        worker.say(request)
    return [worker.hear() for worker in workers]


async def serve(part: object, pipe: Connection) -> None:
    """Carry out requests until killed: (name of an async method of ``part``, arguments)."""
    while True:
        what, *arguments = await asyncio.to_thread(pipe.recv)
        pipe.send(("answer", await getattr(part, what)(*arguments)))


def end_with_parent() -> None:
    """End this process when the one that started it has, however that went.

    The terminal's ^C is for the parent, which then ends this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _run(work: Callable[..., Any], task: tuple[Any, ...], pipe: Connection) -> None:
    end_with_parent()
    try:
        done = work(*task, pipe)
        last = "done", asyncio.run(done) if asyncio.iscoroutine(done) else done
    except (BrokenPipeError, ConnectionResetError, EOFError) as error:
        last = "failed", f"{type(error).__name__}: {error}"  # the parent needs no more, and is not there to hear it
    except BaseException as error:  # noqa: BLE001 - the parent waits for any error
        last = "failed", _told(error)
    with suppress(OSError):
        pipe.send(last)


def _told(error: BaseException) -> str:
    """Return the line that reports an error; one that is not gamecast's leaves its traceback, too."""
    if isinstance(error, GamecastError):
        return str(error)
    print_exception(error)
    return f"{type(error).__name__}: {error}"
