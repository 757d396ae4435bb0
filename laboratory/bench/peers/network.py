"""gamecast itself, through its public interface only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import gamecast
from laboratory.bench.peers.peer import Deliver, Publish
from laboratory.bench.peers.site import OnRedis
from laboratory.bench.workload import Payload

IN_FLIGHT_BATCHES = 64  # of one publisher; above it, it waits for the oldest


@dataclass(frozen=True, slots=True)
class GamecastPeer(OnRedis):
    """In the default configuration, on one node, so that all have one Redis server."""

    name: str = "gamecast"

    @asynccontextmanager
    async def publisher(self, url: str, name: str) -> AsyncIterator[Publish]:
        async with self._publisher(url, name) as publish:
            yield publish

    @asynccontextmanager
    async def _publisher(self, url: str, name: str, *, record: Path | None = None) -> AsyncIterator[Publish]:
        async with gamecast.connect(url, name=name, record=record) as cast:
            in_flight: deque[asyncio.Future[list[gamecast.Receipt]]] = deque()

            async def publish(events: Sequence[tuple[str, Payload]]) -> None:
                in_flight.append(cast.publish_batch(events))
                while in_flight and (len(in_flight) > IN_FLIGHT_BATCHES or in_flight[0].done()):
                    await in_flight.popleft()
                await asyncio.sleep(0)

            yield publish
            await asyncio.gather(*in_flight)

    async def receive(
        self, url: str, name: str, regions: Sequence[str], deliver: Deliver, active: Callable[[], None]
    ) -> None:
        await self._receive(url, name, regions, deliver, active)

    async def _receive(
        self,
        url: str,
        name: str,
        regions: Sequence[str],
        deliver: Deliver,
        active: Callable[[], None],
        *,
        record: Path | None = None,
    ) -> None:
        async with gamecast.connect(url, name=name, record=record) as cast:
            await cast.subscribe(*regions)
            active()
            kind = gamecast.Event
            async for batch in cast.batches():
                for event in batch:
                    if isinstance(event, kind):  # what a gap leaves out is counted as lost
                        deliver(event.payload)
                batch.clear()  # while it is warm: it would live until the next one comes
