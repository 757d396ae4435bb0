"""Trades between two zones: of two players who want the same sword and boat, one gets both, or the trade is torn.

The sword is in the forest, and the boat in the river. In each zone the first bid of a trade wins. So a trade is whole
if both zones have the same winner. Three ways to bid: a message to each of two channels of plain Redis Pub/Sub, an
event to each of two regions, and one event to both regions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
import redis.asyncio
from rich.console import Console
from rich.table import Table

from gamecast.client.client import Client
from gamecast.client.connecting import connect
from gamecast.event import Event

ZONES = "forest", "river"
PLAYERS = "ana", "bo"
TRADES = 200
AWAY_S = 0.002
"""How far away a player is at most, each time: its bids for the two zones come so much apart."""
SILENCE_S = 20.0

Bid = Callable[[str, int], Awaitable[None]]
"""Has a player bid for both things of a trade, by its number."""


@dataclass(frozen=True, slots=True)
class Trades:
    """What became of the trades of one way."""

    way: str
    trades: int
    torn: int
    """Trades whose sword went to one player, and the boat to the other."""
    differing: int
    """Trades of which two game servers saw different winners in a zone."""


@dataclass(slots=True)
class _World:
    """What one game server knows: zone → trade → the player whose bid came first."""

    zones: tuple[str, ...]
    winners: dict[str, dict[int, str]]
    bids: int = 0

    @classmethod
    def of(cls, *zones: str) -> _World:
        return cls(zones, {zone: {} for zone in zones})

    def take(self, zone: str, trade: int, player: str) -> None:
        self.winners[zone].setdefault(trade, player)
        self.bids += 1


def _worlds() -> list[_World]:
    """One game server has both zones, and one has each."""
    return [_World.of(*ZONES), *(_World.of(zone) for zone in ZONES)]


async def trade_over_pubsub(url: str, seed: int) -> Trades:
    """Bid by a message to each of two channels."""
    worlds = _worlds()
    async with AsyncExitStack() as stack:
        clients = {name: redis.asyncio.Redis.from_url(url) for name in (*PLAYERS, *map(str, range(len(worlds))))}
        for client in clients.values():
            stack.push_async_callback(client.aclose)
        listening = []
        for number, world in enumerate(worlds):
            subscription = clients[str(number)].pubsub(ignore_subscribe_messages=True)
            stack.push_async_callback(subscription.aclose)
            await subscription.subscribe(*(f"trades:{zone}" for zone in world.zones))
            await subscription.get_message(timeout=1)
            listening.append(_listen(subscription, world))

        async def bid(player: str, trade: int) -> None:
            for zone in ZONES:
                await clients[player].publish(f"trades:{zone}", orjson.dumps([trade, player]))

        await _hold(bid, listening, seed)
    return _judged("two messages of plain Pub/Sub", worlds)


async def trade_over_regions(url: str, seed: int, *, joint: bool) -> Trades:
    """Bid by an event to each of two regions, or by one to both."""
    worlds = _worlds()
    async with AsyncExitStack() as stack:
        kind = "joint" if joint else "apart"
        players = {name: await stack.enter_async_context(connect(url, name=f"{name} {kind}")) for name in PLAYERS}
        zones = {zone: f"{zone} {kind}" for zone in ZONES}
        listening = []
        for number, world in enumerate(worlds):
            server = await stack.enter_async_context(connect(url, name=f"server {number} {kind}"))
            await server.subscribe(*(zones[zone] for zone in world.zones))
            listening.append(_follow(server, world, {region: zone for zone, region in zones.items()}))

        async def bid(player: str, trade: int) -> None:
            if joint:
                await players[player].publish(tuple(zones.values()), [trade, player])
            else:
                for region in zones.values():
                    await players[player].publish(region, [trade, player])
                    await asyncio.sleep(0)

        await _hold(bid, listening, seed)
    return _judged("one event in both regions" if joint else "an event in each of two regions", worlds)


async def _hold(bid: Bid, listening: list[Any], seed: int) -> None:
    random = Random(seed)

    async def from_afar(player: str, trade: int) -> None:
        await asyncio.sleep(random.random() * AWAY_S)
        await bid(player, trade)

    tasks = [asyncio.create_task(each) for each in listening]
    try:
        async with asyncio.timeout(SILENCE_S):
            for trade in range(TRADES):
                await asyncio.gather(*(from_afar(player, trade) for player in random.sample(PLAYERS, len(PLAYERS))))
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _listen(subscription: Any, world: _World) -> None:
    while world.bids < TRADES * len(PLAYERS) * len(world.zones):
        message = await subscription.get_message(timeout=1)
        if message is not None:
            trade, player = orjson.loads(message["data"])
            world.take(message["channel"].decode().partition(":")[2], trade, player)


async def _follow(server: Client, world: _World, zone_of: dict[str, str]) -> None:
    async for event in server:
        if isinstance(event, Event):
            trade, player = event.payload
            for region in event.regions:
                world.take(zone_of[region], trade, player)
        if world.bids >= TRADES * len(PLAYERS) * len(world.zones):
            return


def _judged(way: str, worlds: list[_World]) -> Trades:
    both, *others = worlds
    forest, river = (both.winners[zone] for zone in ZONES)
    torn = sum(forest[trade] != river[trade] for trade in range(TRADES))
    differing = {
        trade
        for other in others
        for zone in other.zones
        for trade in range(TRADES)
        if other.winners[zone][trade] != both.winners[zone][trade]
    }
    return Trades(way, TRADES, torn, len(differing))


def tell(ways: list[Trades], console: Console) -> None:
    """Print what became of the trades."""
    table = Table()
    for title in ("two players bid by", "whole", "torn", "servers differ"):
        table.add_column(title, justify="right" if table.columns else "left")
    for each in ways:
        table.add_row(each.way, str(each.trades - each.torn), str(each.torn), str(each.differing))
    console.print(f"{TRADES} trades of a sword in the forest for a boat in the river; two players want each.")
    console.print(table)
    console.print("Torn: one player has the sword, and the other the boat.")
