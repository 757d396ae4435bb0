"""`Client.reconnect`: what was read and not taken is dropped, whichever way the application takes events."""

from __future__ import annotations

import gamecast
from gamecast.testing import memory_url


async def test_batches_made_before_go_on_with_the_connection_that_is_open_now() -> None:
    url = memory_url()
    async with gamecast.connect(url, name="keeper"), gamecast.connect(url, name="a") as client:
        await client.subscribe("forest")
        batches = client.batches()
        for number in range(3):
            await client.publish("forest", number)
        [first] = await client.fetch(1, timeout=5)
        assert isinstance(first, gamecast.Event)
        await client.reconnect()
        await client.subscribe("forest", since=first.position)
        seen: list[object] = []
        while len(seen) < 2:
            seen += [item.payload for item in await anext(batches) if isinstance(item, gamecast.Event)]
        assert seen == [1, 2]
        assert await client.fetch(timeout=0.05) == []
