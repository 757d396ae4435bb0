"""One match, played twice at the same time: over gamecast, and over plain Pub/Sub on the same Redis servers.

Four cities have a Redis server and a game server each. All of it runs on this machine; between the cities, a proxy
carries every byte as late as the distance says (`ONE_WAY_MS`, made up after European cities), in both games alike.
Nothing reorders anything: what a server is told by two Redis servers comes over two connections, and that is enough.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from laboratory.wan.distances import Distances, Standing
from laboratory.wan.network import WanNetwork

from .board import Board
from .servers import GameServer, Ours, Plain
from .world import ARENAS, REGIONS, World, state

CITIES = ("dublin", "madrid", "vienna", "oslo")
ONE_WAY_MS = (
    (0.2, 14.0, 17.0, 13.0),
    (14.0, 0.2, 18.0, 24.0),
    (17.0, 18.0, 0.2, 14.0),
    (13.0, 24.0, 14.0, 0.2),
)
WATCHED = 3
"""How many regions, side by side, each game server watches: two arenas, each of which another server computes, too."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two games: ``kind`` is ``gamecast`` or ``plain``."""

    kind: str
    servers: tuple[GameServer, ...]
    board: Board

    def document(self) -> dict[str, Any]:
        """Return how it stands, as JSON can hold it."""
        ages_ms = [age_ms for server in self.servers for age_ms in server.ages_ms]
        return {
            "kind": self.kind,
            "compared": self.board.compared,
            "differing": self.board.differing,
            "things": self.board.things,
            "apart": sorted(self.board.apart),
            "age_ms": round(statistics.median(ages_ms), 1) if ages_ms else None,
            "servers": [
                {
                    "name": server.name,
                    "regions": sorted(server.regions),
                    "heard": server.heard,
                    "things": {name: state(thing) for name, thing in server.world.things.items()},
                }
                for server in self.servers
            ],
        }


@asynccontextmanager
async def play(*, seed: int | None = None) -> AsyncIterator[tuple[Side, Side]]:
    """Start the network and both games, and yield them, ours first; they go on until the context ends.

    ``seed``: of the bots' whims; how events meet on their way is not repeatable. Takes some seconds to start.
    """
    nodes = tuple(f"n{number}" for number in range(1, len(CITIES) + 1))
    names = {city: f"server-{city}" for city in CITIES}
    host_of = dict(zip(nodes, CITIES, strict=True)) | {name: city for city, name in names.items()}
    distances = Distances(CITIES, np.array(ONE_WAY_MS))
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(WanNetwork(Standing(distances, host_of), nodes))
        watched = {names[city]: _watched(place) for place, city in enumerate(CITIES)}
        clients = {name: network.connect(name) for name in watched}
        await asyncio.gather(*map(stack.enter_async_context, clients.values()))
        await asyncio.gather(*(clients[name].subscribe(*regions) for name, regions in watched.items()))
        boards = Board(_computed_by(watched)), Board(_computed_by(watched))
        ours = tuple(Ours(clients[name], regions, boards[0], Random(seed)) for name, regions in watched.items())
        plain = tuple(Plain(name, regions, boards[1], Random(seed)) for name, regions in watched.items())
        await asyncio.gather(*(server.open(stack, network.urls(server.name)) for server in plain))
        sides = Side("gamecast", ours, boards[0]), Side("plain", plain, boards[1])
        tasks = []
        for side in sides:
            _host(side.servers)
            for server in side.servers:
                tasks += [asyncio.create_task(server.listen()), asyncio.create_task(server.play())]
        try:
            yield sides
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [end for end in ends if isinstance(end, Exception)]
        if failures:
            raise failures[0]


def _watched(place: int) -> frozenset[str]:
    ring = list(REGIONS)
    return frozenset(ring[(place + step) % len(ring)] for step in range(WATCHED))


def _computed_by(watched: dict[str, frozenset[str]]) -> dict[str, list[str]]:
    computed_by: dict[str, list[str]] = {}
    for name, regions in watched.items():
        for thing in World(regions).things:
            computed_by.setdefault(thing, []).append(name)
    assert all(len(servers) > 1 for servers in computed_by.values())
    return computed_by


def _host(servers: tuple[GameServer, ...]) -> None:
    """Deal the bots of each arena to the servers that compute it."""
    for arena in ARENAS:
        computing = [server for server in servers if arena in server.world.arenas]
        bots = [bot for bot in computing[0].world.bots() if bot.arena == arena]
        for number, bot in enumerate(bots):
            computing[number % len(computing)].hosted.append(bot.name)
