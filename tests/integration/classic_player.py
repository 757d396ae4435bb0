"""One process of a classic protocol, as an operating-system process: publishes, delivers, writes an execution log.

    python -m tests.integration.classic_player URL NETWORK PROTOCOL NAME LOG

Says ``done`` when it has delivered everything, and stays for the others until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson

from gamecast import classic
from sequencing.protocols.process import Message
from sequencing.protocols.setup import Assumption

FIVE = ("p1", "p2", "p3", "p4", "p5")
EACH = 8
REGIONS = {"forest": FIVE[:3], "river": FIVE[1:4], "hill": ("p1", "p3", "p4", "p5")}


def groups_of(protocol: str) -> dict[str, tuple[str, ...]]:
    """One group for protocols that want one, else regions that overlap."""
    wants_one = {Assumption.ONE_GROUP, Assumption.BROADCAST} & classic.find_protocol(protocol).assumes
    return {"all": FIVE} if wants_one else REGIONS


async def play(url: str, network: str, protocol: str, name: str, log: Path) -> None:
    """Publish to one's groups by turns, and deliver what is due."""
    groups = groups_of(protocol)
    own = [group for group, members in groups.items() if name in members]
    due = sum(
        EACH // len(theirs) + (place < EACH % len(theirs))
        for process in FIVE
        for theirs in [[group for group, members in groups.items() if process in members]]
        for place, group in enumerate(theirs)
        if group in own
    )
    cast = classic.connect(url, name=name, protocol=protocol, processes=FIVE, groups=groups, network=network)
    with log.open("wb") as file:

        def write(event: str, message: Message) -> None:
            line = {"process": name, "event": event, "message": message.id}
            if event == "send":
                line |= {"to": list(groups[message.group]), "group": message.group}
            file.write(orjson.dumps(line) + b"\n")

        async def listen() -> None:
            left = due
            async for item in cast:
                if isinstance(item, Message):
                    write("receive", item)
                    left -= 1
                    if not left:
                        return

        async with cast:
            listening = asyncio.create_task(listen())
            for number in range(EACH):
                write("send", await cast.publish(own[number % len(own)], number))
                await asyncio.sleep(0)  # so that some is delivered between publishing
            await listening
            file.flush()
            print("done", flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:5], Path(sys.argv[5])))
