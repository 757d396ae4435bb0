"""A control Redis that comes back with nothing of what it had, or with less."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest
import redis

import gamecast
import gamecast.blocking
from adapters.embedded.server import EmbeddedServer
from tests.patience import patience


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("others_first", [False, True])
async def test_a_network_that_its_server_lost_is_not_called_a_name_taken_over(shared: bool, others_first: bool) -> None:
    async with EmbeddedServer(settings={"save": '""'}) as server, gamecast.share(server.url) as process:
        cast: Any = process.connect(name="one") if shared else gamecast.connect(server.url, name="one")

        async def publish_again_and_again() -> None:
            while True:
                with suppress(gamecast.PublishUncertain):
                    await cast.publish("a", 2)
                await asyncio.sleep(0.1)

        async with cast, patience(30):
            await cast.subscribe("a")
            await cast.publish("a", 1)
            server.kill()
            await server.restart_async()
            if others_first:  # and take as many incarnations as there were
                for number in range(8):
                    async with gamecast.connect(server.url, name=f"other-{number}") as other:
                        await other.subscribe("b")
            with pytest.raises(gamecast.NetworkRestarted, match="came back without what it knew"):
                await publish_again_and_again()
            states: list[str] = []
            cast.on_status(lambda state: states.append(state.name))
            await cast.reconnect()
            await cast.subscribe("a")
            await cast.publish("a", 3)
            event = await anext(aiter(cast))
            assert isinstance(event, gamecast.Event)
            assert event.payload == 3
            assert states[-1] == "connected"


async def test_an_emptied_control_redis_is_a_restart_and_a_newer_connection_is_none(
    redis_server: EmbeddedServer,
) -> None:
    async with gamecast.connect(redis_server.url, name="one") as one, patience(30):
        await one.subscribe("a")
        async with gamecast.connect(redis_server.url, name="one"):
            pass
        with pytest.raises(gamecast.Superseded):
            await one.subscribe("b")
    async with gamecast.connect(redis_server.url, name="two") as two, patience(30):
        await two.subscribe("a")
        with redis.Redis.from_url(redis_server.url) as client:
            client.flushall()
        with pytest.raises(gamecast.NetworkRestarted):
            await two.subscribe("b")


async def test_a_connection_of_a_lost_network_closes_without_disconnecting_a_newer_one_of_its_name(
    redis_server: EmbeddedServer,
) -> None:
    async with patience(30):
        old = await gamecast.connect(redis_server.url, name="one").open()
        with redis.Redis.from_url(redis_server.url) as client:
            client.flushall()
        async with gamecast.connect(redis_server.url, name="one") as new:  # gets the number that the old one has
            await old.close()
            await new.subscribe("a")
            await new.publish("a", 1)


async def test_a_control_redis_that_keeps_nothing_is_warned_of_once(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger="gamecast.persistence")  # commands silence it in their process
    monkeypatch.setattr("adapters.redis.network._warned", set())  # another test may have used the server
    for _ in range(2):
        async with gamecast.connect(redis_server.url):
            pass
    async with gamecast.connect("embedded://"):
        pass
    with EmbeddedServer(appendfsync="always") as keeping:
        async with gamecast.connect(keeping.url):
            pass
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"{redis_server.url} does not keep its data" in warning


def test_a_blocking_connection_opens_again(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, name="one") as cast:
        cast.subscribe("a")
        with gamecast.blocking.connect(redis_server.url, name="one") as newer:
            newer.subscribe("a")
            with pytest.raises(gamecast.Superseded):
                cast.subscribe("b")
        cast.reconnect()
        cast.subscribe("a")
        cast.publish("a", 1)
        item = next(iter(cast))
        assert isinstance(item, gamecast.Event)
        assert item.payload == 1


async def test_a_superseded_connection_is_told_before_its_next_heartbeat(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="one") as old, patience(10):
        await old.subscribe("a")
        async with gamecast.connect(redis_server.url, name="one") as newer:
            await newer.subscribe("a")
            await asyncio.sleep(0.5)  # a heartbeat comes every 3.3 s
            with pytest.raises(gamecast.Superseded):
                await old.publish("b", 1)
