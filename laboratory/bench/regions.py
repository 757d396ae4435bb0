"""How the cost of one connection grows with its regions, beside plain Redis Pub/Sub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import orjson
from redis.asyncio import Redis
from rich import box
from rich.console import Group
from rich.table import Table

import gamecast
from laboratory.bench.crowd import memory_of_this_process
from laboratory.bench.figures import exponent, percentile
from laboratory.bench.surroundings import managed, server_for
from laboratory.processes.worker import Worker

SIZES = 30, 1_000, 10_000
JOINS = 40
LONE_EVENTS = 300
LONE_EVERY_S = 0.002
SUBSCRIBE_S_MAX = 300.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Growth:
    """What one connection costs that has ``regions``. Times are medians."""

    regions: int
    subscribe_s: float
    """For all regions at once."""
    memory_mib: float
    """By how much they let the process grow."""
    join_ms: float
    """For one more region."""
    join_cpu_ms: float
    """The CPU of its process for that."""
    lone_ms: float
    """From publishing a lone event to its delivery, both in this process."""


class Peer(Protocol):
    """A connection that is measured."""

    async def subscribe(self, names: Sequence[str]) -> None:
        """Subscribe; return when it is in effect."""

    async def publish(self, name: str) -> None:
        """Publish an event."""

    async def next(self) -> None:
        """Wait for an event."""


class _Gamecast:
    def __init__(self, cast: gamecast.Client, publisher: gamecast.Client) -> None:
        self._cast, self._publisher = cast, publisher

    async def subscribe(self, names: Sequence[str]) -> None:
        await self._cast.subscribe(*names)

    async def publish(self, name: str) -> None:
        self._publisher.publish_nowait(name, {"n": 1})

    async def next(self) -> None:
        await anext(self._cast)


@asynccontextmanager
async def _gamecast(url: str) -> AsyncIterator[Peer]:
    async with (
        gamecast.connect(url, name="server", subscribe_timeout_s=SUBSCRIBE_S_MAX) as cast,
        gamecast.connect(url, name="publisher") as publisher,
    ):
        yield _Gamecast(cast, publisher)


class _PubSub:
    def __init__(self, redis: Redis) -> None:
        self._redis, self._pubsub = redis, redis.pubsub()

    async def subscribe(self, names: Sequence[str]) -> None:
        await self._pubsub.subscribe(*names)
        for _ in names:
            await self._pubsub.get_message(timeout=SUBSCRIBE_S_MAX)

    async def publish(self, name: str) -> None:
        await self._redis.publish(name, orjson.dumps({"n": 1}))

    async def next(self) -> None:
        message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=SUBSCRIBE_S_MAX)
        orjson.loads(message["data"])


@asynccontextmanager
async def _pubsub(url: str) -> AsyncIterator[Peer]:
    async with Redis.from_url(url) as redis:
        yield _PubSub(redis)


PEERS: Mapping[str, Callable[[str], Any]] = {"gamecast": _gamecast, "pubsub": _pubsub}


def measure_regions(sizes: Sequence[int], begin: Callable[[str], None]) -> dict[str, list[dict[str, Any]]]:
    """Return peer → what `Growth` says of each size. The server, the manager and each connection have a process each.

    Blocks for about a minute. Raises `EmbeddedServerError` and `ProcessFailed`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for peer in PEERS:
        for size in sizes:
            begin(f"{peer}: {size:,}")
            with server_for(8) as server, managed(server.url):
                found.setdefault(peer, []).append(asdict(_in_a_process(peer, server.url, size)))
    return found


def _in_a_process(peer: str, url: str, size: int) -> Growth:
    with Worker(_measure_one, peer, url, size) as worker:
        growth = worker.hear()
    assert isinstance(growth, Growth)
    return growth


def _measure_one(peer: str, url: str, size: int, _: Connection) -> Growth:
    return asyncio.run(_measure(peer, url, size))


async def _measure(peer: str, url: str, size: int) -> Growth:
    names = [f"region-{number:05d}" for number in range(size)]
    async with PEERS[peer](url) as cast:
        await cast.subscribe(["first"])  # what is loaded and connected with that is no cost of regions
        before, began = memory_of_this_process()["process_bytes"], time.perf_counter()
        await cast.subscribe(names)
        subscribe_s = time.perf_counter() - began
        grown = memory_of_this_process()["process_bytes"] - before
        joins: list[tuple[float, float]] = []
        for number in range(JOINS):
            began, cpu_s = time.perf_counter(), time.process_time()
            await cast.subscribe([f"more-{number}"])
            joins.append((time.perf_counter() - began, time.process_time() - cpu_s))
        delays: list[float] = []
        for number in range(LONE_EVENTS):
            await asyncio.sleep(LONE_EVERY_S)
            began = time.perf_counter()
            await cast.publish(names[number * 7 % size])
            await cast.next()
            delays.append(time.perf_counter() - began)
    wall_s, cpu_s = (percentile(sorted(each), 50) for each in zip(*joins, strict=True))
    lone_s = percentile(sorted(delays), 50)
    return Growth(size, subscribe_s, grown / MIB, wall_s * 1000, cpu_s * 1000, lone_s * 1000)


_FIGURES = {
    "subscribe_s": "subscribe to all at once, s",
    "memory_mib": "memory of them, MiB",
    "join_ms": "one more join, ms",
    "join_cpu_ms": "its CPU in this process, ms",
    "lone_ms": "a lone event, ms",
}


def report(result: Mapping[str, Any]) -> Group:
    """A table of 80 columns, with the exponent e of the growth between the last two sizes: cost ~ regions^e."""
    sizes = [each["regions"] for each in next(iter(result.values()))]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("p50, by regions", no_wrap=True)
    for heading in ("", *(f"{size:,}" for size in sizes), "e"):
        table.add_column(heading, justify="right")
    for figure, words in _FIGURES.items():
        for peer, growths in result.items():
            table.add_row(
                *_row(words if peer == next(iter(result)) else "", peer, [each[figure] for each in growths], sizes)
            )
    return Group(table, "e: the exponent of the growth from the last but one size to the last: cost ~ regions^e.")


def _row(words: str, peer: str, values: Sequence[float], sizes: Sequence[int]) -> Iterator[str]:
    yield from (words, peer, *(f"{value:,.2f}" for value in values))
    yield f"{exponent(values, sizes):.2f}"
