"""gamecast itself, through its public interface only."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import gamecast
from adapters.embedded.replicated import online_replicas
from adapters.embedded.server import EmbeddedServer
from adapters.urls import with_replicas
from laboratory.bench.peers.peer import Active, Deliver, OnRedis, Publish, Site
from laboratory.bench.workload import Payload, World
from sequencing.errors import EmbeddedServerError

IN_FLIGHT_BATCHES = 64  # of one publisher; above it, it waits for the oldest


QUICK = {"repl-diskless-sync-delay": "0"}
REPLICATED_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class GamecastPeer(OnRedis):
    """In the default configuration, on one node, so that all have one Redis server."""

    name: str = "gamecast"
    replicas: int = field(default=0, kw_only=True)
    """How many replicas the server has. Receipts and deliveries wait for all of them."""
    shares: bool = field(default=False, kw_only=True)
    """Whether all subscribers, which are in one process, share their sockets."""
    session: Path | None = field(default=None, kw_only=True)
    """Where all record, from the beginning of each trial; those of a process share a recorder."""

    @contextmanager
    def site(self, world: World) -> Iterator[Site]:
        if self.session is not None:
            shutil.rmtree(self.session, ignore_errors=True)
        with ExitStack() as stack:
            master = stack.enter_context(EmbeddedServer(settings=QUICK))
            following = QUICK | {"replicaof": f"127.0.0.1 {urlsplit(master.url).port}"}
            others = [stack.enter_context(EmbeddedServer(settings=following)) for _ in range(self.replicas)]
            _wait_for_replicas(master, self.replicas)
            url = with_replicas(master.url, self.replicas)
            yield Site(url, tuple(server.pid for server in (master, *others)))

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with gamecast.connect(url, name=name, record=self.session) as cast:
            in_flight: deque[asyncio.Future[list[gamecast.Receipt]]] = deque()

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                in_flight.append(cast.publish_batch(events))
                while in_flight and (len(in_flight) > IN_FLIGHT_BATCHES or in_flight[0].done()):
                    await in_flight.popleft()
                await asyncio.sleep(0)

            yield publish
            await asyncio.gather(*in_flight)

    async def receive(self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Active) -> None:
        connection = (await _shared(url)).connect(name=name) if self.shares else None
        async with connection or gamecast.connect(url, name=name, record=self.session) as cast:
            await cast.subscribe(*regions)
            active()
            kind = gamecast.Event
            async for batch in cast.batches():
                for event in batch:
                    if isinstance(event, kind):  # what a gap leaves out is counted as lost
                        deliver(event.payload)
                batch.clear()  # while it is warm: it would live until the next one comes


_sharing: dict[str, asyncio.Task[gamecast.Shared]] = {}
"""URL → what the subscribers of this process share, until it ends."""


async def _shared(url: str) -> gamecast.Shared:
    if url not in _sharing:
        _sharing[url] = asyncio.ensure_future(gamecast.share(url).open())
    return await _sharing[url]


def _wait_for_replicas(master: EmbeddedServer, count: int) -> None:
    """Wait until a server's replicas follow it; raises `EmbeddedServerError`."""
    deadline = time.monotonic() + REPLICATED_S_MAX
    while online_replicas(master.url) < count:
        if time.monotonic() > deadline:
            raise EmbeddedServerError(f"the replicas of {master.url} do not follow it")
        time.sleep(0.01)
