"""What updates cost, beside `PUBLISH` of Redis Pub/Sub, and what they do to ordered events.

Some servers move entities, each server in a region of its own, and one reader follows all of these regions. Senders and
reader have a process each, and so has redis-server. Pub/Sub sends each value by itself, in a pipeline a tick, or all of
a tick in one message, as a careful game would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import orjson
import redis
from redis import asyncio as redis_asyncio
from rich.table import Table

import gamecast
from laboratory.bench.cpu import process_cpu_s
from laboratory.bench.figures import percentile
from laboratory.bench.surroundings import managed, server_for
from laboratory.bench.table import short, table_of
from laboratory.processes.worker import Worker

WARM_UP_S = 1.5
ORDERED_HZ = 50
"""Ordered events beside the updates, whose delay is measured."""

PEERS = "gamecast", "PUBLISH each", "PUBLISH a tick", "nothing"
"""The last one sends only the ordered events."""


Send = Callable[[int, list[tuple[str, Any]]], Awaitable[None]]
"""Sends what moved in a tick, of one server: (key, value)."""


@asynccontextmanager
async def _senders(peer: str, url: str, servers: int) -> AsyncIterator[Send]:
    async with AsyncExitStack() as stack:
        if peer == "gamecast":
            opened = [
                await stack.enter_async_context(gamecast.connect(url, name=f"server-{at}")) for at in range(servers)
            ]

            async def send(server: int, moved: list[tuple[str, Any]]) -> None:
                for key, value in moved:
                    opened[server].update(_region(server), key, value)

        else:
            clients = [redis_asyncio.Redis.from_url(url) for _ in range(servers)]
            for client in clients:
                stack.push_async_callback(client.aclose)

            async def send(server: int, moved: list[tuple[str, Any]]) -> None:
                if peer == "PUBLISH a tick":
                    await clients[server].publish(_region(server), orjson.dumps(moved))
                elif peer == "PUBLISH each":
                    async with clients[server].pipeline(transaction=False) as pipeline:
                        for each in moved:
                            pipeline.publish(_region(server), orjson.dumps(each))
                        await pipeline.execute()

        yield send


async def _send(peer: str, url: str, servers: int, entities: int, hz: float, seconds: float, _: Connection) -> int:
    """Move all entities at a pace; return how many updates that were."""
    sent, loop = 0, asyncio.get_running_loop()
    async with _senders(peer, url, servers) as send:
        began, tick = loop.time(), 0
        while loop.time() < began + seconds:
            for server in range(servers):
                await send(server, [(f"e{key}", {"x": tick * 0.5, "y": key * 0.25}) for key in range(entities)])
                sent += entities
            tick += 1
            await asyncio.sleep(max(0.0, began + tick / hz - loop.time()))
    return sent if peer != "nothing" else 0


async def _read(peer: str, url: str, servers: int, seconds: float, _: Connection) -> tuple[int, list[float]]:
    """Take for some seconds what comes; return how many updates, and the delays of the ordered events in ms."""
    delays: list[float] = []
    world: dict[tuple[str, str], Any] = {}
    taken = 0
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(gamecast.connect(url, name="reader"))
        await reader.subscribe(*map(_region, range(servers)))

        async def follow() -> None:
            async for batch in reader.batches():
                now_ns = time.time_ns()
                delays.extend((now_ns - event.sent_at_ns) / 1e6 for event in batch if isinstance(event, gamecast.Event))

        async def publish() -> None:
            async with gamecast.connect(url, name="ordered") as ordered:
                while True:
                    await ordered.publish(_region(0), 1)
                    await asyncio.sleep(1 / ORDERED_HZ)

        tasks = [asyncio.create_task(follow()), asyncio.create_task(publish())]
        pubsub = None
        if peer.startswith("PUBLISH"):
            client = redis_asyncio.Redis.from_url(url)
            stack.push_async_callback(client.aclose)
            pubsub = client.pubsub(ignore_subscribe_messages=True)
            stack.push_async_callback(pubsub.aclose)
            await pubsub.subscribe(*map(_region, range(servers)))
        try:
            async with asyncio.timeout(seconds):
                while pubsub is not None:
                    message = await pubsub.get_message(timeout=1.0)
                    if message is None:
                        continue
                    found = orjson.loads(message["data"])
                    region = message["channel"].decode()
                    for key, value in found if peer == "PUBLISH a tick" else [found]:
                        world[region, key] = value
                        taken += 1
                while peer == "gamecast":
                    for update in await reader.next_updates():
                        world[update.region, update.key] = update.payload
                        taken += 1
                await asyncio.Event().wait()
        except TimeoutError:
            pass
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
    return taken, delays


def measure_updates(
    servers: int, entities: int, hz: float, seconds: float, begin: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Return peer → `FIGURES`; CPU is for each update that was sent. Blocks; raises `EmbeddedServerError`."""
    found: dict[str, dict[str, float]] = {}
    for peer in PEERS:
        begin(peer)
        with server_for(servers + 16) as server, managed(server.url, nodes=0):
            found[peer] = _measure(peer, server.url, servers, entities, hz, seconds)
    return found


def _measure(peer: str, url: str, servers: int, entities: int, hz: float, seconds: float) -> dict[str, float]:
    sending = peer, url, servers, entities, hz, seconds + WARM_UP_S
    with redis.Redis.from_url(url) as client, ExitStack() as workers:
        reader = workers.enter_context(Worker(_read, peer, url, servers, seconds + 2 * WARM_UP_S))
        time.sleep(WARM_UP_S)
        sender = workers.enter_context(Worker(_send, *sending))
        time.sleep(WARM_UP_S)
        server: Any = client.info("server")
        pids = [reader.pid, sender.pid, server["process_id"]]
        before, at_s = [process_cpu_s([each]) for each in pids], time.monotonic()
        time.sleep(max(0.5, seconds - 1.5 * WARM_UP_S))
        reader_s, sender_s, redis_s = (process_cpu_s([each]) - then for each, then in zip(pids, before, strict=True))
        took_s = time.monotonic() - at_s
        (taken, delays), sent = reader.hear(), sender.hear()
    sent_per_s = sent / (seconds + WARM_UP_S)
    each = 1e6 / (sent_per_s * took_s) if sent_per_s else 0.0
    ordered = sorted(delays[len(delays) // 4 :])
    return {
        "sent_per_s": sent_per_s,
        "taken_per_s": taken / (seconds + WARM_UP_S),
        "redis_us": redis_s * each,
        "sender_us": sender_s * each,
        "reader_us": reader_s * each,
        "ordered_p50_ms": percentile(ordered, 50),
        "ordered_p99_ms": percentile(ordered, 99),
    }


def _region(server: int) -> str:
    return f"zone:{server}:0"


FIGURES = {
    "sent_per_s": "updates sent a second",
    "taken_per_s": "updates taken a second",
    "redis_us": "CPU of Redis, an update, us",
    "sender_us": "CPU of the senders, an update, us",
    "reader_us": "CPU of the reader, an update, us",
    "ordered_p50_ms": "ordered events beside it, p50 ms",
    "ordered_p99_ms": "ordered events beside it, p99 ms",
}


def updates_report(result: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of 80 columns."""
    rows = ((words, *(short(each[figure]) for each in result.values())) for figure, words in FIGURES.items())
    return table_of("", (peer.replace(" ", "\n") for peer in result), rows)
