"""A game server that is killed, stays away until it counts as gone, and comes back by its positions."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any

import pytest
import redis

import gamecast
from adapters.redis.controlkeys import ControlKeys
from tests.events import take
from tests.integration.networks import Network
from tests.patience import scaled, until

WALKER = """
import asyncio, json, sys
import gamecast

async def main():
    async with gamecast.connect(sys.argv[1], name="walker") as cast:
        begins = await cast.subscribe("a", "b", "c")
        print(json.dumps([[region, position, None] for region, position in begins.items()]), flush=True)
        async for event in cast:
            print(json.dumps([[event.region, event.position, event.payload]]), flush=True)

asyncio.run(main())
"""
EVENTS = 60


@pytest.mark.parametrize("kind", ["redis", "redis-3"])
async def test_a_killed_server_comes_back_into_the_order_of_who_was_there_all_the_time(kind: str) -> None:
    async with AsyncExitStack() as stack:
        network = await Network.start(kind, stack)
        steady = await network.connect("steady")
        await steady.subscribe("a", "b", "c")
        program = sys.executable, "-c", WALKER, network.url
        walker = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
        assert walker.stdout is not None
        begins = json.loads(await asyncio.wait_for(walker.stdout.readline(), scaled(30)))
        since: dict[str, str] = {region: position for region, position, _ in begins}
        seen: list[Any] = []
        publishing = asyncio.create_task(_publish(steady, 0, EVENTS))
        while len(seen) < EVENTS // 2:
            [[region, position, payload]] = json.loads(await asyncio.wait_for(walker.stdout.readline(), scaled(30)))
            since[region] = position
            seen.append(payload)
        walker.send_signal(signal.SIGKILL)
        await walker.wait()
        await publishing
        with redis.Redis.from_url(network.url) as client:
            client.zadd(ControlKeys.alive, {"walker": 1})  # as if it had not been heard of for 10 s
            await until(lambda: not client.hexists(ControlKeys.connections, "walker"), 20)
        for number, pair in enumerate(("ax", "bx", "cy")):  # another plan, in which it has nothing
            async with gamecast.connect(network.url, name=f"other-{number}") as other:
                await other.subscribe(*pair)
        await _publish(steady, EVENTS, 2 * EVENTS)
        again = await network.connect("walker")
        await again.subscribe("a", "b", "c", since=since)
        await _publish(steady, 2 * EVENTS, 3 * EVENTS)
        order = [event.payload for event in await take(steady, 3 * EVENTS)]
        assert seen + [event.payload for event in await take(again, 3 * EVENTS - len(seen))] == order


async def _publish(cast: gamecast.Client, first: int, last: int) -> None:
    for number in range(first, last):
        cast.publish_async("abc"[number % 3], number)
        if number % 5 == 0:
            await asyncio.sleep(0.005)
