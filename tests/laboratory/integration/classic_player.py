"""One process of classic protocols, as an operating-system process: publishes, delivers, writes execution logs.

    python -m tests.laboratory.integration.classic_player URL NETWORK NAME DIRECTORY

Reads names of protocols, a line each, and runs one after the other, until its standard input ends; says ``done`` when
it has delivered everything, and takes part for the others until the next line comes. Logs are PROTOCOL.NAME.jsonl.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson

from classic.protocols.catalogue import find_protocol
from classic.protocols.process import Gap, Guarantee, Install, Message, Scheduled
from classic.protocols.setup import Assumption
from laboratory.protocols import connection as classic

FIVE = ("p1", "p2", "p3", "p4", "p5")
EACH = 8
REGIONS = {"forest": FIVE[:3], "river": FIVE[1:4], "hill": ("p1", "p3", "p4", "p5")}


def groups_of(protocol: str) -> dict[str, tuple[str, ...]]:
    """One group for protocols that want one, each process by itself for those of two parties, else overlaps."""
    assumes = find_protocol(protocol).assumes
    if Assumption.ONE_TO_ONE in assumes:
        return {f"to-{process}": (process,) for process in FIVE}
    return {"all": FIVE} if {Assumption.ONE_GROUP, Assumption.BROADCAST} & assumes else REGIONS


def destinations(protocol: str, name: str) -> list[str]:
    """To which groups a process publishes its messages, by turns."""
    one_to_one = Assumption.ONE_TO_ONE in find_protocol(protocol).assumes
    own = [group for group, members in groups_of(protocol).items() if (name in members) != one_to_one]
    return [own[number % len(own)] for number in range(EACH)]


async def play(url: str, network: str, protocol: str, name: str, log: Path) -> None:
    """Publish, deliver what is due, say so, and take part until a line comes."""
    groups = groups_of(protocol)
    due = sum(name in groups[group] for process in FIVE for group in destinations(protocol, process))
    synchronous = Guarantee.SYNCHRONOUS in find_protocol(protocol).guarantees
    cast = classic.connect(
        url,
        name=name,
        protocol=protocol,
        processes=FIVE,
        groups=groups,
        network=f"{network}:{protocol}",
        open_groups=synchronous,
    )
    with log.open("wb") as file:

        def write(event: str, **fields: object) -> None:
            file.write(orjson.dumps({"process": name, "event": event, **fields}) + b"\n")

        def sent(message: Message) -> None:
            write("send", message=message.id, to=list(groups[message.group]), group=message.group)

        async def listen() -> None:
            left, unsent = due, EACH if synchronous else 0
            while left or unsent:
                match await cast.take():
                    case Message() as message:
                        write("receive", message=message.id)
                        left -= 1
                    case Gap():
                        write("gap")
                    case Install(number, members):
                        write("view", view=number, members=members)
                    case Scheduled(message):
                        sent(message)
                        unsent -= 1

        async with cast:
            listening = asyncio.create_task(listen())
            for number, group in enumerate(destinations(protocol, name)):
                message = await cast.publish(group, number)
                if not synchronous:  # there the protocol says when
                    sent(message)
                await asyncio.sleep(0)  # so that some is delivered between publishing
            await listening
            file.flush()
            print("done", flush=True)
            await asyncio.to_thread(sys.stdin.readline)


async def main(url: str, network: str, name: str, directory: Path) -> None:
    """Run protocols as they are asked for."""
    while protocol := (await asyncio.to_thread(sys.stdin.readline)).strip():
        await play(url, network, protocol, name, directory / f"{protocol}.{name}.jsonl")


if __name__ == "__main__":
    url, network, name, directory = sys.argv[1:]
    asyncio.run(main(url, network, name, Path(directory)))
