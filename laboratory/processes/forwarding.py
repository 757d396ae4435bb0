"""Forwarding TCP connections in a process of its own: what the proxies that disturb a network have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from laboratory.processes.children import Child, Guard
from laboratory.processes.worker import spawn
from sequencing.errors import ProcessFailed

ANSWER_S_MAX = 10.0
CHUNK_BYTES = 1 << 16


class ForwarderProcess:
    """A forwarder's process, as the one that started it sees it. Calls block for milliseconds."""

    def __init__(
        self,
        name: str,
        serve: Callable[..., None],
        task: tuple[Any, ...],
        labels: Sequence[str],
        log_file: Path,
        guard: Guard,
    ) -> None:
        """``serve(*task, pipe)`` is its work; ``labels``: the names of the ports that it listens on, in the order in
        which it reports them first. Starts nothing."""
        self._labels = tuple(labels)
        self._pipe, self._far_pipe = spawn.Pipe()
        self._child = Child(name, serve, (*task, self._far_pipe), log_file, guard)
        self.ports: dict[str, int] = {}
        """Label → port, once it is started."""

    def start(self) -> None:
        """Start it, and wait until it listens; raises `ProcessFailed` when it does not."""
        self._child.start()
        self._far_pipe.close()
        self.ports = dict(zip(self._labels, self._hear(), strict=True))

    def stop(self) -> None:
        """End it, with all connections."""
        self._child.kill()
        self._pipe.close()

    def url(self, label: str) -> str:
        """Return the URL by which a process reaches the server through this forwarder."""
        return f"redis://127.0.0.1:{self.ports[label]}"

    def ask(self, *words: str) -> Any:
        """Have it do something, see `Forwarder.obey`; return its answer, or raise as `start` does."""
        try:
            self._pipe.send(words)
        except OSError as error:
            raise ProcessFailed(f"{self._child.name} ended with status {self._child.ended()}") from error
        return self._hear()

    def _hear(self) -> Any:
        try:
            if self._pipe.poll(ANSWER_S_MAX):
                return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise ProcessFailed(f"{self._child.name} ended with status {self._child.ended()}") from error
        raise ProcessFailed(f"{self._child.name} did not answer for {ANSWER_S_MAX:g} s")


class Link:
    """A client's connection, and the one to the server that was opened for it."""

    def __init__(self, label: str, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.label = label
        self._writers = client, server
        self.doomed = False
        self.is_inner = False
        """Whether a replica or a sentinel has made it."""

    def abort(self) -> None:
        """Cut both."""
        for writer in self._writers:
            writer.transport.abort()


class Forwarder(ABC):
    """Listens on a port for each label, and opens a connection to the label's target for each that comes."""

    def __init__(self, targets: Mapping[str, int], pipe: Connection) -> None:
        """``targets``: label → port on this machine; ``pipe``: to the process that started this one."""
        self._targets = targets
        self._pipe = pipe
        self._over = asyncio.Event()
        self.links: set[Link] = set()

    async def run(self) -> None:
        """Serve until the other end of the pipe is closed."""
        servers = [await asyncio.start_server(self._accepting(label), "127.0.0.1", 0) for label in self._targets]
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._obey)
        self._pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await self._over.wait()

    async def admit(self) -> None:
        """Return when a new connection may be made."""
        return

    @abstractmethod
    async def carry(
        self, link: Link, *, back: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry data from a reader to a writer, until the end; ``back``: from the server to the client."""

    def obey(self, word: str, *arguments: str) -> Any:
        """Do what `ForwarderProcess.ask` was called with, and return the answer."""
        raise ValueError(word)

    def _obey(self) -> None:
        try:
            words = self._pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._over.set()
            return
        self._pipe.send(self.obey(*words))

    def _accepting(self, label: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await self._accept(label, reader, writer)
            writer.transport.abort()

        return accept

    async def _accept(self, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.admit()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._targets[label])
        link = Link(label, writer, server_writer)
        self.links.add(link)
        try:
            ways = (
                asyncio.create_task(self.carry(link, back=False, reader=reader, writer=server_writer)),
                asyncio.create_task(self.carry(link, back=True, reader=server_reader, writer=writer)),
            )
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self.links.discard(link)
            link.abort()
