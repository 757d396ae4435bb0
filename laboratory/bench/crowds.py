"""What one more join costs as a network grows: by its connections, in one process or in several.

Each process has its share of the connections, over the sockets of one `gamecast.share`. Beside it, Redis Pub/Sub: as
many channels, in as many processes, with one connection each, and ``SUBSCRIBE`` for a join.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from multiprocessing.connection import Connection
from typing import Any

import redis
from redis import asyncio as redis_asyncio
from rich.console import Group

import gamecast
from laboratory.bench.figures import percentile
from laboratory.bench.peers.redis_client import subscribe_to
from laboratory.bench.surroundings import managed, server_for
from laboratory.bench.table import growth_rows, short, table_of
from laboratory.processes.worker import Worker, ask, serve

REGIONS = 10
"""Regions of each connection."""
JOINS = 200
"""Joins one after the other, each of a region that nothing has."""
WARM_UP = 5
IDLE_S = 4.0
SETTLE_S = 3.5
"""After this, processes have read what others were granted, too."""
BUSY_S = 3.0
AT_ONCE = 64
"""Joins under way in each process, for the most that there are per second."""
OPENING = 256
SUBSCRIBE_S_MAX = 300.0


class _Part:
    """The connections of one process."""

    async def open(self, begin: int, end: int) -> None:
        """Open the connections of these numbers, and have each join its regions."""
        raise NotImplementedError

    async def join_one(self, connection: int, region: str) -> None:
        """Have one of them join one more region."""
        raise NotImplementedError

    async def join(self, name: str, joins: int) -> list[float]:
        """Return how many seconds each of some joins took, one after the other."""
        found: list[float] = []
        for number in range(joins):
            began = time.perf_counter()
            await self.join_one(number, f"{name} {number}")
            found.append(time.perf_counter() - began)
        return found

    async def busy(self, name: str, seconds: float) -> float:
        """Return how many joins per second there are, when many are under way."""
        began, joined = time.perf_counter(), 0

        async def join_again_and_again(at: int) -> None:
            nonlocal joined
            while time.perf_counter() < began + seconds:
                joined += 1
                await self.join_one(at, f"{name} {joined}")

        await asyncio.gather(*map(join_again_and_again, range(AT_ONCE)))
        return joined / (time.perf_counter() - began)


class _Shared(_Part):
    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack
        self._casts: list[gamecast.Client] = []

    async def open(self, begin: int, end: int) -> None:
        process = await self._stack.enter_async_context(gamecast.share(self._url, subscribe_timeout_s=SUBSCRIBE_S_MAX))
        for first in range(begin, end, OPENING):
            casts = [process.connect(name=f"server-{number:05d}") for number in range(first, min(end, first + OPENING))]
            await asyncio.gather(*(self._stack.enter_async_context(cast) for cast in casts))
            self._casts += casts
            numbered = enumerate(casts, first)
            await asyncio.gather(*(cast.subscribe(*_regions_of(number)) for number, cast in numbered))

    async def join_one(self, connection: int, region: str) -> None:
        await self._casts[connection % len(self._casts)].subscribe(region)


class _PubSub(_Part):
    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._client = redis_asyncio.Redis.from_url(url)
        self._pubsub = self._client.pubsub()
        stack.push_async_callback(self._client.aclose)
        stack.push_async_callback(self._pubsub.aclose)
        self._turn = asyncio.Lock()

    async def open(self, begin: int, end: int) -> None:
        for number in range(begin, end):
            await subscribe_to(self._pubsub, _regions_of(number))

    async def join_one(self, connection: int, region: str) -> None:
        async with self._turn:
            await subscribe_to(self._pubsub, [region])


PARTS: Mapping[str, Callable[[str, AsyncExitStack], _Part]] = {"gamecast": _Shared, "SUBSCRIBE": _PubSub}


def measure_crowds(
    sizes: Sequence[tuple[int, int]], begin: Callable[[str], None], *, nodes: int = 1
) -> dict[str, list[dict[str, float]]]:
    """Return peer → `FIGURES` of each size: (connections, processes) each. Blocks.

    Bytes, and CPU of Redis, are those of a join, also what others read of it later; when idle, in and out together.

    The manager and the redis-server have a process each; all ``nodes`` are in that server. Raises `EmbeddedServerError`
    and `ProcessFailed`.
    """
    found: dict[str, list[dict[str, float]]] = {}
    for peer in PARTS:
        for connections, processes in sizes:
            begin(f"{peer}: {connections:,} connections in {processes} processes")
            several = nodes if nodes > 1 and peer == "gamecast" else 0
            with server_for(16 * processes) as server, managed(server.url, nodes=several):
                found.setdefault(peer, []).append(_measure(peer, server.url, connections, processes))
    return found


def _measure(peer: str, url: str, connections: int, processes: int) -> dict[str, float]:
    with ExitStack() as stack, redis.Redis.from_url(url) as client:
        parts = [stack.enter_context(Worker(_part, peer, url)) for _ in range(processes)]
        began = time.perf_counter()
        shares = [(connections * at // processes, connections * (at + 1) // processes) for at in range(processes)]
        ask(parts, [("open", *share) for share in shares])
        all_joined_s = time.perf_counter() - began
        ask(parts[:1], [("join", "warm up", WARM_UP)])
        time.sleep(SETTLE_S)
        before = _spent(client)
        time.sleep(IDLE_S)
        idle = {what: value / IDLE_S for what, value in _difference(_spent(client), before).items()}
        before, at_s = _spent(client), time.perf_counter()
        [latencies_s] = ask(parts[:1], [("join", "more", JOINS)])
        time.sleep(SETTLE_S)
        took_s = time.perf_counter() - at_s
        of_joins = {what: value - idle[what] * took_s for what, value in _difference(_spent(client), before).items()}
        busy = ask(parts, [("busy", f"busy {at}", BUSY_S) for at in range(processes)])
    ordered = sorted(1000 * each for each in latencies_s)
    return {
        "connections": connections,
        "processes": processes,
        "all_joined_s": all_joined_s,
        "join_ms": percentile(ordered, 50),
        "longest_join_ms": ordered[-1],
        "bytes_in": of_joins["in"] / JOINS,
        "bytes_out": of_joins["out"] / JOINS,
        "redis_us": 1e6 * of_joins["cpu_s"] / JOINS,
        "idle_bytes_per_s": idle["in"] + idle["out"],
        "joins_per_s": sum(busy),
    }


def _spent(client: redis.Redis) -> dict[str, float]:
    # INFO itself goes through Redis, too: in a request of its own it is counted with the next one.
    stats: Any = client.info("stats")
    cpu: Any = client.info("cpu")
    return {
        "in": stats["total_net_input_bytes"],
        "out": stats["total_net_output_bytes"],
        "cpu_s": cpu["used_cpu_sys_main_thread"] + cpu["used_cpu_user_main_thread"]
        if "used_cpu_sys_main_thread" in cpu
        else cpu["used_cpu_sys"] + cpu["used_cpu_user"],
    }


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {what: value - before[what] for what, value in after.items()}


async def _part(peer: str, url: str, pipe: Connection) -> None:
    async with AsyncExitStack() as stack:
        await serve(PARTS[peer](url, stack), pipe)


def _regions_of(number: int) -> list[str]:
    return [f"region {number:05d} {region}" for region in range(REGIONS)]


FIGURES = {
    "all_joined_s": "all joined, s",
    "join_ms": "one more join, p50 ms",
    "longest_join_ms": "the longest of 200, ms",
    "bytes_in": "bytes into Redis, a join",
    "bytes_out": "bytes out of Redis, a join",
    "redis_us": "CPU of Redis, a join, us",
    "idle_bytes_per_s": "bytes/s when idle",
    "joins_per_s": "joins/s at most",
}


def crowds_report(result: Mapping[str, Sequence[Mapping[str, Any]]]) -> Group:
    """A table of 80 columns, with the exponent e of the growth between the last two sizes: cost ~ connections^e."""
    first = next(iter(result.values()))
    sizes = [each["connections"] for each in first]
    headings = "", *(f"{each['connections']:,}\nin {each['processes']}" for each in first), "e"
    table = table_of("connections in\nprocesses", headings, growth_rows(result, FIGURES, sizes, short))
    return Group(
        table,
        f"{REGIONS} regions each. e: the exponent of the growth from the last but one size to\n"
        "the last: cost ~ connections^e.",
    )
