"""The gateway's access to the network: connections of this library, and the history of regions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from adapters.gateway.settings import GatewaySettings, HookSettings
from adapters.redis.connection import RedisConnection
from adapters.redis.network import RedisNetwork
from gamecast.client.regionhistory import RegionHistory
from gamecast.event import Event
from gamecast.holding import HOLD_BOUNDS_MS
from gamecast.sharing import share
from sequencing.errors import GamecastError
from sequencing.extras import needed_by
from sequencing.plan import Ordering

with needed_by("gamecast.gateway"):
    from adapters.gateway.application import make_application
    from adapters.gateway.dashboard.routes import dashboard
    from adapters.gateway.gateway import Extension
    from adapters.gateway.guard import Guard
    from adapters.gateway.networkmetrics import network_metrics
    from adapters.gateway.ports import Connection, ConnectionBounds, Page, WhenBehind
    from adapters.gateway.replaycache import RedisReplayCache
    from adapters.gateway.serving import serving
    from adapters.gateway.tokens import KeyFile
    from adapters.gateway.tracing import Tracing

READY_S_MAX = 2.0


class ClientAccess:
    """Give each session a connection of its own; they share their sockets.

    Implements `adapters.gateway.ports.NetworkAccess`.
    """

    event_type = Event
    hold_bounds_ms = HOLD_BOUNDS_MS

    def __init__(self, url: str, *, ordering: Ordering = "acyclic", routes: Mapping[str, str] | None = None) -> None:
        """``url``: of the control Redis. Does not connect yet."""
        self._shared = share(url, ordering=ordering, routes=routes)
        self._past = RedisNetwork(url, ordering=ordering, retention_events=1, routes=routes)
        self._history = RegionHistory(self._past)
        self._probe = RedisConnection((routes or {}).get(url, url), "control")

    async def open(self) -> None:
        """See `NetworkAccess.open`."""
        await self._shared.open()

    def connection(self, name: str, *, when_behind: WhenBehind, **bounds: Unpack[ConnectionBounds]) -> Connection:
        """See `NetworkAccess.connection`."""
        return self._shared.guest(name, when_behind=when_behind, **bounds)

    async def regions(self) -> AbstractSet[str]:
        """See `NetworkAccess.regions`."""
        record = await self._past.listed()
        return record.plan.paths.keys() if record is not None else frozenset()

    async def history(self, region: str, *, after: str, events_max: int) -> Page:
        """See `NetworkAccess.history`."""
        return await self._history.page(region, after=after, events_max=events_max)

    async def is_ready(self) -> bool:
        """See `NetworkAccess.is_ready`."""
        try:
            await self._probe.call("PING", timeout_s=READY_S_MAX)
        except GamecastError:
            return False
        return True

    async def close(self) -> None:
        """See `NetworkAccess.close`."""
        await self._history.close()
        await self._probe.close()
        await self._shared.close()


@asynccontextmanager
async def local_gateway(
    url: str,
    *,
    watch_url: str | None = None,
    ordering: Ordering = "acyclic",
    port: int = 0,
    keys: Path | None = None,
    hooks: HookSettings | None = None,
) -> AsyncIterator[str]:
    """Serve a network to this machine while the context is open; its value is the gateway's URL.

    ``watch_url``: see `extensions`. ``keys``: the keys of the tokens that clients need; by default none.
    ``hooks``: the game's backend that decides what clients may do; by default none.
    """
    settings = GatewaySettings(port=port, hooks=hooks)
    replay_cache = RedisReplayCache(url)
    guard = Guard(settings, replay_cache, keys=KeyFile(keys) if keys is not None else None)
    access = ClientAccess(url, ordering=ordering)
    application = make_application(
        access, settings, guard=guard, replay_cache=replay_cache, extensions=extensions(watch_url or url)
    )
    async with serving(application) as where:
        yield where


def extensions(url: str, *, trace: bool = False) -> list[Extension]:
    """Return the extensions that the gateway of a network serves. ``trace``: include spans by OpenTelemetry.

    ``url``: the control Redis, with a user who may read everything.
    """
    found = [network_metrics(url), dashboard(url)]
    if trace:
        tracing = Tracing()
        found.append(lambda application, gateway: setattr(gateway, "tracing", tracing))
    return found
