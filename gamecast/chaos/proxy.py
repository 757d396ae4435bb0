"""A TCP proxy before a Redis server, in a process of its own, that can cut connections and hold bytes back.

It listens on several ports, so that it can tell which process spoke to it, and it notes who stands for leading: the
lease in the control Redis names its holder by a token, which managers tell when they look.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gamecast.chaos.processes import Child, Guard, spawn

CUT_WITHIN_S = 0.1
"""A connection on which no reply comes within this time is cut all the same."""

ANSWER_S_MAX = 10.0
CHUNK_BYTES = 1 << 16

_TOKEN = re.compile(rb"\r\n(?:look|keep)\r\n\$\d+\r\n([^\r]+)\r\n")


class Proxy:
    """One proxy's process, as the one that started it sees it. Calls block for milliseconds."""

    def __init__(self, name: str, target_port: int, labels: Sequence[str], log_file: Path, guard: Guard) -> None:
        """``labels``: what to call the ports that it listens on. Starts nothing."""
        self._labels = tuple(labels)
        self._pipe, self._far_pipe = spawn.Pipe()
        self._child = Child(name, _serve, (target_port, self._labels, self._far_pipe), log_file, guard)
        self.ports: dict[str, int] = {}
        """Label → port, once it is started."""

    def start(self) -> None:
        """Start it, and wait until it listens; raises `RuntimeError` when it does not."""
        self._child.start()
        self._far_pipe.close()
        self.ports = dict(zip(self._labels, self._hear(), strict=True))

    def stop(self) -> None:
        """End it, with all connections."""
        self._child.kill()
        self._pipe.close()

    def url(self, label: str) -> str:
        """Return the URL by which a process reaches the server through this proxy."""
        return f"redis://127.0.0.1:{self.ports[label]}"

    def cut(self) -> int:
        """Cut all connections, each in the middle of the next reply; return how many there are."""
        return int(self._ask("cut"))

    def hold(self) -> None:
        """Let no byte pass, either way, until `flow`."""
        self._ask("hold")

    def flow(self) -> None:
        """Let everything pass again."""
        self._ask("flow")

    def who(self, token: str) -> str | None:
        """Return the label of who stands for leading with a token, None when nobody has shown it."""
        label: str | None = self._ask("who", token)
        return label

    def _ask(self, *words: str) -> Any:
        self._pipe.send(words)
        return self._hear()

    def _hear(self) -> Any:
        try:
            if self._pipe.poll(ANSWER_S_MAX):
                return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(f"{self._child.name} ended with status {self._child.ended()}") from error
        raise RuntimeError(f"{self._child.name} did not answer for {ANSWER_S_MAX:g} s")


def _serve(target_port: int, labels: Sequence[str], pipe: Connection) -> None:
    asyncio.run(_Serving(target_port, pipe).run(labels))


class _Link:
    """A client's connection and the one to the server that was opened for it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._writers = client, server
        self.doomed = False

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


class _Serving:
    def __init__(self, target_port: int, pipe: Connection) -> None:
        self._target_port = target_port
        self._pipe = pipe
        self._links: set[_Link] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._over = asyncio.Event()
        self._token_of: dict[str, str] = {}

    async def run(self, labels: Sequence[str]) -> None:
        """Serve until the other end of the pipe is closed."""

        async def accept(label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await self._accept(label, reader, writer)
            writer.transport.abort()

        servers = [
            await asyncio.start_server(lambda r, w, label=label: accept(label, r, w), "127.0.0.1", 0)  # type: ignore[misc]
            for label in labels
        ]
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._obey)
        self._pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await self._over.wait()

    def _obey(self) -> None:
        try:
            word, *arguments = self._pipe.recv()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._over.set()
            return
        match word:
            case "cut":
                links = list(self._links)
                for link in links:
                    link.doomed = True
                    asyncio.get_running_loop().call_later(CUT_WITHIN_S, link.abort)
                self._pipe.send(len(links))
            case "hold":
                self._flowing.clear()
                self._pipe.send(None)
            case "flow":
                self._flowing.set()
                self._pipe.send(None)
            case "who":
                self._pipe.send(self._token_of.get(arguments[0]))

    async def _accept(self, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        link = _Link(writer, server_writer)
        self._links.add(link)
        try:
            pumps = (
                asyncio.create_task(self._requests(label, reader, server_writer)),
                asyncio.create_task(self._replies(link, server_reader, writer)),
            )
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._links.discard(link)
            link.abort()

    async def _requests(self, label: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            for token in _TOKEN.findall(chunk):
                self._token_of[token.decode(errors="replace")] = label
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()

    async def _replies(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            if link.doomed and len(chunk) > 1:
                writer.write(chunk[: len(chunk) // 2])
                await writer.drain()
                return
            writer.write(chunk)
            await writer.drain()
