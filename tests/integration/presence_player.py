"""A player that comes and goes: present in some regions, publishing there, killed and stopped from outside.

Run as ``python presence_player.py URL NAME SEED PRESENT_MS``. It prints a line for each stay that it has begun.
"""

from __future__ import annotations

import asyncio
import random
import sys

import adapters.presence

adapters.presence.PRESENT_MS = int(sys.argv[4])  # before anything takes it over

import gamecast  # noqa: E402

REGIONS = "forest", "river", "hill"


async def play(url: str, name: str, rng: random.Random) -> None:
    client = gamecast.connect(url, name=name)
    await client.open()
    stays, here = 0, dict[str, str]()

    async def take() -> None:
        async for _ in client:
            pass

    taking = asyncio.create_task(take())
    while True:
        try:
            region = rng.choice(REGIONS)
            action = rng.random()
            if region not in here and action < 0.5:
                stays += 1
                stay = f"{name}-{client.name}-{stays}-{rng.random()}"
                await client.subscribe(region, presence={"stay": stay})
                here[region] = stay
                print(stay, flush=True)
            elif region in here and action < 0.05:
                await client.unsubscribe(region)
                del here[region]
            elif region in here:
                client.publish_nowait(region, {"stay": here[region]})
            if taking.done() and taking.exception() is not None:
                raise taking.exception()  # type: ignore[misc]
            await asyncio.sleep(rng.uniform(0.0, 0.02))
        except gamecast.GamecastError:
            taking.cancel()
            await client.reconnect()
            here.clear()
            taking = asyncio.create_task(take())


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2], random.Random(sys.argv[3])))
