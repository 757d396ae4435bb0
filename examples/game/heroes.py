"""Players who want one sword, shoot over the border, and then walk up and down until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

import gamecast
from world import WIDTH


async def play(name: str) -> None:
    async with gamecast.connect(name=name) as game:
        await game.subscribe("meadow", presence={"nick": name.capitalize()})
        try:
            await game.publish("meadow", {"takes": "sword"}, key="sword", only_if=None)
            print(f"{name} has the sword", flush=True)
        except gamecast.Conflict:
            print(f"{name} was too late for the sword", flush=True)
        await game.publish(("meadow", "forest"), {"shoots_into": "forest"})
        for x in count():
            await game.fetch(timeout=0.1)
            game.update("meadow", name, {"x": x % WIDTH})
            await asyncio.sleep(0.1)


async def main(names: list[str]) -> None:
    await asyncio.gather(*map(play, names))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("stopped")
