"""The client under test: a program that is given commands and reports, in lines of JSON."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from laboratory.conformance.log import Asked, Exited, Log, Missing, Reported
from sequencing.errors import NetworkError

LINE_BYTES_MAX = 64 * 1024 * 1024
ERRORS_BYTES_MAX = 4000
END_S = 3.0
START_S = 20.0


class NotStarted(NetworkError):
    """The client's program could not be started, or did not report that it is ready."""


class Program:
    """One process of the client."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Log) -> None:
        self._command, self._environment, self._log = list(command), environment, log
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._errors = b""
        self._next = 0

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises `NotStarted`."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=os.environ | self._environment,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        except OSError as error:
            raise NotStarted(f"cannot start the client {self._command[0]!r}: {error.strerror}") from error
        self._tasks = [asyncio.create_task(work) for work in (self._read_lines(), self._read_errors())]
        await self._log.holds(lambda: self._is_ready or self._log.has_ended, START_S)
        if not self._is_ready:
            said = self._errors.decode(errors="replace").strip().splitlines()
            why = f"; it said: {said[-1]}" if said else ""
            raise NotStarted(f'the client {" ".join(self._command)!r} did not report {{"ready": …}}{why}')

    @property
    def _is_ready(self) -> bool:
        return bool(self._log.reported("ready"))

    def ask(self, what: str, *, refusal: str | None = None, is_local: bool = False, **fields: Any) -> int:
        """Give the program a command; return its id."""
        self._next += 1
        command = {"do": what, "id": self._next, **fields}
        self._log.add(Asked(command, refusal, is_local))
        if self._process is not None and self._process.stdin is not None:
            with suppress(ConnectionError, RuntimeError):
                self._process.stdin.write(orjson.dumps(command) + b"\n")
        return self._next

    async def until_ended(self) -> None:
        """Wait until the process ended by itself."""
        if not await self._log.holds(lambda: self._log.has_ended, END_S):
            self._log.add(Missing("the program did not end after close"))

    async def kill(self) -> None:
        """End the process, and all that it started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _read_lines(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                document = orjson.loads(line)
            except ValueError:
                document = line.decode(errors="replace")
            self._log.add(Reported(document))
        status = await self._process.wait()
        await asyncio.sleep(0)
        self._log.add(Exited(status, self._errors.decode(errors="replace")))

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(4096):
            self._errors = (self._errors + chunk)[-ERRORS_BYTES_MAX:]
