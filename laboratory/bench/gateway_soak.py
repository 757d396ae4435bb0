"""Many WebSocket clients through one gateway while some drop and come back all the time, beside python-socketio."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from typing import Any

import aiohttp

from adapters.embedded.server import EmbeddedServer
from gateway.messages import Position
from gateway.serving import collect_rarely
from laboratory.bench.cpu import process_cpu_s, resident_bytes
from laboratory.bench.gateway_clients import Client, GatewayClient, SocketIoClient
from laboratory.bench.gateway_servers import ServerProcess, gateway, running, socketio
from sequencing.checkers.history import DeliverySequence
from sequencing.checkers.verdict import judge

JOINS_AT_ONCE = 32
QUIET_S = 60.0
"""How long to wait at the end until everything has come."""
TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """``churn``: the part of the clients that drop each second; ``regions`` each client has ``overlap`` of, in a ring;
    ``judged``: how many clients' orders the checkers compare (all are checked for losses and repeats).
    """

    clients: int
    regions: int
    overlap: int
    seconds: float
    events_per_s: float
    churn: float
    judged: int
    seed: int


def soak(plan: Soak) -> dict[str, Any]:
    """Run both, one after the other, over fresh Redis servers; return the measurements."""
    peers = {"gamecast": _measured(plan, gateway, GatewayClient)}
    versions = {"aiohttp": version("aiohttp"), "gamecast": version("gamecast")}
    if find_spec("socketio") is not None:
        peers["socketio"] = _measured(plan, socketio, SocketIoClient)
        versions["socketio"] = version("python-socketio")
    return {"plan": {name: getattr(plan, name) for name in plan.__slots__}, "peers": peers, "versions": versions}


def _measured(plan: Soak, serve: Any, kind: type[Client]) -> dict[str, Any]:
    with EmbeddedServer() as redis, running(serve, redis.url) as server:
        return asyncio.run(_run(plan, server, kind))


async def _run(plan: Soak, server: ServerProcess, kind: type[Client]) -> dict[str, Any]:
    chance = random.Random(plan.seed)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        clients = [kind(f"c{n}", _regions_of(plan, n), session) for n in range(plan.clients)]
        runs = [asyncio.create_task(_begin(client, server.url, n)) for n, client in enumerate(clients)]
        async with asyncio.timeout(QUIET_S + plan.clients / 5):
            for client in clients:
                await client.joined.wait()
        collect_rarely()  # a pause of ours would be a delay of theirs
        begun, cpu_s = time.monotonic(), process_cpu_s([server.pid])
        memory = await _load(plan, server, clients, chance)
        took_s, cpu_s = time.monotonic() - begun, process_cpu_s([server.pid]) - cpu_s
        is_quiet = await _quiet(clients, kind is GatewayClient)
        for client in clients:
            await client.end()
        await asyncio.gather(*runs)
    return _figures(plan, clients, memory, is_quiet) | {
        "seconds": round(took_s, 1),
        "server_cpu": round(cpu_s / took_s, 3),
    }


def _regions_of(plan: Soak, number: int) -> list[str]:
    return [f"r{(number + offset) % plan.regions}" for offset in range(plan.overlap)]


async def _begin(client: Client, url: str, number: int) -> None:
    await asyncio.sleep(number / JOINS_AT_ONCE * 0.1)
    await client.run(url)


async def _load(plan: Soak, server: ServerProcess, clients: Sequence[Client], chance: random.Random) -> list[int]:
    """Publish and drop clients for some time; return the server's memory, second by second."""
    numbers, memory = count(), list[int]()
    begun = time.monotonic()
    sent, dropped = 0, 0
    while (at_s := time.monotonic() - begun) < plan.seconds:
        while sent < at_s * plan.events_per_s:
            client = chance.choice(clients)
            if client.joined.is_set():
                await client.publish(chance.choice(client.regions), next(numbers))
            sent += 1
        while dropped < at_s * plan.churn * plan.clients:
            chance.choice(clients).drop()
            dropped += 1
        if len(memory) < at_s:
            memory.append(resident_bytes(server.pid))
        await asyncio.sleep(TICK_S)
    return memory


async def _quiet(clients: Sequence[Client], comes_all: bool) -> bool:
    """Wait until all is answered and, where all has to come, nothing more comes; return whether that was so."""
    deadline = time.monotonic() + QUIET_S
    before = -1
    while time.monotonic() < deadline:
        await asyncio.sleep(2.0)
        seen = sum(len(client.seen.events) for client in clients)
        waiting = sum(len(client.unanswered) for client in clients) if comes_all else 0
        if seen == before and not waiting and all(client.joined.is_set() for client in clients):
            return True
        before = seen
    return False


def _figures(plan: Soak, clients: Sequence[Client], memory: Sequence[int], is_quiet: bool) -> dict[str, Any]:
    latencies = sorted(latency for client in clients for latency in client.seen.latencies_ms)
    region_of = {number: region for client in clients for number, (region, _) in client.published.items()}
    sender_of = {number: client.name for client in clients for number in client.published}
    verdict = judge(
        DeliverySequence(
            client.name,
            [str(number) for number in client.seen.events],
            [region_of.get(number, "?") for number in client.seen.events],
            [sender_of.get(number, "?") for number in client.seen.events],
        )
        for client in _spread(clients, plan.judged)
    )
    found: dict[str, Any] = {
        "published": len(region_of),
        "deliveries": sum(len(client.seen.events) for client in clients),
        "drops": sum(client.drops for client in clients),
        "lost": _lost(clients),
        "duplicated": sum(len(client.seen.events) - len(set(client.seen.events)) for client in clients),
        "out_of_place": sum(client.seen.out_of_place for client in clients),
        "gaps": sum(client.seen.gaps for client in clients),
        "refused": sum(client.seen.refused for client in clients),
        "unanswered": sum(len(client.unanswered) for client in clients),
        "inversions": verdict.inversions,
        "cycles": verdict.cycles,
        "is_quiet": is_quiet,
    }
    for percent in (50, 95, 99):
        found[f"p{percent}_ms"] = round(latencies[len(latencies) * percent // 100], 2) if latencies else None
    found["memory"] = _memory(memory)
    return found


def _spread(clients: Sequence[Client], wanted: int) -> Sequence[Client]:
    return clients[:: max(1, len(clients) // wanted)]


def _lost(clients: Sequence[Client]) -> int:
    """Count acknowledged events that did not reach a client that had their region at the time."""
    by_region: dict[str, list[tuple[Position | None, int]]] = {}
    for client in clients:
        for number, (region, place) in client.published.items():
            by_region.setdefault(region, []).append((place, number))
    for events in by_region.values():
        events.sort(key=lambda event: event[0] or (0, 0))
    lost = 0
    for client in clients:
        seen = set(client.seen.events)
        for region in client.regions:
            events = by_region.get(region, [])
            begin = client.seen.begins.get(region)
            first = 0 if begin is None else bisect_right([place or (0, 0) for place, _ in events], begin)
            lost += sum(number not in seen for _, number in events[first:])
    return lost


def _memory(memory: Sequence[int]) -> dict[str, float] | None:
    """Return what the memory did after the first fifth, the warm-up: its median at first and at last, in MB."""
    warm = memory[len(memory) // 5 :]
    quarter = len(warm) // 4
    if not quarter:
        return None
    first, last = statistics.median(warm[:quarter]), statistics.median(warm[-quarter:])
    return {"first_mb": round(first / 1e6, 1), "last_mb": round(last / 1e6, 1), "change": round(last / first - 1, 4)}
