"""Connections of one process that share their sockets: as many promises as connections, and few sockets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import redis

import adapters.redis.egressstream
import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.relays import RedisRelays
from gamecast import Client, Event, Gap, Item, Shared
from gamecast.testing import memory_url
from tests.events import take
from tests.integration.gamecast.test_faults import CHAIN, publish_and_check
from tests.integration.networks import register
from tests.patience import patience


@asynccontextmanager
async def sharing(url: str) -> AsyncIterator[dict[str, Client]]:
    """The connections of `casts_on`, which share."""
    async with gamecast.share(url) as shared:
        casts = {name: await shared.connect(name=name).open() for name in CHAIN}
        for name, cast in casts.items():
            await cast.subscribe(*CHAIN[name])
        yield casts


async def test_many_connections_take_few_sockets_and_see_one_order() -> None:
    async with EmbeddedServer() as server, gamecast.share(server.url) as shared:
        casts = await asyncio.gather(*(shared.connect(name=f"s{number}").open() for number in range(60)))
        await asyncio.gather(*(cast.subscribe("hall", f"room{n % 7}", f"room{n % 5}") for n, cast in enumerate(casts)))
        with redis.Redis.from_url(server.url) as client:
            assert len(client.client_list()) < 12
        await asyncio.gather(*(cast.publish("hall", n) for n, cast in enumerate(casts)))
        orders = [[event.payload async for event in some(cast, 60)] for cast in casts]
        assert sorted(orders[0]) == list(range(60))
        assert all(order == orders[0] for order in orders)


async def some(cast: Client, count: int) -> AsyncIterator[Event]:
    for event in await take(cast, count):
        yield event


async def test_all_who_share_hear_that_a_node_hangs_and_that_it_is_there_again_and_miss_nothing() -> None:
    async with EmbeddedServer() as server, gamecast.share(server.url) as shared, patience(60):
        casts = [await shared.connect(name=f"s{number}").open() for number in range(3)]
        for cast in casts:
            await cast.subscribe("hall")
        await casts[0].publish("hall", 1)
        for frozen in (False, True):
            os.kill(server.pid, signal.SIGSTOP)
            try:
                while {cast.status.name for cast in casts} != {"disconnected"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                late = casts[0].publish_async("hall", 2 + frozen)
                await asyncio.sleep(0.2)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await late
            while {cast.status.name for cast in casts} != {"connected"}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for cast in casts:
            assert [event.payload for event in await take(cast, 3)] == [1, 2, 3]


async def test_who_is_behind_what_is_kept_reads_the_rest_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters.redis.egressstream, "KEPT_FRAMES_MAX", 2)
    async with EmbeddedServer() as server, gamecast.share(server.url) as shared:
        quick = await shared.connect(name="quick").open()
        slow = await shared.connect(name="slow", inbox_events_max=5).open()
        for cast in (quick, slow):
            await cast.subscribe("a", "b")
        for number in range(100):
            await quick.publish("ab"[number % 2], number)
        orders = [[event.payload for event in await take(cast, 100)] for cast in (quick, slow)]
        assert orders[0] == orders[1]
        await quick.publish("a", "live again")
        assert [(await take(cast, 1))[0].payload for cast in (quick, slow)] == ["live again"] * 2


async def test_who_is_behind_reads_no_more_than_it_has_room_for_beside_a_quiet_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapters.redis.egressstream, "KEPT_FRAMES_MAX", 20)
    async with EmbeddedServer() as server, gamecast.share(server.url) as shared:
        quick = await shared.connect(name="quick").open()
        slow = await shared.connect(name="slow", inbox_events_max=10).open()
        for cast in (quick, slow):
            await cast.subscribe("busy", "quiet")
        for number in range(1_000):
            await quick.publish("busy", number)
        most, payloads = 0, list[object]()
        async with patience(30):
            async for item in slow:
                assert isinstance(item, Event)
                payloads.append(item.payload)
                statistics = slow.statistics()
                most = max(most, statistics.held_frames + statistics.inbox_events)
                await asyncio.sleep(0)
                if len(payloads) == 1_000:
                    break
        assert payloads == [*range(1_000)]
        assert most < 500


async def test_a_server_killed_again_and_again_loses_and_repeats_nothing_for_anybody() -> None:
    async with EmbeddedServer(appendfsync="always") as server, sharing(server.url) as casts:

        def kill(number: int) -> None:
            if number % 20 == 10:
                server.kill()
                server.restart()

        await publish_and_check(casts, 60, kill)


async def test_a_node_that_lost_something_is_told_of_to_everybody() -> None:
    async with EmbeddedServers(2) as servers, AsyncExitStack() as stack:
        control, node = servers.urls
        await register(control, {"n1": node}, may_lose=True)
        shared = await stack.enter_async_context(gamecast.share(control))
        casts = [await shared.connect(name=name).open() for name in ("one", "other")]
        for cast in casts:
            await cast.subscribe("a", "b")
        before = await casts[0].publish("a", "before")
        assert [(await take(cast, 1))[0].payload for cast in casts] == ["before"] * 2
        servers.servers[1].kill()
        servers.servers[1].restart()
        after = await published(casts[0], "a", "after")
        assert after.epoch > before.epoch
        for cast in casts:
            items = [item async for item in until(cast, "after")]
            assert any(isinstance(item, Gap) and item.region == "a" for item in items[:-1])


async def published(cast: Client, region: str, payload: str) -> gamecast.Receipt:
    """Publish until it is certain that it was."""
    while True:
        try:
            return await cast.publish(region, payload)
        except gamecast.NetworkError:
            await asyncio.sleep(0.05)


async def until(cast: Client, payload: str) -> AsyncIterator[Item]:
    async with patience(20):
        async for item in cast:
            yield item
            if isinstance(item, Event) and item.payload == payload:
                return


async def test_joins_go_on_where_nobody_may_break_off_reads() -> None:
    async with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url) as client:
            client.acl_setuser(
                "game",
                enabled=True,
                passwords=["+pw"],
                keys=["*"],
                channels=["*"],
                commands=["+@all", "-client|unblock", "-client|id"],
            )
        async with gamecast.share(server.url.replace("redis://", "redis://game:pw@")) as shared:
            one, other = [await shared.connect(name=name).open() for name in ("one", "other")]
            for region in ("a", "b", "c"):
                async with patience(5):
                    await asyncio.gather(one.subscribe(region), other.subscribe(region))
                await one.publish(region, region)
            assert [event.payload for event in await take(other, 3)] == ["a", "b", "c"]


async def test_what_is_shared_takes_its_connections_with_it() -> None:
    async with EmbeddedServer() as server:
        shared = await gamecast.share(server.url).open()
        cast = await shared.connect(name="one").open()
        await cast.subscribe("a")
        tasks = len(asyncio.all_tasks())
        await shared.close()
        await shared.close()
        assert [event async for event in cast] == []
        with pytest.raises(gamecast.NotConnected):
            await cast.publish("a", 1)
        with pytest.raises(gamecast.NotConnected, match="share"):
            shared.connect(name="two")
        with pytest.raises(gamecast.UsageError, match="opens once"):
            await shared.open()
        assert tasks > len(asyncio.all_tasks()) == 1


async def test_nothing_is_half_open_when_nothing_answers() -> None:
    async with EmbeddedServer() as server:
        url = server.url
    with pytest.raises(gamecast.Unreachable):
        await gamecast.share(url).open()
    assert len(asyncio.all_tasks()) == 1


async def test_within_a_process_sharing_works_too() -> None:
    async with gamecast.share(memory_url(nodes=2)) as shared:
        await passes_between(shared)


async def test_connections_with_and_without_sharing_meet() -> None:
    async with gamecast.share("embedded://?nodes=2") as shared:
        await passes_between(shared)
        async with gamecast.connect(shared.url, name="apart") as apart, shared.connect(name="beside") as beside:
            await asyncio.gather(apart.subscribe("x", "y"), beside.subscribe("x", "y"))
            await asyncio.gather(*(cast.publish(region, 1) for cast in (apart, beside) for region in "xy"))
            orders = [[(e.region, e.sequence) for e in await take(cast, 4)] for cast in (apart, beside)]
            assert orders[0] == orders[1]


async def passes_between(shared: Shared) -> None:
    async with shared.connect(name="one") as one, shared.connect(name="other") as other:
        await asyncio.gather(one.subscribe("a"), other.subscribe("a"))
        await one.publish("a", b"bytes")
        assert [event.payload for cast in (one, other) for event in await take(cast, 1)] == [b"bytes"] * 2


async def test_relays_and_history_serve_who_shares() -> None:
    async with EmbeddedServers(3) as servers:
        urls = dict(zip(("n1", "n2", "n3"), servers.urls, strict=True))
        await register(servers.urls[0], urls)
        relays = RedisRelays(servers.urls[0])
        relays.start()
        try:
            async with sharing(servers.urls[0]) as casts:
                await publish_and_check(casts, 20, lambda _: None)
                name, regions = next(iter(CHAIN.items()))
                await casts[name].unsubscribe(regions[0])
                await casts[name].subscribe(regions[0], since=0)
                first = (await take(casts[name], 1))[0]
                assert (first.region, first.payload) == (regions[0], f"{name}:0:{regions[0]}")
        finally:
            await relays.stop()
