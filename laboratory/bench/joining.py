"""How fast game servers join regions of one network: in place, over overlaps that are declared, and with epochs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from rich.console import Group

import gamecast
from adapters.redis.control import RedisControl
from laboratory.bench.campaign import versions
from laboratory.bench.cpu import process_cpu_s
from laboratory.bench.figures import median, percentiles
from laboratory.bench.surroundings import allow_connections, managed, server_for
from laboratory.bench.table import table_of
from sequencing.errors import UsageError
from sequencing.plan import Plan

Kind = Literal["in place", "epochs"]
KINDS: tuple[Kind, ...] = "in place", "epochs"

ALONE = 20
"""Joins without other traffic, for their delay: the next begins when one has ended."""

SUBSCRIBE_S_MAX = 300.0
STALLED_S = 30.0


@dataclass(frozen=True, slots=True)
class Walk:
    """Regions on a ring, around which servers stand in equal distances; each has ``view`` regions from its own on.

    In each turn all join the next ``step`` regions at once. If overlaps are declared (all pairs that some server will
    ever have both of), they leave as many behind them; otherwise they stay in all. ``shared``: whether all servers
    share the sockets of one `gamecast.share`.
    """

    regions: int = 1_000
    servers: int = 200
    view: int = 8
    step: int = 5
    turns: int = 3
    shared: bool = False

    def __post_init__(self) -> None:
        if self.regions < self.view + (self.turns + 1) * self.step:
            raise UsageError(
                f"a server that has {self.view} regions and joins {self.step} in each of {self.turns} turns, and once "
                f"more alone, needs {self.view + (self.turns + 1) * self.step} of them: not {self.regions}"
            )

    def name_of(self, region: int) -> str:
        return f"region-{region % self.regions:05d}"

    def regions_at(self, server: int, begin: int, end: int) -> list[str]:
        """Return the regions from ``begin`` to before ``end``, as a server counts them from where it stood first."""
        stands = server * self.regions // self.servers
        return [self.name_of(stands + region) for region in range(begin, end)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the overlaps to declare: of all regions that a server has while it walks."""
        distances = range(1, min(self.view + self.step, self.regions))
        return [(self.name_of(at), self.name_of(at + far)) for at in range(self.regions) for far in distances]


def measure_joins(walk: Walk, kinds: Iterable[Kind], begin: Callable[[str], None]) -> dict[str, Any]:
    """Return what ``gamecast bench joins --json`` prints.

    All servers are in this process; the manager has a process, and each kind a redis-server, of its own. Blocks for
    about a minute. Raises `EmbeddedServerError`, and `UsageError` where the system allows too few open files.
    """
    allow_connections(walk.servers)
    measured: dict[str, Any] = {}
    for kind in kinds:
        with server_for(walk.servers) as server, managed(server.url) as manager:
            crowd = _Crowd(walk, kind, server.url, {"manager": manager, "redis": server.pid})
            measured[kind] = asyncio.run(crowd.measure(begin))
    return {"walk": asdict(walk), "kinds": measured, "versions": versions()}


class _Crowd:
    """All servers of one kind."""

    def __init__(self, walk: Walk, kind: Kind, url: str, processes: Mapping[str, int]) -> None:
        self._walk = walk
        self._kind = kind
        self._url = url
        self._processes = processes
        self._casts: list[gamecast.Client] = []
        self._left = 0
        self._reached = walk.view

    async def measure(self, begin: Callable[[str], None]) -> dict[str, Any]:
        """Let them walk; then publish in each region, and see who gets it."""
        walk = self._walk
        async with self._connected() as self._casts:
            if self._kind == "in place":
                await self._casts[0].declare_overlaps(walk.pairs())
            begin(f"{self._kind}: {walk.servers:,} servers join")
            starts = (cast.subscribe(*walk.regions_at(at, 0, walk.view)) for at, cast in enumerate(self._casts))
            await asyncio.gather(*starts)
            turns: list[dict[str, Any]] = []
            latencies_ms: list[float] = []
            for number in range(walk.turns):
                begin(f"{self._kind}: turn {number + 1} of {walk.turns}")
                turns.append(await self._turn(latencies_ms))
            alone_ms = [await self._go(at) for at in range(min(ALONE, walk.servers))]
            lost, unexpected = await self._deliver()
        plan = await _plan(self._url)
        return {
            "joins_per_s": median([turn["joins_per_s"] for turn in turns]),
            "latency_ms": percentiles(latencies_ms),
            "alone_latency_ms": percentiles(alone_ms),
            "turns": turns,
            "epochs": sum(turn["epochs"] for turn in turns),
            "atoms": len(plan.atoms),
            "lost": lost,
            "unexpected": unexpected,
        }

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[list[gamecast.Client]]:
        async with AsyncExitStack() as stack:
            connect: Callable[..., gamecast.Client] = gamecast.connect
            if self._walk.shared:
                shared = gamecast.share(self._url, subscribe_timeout_s=SUBSCRIBE_S_MAX)
                connect = (await stack.enter_async_context(shared)).connect
            else:
                connect = partial(gamecast.connect, self._url, subscribe_timeout_s=SUBSCRIBE_S_MAX)
            casts = [connect(name=f"server-{at:04d}") for at in range(self._walk.servers)]
            await asyncio.gather(*(stack.enter_async_context(cast) for cast in casts))
            yield casts

    async def _turn(self, latencies_ms: list[float]) -> dict[str, Any]:
        """Let all join at once. ``latency_ms``: of subscribe; ``cpu_ms``: a join, of the servers and each process."""
        epoch, began, cpu_s = (await _plan(self._url)).epoch, time.perf_counter(), self._cpu_s()
        mine_ms = await asyncio.gather(*map(self._go, range(len(self._casts))))
        seconds = time.perf_counter() - began
        joins = self._walk.step * len(self._casts)
        cpu_ms = {part: (spent_s - cpu_s[part]) * 1000 / joins for part, spent_s in self._cpu_s().items()}
        self._reached += self._walk.step
        self._left += self._walk.step if self._kind == "in place" else 0
        latencies_ms += mine_ms
        epochs = (await _plan(self._url)).epoch - epoch
        return {
            "joins": joins,
            "seconds": seconds,
            "epochs": epochs,
            "latency_ms": percentiles(mine_ms),
            "cpu_ms": cpu_ms,
            "joins_per_s": joins / seconds,
        }

    async def _go(self, server: int) -> float:
        """Have a server take its next step; return for how many ms it waited."""
        walk, cast = self._walk, self._casts[server]
        if self._kind == "in place":
            await cast.unsubscribe(*walk.regions_at(server, self._left, self._left + walk.step))
        began = time.perf_counter()
        await cast.subscribe(*walk.regions_at(server, self._reached, self._reached + walk.step))
        return (time.perf_counter() - began) * 1000

    async def _deliver(self) -> tuple[int, int]:
        """Publish in each region; return how many of the deliveries are missing, and how many should not be."""
        walk = self._walk
        regions = [walk.name_of(region) for region in range(walk.regions)]
        got: list[Counter[str]] = [Counter() for _ in self._casts]
        wanted = [Counter(self._regions_of(at)) for at in range(len(self._casts))]
        takers = [
            asyncio.create_task(_take(cast, mine, sum(wants.values())))
            for cast, mine, wants in zip(self._casts, got, wanted, strict=True)
        ]
        async with gamecast.connect(self._url, name="publisher", publish_timeout_s=SUBSCRIBE_S_MAX) as publisher:
            await asyncio.gather(*(publisher.publish(region, {}) for region in regions))
        _, late = await asyncio.wait(takers, timeout=STALLED_S)
        for taker in late:
            taker.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
        lost = sum((wants - mine).total() for wants, mine in zip(wanted, got, strict=True))
        unexpected = sum((mine - wants).total() for wants, mine in zip(wanted, got, strict=True))
        return lost, unexpected

    def _regions_of(self, server: int) -> list[str]:
        step = self._walk.step if server < ALONE else 0
        left = step if self._kind == "in place" else 0
        return self._walk.regions_at(server, self._left + left, self._reached + step)

    def _cpu_s(self) -> dict[str, float]:
        others = {part: process_cpu_s([pid]) for part, pid in self._processes.items()}
        return {"servers": time.process_time(), **others}


async def _take(cast: gamecast.Client, got: Counter[str], events: int) -> None:
    async for batch in cast.batches():
        got.update(event.region for event in batch if isinstance(event, gamecast.Event))
        if got.total() >= events:
            return


async def _plan(url: str) -> Plan:
    control = RedisControl(url)
    try:
        plan = await control.latest_plan()
    finally:
        await control.close()
    assert plan is not None
    return plan


def report(result: Mapping[str, Any]) -> Group:
    """A table of 80 columns, and what the columns mean."""
    walk = Walk(**result["walk"])
    table = table_of("\njoins", _HEADINGS, _rows(result))
    alone = "; ".join(
        f"{kind} p50 {figures['alone_latency_ms']['p50']:,.0f} ms, p99 {figures['alone_latency_ms']['p99']:,.0f} ms"
        for kind, figures in result["kinds"].items()
    )
    note = (
        f"{walk.servers:,} servers, {walk.view} of {walk.regions:,} regions each, which join {walk.step} at once.\n"
        "In place: overlaps are declared, and as many regions are left. Epochs: none is\n"
        "declared, and nothing left. ms: from the call of subscribe to its return. The\n"
        f"servers are in one process, and {'share' if walk.shared else 'do not share'} connections.\n"
        f"One server after the other: {alone}."
    )
    return Group(table, note)


_HEADINGS = "\njoins/s", "\nepochs", "p50\nms", "p99\nms", "CPU ms\nservers", "a join\nmanager", "\nredis"


def _rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for kind, figures in result["kinds"].items():
        for number, turn in enumerate(figures["turns"], start=1):
            cpu_ms = (f"{turn['cpu_ms'][part]:.2f}" for part in ("servers", "manager", "redis"))
            yield f"{kind}, turn {number}", *_common(turn), *cpu_ms
        yield kind, *_common(figures)


def _common(figures: Mapping[str, Any]) -> Iterator[str]:
    latency = figures["latency_ms"]
    yield from (f"{figures['joins_per_s']:,.0f}", f"{figures['epochs']}")
    yield from (f"{latency['p50']:,.0f}", f"{latency['p99']:,.0f}")
