"""Shared by interactive commands: standard input and output that do not block the event loop, and safe texts."""

from __future__ import annotations

import asyncio
import getpass
import os
import select
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable

from adapters.wording import counted, installed_plan, named
from sequencing.errors import InvalidInput

__all__ = [
    "Output",
    "counted",
    "default_name",
    "input_lines",
    "installed_plan",
    "named",
    "printable",
]

LINE_BYTES_MAX = 1 << 20
"""Longer than the longest payload. The limit keeps a line without an end from filling the memory."""
READ_BYTES = 1 << 16


class Output:
    """Standard output, by its file descriptor: a slow reader must not delay the client's heartbeat."""

    def __init__(self) -> None:
        # None: it was closed before the process started.
        self._fd = sys.stdout.fileno() if sys.stdout is not None else os.open(os.devnull, os.O_WRONLY)

    async def write(self, text: bytes) -> None:
        """Write everything, and wait for a slow reader. Raises `BrokenPipeError` if the reader closed the pipe."""
        rest = memoryview(text)
        loop = asyncio.get_running_loop()
        while rest:
            await _ready(self._fd, select.POLLOUT, loop.add_writer, loop.remove_writer)
            # A ready pipe takes PIPE_BUF bytes without blocking.
            rest = rest[os.write(self._fd, rest[: select.PIPE_BUF]) :]

    def on_reader_gone(self, call: Callable[[], object]) -> None:
        """Call ``call`` when standard output is a pipe and its reader closes it, even while nothing is written."""
        if stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            loop = asyncio.get_running_loop()

            def gone() -> None:
                loop.remove_reader(self._fd)
                call()

            loop.add_reader(self._fd, gone)


async def input_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input as they arrive, without line ends. Raises `InvalidInput` naming the line."""
    if sys.stdin is None:
        return
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    number, rest = 0, b""
    while True:
        await _ready(fd, select.POLLIN, loop.add_reader, loop.remove_reader)
        chunk = os.read(fd, READ_BYTES)
        *lines, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            lines, rest = [rest], b""
        for line in lines:
            number += 1
            try:
                yield line.removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise InvalidInput(f"standard input, line {number}: is not UTF-8: {error}") from error
        if len(rest) > LINE_BYTES_MAX:
            raise InvalidInput(f"standard input, line {number + 1}: is longer than {LINE_BYTES_MAX:,} bytes")
        if not chunk:
            return


def default_name() -> str:
    """Return ``user@host-pid``, which is unique on the network."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}-{os.getpid()}"


def printable(text: str) -> str:
    """Return a text that is safe for a terminal: non-printable characters become escapes."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text
    )


async def _ready(
    fd: int,
    event: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    """Wait until a descriptor can be read or written without blocking. Regular files always can."""
    poll = select.poll()
    poll.register(fd, event)
    if poll.poll(0):
        return
    woken = asyncio.Event()
    add(fd, woken.set)
    try:
        await woken.wait()
    finally:
        remove(fd)
