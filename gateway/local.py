"""A gateway within a program, and what every gateway serves besides its clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.access import ClientAccess
from gateway.application import make_application
from gateway.dashboard.routes import dashboard
from gateway.gateway import Extension
from gateway.guard import Guard
from gateway.networkmetrics import network_metrics
from gateway.replaycache import RedisReplayCache
from gateway.serving import serving
from gateway.settings import GatewaySettings
from gateway.tokens import KeyFile
from gateway.tracing import Tracing
from sequencing.plan import Ordering


@asynccontextmanager
async def local_gateway(
    url: str,
    *,
    watch_url: str | None = None,
    ordering: Ordering = "acyclic",
    port: int = 0,
    keys: Path | None = None,
    is_trial: bool = False,
) -> AsyncIterator[str]:
    """Serve a network to this machine while the context is open; its value is the gateway's URL.

    ``watch_url``, ``is_trial``: see `extensions`. ``keys``: the keys of the tokens that clients need; by default none.
    """
    settings = GatewaySettings(port=port)
    replay_cache = RedisReplayCache(url)
    guard = Guard(settings, replay_cache, keys=KeyFile(keys) if keys is not None else None)
    access = ClientAccess(url, ordering=ordering)
    application = make_application(
        access,
        settings,
        guard=guard,
        replay_cache=replay_cache,
        extensions=extensions(watch_url or url, is_trial=is_trial),
    )
    async with serving(application) as where:
        yield where


def extensions(url: str, *, trace: bool = False, is_trial: bool = False) -> list[Extension]:
    """Return the extensions that the gateway of a network serves. ``trace``: include spans by OpenTelemetry.

    ``url``: the control Redis, with a user who may read everything. ``is_trial``: see `gateway.dashboard`.
    """
    served = [network_metrics(url), dashboard(url, is_trial=is_trial)]
    if trace:
        tracing = Tracing()
        served.append(lambda application, gateway: setattr(gateway, "tracing", tracing))
    return served
