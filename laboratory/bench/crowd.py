"""Many subscribers of many regions on one node: the memory of each, in its process and in Redis, and that events
flow."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Self

from redis import Redis

import gamecast
from adapters.redis.network import RedisNetwork
from gamecast.testing import DeliverySequence, judge
from laboratory.bench.board import Board
from laboratory.bench.cpu import memory_of_this_process
from laboratory.bench.peers.redis_client import redis_client, subscribe_to
from laboratory.bench.surroundings import allow_connections, managed, server_for
from laboratory.processes.worker import Worker, ask, serve, spawn
from sequencing.checkers import Published
from sequencing.errors import ProcessFailed, UsageError

SHARED = 2
"""The number of its neighbour's regions that each subscriber has: enough that their order matters to both."""

PROCESSES = 4
"""Processes of subscribers: an announcement to all takes some seconds, and one process would miss its heartbeats."""

OPENING_AT_ONCE = 16
"""In each process."""

STALLED_S = 60.0
SUBSCRIBE_S_MAX = 300.0
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
    """Let all of them connect, then join all at once, then publish ``events`` events; then plain Pub/Sub beside it.

    Blocks for some minutes with 1,000 subscribers. Raises `ProcessFailed`, `EmbeddedServerError`, and `UsageError`
    where the system allows too few open files.
    """
    allow_connections(world.subscribers)
    with server_for(world.subscribers) as server, managed(server.url):
        figures = _measure(world, server.url, events=events, seed=seed)
    with server_for(world.subscribers) as server, _Crowd(world, server.url, plain=True) as crowd:
        before, began = _stage(crowd, server.url), time.monotonic()
        crowd.do("open")
        crowd.do("subscribe")
        plain = _growth(before, _stage(crowd, server.url), time.monotonic() - began)
    ours = {key: figures["opened"][key] + figures["joined"][key] for key in ("process_bytes", "redis_bytes")}
    ours["redis_bytes"] -= figures["a_region"]["redis_bytes"] * world.regions
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
    with _Crowd(world, url, plain=False) as crowd:
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
        asyncio.run(_publish(url, region_of, expected, crowd))
        flow_s = time.monotonic() - began
        delivered: dict[int, tuple[list[str], list[str]]] = crowd.do("deliveries")
        plan = asyncio.run(_plan(url))
    verdict = judge(
        [
            DeliverySequence(f"server-{number:04d}", ids, regions, [PUBLISHER] * len(ids))
            for number, (ids, regions) in sorted(delivered.items())
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
        "epochs": plan.epoch - plan.first_epoch + 1,
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


async def _publish(url: str, region_of: Sequence[str], expected: int, crowd: _Crowd) -> None:
    """Publish all, and return when all are delivered; raises `ProcessFailed` when nothing comes any more."""
    async with gamecast.connect(url, name=PUBLISHER) as cast:
        receipts = []
        for event, region in enumerate(region_of):
            receipts.append(cast.publish_async(region, {"id": event}))
            if event % 64 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*receipts)
        seen, seen_at = -1, time.monotonic()
        while crowd.delivered < expected:
            if crowd.delivered != seen:
                seen, seen_at = crowd.delivered, time.monotonic()
            elif time.monotonic() - seen_at > STALLED_S:
                raise ProcessFailed(f"{seen} of {expected} deliveries came, and no more for {STALLED_S:g} s")
            await asyncio.sleep(0.005)


async def _plan(url: str) -> Any:
    network = RedisNetwork(url, ordering="acyclic", retention_events=1)
    try:
        found = await network.listed()
    finally:
        await network.close()
    assert found is not None
    return found.plan


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
    """Return the bytes of Redis keys by kind, and those of all kinds that grow with the regions."""
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


class _Crowd:
    """All subscribers, in `PROCESSES` processes, which carry out one request after the other."""

    def __init__(self, world: World, url: str, *, plain: bool) -> None:
        self._boards = [Board(spawn) for _ in range(min(PROCESSES, world.subscribers))]
        self._workers: list[Worker] = []
        for first, board in enumerate(self._boards):
            numbers = range(first, world.subscribers, len(self._boards))
            self._workers.append(Worker(_subscribers, world, numbers, url, board, plain))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.end()

    @property
    def delivered(self) -> int:
        return sum(board.delivered for board in self._boards)

    def do(self, what: str) -> dict[Any, Any]:
        """Have each process do it; numbers that several answer with are added up."""
        together: dict[Any, Any] = {}
        for answer in ask(self._workers, [(what,)] * len(self._workers)):
            for key, value in (answer or {}).items():
                together[key] = together[key] + value if key in together else value
        return together


async def _subscribers(
    world: World, numbers: Sequence[int], url: str, board: Board, plain: bool, pipe: Connection
) -> None:
    allow_connections(len(numbers))
    kind = _PlainSubscribers if plain else _Subscribers
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        await serve(kind(world, numbers, url, board, stack, group), pipe)


class _Subscribers:
    def __init__(
        self,
        world: World,
        numbers: Sequence[int],
        url: str,
        board: Board,
        stack: AsyncExitStack,
        group: asyncio.TaskGroup,
    ) -> None:
        self.world, self.numbers, self.url, self.board = world, numbers, url, board
        self.stack, self.group = stack, group
        self.taken: dict[int, tuple[list[str], list[str]]] = {number: ([], []) for number in numbers}
        self.delivered = 0
        self.turns = asyncio.Semaphore(OPENING_AT_ONCE)
        self.casts: dict[int, gamecast.Client] = {}

    async def open(self) -> None:
        """Connect all, some at once, as servers that start one after the other do."""
        await asyncio.gather(*map(self._open, self.numbers))

    async def subscribe(self) -> None:
        """Have all join their regions, and take events from then on."""
        await asyncio.gather(*(cast.subscribe(*self.world.regions_of(n)) for n, cast in self.casts.items()))
        for number, cast in self.casts.items():
            self.group.create_task(self._take(cast, *self.taken[number]))

    async def memory(self) -> dict[str, int]:
        return memory_of_this_process()

    async def deliveries(self) -> dict[int, tuple[list[str], list[str]]]:
        return self.taken

    async def _open(self, number: int) -> None:
        async with self.turns:
            cast = gamecast.connect(self.url, name=f"server-{number:04d}", subscribe_timeout_s=SUBSCRIBE_S_MAX)
            self.casts[number] = await self.stack.enter_async_context(cast)

    async def _take(self, cast: gamecast.Client, ids: list[str], regions: list[str]) -> None:
        async for batch in cast.batches():
            for event in batch:
                if isinstance(event, gamecast.Event):  # what a gap leaves out is counted as lost
                    ids.append(str(event.payload["id"]))
                    regions.append(event.region)
            self.delivered += len(batch)
            self.board.report(self.delivered, time.monotonic_ns())


class _PlainSubscribers(_Subscribers):
    """A connection to Redis Pub/Sub each, with redis-py; it connects with the first command, so they subscribe then."""

    async def _open(self, number: int) -> None:
        async with self.turns:
            redis = await self.stack.enter_async_context(redis_client(self.url, f"server-{number:04d}"))
            channels = await self.stack.enter_async_context(redis.pubsub())
            await subscribe_to(channels, self.world.regions_of(number))
