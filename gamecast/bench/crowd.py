"""Many subscribers of many regions on one node: what each takes in their process and in Redis, and that events flow."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from traceback import format_exception
from typing import Any, Self

from redis import Redis

import gamecast
from adapters.embedded import EmbeddedServer
from gamecast.bench.board import Board
from gamecast.bench.parent import end_with_parent
from gamecast.bench.peers.redis_client import redis_client
from gamecast.bench.trial import TrialError
from gamecast.testing import DeliverySequence, judge
from sequencing.checkers import Published
from sequencing.errors import UsageError

SHARED = 2
"""How many of its neighbour's regions each subscriber has: enough that the order of those matters to both."""

CONNECTIONS_A_SUBSCRIBER = 6
OPENING_AT_ONCE = 64
STALLED_S = 120.0
PUBLISHER = "publisher"


@dataclass(frozen=True, slots=True)
class World:
    """Subscriber i has the i-th part of the regions, and the first two of the next part; the last one the first two."""

    regions: int
    subscribers: int

    def __post_init__(self) -> None:
        if self.regions < max(self.subscribers, SHARED + 1):
            raise UsageError(
                f"{self.subscribers} subscribers need a region each, and {SHARED + 1} at least: not {self.regions}"
            )

    def name_of(self, region: int) -> str:
        return f"region-{region:05d}"

    def regions_of(self, subscriber: int) -> list[str]:
        begin = subscriber * self.regions // self.subscribers
        end = (subscriber + 1) * self.regions // self.subscribers + SHARED
        return [self.name_of(region) for region in dict.fromkeys(at % self.regions for at in range(begin, end))]


def measure_crowd(world: World, *, events: int, seed: int) -> dict[str, Any]:
    """Let all of them connect, then join all at once, then publish so many events; then plain Pub/Sub beside it.

    Blocks for some minutes with 1,000 subscribers. Raises `TrialError`, `EmbeddedServerError`, and `UsageError` where
    the system allows too few open files.
    """
    _allow_connections(world.subscribers)
    with _server(world) as url:
        figures = _measure(world, url, events=events, seed=seed)
    with _server(world) as url, _Crowd(world, url, Board(_context), plain=True) as crowd:
        before, began = _stage(crowd, url), time.monotonic()
        crowd.do("open")
        crowd.do("subscribe")
        plain = _growth(before, _stage(crowd, url), time.monotonic() - began)
    ours = {key: figures["opened"][key] + figures["joined"][key] for key in ("process_bytes", "redis_bytes")}
    each = {key: ours[key] / world.subscribers for key in ours}
    each_plain = {key: plain[key] / world.subscribers for key in ours}
    return {
        **figures,
        "plain": plain,
        "a_subscriber": each,
        "a_plain_subscriber": each_plain,
        "ratios": {key: each[key] / each_plain[key] for key in each if each_plain[key] > 0},
    }


def _measure(world: World, url: str, *, events: int, seed: int) -> dict[str, Any]:
    board = Board(_context)
    with _Crowd(world, url, board, plain=False) as crowd:
        empty, began = _stage(crowd, url), time.monotonic()
        crowd.do("open")
        opened_s, opened = time.monotonic() - began, _stage(crowd, url)
        began = time.monotonic()
        crowd.do("subscribe")
        joined_s, joined = time.monotonic() - began, _stage(crowd, url)
        families, keys_of_regions = _families(url)
        region_of = [world.name_of(at) for at in Random(seed).choices(range(world.regions), k=events)]
        subscribed = Counter(region for number in range(world.subscribers) for region in world.regions_of(number))
        expected = sum(subscribed[region] for region in region_of)
        began = time.monotonic()
        asyncio.run(_publish(url, region_of, expected, board))
        flow_s = time.monotonic() - began
        delivered: list[tuple[list[str], list[str]]] = crowd.do("deliveries")
        plan = asyncio.run(_plan(url))
    verdict = judge(
        [
            DeliverySequence(f"server-{number:04d}", ids, regions, [PUBLISHER] * len(ids))
            for number, (ids, regions) in enumerate(delivered)
        ],
        published=[Published(str(event), region) for event, region in enumerate(region_of)],
        membership={f"server-{n:04d}": frozenset(world.regions_of(n)) for n in range(world.subscribers)},
        publication_order={PUBLISHER: [str(event) for event in range(events)]},
    )
    return {
        "regions": len(plan.paths),
        "subscribers": world.subscribers,
        "subscriptions": sum(subscribed.values()),
        "atoms": len(plan.atoms),
        "epochs": plan.epoch,
        "connections": joined["connections"],
        "opened": _growth(empty, opened, opened_s),
        "joined": _growth(opened, joined, joined_s),
        "events": events,
        "deliveries": expected,
        "seconds": flow_s,
        "events_per_s": events / flow_s,
        **{kind: getattr(verdict, kind) for kind in ("lost", "duplicated", "inversions", "cycles")},
        "publisher_order_violations": verdict.publisher_order_violations,
        "redis_bytes_by_key": families,
        "a_region": {"redis_bytes": keys_of_regions / world.regions},
    }


async def _publish(url: str, region_of: Sequence[str], expected: int, board: Board) -> None:
    """Publish all, and return when all are delivered; raises `TrialError` when nothing comes any more."""
    async with gamecast.connect(url, name=PUBLISHER) as cast:
        receipts = []
        for event, region in enumerate(region_of):
            receipts.append(cast.publish_soon(region, {"id": event}))
            if event % 64 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*receipts)
        seen, seen_at = -1, time.monotonic()
        while board.delivered < expected:
            if board.delivered != seen:
                seen, seen_at = board.delivered, time.monotonic()
            elif time.monotonic() - seen_at > STALLED_S:
                raise TrialError(f"{seen} of {expected} deliveries came, and no more for {STALLED_S:g} s")
            await asyncio.sleep(0.005)


async def _plan(url: str) -> Any:
    from adapters.redis_control import RedisControl

    control = RedisControl(url)
    try:
        newest = await control.newest()
    finally:
        await control.close()
    assert newest is not None
    return newest.plan


def _stage(crowd: _Crowd, url: str) -> dict[str, int]:
    with Redis.from_url(url) as redis:
        memory, clients = redis.info("memory"), redis.info("clients")
    return {
        **crowd.do("memory"),
        "redis_bytes": int(memory["used_memory"]),
        "connections": int(clients["connected_clients"]),
    }


def _growth(before: dict[str, int], after: dict[str, int], seconds: float) -> dict[str, float]:
    return {"seconds": seconds, **{key: after[key] - before[key] for key in before}}


def _families(url: str) -> tuple[dict[str, int], int]:
    """Return the bytes of Redis keys by what they are of, and those of all that grow with the regions."""
    families: Counter[str] = Counter()
    with Redis.from_url(url, decode_responses=True) as redis:
        keys = list(redis.scan_iter(count=1_000))
        for start in range(0, len(keys), 500):
            pipeline = redis.pipeline(transaction=False)
            for key in keys[start : start + 500]:
                pipeline.memory_usage(key, samples=0)
            for key, size in zip(keys[start : start + 500], pipeline.execute(), strict=True):
                families[key.partition("}:")[2].partition(":")[0]] += size or 0
    return dict(families.most_common()), sum(families[name] for name in ("egress", "steps", "counters", "publishers"))


@contextmanager
def _server(world: World) -> Iterator[str]:
    connections = CONNECTIONS_A_SUBSCRIBER * world.subscribers + 100
    with EmbeddedServer(settings={"maxclients": str(connections)}) as server:
        yield server.url


def _allow_connections(subscribers: int) -> None:
    wanted = CONNECTIONS_A_SUBSCRIBER * subscribers + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UsageError(
            f"{subscribers} subscribers may open {wanted} files, and the system allows {hard}: raise ulimit -n, or "
            "measure fewer"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Crowd:
    """All subscribers in a process of their own, which does one thing after the other when told to."""

    def __init__(self, world: World, url: str, board: Board, *, plain: bool) -> None:
        self._pipe, self._far_pipe = _context.Pipe()
        task = world, url, board, plain, self._far_pipe
        self._process = _context.Process(target=_run, args=task, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._far_pipe.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()

    def do(self, what: str) -> Any:
        self._pipe.send(what)
        try:
            said, answer = self._pipe.recv()
        except EOFError:
            raise TrialError(f"the subscribers' process ended while it was to {what}") from None
        if said == "failed":
            raise TrialError(f"the subscribers' process failed:\n{answer}")
        return answer


def _run(world: World, url: str, board: Board, plain: bool, pipe: Connection) -> None:
    end_with_parent()
    _allow_connections(world.subscribers)
    try:
        asyncio.run((_PlainSubscribers if plain else _Subscribers)(world, url, board).serve(pipe))
    except BaseException as error:  # noqa: BLE001  whatever it was, the parent is waiting to hear of it
        pipe.send(("failed", "".join(format_exception(error))))


class _Subscribers:
    def __init__(self, world: World, url: str, board: Board) -> None:
        self.world, self.url, self.board = world, url, board
        self.ids: list[list[str]] = [[] for _ in range(world.subscribers)]
        self.regions: list[list[str]] = [[] for _ in range(world.subscribers)]
        self.delivered = 0
        self.turns = asyncio.Semaphore(OPENING_AT_ONCE)
        self.casts: list[gamecast.Cast] = []

    async def serve(self, pipe: Connection) -> None:
        """Do what is asked for until killed."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            while True:
                answer: Any = None
                match await asyncio.to_thread(pipe.recv):
                    case "open":
                        await self._all(lambda number: self.open(number, stack))
                    case "subscribe":
                        await self._all(self.subscribe)
                        self.listen(group)
                    case "memory":
                        answer = _memory()
                    case "deliveries":
                        answer = list(zip(self.ids, self.regions, strict=True))
                pipe.send(("done", answer))

    async def _all(self, do: Any) -> None:
        await asyncio.gather(*(do(number) for number in range(self.world.subscribers)))

    async def open(self, number: int, stack: AsyncExitStack) -> None:
        """Connect, some at once, as servers that start one after the other do."""
        async with self.turns:
            cast = gamecast.connect(self.url, name=f"server-{number:04d}", subscribe_timeout_s=STALLED_S * 5)
            self.casts.append(await stack.enter_async_context(cast))

    async def subscribe(self, number: int) -> None:
        cast = self.casts[number]
        await cast.subscribe(*self.world.regions_of(int(cast.name.rpartition("-")[2])))

    def listen(self, group: asyncio.TaskGroup) -> None:
        for cast in self.casts:
            group.create_task(self._take(cast, int(cast.name.rpartition("-")[2])))

    async def _take(self, cast: gamecast.Cast, number: int) -> None:
        ids, regions = self.ids[number], self.regions[number]
        async for batch in cast.batches():
            for event in batch:
                if isinstance(event, gamecast.Event):  # what a gap leaves out is counted as lost
                    ids.append(str(event.payload["id"]))
                    regions.append(event.region)
            self.delivered += len(batch)
            self.board.report(self.delivered, time.monotonic_ns())


class _PlainSubscribers(_Subscribers):
    """A connection to Redis Pub/Sub each, with redis-py."""

    async def open(self, number: int, stack: AsyncExitStack) -> None:
        async with self.turns:
            redis = await stack.enter_async_context(redis_client(self.url, f"server-{number:04d}"))
            channels = await stack.enter_async_context(redis.pubsub())
            await channels.subscribe(*self.world.regions_of(number))
            for _ in self.world.regions_of(number):
                await channels.get_message(timeout=STALLED_S)

    async def subscribe(self, number: int) -> None:
        """They have subscribed when they connected: redis-py connects with the first command."""

    def listen(self, group: asyncio.TaskGroup) -> None:
        """Nothing is published."""


def _memory() -> dict[str, int]:
    """Return the bytes of this process: all that it has, and what remains when the C library gives back what is free.

    The former on Linux only, else the most that it ever had; the latter with glibc only, else the same.
    """
    gc.collect()
    resident = _resident_bytes()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return {"resident_bytes": resident, "process_bytes": _resident_bytes()}


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


_context = get_context("spawn")
