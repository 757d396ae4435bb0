"""Replay a workload whose servers roam through gamecast: they subscribe and unsubscribe under traffic."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from demo.journey import Journey
from demo.match.hosting import Publication, Workload
from demo.replay import Delivered, Pace, Progress, Replay, Silence, finish, open_servers, require_there
from demo.watch import Watch
from gamecast.client.client import Client
from gamecast.errors import PlanError
from gamecast.event import Event, Receipt
from gamecast.recording.options import Recording


async def replay_roaming(
    open_casts: AsyncExitStack,
    workload: Workload,
    *,
    nodes: int,
    speed: float,
    progress: Progress,
    record: Recording | None = None,
) -> tuple[Replay, Client]:
    """Replay through a private network of ``nodes`` redis-servers; it and the returned connection stay open."""
    servers = await open_servers(open_casts, workload, nodes=nodes, record=record)
    journey = Journey(workload, {name: _CastPort(cast) for name, cast in servers.items()})
    silence = Silence()
    first = servers[workload.servers[0]]

    async def receive(name: str) -> None:
        async for batch in servers[name].batches():
            events = [event for event in batch if isinstance(event, Event)]
            seen = [Delivered(e.payload["id"], e.region, e.sender, e.sent_at_ns, e.delivered_at_ns) for e in events]
            journey.delivered(name, seen)
            silence.broken()
            progress(len(events))

    async def travel() -> None:
        await journey.drive(pace)
        journey.place({name: (receipt.epoch, receipt.sequence) for name, receipt in journey.receipts().items()})

    if workload.expected:
        await first.declare_overlaps(workload.expected)
    await journey.settle()
    watch = Watch(first.url)
    try:
        await watch.start()
        begun_ns = time.monotonic_ns()
        pace = Pace(speed, workload.publications[0].t_s)
        travelling = asyncio.create_task(travel())
        receiving = [asyncio.create_task(receive(name)) for name in servers]
        completing = asyncio.create_task(journey.until_complete())
        if not await finish([travelling], [completing], silence, background=receiving):
            await require_there(servers.values())
        plan = await first.plan()
        if plan is None:
            raise PlanError("the network has no plan after a replay")
        await watch.caught_up(plan)
    finally:
        await watch.close()
    seconds = max(1, silence.last_ns - begun_ns) / 1e9
    travels = journey.travels(epochs=watch.epochs, in_place=watch.in_place(journey.stays[journey.settled :]))
    return Replay(len(workload.publications), journey.deliveries, seconds, travels), first


class _CastPort:
    """A connection as `Journey` uses it."""

    def __init__(self, cast: Client) -> None:
        self._cast = cast

    async def subscribe(self, *regions: str) -> None:
        await self._cast.subscribe(*regions)

    async def unsubscribe(self, *regions: str) -> None:
        await self._cast.unsubscribe(*regions)

    def publish(self, publication: Publication) -> asyncio.Future[Receipt]:
        return self._cast.publish_async(publication.region, publication.payload)

    @property
    def decided(self) -> int:
        return self._cast.statistics().inbox_events
