"""The two gateways by which visitors play: each can be stopped, and its clients go on at the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from gamecast.gateway import ClientAccess
from gateway.application import make_application
from gateway.guard import Guard
from gateway.replaycache import RedisReplayCache
from gateway.serving import serving
from gateway.settings import GatewayLimits, GatewaySettings
from laboratory.wan.network import WanNetwork

from .visitors import Door

NAMES = ("gateway-1", "gateway-2")
KEEP_S = 3.0
"""So long after its connection broke, a visitor that does not come back has left."""


class Gateway:
    """One gateway, of an address that stays the same when it is stopped and started again."""

    def __init__(self, name: str, network: WanNetwork, door: Door, *, host: str, origins: Sequence[str]) -> None:
        self.name = name
        self.url = ""
        self._network = network
        self._door = door
        self._host = host
        self._port = 0
        self._origins = tuple(origins)
        self._running: AsyncExitStack | None = None

    @property
    def runs(self) -> bool:
        """Whether it listens."""
        return self._running is not None

    async def start(self) -> None:
        """Listen, on the same port as before."""
        settings = GatewaySettings(
            host=self._host, port=self._port, origins=self._origins, limits=GatewayLimits(keep_s=KEEP_S)
        )
        replay_cache = RedisReplayCache(self._network.url)
        application = make_application(
            ClientAccess(self._network.url, routes=self._network.routes(self.name)),
            settings,
            guard=Guard(settings, replay_cache, keys=self._door),
            replay_cache=replay_cache,
        )
        async with AsyncExitStack() as stack:
            self.url = await stack.enter_async_context(serving(application))
            self._running = stack.pop_all()
        self._port = int(self.url.rpartition(":")[2])

    async def stop(self) -> None:
        """Close all sessions and stop listening; harmless when it does not run."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()
