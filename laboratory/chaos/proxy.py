"""A TCP proxy before a Redis server, in a process of its own, that can cut connections and hold bytes back.

It distinguishes clients from replicas and sentinels, so that it can put a master and its clients on one side of a
partition, and all others on the other.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from laboratory.processes.children import Guard
from laboratory.processes.forwarding import CHUNK_BYTES, Forwarder, ForwarderProcess, Link

CUT_WITHIN_S = 0.1
"""A connection on which no reply comes within this time is cut all the same."""

_INNER = re.compile(rb"\r\nREPLCONF\r\n|\r\nsentinel-[0-9a-f]{8}-", re.IGNORECASE)
"""What replicas and sentinels say when they have connected."""


class Proxy(ForwarderProcess):
    """One proxy's process, as the one that started it sees it. Calls block for milliseconds."""

    def __init__(self, name: str, target_port: int, labels: Sequence[str], log_file: Path, guard: Guard) -> None:
        """``labels``: what to call the ports that it listens on. Starts nothing."""
        super().__init__(name, _serve, (target_port, tuple(labels)), labels, log_file, guard)

    def cut(self) -> int:
        """Cut all connections, each in the middle of the next reply; return how many there are."""
        return int(self.ask("cut"))

    def hold(self) -> None:
        """Let no byte pass, either way, until `flow`."""
        self.ask("hold")

    def part(self) -> None:
        """Let no byte of replicas and sentinels pass, either way, until `flow`."""
        self.ask("part")

    def flow(self) -> None:
        """Let everything pass again."""
        self.ask("flow")


def _serve(target_port: int, labels: Sequence[str], pipe: Connection) -> None:
    asyncio.run(_Serving(target_port, labels, pipe).run())


class _Serving(Forwarder):
    def __init__(self, target_port: int, labels: Sequence[str], pipe: Connection) -> None:
        super().__init__(dict.fromkeys(labels, target_port), pipe)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    async def admit(self) -> None:
        await self._flowing.wait()

    def obey(self, word: str, *arguments: str) -> Any:
        match word:
            case "cut":
                for link in self.links:
                    link.doomed = True
                    asyncio.get_running_loop().call_later(CUT_WITHIN_S, link.abort)
                return len(self.links)
            case "hold":
                self._flowing.clear()
            case "part":
                self._is_whole.clear()
            case "flow":
                self._flowing.set()
                self._is_whole.set()
        return None

    async def carry(
        self, link: Link, *, back: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            if not back and _INNER.search(chunk):
                link.is_inner = True
            await self._flowing.wait()
            if link.is_inner:
                await self._is_whole.wait()
            if back and link.doomed and len(chunk) > 1:
                writer.write(chunk[: len(chunk) // 2])
                await writer.drain()
                return
            writer.write(chunk)
            await writer.drain()
