"""A game server that records until it is killed: prints ``rolled FILE`` for each file that it was told is finished.

usage: python recording_player.py DIRECTORY ROLL_S [EVENTS [BYTES]]; with EVENTS it publishes so many, and ends by
itself; no file may grow beyond BYTES then, as if the disk were full.
"""

import asyncio
import resource
import sys
from pathlib import Path

import gamecast


async def play(directory: str, roll_s: float, events: int) -> None:
    record = gamecast.Recording(directory, roll_s=roll_s)

    def told(files: list[Path]) -> None:
        for file in files:
            print(f"rolled {file}", flush=True)

    async with gamecast.connect("memory://play", name="player", record=record) as client:
        assert client._recorder is not None
        client._recorder.recorder.on_rolled = told
        await client.subscribe("forest", "river")
        number = 0
        while not events or number < events:
            client.publish_async(("forest", "river")[number % 2], {"number": number})
            number += 1
            if number % 50 == 0:
                await asyncio.sleep(0.002)
                while client.statistics().inbox_events:
                    await anext(client)
        while client.statistics().delivered_events < events:
            await anext(client)
    found = client.recording()
    assert found is not None
    for (table, reason), rows in sorted(found.lost_rows.items()):
        print(f"lost {table} {reason} {rows}", flush=True)
    print(f"rows {found.rolled_rows.get('deliveries', 0)}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
    asyncio.run(play(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0))
