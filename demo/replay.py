"""Replay a workload through gamecast: one connection for each game server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from demo.match.hosting import Publication, Workload
from demo.patience import slowness
from demo.recording import stamps_recorded
from gamecast.client.client import Client
from gamecast.client.configuration import NetworkOptions
from gamecast.event import Event
from gamecast.recording.options import Recording
from gamecast.sharing import share
from sequencing.checkers.stays import Placed, Stay

IDLE_S_MAX = 10.0
"""How long a server waits for its next delivery, once all is published, before the rest counts as lost; longer where
the machine is busy."""

PUBLISH_S_MAX = 60.0
"""How long a publish may take where masters are killed."""

SUBSCRIBE_S_MAX = 300.0
"""How long the first joins may take: worlds of tens of thousands of regions on several nodes take a minute."""

BURST_EVENTS = 32
"""Even as fast as possible, servers take turns: after this many events another one continues."""

Progress = Callable[[int], None]
"""Called with the number of deliveries since the last call."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery, as the game server saw it."""

    event: str
    region: str
    sender: str
    sent_at_ns: int
    delivered_at_ns: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The deliveries of each game server, in its order."""

    published: int
    deliveries: dict[str, list[Delivered]]
    seconds: float
    """From the first publish to the last delivery."""
    travels: Travels | None = None
    """Where the servers roamed."""

    @property
    def delivery_count(self) -> int:
        """Deliveries of all servers together."""
        return sum(map(len, self.deliveries.values()))


@dataclass(frozen=True, slots=True)
class Travels:
    """How servers roamed.

    ``stays``: in the order in which they began, the first ``settled`` of them before the replay did; ``placed``: what
    was published, with its places; ``epochs``: how many new ones the network began meanwhile, and ``in_place``: how
    many joins needed none of them, both None where there is no such thing.
    """

    stays: tuple[Stay, ...]
    settled: int
    placed: tuple[Placed, ...]
    epochs: int | None = None
    in_place: int | None = None

    @property
    def join_ms(self) -> list[float]:
        """How long each join took during the replay, from the call of subscribe to its return, ascending."""
        return sorted(
            (stay.joined_at_ns - stay.asked_at_ns) / 1e6
            for stay in self.stays[self.settled :]
            if stay.joined_at_ns is not None and stay.asked_at_ns is not None
        )

    @property
    def leaves(self) -> int:
        """The number of stays that ended, of those that were joined."""
        return sum(stay.end is not None and stay.joined_at_ns is not None for stay in self.stays)

    @property
    def cut_short(self) -> int:
        """The number of joins that were cancelled, because the server had to leave before it was in."""
        return sum(stay.end is not None and stay.joined_at_ns is None for stay in self.stays)


class Pace:
    """Turns trace time into waiting. ``speed`` 0: as fast as possible; 1: as it happened; 10: ten times as fast."""

    def __init__(self, speed: float, start_s: float) -> None:
        self._speed = speed
        self._start_s = start_s
        self._begun_s = time.monotonic()

    def ahead_s(self, t_s: float) -> float:
        """Return how many seconds it is until the trace time ``t_s``, 0 when it has come."""
        if not self._speed:
            return 0.0
        return max(0.0, self._begun_s + (t_s - self._start_s) / self._speed - time.monotonic())


class Silence:
    """When something was last delivered, and the patience that ends when that is too long ago."""

    def __init__(self) -> None:
        self.last_ns = time.monotonic_ns()
        self._patience: asyncio.Timeout | None = None

    def broken(self) -> None:
        """Note a delivery."""
        self.last_ns = time.monotonic_ns()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + IDLE_S_MAX * slowness())

    def patience(self) -> asyncio.Timeout:
        """Return a context that ends with TimeoutError when nothing is delivered for `IDLE_S_MAX`."""
        self._patience = asyncio.timeout(IDLE_S_MAX * slowness())
        return self._patience


async def replay(
    open_casts: AsyncExitStack,
    workload: Workload,
    *,
    nodes: int,
    speed: float,
    progress: Progress,
    record: Recording | None = None,
    url: str | None = None,
) -> tuple[Replay, Client]:
    """Replay through a private network of ``nodes`` redis-servers, or through the one at ``url``; it and the returned
    connection stay open."""
    servers = await open_servers(open_casts, workload, nodes=nodes, record=record, url=url)
    await subscribe_all(servers, workload)
    return await replay_over(servers, workload, speed=speed, progress=progress), servers[workload.servers[0]]


async def subscribe_all(servers: Mapping[str, Client], workload: Workload) -> None:
    """Have each server join its regions."""
    await asyncio.gather(*(cast.subscribe(*workload.membership[name]) for name, cast in servers.items()))


async def replay_over(servers: Mapping[str, Client], workload: Workload, *, speed: float, progress: Progress) -> Replay:
    """Replay over connections of the servers, which have joined their regions."""
    deliveries: dict[str, list[Delivered]] = {name: [] for name in servers}
    expected = workload.expected_deliveries()
    silence = Silence()
    pace = Pace(speed, workload.publications[0].t_s)
    begun_ns = time.monotonic_ns()

    async def receive(name: str) -> None:
        seen = deliveries[name]
        if not expected[name]:
            return
        async for batch in servers[name].batches():
            events = [event for event in batch if isinstance(event, Event)]
            seen += [Delivered(e.payload["id"], e.region, e.sender, e.sent_at_ns, e.delivered_at_ns) for e in events]
            silence.broken()
            progress(len(events))
            if len(seen) >= expected[name]:
                return

    publishing = [
        asyncio.create_task(_publish(cast, workload.published_by(name), pace)) for name, cast in servers.items()
    ]
    if not await finish(publishing, [asyncio.create_task(receive(name)) for name in servers], silence):
        await require_there(servers.values())
    seconds = max(1, silence.last_ns - begun_ns) / 1e9
    return Replay(len(workload.publications), deliveries, seconds)


async def require_there(casts: Iterable[Client]) -> None:
    """Raise the error that keeps a connection from delivering: on a busy machine the network may have removed it, and
    then nothing that it missed is lost."""
    await asyncio.gather(*(cast.ping() for cast in casts))


async def open_servers(
    open_casts: AsyncExitStack,
    workload: Workload,
    *,
    nodes: int,
    record: Recording | None = None,
    url: str | None = None,
) -> dict[str, Client]:
    """Return a connection of each game server to a private network of ``nodes`` redis-servers, or to the one at
    ``url``; all stay open."""
    options: NetworkOptions = {"subscribe_timeout_s": SUBSCRIBE_S_MAX}
    if url is not None:
        options["publish_timeout_s"] = PUBLISH_S_MAX
    shared = await open_casts.enter_async_context(share(url or f"embedded://?nodes={nodes}", **options))
    servers = {
        name: await open_casts.enter_async_context(shared.connect(name=name, record=record))
        for name in workload.servers
    }
    await open_casts.enter_async_context(stamps_recorded(shared.url, record))
    return servers


async def _publish(cast: Client, publications: Sequence[Publication], pace: Pace) -> None:
    receipts = []
    for place, publication in enumerate(publications, start=1):
        ahead_s = pace.ahead_s(publication.t_s)
        if ahead_s or place % BURST_EVENTS == 0:
            await asyncio.sleep(ahead_s)
        receipts.append(cast.publish_async(publication.region, publication.payload))
    await asyncio.gather(*receipts)


async def finish(
    publishing: Sequence[asyncio.Task[None]],
    receiving: Sequence[asyncio.Task[None]],
    silence: Silence,
    *,
    background: Sequence[asyncio.Task[None]] = (),
) -> bool:
    """Wait for all publishers, then for all receivers or for silence; errors of any are raised, all tasks ended.

    Returns whether all receivers are done: anything that has not arrived when it is silent never will.
    """
    everyone = [*publishing, *receiving, *background]
    try:
        await _until_done(publishing, everyone)
        patience = silence.patience()
        try:
            async with patience:
                await _until_done(receiving, everyone)
        except TimeoutError:
            if not patience.expired():
                raise
            return False
        return True
    finally:
        for task in everyone:
            task.cancel()
        await asyncio.gather(*everyone, return_exceptions=True)


async def _until_done(tasks: Sequence[asyncio.Task[None]], everyone: Sequence[asyncio.Task[None]]) -> None:
    """Wait for some tasks, or for the first error of anyone's."""
    unfinished = set(everyone)
    while not unfinished.isdisjoint(tasks):
        done, unfinished = await asyncio.wait(unfinished, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
