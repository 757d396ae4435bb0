"""How the cost of one connection grows with its regions, beside plain Redis Pub/Sub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import orjson
from redis.asyncio import Redis
from rich.console import Group

import gamecast
from laboratory.bench.cpu import memory_of_this_process
from laboratory.bench.figures import percentile
from laboratory.bench.peers.redis_client import subscribe_to
from laboratory.bench.surroundings import managed, server_for
from laboratory.bench.table import growth_rows, table_of
from laboratory.processes.worker import Worker

JOINS = 40
LONE_EVENTS = 300
LONE_EVERY_S = 0.002
SUBSCRIBE_S_MAX = 300.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Peer:
    """A connection that is measured: it subscribes, publishes an event, and waits for one."""

    subscribe: Callable[[Sequence[str]], Awaitable[Any]]
    publish: Callable[[str], Awaitable[Any]]
    next: Callable[[], Awaitable[Any]]


@asynccontextmanager
async def _gamecast(url: str) -> AsyncIterator[Peer]:
    async with (
        gamecast.connect(url, name="server", subscribe_timeout_s=SUBSCRIBE_S_MAX) as cast,
        gamecast.connect(url, name="publisher") as publisher,
    ):

        async def publish(name: str) -> None:
            publisher.publish_nowait(name, {"n": 1})

        yield Peer(lambda names: cast.subscribe(*names), publish, lambda: anext(cast))


@asynccontextmanager
async def _pubsub(url: str) -> AsyncIterator[Peer]:
    async with Redis.from_url(url) as redis:
        pubsub = redis.pubsub()

        async def take() -> None:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=SUBSCRIBE_S_MAX)
            orjson.loads(message["data"])

        yield Peer(
            lambda names: subscribe_to(pubsub, names), lambda name: redis.publish(name, orjson.dumps({"n": 1})), take
        )


PEERS: Mapping[str, Callable[[str], Any]] = {"gamecast": _gamecast, "pubsub": _pubsub}


def measure_regions(sizes: Sequence[int], begin: Callable[[str], None]) -> dict[str, list[dict[str, float]]]:
    """Return peer → `FIGURES` of each size; memory: by how much the process grows; a lone event: to its delivery.

    The server, the manager and each connection have a process each.

    Blocks for about a minute. Raises `EmbeddedServerError` and `ProcessFailed`.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for peer in PEERS:
        for size in sizes:
            begin(f"{peer}: {size:,}")
            with server_for(8) as server, managed(server.url), Worker(_measure, peer, server.url, size) as worker:
                found.setdefault(peer, []).append(worker.hear())
    return found


async def _measure(peer: str, url: str, size: int, _: Connection) -> dict[str, float]:
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
    return {
        "regions": size,
        "subscribe_s": subscribe_s,
        "memory_mib": grown / MIB,
        "join_ms": wall_s * 1000,
        "join_cpu_ms": cpu_s * 1000,
        "lone_ms": lone_s * 1000,
    }


FIGURES = {
    "subscribe_s": "subscribe to all at once, s",
    "memory_mib": "memory of them, MiB",
    "join_ms": "one more join, ms",
    "join_cpu_ms": "its CPU in this process, ms",
    "lone_ms": "a lone event, ms",
}


def report(result: Mapping[str, Any]) -> Group:
    """A table of 80 columns, with the exponent e of the growth between the last two sizes: cost ~ regions^e."""
    sizes = [each["regions"] for each in next(iter(result.values()))]
    headings = "", *(f"{size:,}" for size in sizes), "e"
    rows = growth_rows(result, FIGURES, sizes, lambda value: f"{value:,.2f}")
    table = table_of("p50, by regions", headings, rows)
    return Group(table, "e: the exponent of the growth from the last but one size to the last: cost ~ regions^e.")
