"""How many calls of our own Python an event passes from `publish` to the other client, and in how many files.

``python -m laboratory.bench.passage`` prints it; with ``--each``, each function, too. Both clients are in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import click

import gamecast

ROOT = Path(__file__).parents[2]
OURS = tuple(str(ROOT / folder) for folder in ("adapters", "gamecast", "sequencing"))
WARM_UP, MEASURED = 60, 100
PAUSE_S = 0.002
"""Between two events, so that each is alone."""


class Passage(NamedTuple):
    """Means for an event: calls of our own functions, by file and function; a coroutine that goes on counts again."""

    by_function: dict[tuple[str, str], float]

    @property
    def calls(self) -> float:
        """Of all functions."""
        return sum(self.by_function.values())

    @property
    def files(self) -> int:
        """How many files most events pass."""
        return len({file for (file, _), calls in self.by_function.items() if calls >= 0.5})


async def passage(url: str, *, shares: bool = False) -> Passage:
    """Count for lone events, each awaited, in a network at a URL; ``shares``: whether both clients share sockets."""
    async with gamecast.share(url) as shared:
        clients = [
            shared.connect(name=name) if shares else gamecast.connect(url, name=name) for name in ("publishes", "takes")
        ]
        async with clients[0] as publishes, clients[1] as takes:
            await takes.subscribe("forest", "river")
            counted = Counter[tuple[str, str]]()
            for number in range(WARM_UP + MEASURED):
                coming = asyncio.create_task(_next_of(takes))
                await asyncio.sleep(0)
                if number >= WARM_UP:
                    sys.setprofile(_counting(counted))
                try:
                    await publishes.publish("forest", number)
                    await coming
                finally:
                    sys.setprofile(None)
                await asyncio.sleep(PAUSE_S)
    return Passage({function: calls / MEASURED for function, calls in counted.items()})


async def _next_of(client: gamecast.Client) -> Any:
    return await anext(client)


def _counting(counted: Counter[tuple[str, str]]) -> Any:
    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            counted[frame.f_code.co_filename, frame.f_code.co_name] += 1

    return count


async def _main(*, each: bool) -> None:
    async with gamecast.connect("embedded://", name="holds the network") as holder:
        for shares in (False, True):
            found = await passage(holder.url, shares=shares)
            click.echo(f"{'shared' if shares else 'alone'}: {found.calls:.0f} calls in {found.files} files")
            for (file, function), calls in sorted(found.by_function.items(), key=lambda item: -item[1]) if each else ():
                click.echo(f"{calls:6.2f}  {Path(file).relative_to(ROOT)} {function}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", action="store_true", help="print each function")
    asyncio.run(_main(each=parser.parse_args().each))
