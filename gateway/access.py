"""The gateway's access to its network: a connection of the library for each session, and the history of regions."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Unpack

from adapters.redis.connection import RedisConnection
from adapters.redis.network import RedisNetwork
from gamecast.client.client import Client
from gamecast.client.configuration import LimitOptions, WhenBehind
from gamecast.client.regionhistory import Page, RegionHistory
from gamecast.sharing import share
from sequencing.errors import GamecastError
from sequencing.plan import Ordering

READY_S_MAX = 2.0


class ClientAccess:
    """Gives each session a connection of its own; they share their sockets."""

    def __init__(self, url: str, *, ordering: Ordering = "acyclic", routes: Mapping[str, str] | None = None) -> None:
        """``url``: of the control Redis. Does not connect yet."""
        self._shared = share(url, ordering=ordering, routes=routes)
        self._past = RedisNetwork(url, ordering=ordering, retention_events=1, routes=routes)
        self._history = RegionHistory(self._past)
        self._probe = RedisConnection((routes or {}).get(url, url), "control")

    async def open(self) -> None:
        """Connect to the network; raises `NetworkError` or `OtherSideError`."""
        await self._shared.open()

    def connection(self, name: str, *, when_behind: WhenBehind, **bounds: Unpack[LimitOptions]) -> Client:
        """Return a connection that is not open yet."""
        return self._shared.guest(name, when_behind=when_behind, **bounds)

    async def regions(self) -> AbstractSet[str]:
        """Return all existing regions; raises `NetworkError` or `OtherSideError`."""
        record = await self._past.listed()
        return record.plan.paths.keys() if record is not None else frozenset()

    async def history(self, region: str, *, after: str, events_max: int) -> Page:
        """Return the stored events of a region after a position.

        Raises `InvalidInput`, `NetworkError`, `OtherSideError`.
        """
        return await self._history.page(region, after=after, events_max=events_max)

    async def is_ready(self) -> bool:
        """Return whether the network answers."""
        try:
            await self._probe.call("PING", timeout_s=READY_S_MAX)
        except GamecastError:
            return False
        return True

    async def close(self) -> None:
        """Release all resources."""
        await self._history.close()
        await self._probe.close()
        await self._shared.close()
