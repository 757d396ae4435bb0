"""One match, played twice at the same time: over gamecast, and over plain Pub/Sub on the same Redis servers.

Four cities have a Redis server and a game server each. All of it runs on this machine; between the cities, a proxy
carries every byte as late as the distance says (`ONE_WAY_MS`, made up after European cities), in both games alike.
Nothing reorders anything: what a server is told by two Redis servers comes over two connections, and that is enough.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np

import gamecast
from laboratory.wan.network import WanNetwork
from placement.topologies.distances import Distances, Standing

from .board import Board
from .faults import Faults
from .gateways import NAMES, Gateway
from .keepers import Keeper
from .servers import TICK_S, GameServer, Ours, Plain
from .visitors import Door
from .world import ARENAS, BOWS, REGIONS, Chest, World

CITIES = ("dublin", "madrid", "vienna", "oslo")
ONE_WAY_MS = (
    (0.2, 14.0, 17.0, 13.0),
    (14.0, 0.2, 18.0, 24.0),
    (17.0, 18.0, 0.2, 14.0),
    (13.0, 24.0, 14.0, 0.2),
)
WATCHED = 3
"""How many regions, side by side, each game server watches: two arenas. Two servers watch the same three: if each
watched other ones, each region would have to be ordered against every other, and one node would do that best."""

BEGIN_S_MAX = 30.0
"""Within so long, all servers have heard events: on a busy machine it takes a second or two."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two games: ``kind`` is ``gamecast`` or ``plain``."""

    kind: str
    servers: tuple[GameServer, ...]
    board: Board

    @property
    def lost(self) -> int:
        """How many events could not be published, or were reported as lost."""
        return sum(server.lost for server in self.servers)

    def document(self) -> dict[str, Any]:
        """Return how it stands, as JSON can hold it."""
        for server in self.servers:  # two servers of the same regions are shown after the same event
            server.show(min(other.heard for other in self.servers if other.regions == server.regions))
        ages_ms = [age_ms for server in self.servers for age_ms in server.ages_ms]
        return {
            "kind": self.kind,
            "compared": self.board.compared,
            "differing": self.board.differing,
            "things": self.board.things,
            "apart": sorted(self.board.apart),
            "two_owners": self._two_owners(),
            "lost": self.lost,
            "age_ms": round(statistics.median(ages_ms), 1) if ages_ms else None,
            "servers": [
                {
                    "name": server.name,
                    "regions": sorted(server.regions),
                    "event": server.shown_at,
                    "later": server.heard - server.shown_at,
                    "things": server.shown,
                    "shots": server.world.shots,
                }
                for server in self.servers
            ],
        }

    def _two_owners(self) -> int:
        """Return how many chests belong to one bot in one server's world, and to another in another's."""
        owners: dict[str, set[str]] = {}
        for server in self.servers:
            for thing in server.world.things.values():
                if isinstance(thing, Chest) and thing.name in self.board.apart:
                    owners.setdefault(thing.name, set()).add(thing.owner)
        return sum(len(names) > 1 for names in owners.values())


@dataclass(frozen=True, slots=True)
class Match:
    """Both games, ours first, and what belongs to them: the gateways, and what can be broken."""

    sides: tuple[Side, Side]
    gateways: tuple[Gateway, ...]
    faults: Faults
    door: Door
    keepers: tuple[Keeper, ...]

    @property
    def has_begun(self) -> bool:
        """Whether every server of both games has heard events, and the ogre walks."""
        return all(server.heard for side in self.sides for server in side.servers) and self._ogre() is not None

    def _ogre(self) -> dict[str, Any] | None:
        return next((keeper.seen for keeper in self.keepers if keeper.runs), None)

    def document(self) -> dict[str, Any]:
        """Return how it stands, as JSON can hold it."""
        return {
            "sides": [side.document() for side in self.sides],
            "faults": self.faults.document(),
            "ogre": self._ogre(),
            "gateways": {gateway.name: gateway.runs for gateway in self.gateways},
        }


@asynccontextmanager
async def play(
    *, seed: int | None = None, host: str = "127.0.0.1", origins: Sequence[str] = ()
) -> AsyncIterator[Match]:
    """Start the network, both games and the gateways, and yield them once they play; they go on until the context ends.

    ``seed``: of the bots' whims; how events meet on their way is not repeatable. ``host``: where the gateways listen;
    ``origins``: of the page that uses them. Takes some seconds to start.
    """
    nodes = tuple(f"n{number}" for number in range(1, len(CITIES) + 1))
    names = {city: f"server-{city}" for city in CITIES}
    host_of = dict(zip(nodes, CITIES, strict=True)) | {name: city for city, name in names.items()}
    host_of |= dict(zip(NAMES, CITIES, strict=False)) | {f"keeper-{city}": city for city in CITIES[:2]}
    distances = Distances(CITIES, np.array(ONE_WAY_MS))
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(WanNetwork(Standing(distances, host_of), nodes, appendfsync="always"))
        watched = {names[city]: _watched(place) for place, city in enumerate(CITIES)}
        clients = {name: network.connect(name) for name in watched}
        await asyncio.gather(*map(stack.enter_async_context, clients.values()))
        await asyncio.gather(
            *(clients[name].subscribe(*regions, presence="watch") for name, regions in watched.items())
        )
        await clients[names[CITIES[0]]].declare_joint([ARENAS[arena] for arena in BOWS])
        sides = await _sides(stack, network, clients, watched, seed)
        door = Door()
        gateways = tuple(Gateway(name, network, door, host=host, origins=origins) for name in NAMES)
        for gateway in gateways:
            await gateway.start()
            stack.push_async_callback(gateway.stop)
        plan = await clients[names[CITIES[0]]].plan()
        assert plan is not None, "all have joined"
        keepers = tuple(
            Keeper(f"keeper-{city}", partial(network.connect, f"keeper-{city}"), watched[names[city]])
            for city in CITIES[:2]
        )
        for keeper in keepers:
            await keeper.start()
            stack.push_async_callback(keeper.stop)
        await keepers[0].create()
        faults = Faults(network, plan, gateways, keepers, lambda: sides[0].lost)
        tasks = []
        for side in sides:
            _host(side.servers)
            for server in side.servers:
                tasks += [asyncio.create_task(server.listen()), asyncio.create_task(server.play())]
        match = Match(sides, gateways, faults, door, keepers)
        try:
            async with asyncio.timeout(BEGIN_S_MAX):
                while not match.has_begun:  # noqa: ASYNC110
                    await asyncio.sleep(TICK_S)
            yield match
        finally:
            await faults.close()
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        failures = [end for end in ends if isinstance(end, Exception)]
        if failures:
            raise failures[0]


async def _sides(
    stack: AsyncExitStack,
    network: WanNetwork,
    clients: dict[str, gamecast.Client],
    watched: dict[str, frozenset[str]],
    seed: int | None,
) -> tuple[Side, Side]:
    boards = Board(_computed_by(watched)), Board(_computed_by(watched))
    of_arena = {
        arena: [name for name, regions in watched.items() if regions.issuperset(between)]
        for arena, between in ARENAS.items()
    }
    ours = tuple(Ours(clients[name], regions, boards[0], of_arena, Random(seed)) for name, regions in watched.items())
    plain = tuple(Plain(name, regions, boards[1], of_arena, Random(seed)) for name, regions in watched.items())
    await asyncio.gather(*(server.open(stack, network.urls(server.name)) for server in plain))
    for server, sibling in zip(ours, plain, strict=True):
        server.sibling = sibling
    return Side("gamecast", ours, boards[0]), Side("plain", plain, boards[1])


def _watched(place: int) -> frozenset[str]:
    ring = list(REGIONS)
    begin = place // 2 * 2
    return frozenset(ring[(begin + step) % len(ring)] for step in range(WATCHED))


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
