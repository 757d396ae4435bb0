"""One process of a classic protocol whose peers are killed: publishes, delivers, writes an execution log.

    python -m tests.laboratory.integration.classic_survivor URL NETWORK PROTOCOL NAME LOG

Says ``ready`` when it is open. It publishes until it reads ``stop``, then delivers until its standard input ends. A
line ``suspect NAME`` is a report that a process has crashed. Each line of the log is written before what comes next.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

import orjson

from classic.protocols.process import Halt, Install, Message
from laboratory.protocols import connection as classic

FIVE = ("p1", "p2", "p3", "p4", "p5")
EVERY_S = 0.01


async def main(url: str, network: str, protocol: str, name: str, file: RawIOBase) -> None:
    """Take part until standard input ends."""
    client = classic.connect(url, name=name, protocol=protocol, processes=FIVE, network=network)

    def write(event: str, **fields: object) -> None:
        file.write(orjson.dumps({"process": name, "event": event, **fields}) + b"\n")

    async def listen() -> None:
        async for item in client:
            match item:
                case Message():
                    write("receive", message=item.id)
                case Install(number, members):
                    write("view", view=number, members=members)
                case Halt():
                    return

    async def publish() -> None:
        while True:
            # It is sent when this task waits next, and no earlier.
            message = client.publish_now("all", "x")
            write("send", message=message.id, to=FIVE, group="all")
            await asyncio.sleep(EVERY_S)

    async with client:
        print("ready", flush=True)
        tasks = [asyncio.create_task(listen()), asyncio.create_task(publish())]
        while line := await asyncio.to_thread(sys.stdin.readline):
            command, _, other = line.strip().partition(" ")
            if command == "suspect":
                client.suspect(other)
            else:
                tasks[1].cancel()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


if __name__ == "__main__":
    url, network, protocol, name, log = sys.argv[1:]
    with Path(log).open("wb", buffering=0) as opened:
        asyncio.run(main(url, network, protocol, name, opened))
