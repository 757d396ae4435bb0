"""Come late, and say how the world is."""

from __future__ import annotations

import asyncio

import gamecast
from world import REGIONS, World


async def main() -> None:
    world = World()
    async with gamecast.connect() as client, asyncio.timeout(60):
        await client.subscribe(REGIONS, presence="watch")
        client.updates()
        while world.things.keys() < set(REGIONS):
            apply(world, await client.fetch())
        players = [info["nick"] for here in world.players.values() for info in here.values()]
        print("players:", *sorted(players))
        if "sword" in world.things["meadow"]:
            print("the sword:", world.things["meadow"]["sword"].sender)
        while True:
            apply(world, await client.fetch(timeout=0.1))  # an update waits for the events before it
            for update in client.updates():
                if update.key == "goblin":
                    print("the goblin:", update.region, update.payload["x"])
                    return


def apply(world: World, items: list[gamecast.Item]) -> None:
    for item in items:
        world.apply(item)


if __name__ == "__main__":
    asyncio.run(main())
