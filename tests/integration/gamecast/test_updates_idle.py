"""Updates after a time without any."""

from __future__ import annotations

import asyncio

import gamecast
from adapters.embedded.server import EmbeddedServer
from tests.integration.gamecast.test_updates import until_heard
from tests.patience import patience


async def test_the_first_update_after_an_idle_time_arrives_although_the_server_cuts_off_who_is_idle() -> None:
    async with (
        EmbeddedServer(settings={"timeout": "2"}) as server,
        gamecast.connect(server.url, name="sender") as sender,
        gamecast.connect(server.url, name="reader") as reader,
    ):
        await reader.subscribe("forest")
        await until_heard(sender, reader)
        await asyncio.sleep(4.5)  # the server looks once a second for those who were idle for longer than two
        sender.update("forest", "k", "first")
        async with patience(5):
            assert [update.payload for update in await reader.next_updates()] == ["first"]
