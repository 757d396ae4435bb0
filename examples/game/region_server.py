"""The server of one region. It watches the neighbours, too, and moves the goblin while it owns it."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise

import gamecast
from world import REGIONS, WIDTH, World, near, region_at

TICK_S = 0.2


class Server:
    """One game server: its world, and the goblin, if that is here."""

    def __init__(self, client: gamecast.Client, home: str) -> None:
        self.client = client
        self.home = home
        self.world = World()
        self.goblin: gamecast.Authority | None = None
        self.x, self.step = 0, 1

    async def start(self) -> None:
        await self.client.declare_overlaps(pairwise(REGIONS))
        await self.client.subscribe(near(self.home), presence="watch")  # begins with the state
        self.client.updates()
        while self.world.things.keys() < set(near(self.home)):
            await self.take(await self.client.fetch())
        owner = self.world.things[self.home].get("owner:goblin")
        if owner is not None and owner.payload["owner"] == self.client.name:  # it is ours from before a restart
            self.goblin = await self.client.authority(self.home, "goblin", after=owner.positions[self.home])
            self.x = REGIONS.index(self.home) * WIDTH
        elif self.home == REGIONS[0]:
            await self.create_goblin()

    async def create_goblin(self) -> None:
        try:
            await self.client.publish(self.home, {"created": "goblin"}, key="created", only_if=None)
        except gamecast.Conflict:
            return  # it was created before, and is somewhere
        self.goblin = await self.client.authority(self.home, "goblin")
        await self.goblin.publish({"x": self.x, "step": self.step}, key="goblin")

    async def take(self, items: list[gamecast.Item]) -> None:
        for item in items:
            if said := self.world.apply(item):
                print(said, flush=True)
            if isinstance(item, gamecast.Gap):  # begin again with the state
                await self.client.unsubscribe(item.region)
                await self.client.subscribe(item.region, presence="watch")
            elif isinstance(item, gamecast.Event) and (accepted := await self.client.accept(item)):
                self.goblin = accepted
                self.x, self.step = item.payload["state"]["x"], item.payload["state"]["step"]

    async def tick(self) -> None:
        await self.take(await self.client.fetch(timeout=0))
        if self.goblin is not None:
            await self.walk(self.goblin)

    async def walk(self, goblin: gamecast.Authority) -> None:
        if not 0 <= self.x + self.step < WIDTH * len(REGIONS):
            self.step = -self.step
        self.x += self.step
        there = region_at(self.x)
        if there == self.home:
            self.client.update(self.home, "goblin", {"x": self.x})
            return
        state = {"x": self.x, "step": self.step}
        await goblin.hand_to(f"server-{there}", to=there, state=state, keys={"goblin": state})
        self.goblin = None


async def serve(home: str) -> None:
    async with gamecast.connect(name=f"server-{home}") as client:
        server = Server(client, home)
        await server.start()
        print(f"server-{home} is ready", flush=True)
        while True:
            await server.tick()
            await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    try:
        asyncio.run(serve(sys.argv[1]))
    except KeyboardInterrupt:
        print("stopped")
