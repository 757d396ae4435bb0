"""A gateway's connections to its network: of sessions, parked sessions, event streams and publishers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gamecast.client.client import Client
from gamecast.holding import HOLD_BOUNDS_MS
from gateway.access import ClientAccess


class Connections:
    """Opens and closes connections; adds up their hold counts, those of closed connections included."""

    def __init__(self, access: ClientAccess, on_broken: Callable[[BaseException], None]) -> None:
        """``on_broken`` is called with the error when a connection cannot be closed."""
        self._on_broken = on_broken
        self._open: set[Client] = set()
        self._given_up = (0,) * (len(HOLD_BOUNDS_MS) + 1)
        """The hold counts of closed connections."""
        self._ending: set[asyncio.Future[None]] = set()

    async def open(self, connection: Client) -> None:
        """Open a connection; if the caller is cancelled meanwhile, close it again."""
        opening = asyncio.ensure_future(self._opened(connection))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:

            def opened(done: asyncio.Future[None]) -> None:
                if done.exception() is None:
                    self.close_soon(connection)

            opening.add_done_callback(opened)
            self._keep(opening)
            raise

    def close_soon(self, connection: Client) -> None:
        """Close a connection that was opened here, even if the caller is cancelled meanwhile."""
        if connection in self._open:
            self._open.discard(connection)
            self._given_up = _added(self._given_up, connection.statistics().hold_counts)
        self._keep(asyncio.ensure_future(connection.close()))

    async def finish(self) -> None:
        """Wait until all connections that are closing are closed."""
        while self._ending:
            await asyncio.wait(self._ending)

    def statistics(self) -> list[Any]:
        """Return the counters of each open connection."""
        return [connection.statistics() for connection in self._open]

    def named_statistics(self) -> list[tuple[str, Any]]:
        """Return the name and the counters of each open connection."""
        return [(connection.name, connection.statistics()) for connection in self._open]

    def hold_counts(self) -> tuple[int, ...]:
        """Return how many frames were held since the start, counted by hold time (`HOLD_BOUNDS_MS`)."""
        counts = self._given_up
        for each in self.statistics():
            counts = _added(counts, each.hold_counts)
        return counts

    async def _opened(self, connection: Client) -> None:
        await connection.open()
        self._open.add(connection)

    def _keep(self, task: asyncio.Future[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_broken(error)


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip(one, other, strict=True)))
