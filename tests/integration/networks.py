"""A network of each kind, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Unpack

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.relays import RedisRelays
from gamecast import Client, Shared
from gamecast.client.configuration import LimitOptions, WhenBehind, WhenFull
from gamecast.testing import memory_url
from sequencing.plan import Ordering

KINDS = ("memory", "memory-3", "redis", "redis-3", "shared-3")
"""An embedded network is one of Redis whose servers it starts: `test_an_embedded_network_has_one_order`."""


async def register(control_url: str, urls: Mapping[str, str], *, may_lose: bool = False) -> None:
    """Register the nodes of a network, by their names."""
    control = LeaderControl(control_url)
    for name, url in urls.items():
        await control.register_node(name, url, may_lose=may_lose)
    await control.close()


@asynccontextmanager
async def relaying(url: str) -> AsyncIterator[RedisRelays]:
    """Carry all links of a network."""
    relays = RedisRelays(url)
    relays.start()
    try:
        yield relays
    finally:
        await relays.stop()


@asynccontextmanager
async def secured_network(*, replicas: int = 0) -> AsyncIterator[EmbeddedNetwork]:
    """Two nodes with users, and a manager of its own user; ``replicas``: of each node, with sentinels."""
    network = EmbeddedNetwork(
        "embedded://?nodes=2", ordering="acyclic", retention_events=1000, secure=True, replicas=replicas
    )
    try:
        await network.open()
        network.stand(LeaderControl(network.url))
        yield network
    finally:
        await network.close()


class Options(LimitOptions, total=False):
    """What a connection may say that others of its network do not."""

    when_full: WhenFull
    when_behind: WhenBehind


class Network:
    """Opens connections to one network."""

    def __init__(self, url: str, stack: AsyncExitStack, *, is_shared: bool = False) -> None:
        self.url = url
        self.urls: tuple[str, ...] = (url,)
        """Of all its servers."""
        self._stack = stack
        self._is_shared = is_shared
        self._shared: dict[Ordering, Shared] = {}

    @classmethod
    async def start(cls, kind: str, stack: AsyncExitStack) -> Network:
        nodes = 3 if kind.endswith("-3") else 1
        if kind.startswith("memory"):
            return cls(memory_url(nodes=nodes), stack)
        if kind.startswith(("embedded", "shared")):
            return cls(f"embedded://?nodes={nodes}", stack, is_shared=kind.startswith("shared"))
        if nodes == 1:
            server = await stack.enter_async_context(EmbeddedServer())
            return cls(server.url, stack)
        servers = await stack.enter_async_context(EmbeddedServers(nodes))
        control = LeaderControl(servers.urls[0])
        stack.push_async_callback(control.close)
        for number, url in enumerate(servers.urls, start=1):
            await control.register_node(f"n{number}", url)
            relays = RedisRelays(servers.urls[0], frozenset({f"n{number}"}))
            relays.start()
            stack.push_async_callback(relays.stop)
        network = cls(servers.urls[0], stack)
        network.urls = servers.urls
        return network

    async def connect(
        self, name: str | None = None, *, ordering: Ordering = "acyclic", **options: Unpack[Options]
    ) -> Client:
        if self._is_shared:
            shared = await self._share(ordering)
            return await self._stack.enter_async_context(shared.connect(name=name, **options))
        connecting = gamecast.connect(self.url, name=name, ordering=ordering, **options)
        cast = await self._stack.enter_async_context(connecting)
        self.url = cast.url
        return cast

    async def _share(self, ordering: Ordering) -> Shared:
        """Return what connections share that agree about the network."""
        if ordering not in self._shared:
            shared = await self._stack.enter_async_context(gamecast.share(self.url, ordering=ordering))
            self._shared[ordering] = shared
            self.url = shared.url
        return self._shared[ordering]
