"""The network under a matrix's delays: redis-servers at hosts, relays beside them, and a way in from each host."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from adapters.embedded.server import AppendFsync, EmbeddedServer, EmbeddedServers
from adapters.redis.connection import RedisConnection, Script
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.relays import RedisRelays
from gamecast.client.client import Client
from gamecast.client.connecting import connect
from gamecast.recording.options import Recording
from laboratory.processes.children import Guard
from laboratory.wan.delayproxy import DelayProxy, Leg
from placement.topologies.distances import Standing

WRITE_TO_ALL = Script(b"for _, key in ipairs(KEYS) do redis.call('XADD', key, '*', 'f', 'v') end", "write_to_all")

READ_MS_MAX = 2_000
ASK_AGAIN_S, ASK_TIMES_MAX = 0.005, 200


class WanNetwork:
    """An async context manager: a network of embedded nodes that are far from each other. The first is the control.

    Connections to a node from another machine go through a delay proxy for these two hosts. A relay runs on the machine
    of the node whose links it carries, and reaches that node directly.
    """

    def __init__(self, standing: Standing, nodes: tuple[str, ...], *, appendfsync: AppendFsync | None = None) -> None:
        """``standing`` knows all nodes, and all clients that connect. Starts nothing.

        ``appendfsync``: with ``always``, a node that is killed starts again with all that it had.
        """
        self._standing = standing
        self._nodes = nodes
        self._keeps = appendfsync == "always"
        self._servers = EmbeddedServers(len(nodes), appendfsync=appendfsync)
        self._relays: dict[str, RedisRelays] = {}
        self._running = AsyncExitStack()
        self._proxy: DelayProxy | None = None

    @property
    def url(self) -> str:
        """The control URL."""
        return self._servers.urls[0]

    def connect(self, server: str, record: Recording | None = None) -> Client:
        """Return a connection of a game server, not open yet, that reaches the nodes from the server's host."""
        return connect(self.url, name=server, routes=self.routes(server), record=record)

    def urls(self, server: str) -> list[str]:
        """Return the URLs by which a game server reaches the nodes, in order."""
        routes = self.routes(server)
        return [routes[url] for url in self._servers.urls]

    def routes(self, who: str) -> dict[str, str]:
        """Return, node's URL → proxy's URL, how a host reaches them; nothing leads from a node to itself."""
        assert self._proxy is not None
        host = self._standing.host_of[who]
        return {
            url: self._proxy.url(_label(host, node))
            for node, url in zip(self._nodes, self._servers.urls, strict=True)
            if node != who
        }

    def server(self, node: str) -> EmbeddedServer:
        """Return the Redis server of a node, e.g. to kill it and start it again."""
        return self._servers.servers[self._nodes.index(node)]

    async def cut(self, node: str) -> None:
        """Stop the relays of a node: nothing leaves it over its links until `mend`."""
        await self._relays.pop(node).stop()

    def mend(self, node: str) -> None:
        """Start the relays of a node again; they go on where the others stopped."""
        self._relays[node] = relays = RedisRelays(self.url, frozenset({node}), routes=self.routes(node))
        relays.start()

    async def reads_whole(self) -> bool:
        """Return whether a read that has blocked is answered with all that exists, see `Conditions.whole_reads`."""
        reader, writer = RedisConnection(self.url), RedisConnection(self.url)
        keys = [f"gamecast:{{control}}:{name}" for name in ("read-one", "read-other")]
        asking = asyncio.create_task(
            reader.call("XREAD", "BLOCK", READ_MS_MAX, "STREAMS", *keys, *["0-0"] * len(keys)), name="gamecast wan read"
        )
        try:
            for _ in range(ASK_TIMES_MAX):
                if b"blocked_clients:0" not in await writer.call("INFO", "clients"):
                    break
                await asyncio.sleep(ASK_AGAIN_S)
            await writer.run(WRITE_TO_ALL, keys)
            return len(await asking or ()) == len(keys)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await writer.call("DEL", *keys)
            await reader.close()
            await writer.close()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._servers)
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gamecast-wan-")))
            guard = Guard(None)
            stack.callback(guard.close)
            self._proxy = DelayProxy(self._legs(), directory / "proxy.log", guard)
            stack.callback(self._proxy.stop)
            await asyncio.to_thread(self._proxy.start)
            await self._register()
            for node in self._nodes:
                self.mend(node)
            stack.push_async_callback(self._stop_relays)
            self._running = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._running.aclose()

    async def _stop_relays(self) -> None:
        await asyncio.gather(*(relays.stop() for relays in self._relays.values()))

    def _legs(self) -> dict[str, Leg]:
        ms = self._standing.distances.ms
        legs: dict[str, Leg] = {}
        for node, server in zip(self._nodes, self._servers.servers, strict=True):
            port = int(server.url.rpartition(":")[2])
            at = self._standing.host_of[node]
            for host in sorted(set(self._standing.host_of.values())):
                legs[_label(host, node)] = Leg(port, there_ms=ms(host, at), back_ms=ms(at, host))
        return legs

    async def _register(self) -> None:
        control = LeaderControl(self.url)
        try:
            for node, url in zip(self._nodes, self._servers.urls, strict=True):
                await control.register_node(
                    node, "" if url == self.url else url, may_lose=url != self.url and not self._keeps
                )
        finally:
            await control.close()


def _label(host: str, node: str) -> str:
    return f"{host} > {node}"
