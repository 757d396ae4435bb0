"""A network of several nodes: what a join costs, and that it waits for nothing that does not concern it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import redis

import adapters.leader
import adapters.redis.ledger
import adapters.redis.news
import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.relays import RedisRelays
from adapters.redis.survey import survey
from gamecast import Client
from tests.events import take
from tests.integration.networks import register, relaying
from tests.patience import patience, until

RING = ("ab", "bc", "cd", "de", "ef", "fa")
"""Subscribers whose regions overlap around a ring, so that some paths have links."""


@asynccontextmanager
async def three_nodes(url: str, *servers: str) -> AsyncIterator[RedisRelays]:
    """Register nodes on some servers, by turns, or in the control Redis, and carry their links."""
    await register(
        url, {f"n{number}": at for number, at in zip(range(1, 4), itertools.cycle(servers or [""]), strict=False)}
    )
    async with relaying(url) as relays:
        yield relays


async def ring(url: str, stack: AsyncExitStack) -> list[Client]:
    """Connect subscribers around a ring, and have each join its regions."""
    clients = [await stack.enter_async_context(gamecast.connect(url, name=f"ring-{regions}")) for regions in RING]
    for client, regions in zip(clients, RING, strict=True):
        await client.subscribe(*regions)
    return clients


async def connected(stack: AsyncExitStack, processes: Sequence[gamecast.Shared], *names: str) -> list[Client]:
    """Open a connection in each process."""
    opening = zip(processes, names, strict=True)
    return [await stack.enter_async_context(process.connect(name=name)) for process, name in opening]


async def test_who_has_nothing_to_do_with_what_moves_joins_while_that_cannot_go_on(
    redis_server: EmbeddedServer,
) -> None:
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url) as relays:
        clients = await ring(url, stack)
        apart = await stack.enter_async_context(gamecast.connect(url, name="apart"))
        await apart.subscribe("x", "y")
        plan = await apart.plan()
        assert plan is not None
        assert plan.links
        await relays.stop()
        for region in "abcdef":
            await clients[0].publish(region, "stays on its link")
        late = await stack.enter_async_context(gamecast.connect(url, name="late"))
        moving = asyncio.create_task(late.subscribe("a", "c", "e"))
        async with patience(10):
            while (await survey(url)).transition is None:  # noqa: ASYNC110 - the survey is taken from outside
                await asyncio.sleep(0.05)
        async with patience(5):
            await apart.subscribe("z")
            await apart.unsubscribe("x")
            other = await stack.enter_async_context(gamecast.connect(url, name="other"))
            await other.subscribe("z")
            await other.publish("z", 1)
            assert [event.payload for event in await take(apart, 1)] == [1]
        assert not moving.done()
        again = RedisRelays(url)
        again.start()
        stack.push_async_callback(again.stop)
        async with patience(20):
            await moving
            await late.publish("a", 2)
        found = await survey(url)
        assert {each.name: each.waiting for each in found.connections if each.waiting} == {}


async def test_what_a_join_costs_does_not_grow_with_the_connections(three_redis_servers: EmbeddedServers) -> None:
    url, *others = three_redis_servers.urls
    costs: list[list[float]] = []
    async with three_nodes(url, *others), gamecast.share(url) as process, AsyncExitStack() as stack:
        clients: list[Client] = []
        with redis.Redis.from_url(url) as client:  # it has no node, so all that it does is for joins

            def spent() -> tuple[int, int]:
                info = client.info("stats")
                return info["total_net_input_bytes"], info["total_net_output_bytes"]

            for connections in (12, 204):
                for number in range(len(clients), connections):
                    clients.append(await stack.enter_async_context(process.connect(name=f"s{number}")))
                    await clients[-1].subscribe(f"r{number} 0", f"r{number} 1")
                before = spent()
                for number in range(60):
                    await clients[number % 12].subscribe(f"{connections} {number}")
                costs.append([(now - then) / 60 for now, then in zip(spent(), before, strict=True)])
    [few, many] = costs
    # There are 17 times as many connections. Their heartbeats count as well, and more of them on a busy machine.
    assert many[0] < 2 * few[0], costs
    assert many[1] < 2 * few[1], costs


async def test_a_join_wakes_only_the_processes_that_it_concerns(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters.redis.news, "BLOCK_MS", 60_000)
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url):
        _, apart = processes = [await stack.enter_async_context(gamecast.share(url)) for _ in range(2)]
        walker, stays = await connected(stack, processes, "walker", "stays")
        await walker.subscribe("begin")
        await stays.subscribe("home")
        woken = await woken_by(url, lambda: walker.subscribe(*(f"new {number}" for number in range(3))))
        assert woken == 1, "the process of the walker alone"
        async with patience(5):  # what others began meanwhile is read when it matters
            await stays.publish("new 1", "from elsewhere")
            assert (await take(walker, 1))[0].payload == "from elsewhere"
            await stays.subscribe("new 2")
            await walker.publish("new 2", "to both")
            assert (await take(stays, 1))[0].payload == "to both"
            publisher = await stack.enter_async_context(apart.connect(name="publisher"))
            waiting = asyncio.create_task(publisher.publish("without readers", 1))
            await waiting
        # A name that counts as gone, and comes back, is woken where it was.
        with redis.Redis.from_url(url) as client:
            client.zadd(ControlKeys.alive, {"stays": 0})
            async with patience(5):
                await until(lambda: client.hget(ControlKeys.boxes, "stays") is None)
            async with patience(10):
                await until(lambda: client.hget(ControlKeys.boxes, "stays") is not None)
        async with patience(5):
            await stays.subscribe("late")


async def test_who_is_not_concerned_for_long_has_missed_nothing(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters.redis.news, "BLOCK_MS", 60_000)
    monkeypatch.setattr(adapters.redis.ledger, "NEWS_KEPT", 32)
    monkeypatch.setattr(adapters.redis.ledger, "FOR_ALL_EVERY", 8)
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url):
        processes = [await stack.enter_async_context(gamecast.share(url)) for _ in range(2)]
        walker, stays = await connected(stack, processes, "walker", "stays")
        await stays.subscribe("home")
        for number in range(80):
            await walker.subscribe(f"new {number}")
        async with patience(5):
            await stays.subscribe("new 79")
            await walker.publish("new 79", 1)
            assert (await take(stays, 1))[0].payload == 1


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("leaves", [True, False])
async def test_who_was_taken_for_gone_and_walks_on_before_its_heartbeat_keeps_all_that_it_has(
    redis_server: EmbeddedServer, *, is_shared: bool, leaves: bool
) -> None:
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url):
        lead = await stack.enter_async_context(gamecast.connect(url, name="lead", resume_s=1.0))
        await lead.subscribe("home")
        process = await stack.enter_async_context(gamecast.share(url))
        connecting = process.connect(name="me") if is_shared else gamecast.connect(url, name="me")
        me = await stack.enter_async_context(connecting)
        await me.subscribe("a", "b")
        with redis.Redis.from_url(url) as client:
            client.zadd(ControlKeys.alive, {"me": 0})
            await until(lambda: client.hget(ControlKeys.connections, "me") is None)
            async with patience(10):
                await (me.unsubscribe("b") if leaves else me.subscribe("c"))
                wanted = {b"a"} if leaves else {b"a", b"b", b"c"}
                await until(lambda: set(client.hkeys(ControlKeys.rows("me"))) == wanted)
        await asyncio.sleep(1.5)  # for longer than what it had is kept where it is not there
        others = [await stack.enter_async_context(gamecast.connect(url, name=name)) for name in ("x", "y")]
        await others[0].subscribe("a", "d")
        await others[1].subscribe("a", "d", "e")
        await others[0].publish("a", "after the epoch")
        assert [event.payload for event in await take(me, 1)] == ["after the epoch"]


async def test_who_waits_to_publish_is_woken_when_another_begins_the_region(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters.redis.news, "BLOCK_MS", 60_000)
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url):
        processes = [await stack.enter_async_context(gamecast.share(url)) for _ in range(2)]
        joins, publishes = await connected(stack, processes, "s0", "s1")
        await joins.subscribe("home")
        for number in range(40):
            async with patience(5):
                await asyncio.gather(publishes.publish(f"new {number}", 1), joins.subscribe(f"new {number}"))


async def woken_by(url: str, act: Callable[[], Awaitable[object]]) -> int:
    """Return how many processes are woken for what is awaited."""
    with redis.Redis.from_url(url) as client:

        def entries() -> set[tuple[bytes, object]]:
            keys = [*client.scan_iter("gamecast:{control}:box:*"), ControlKeys.woken.encode()]
            return {(key, entry[0][0]) for key in keys if (entry := client.xrevrange(key, count=1))}

        before = entries()
        await act()
        return len({key for key, _ in entries() - before})


async def test_names_that_come_and_go_leave_nothing_behind_where_links_are(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters.leader, "PACE", replace(adapters.leader.PACE, forget_every_s=0.2))
    url = redis_server.url
    async with AsyncExitStack() as stack, three_nodes(url):
        await stack.enter_async_context(gamecast.connect(url, name="leads", resume_s=0.1))
        clients = await ring(url, stack)
        plan = await clients[0].plan()
        assert plan is not None
        assert plan.links
        process = await stack.enter_async_context(gamecast.share(url))
        for round_ in range(3):

            async def come_and_go(number: int) -> None:
                async with process.connect(name=f"guest {number}") as guest:
                    await guest.subscribe("a")

            await asyncio.gather(*(come_and_go(20 * round_ + number) for number in range(20)))
        with redis.Redis.from_url(url) as client:
            async with patience(20):
                await until(lambda: not [*client.scan_iter("gamecast:{control}:*guest*")])
                await until(lambda: client.hlen(ControlKeys.heard) <= 7)
        await clients[0].publish("a", 1)
        assert [event.payload for event in await take(clients[0], 1)] == [1]
