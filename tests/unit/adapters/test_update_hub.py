"""The ways by which updates go to nodes end with the hub, however little time there is to close it."""

from __future__ import annotations

import asyncio
import socket

from adapters.redis.updates import UpdateHub
from gamecast.client.closing import until
from tests.patience import patience


async def test_a_hub_that_is_closed_too_late_to_wait_leaves_no_task() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub = UpdateHub(lambda _: f"redis://127.0.0.1:{silent.getsockname()[1]}")
        hub.sender("n1")
        async with patience(10):
            await asyncio.sleep(0)  # it begins to connect
            await until(loop.time() - 1, hub.close())
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
