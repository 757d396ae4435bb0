"""What happens when processes die, servers restart, memory is full, or strangers answer."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import pytest
import redis

import gamecast
from adapters import leader
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.leadership import TTL_MS
from adapters.redis.connection import RedisConnection
from adapters.redis.control import BORN, SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.node import RedisNode
from adapters.redis.relays import RedisRelays
from gamecast import Client, Event, Gap
from gamecast.client.configuration import LimitOptions
from sequencing.frames import PublishedFrame
from sequencing.keyspace import NodeKeys
from sequencing.node import Verdict
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from tests.events import take
from tests.integration.networks import register
from tests.integration.node_processes import end, start_node
from tests.patience import patience, scaled, until

CHAIN = {f"s{number}": tuple(pair) for number, pair in enumerate(("ab", "ab", "bc", "bc", "cd", "cd"))}
"""Memberships under which three nodes have something to forward."""


@asynccontextmanager
async def casts_on(url: str) -> AsyncIterator[dict[str, Client]]:
    async with AsyncExitStack() as stack:
        casts = {name: await stack.enter_async_context(gamecast.connect(url, name=name)) for name in CHAIN}
        for name, cast in casts.items():
            await cast.subscribe(*CHAIN[name])
        yield casts


async def publish_and_check(casts: dict[str, Client], rounds: int, disturb: Callable[[int], None]) -> None:
    """Publish from everyone, disturbing each round, and check that everybody got everything once, in one order."""
    receipts: list[asyncio.Future[gamecast.Receipt]] = []
    for number in range(rounds):
        for name, cast in casts.items():
            receipts += [cast.publish_async(region, f"{name}:{number}:{region}") for region in CHAIN[name]]
        disturb(number)
        await asyncio.sleep(0.02)
    done = await asyncio.gather(*receipts)
    orders = {}
    for name, cast in casts.items():
        count = sum(receipt.region in CHAIN[name] for receipt in done)
        orders[name] = [(event.region, event.sequence) for event in await take(cast, count)]
        assert len(set(orders[name])) == count
    for one in orders.values():
        for other in orders.values():
            common = set(one) & set(other)
            assert [e for e in one if e in common] == [e for e in other if e in common]


async def test_relays_killed_again_and_again_lose_and_repeat_nothing(three_redis_servers: EmbeddedServers) -> None:
    urls = three_redis_servers.urls
    places = dict(zip(("n1", "n2", "n3"), urls, strict=True))
    processes = {name: start_node(name, url, urls[0]) for name, url in places.items()}

    def kill_one(number: int) -> None:
        if number % 20 == 10:
            name = ("n1", "n2")[number // 20 % 2]
            killed = processes[name]
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert killed.stderr is not None
            killed.stderr.close()
            processes[name] = start_node(name, places[name], urls[0])

    try:
        async with casts_on(urls[0]) as casts:
            await publish_and_check(casts, 80, kill_one)
            plan = await casts["s0"].plan()
            assert plan is not None
            assert plan.links, "the plan forwards nothing, so no relay was tried"
    finally:
        for process in processes.values():
            end(process)


async def test_frames_read_but_not_acknowledged_by_a_dead_relay_arrive_once(
    three_redis_servers: EmbeddedServers,
) -> None:
    source = RedisNode("n1", three_redis_servers.urls[0])
    target = RedisNode("n2", three_redis_servers.urls[1])
    plan = Plan(1, 1, "overlap", dict.fromkeys(("n1", "n2"), ""), {"a": ("n1", "n2")}, ())
    for node in (source, target):
        await node.install(plan, 1000)
    await source.publish([PublishedFrame("a", 1, "s", 1, first, 1, b"[0,[0],[1]]") for first in range(1, 6)])
    first_read = await source.read_link("n2", 0, frames_max=3, block_ms=100)
    assert (await target.transfer("n1", first_read)).accepted == 3
    again = await source.read_link("n2", 0, frames_max=10, block_ms=100)
    assert [linked.sequence for linked in again] == [1, 2, 3, 4, 5]
    assert (await target.transfer("n1", again)).accepted == 5
    await source.acknowledge("n2", 5)
    frames, _ = await target.read({"a": (1, 0)}, frames_max=10, block_ms=100)
    assert [frame.last for frame in frames] == [1, 2, 3, 4, 5]
    for node in (source, target):
        await node.close()


async def test_two_relays_on_every_link_repeat_nothing(three_redis_servers: EmbeddedServers) -> None:
    urls = three_redis_servers.urls
    processes = [start_node(name, url, urls[0]) for name, url in zip(("n1", "n2", "n3"), urls, strict=True)]
    more = RedisRelays(urls[0])
    more.start()
    try:
        async with casts_on(urls[0]) as casts:
            await publish_and_check(casts, 40, lambda _: None)
    finally:
        await more.stop()
        for process in processes:
            end(process)


async def test_killing_redis_loses_nothing_that_was_acknowledged_when_it_syncs_always() -> None:
    async with EmbeddedServer(appendfsync="always") as server, casts_on(server.url) as casts:

        def kill(number: int) -> None:
            if number % 20 == 10:
                server.kill()
                server.restart()

        await publish_and_check(casts, 60, kill)
        assert casts["s0"].statistics().reconnects > 0


async def test_scripts_that_the_server_has_forgotten_are_loaded_again(redis_server: EmbeddedServer) -> None:
    async with casts_on(redis_server.url) as casts:
        with redis.Redis.from_url(redis_server.url) as client:
            await publish_and_check(casts, 20, lambda _: client.script_flush())


async def test_a_full_redis_refuses_for_certain_and_goes_on_when_there_is_room(redis_server: EmbeddedServer) -> None:
    async with casts_on(redis_server.url) as casts:
        cast = casts["s0"]
        before = await cast.publish("a", "before")
        with redis.Redis.from_url(redis_server.url) as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(gamecast.OutOfMemory, match="OOM") as raised:
                await cast.publish("a", "x" * 1000)
            assert raised.value.definite
            assert raised.value.retriable
            client.config_set("maxmemory", "0")
        assert (await cast.publish("a", "after")).sequence == before.sequence + 1
        assert [event.payload for event in await take(cast, 2)] == ["before", "after"]


async def test_a_redis_that_cannot_write_to_its_disk_refuses_for_certain_and_goes_on_when_it_can() -> None:
    with EmbeddedServer(settings={"save": "3600 1000"}) as server, redis.Redis.from_url(server.url) as client:
        async with casts_on(server.url) as casts:
            cast = casts["s0"]
            before = await cast.publish("a", "before")
            in_the_way = server.directory / "dump.rdb"
            in_the_way.mkdir()
            await snapshot(client, expected="err")
            for _ in range(2):
                with pytest.raises(gamecast.CannotPersist, match="MISCONF") as raised:
                    await cast.publish("a", "refused")
                assert raised.value.definite
                assert raised.value.retriable
            joining = asyncio.create_task(cast.subscribe("new"))
            with pytest.raises(gamecast.CannotPersist):
                await gamecast.connect(server.url, name="late").open()
            assert not joining.done()
            in_the_way.rmdir()
            await snapshot(client, expected="ok")
            await joining
            assert (await cast.publish("a", "after")).sequence == before.sequence + 1
            assert [event.payload for event in await take(cast, 2)] == ["before", "after"]


async def test_events_wait_while_a_server_is_a_replica_and_go_out_when_it_is_a_master_again(
    redis_server: EmbeddedServer,
) -> None:
    async with casts_on(redis_server.url) as casts:
        cast = casts["s0"]
        before = await cast.publish("a", "before")
        with redis.Redis.from_url(redis_server.url) as client:
            client.replicaof("127.0.0.1", "1")  # nobody is there: it keeps what it has
            reconnects = cast.statistics().reconnects
            waiting, joining = cast.publish_async("a", "after"), asyncio.create_task(cast.subscribe("new"))
            # Its reading is broken off once; all else is publishing that is tried again.
            await until(lambda: cast.statistics().reconnects >= reconnects + 3)
            assert not waiting.done()
            assert not joining.done()
            client.replicaof("NO", "ONE")
        async with patience(20):
            assert (await waiting).sequence == before.sequence + 1
            await joining
        assert [event.payload for event in await take(cast, 2)] == ["before", "after"]


async def snapshot(client: redis.Redis, *, expected: str) -> None:
    """Have Redis write a snapshot, until that ends as expected."""
    async with patience(10):
        while client.info("persistence")["rdb_last_bgsave_status"] != expected:
            with suppress(redis.ResponseError):  # one is under way
                client.bgsave()
            await asyncio.sleep(0.05)


async def test_a_stalled_server_is_given_up_and_its_late_answers_are_never_taken_for_others(
    redis_server: EmbeddedServer,
) -> None:
    connection = RedisConnection(redis_server.url)
    assert await connection.call("SET", "k", "value") == b"OK"
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(gamecast.Unreachable):
            await connection.call("INCR", "n", timeout_s=0.1)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    assert await connection.call("GET", "k") == b"value"
    await connection.close()


async def test_events_published_to_a_stalled_server_fail_in_time_or_arrive_once(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s", publish_timeout_s=0.2) as cast:
        await cast.subscribe("a")
        before = await cast.publish("a", "before")
        os.kill(redis_server.pid, signal.SIGSTOP)
        try:
            stalled = [cast.publish_async("a", "x" * 900_000) for _ in range(20)]
            async with patience(25):
                done = await asyncio.gather(*stalled, return_exceptions=True)
            assert all(isinstance(outcome, gamecast.NetworkError) for outcome in done)
        finally:
            os.kill(redis_server.pid, signal.SIGCONT)
        receipt = None
        async with patience(15):
            while receipt is None:
                with suppress(gamecast.NetworkError):
                    receipt = await cast.publish("a", "after")
        seen = [event.sequence for event in await take(cast, receipt.sequence - before.sequence + 1)]
        assert seen == list(range(before.sequence, receipt.sequence + 1))


async def test_a_frame_of_an_epoch_that_is_over_does_not_jam_its_link(three_redis_servers: EmbeddedServers) -> None:
    source = RedisNode("n1", three_redis_servers.urls[0])
    target = RedisNode("n2", three_redis_servers.urls[1])
    nodes = dict.fromkeys(("n1", "n2"), "")
    frame = PublishedFrame("a", 1, "s", 1, 1, 1, b"[0,[0],[1]]")
    for node in (source, target):
        await node.install(Plan(1, 1, "overlap", nodes, {"a": ("n1", "n2")}, ()), 1000)
    await source.publish([frame])
    for node in (source, target):
        await node.install(Plan(2, 1, "overlap", nodes, {"a": ("n2",), "b": ("n1", "n2")}, ()), 1000)
    await target.publish([replace(frame, epoch=2, publisher="t")])
    await source.publish([replace(frame, region="b", epoch=2)])
    late = await source.read_link("n2", 0, frames_max=10, block_ms=100)
    assert [linked.frame.epoch for linked in late] == [1, 2]
    assert (await target.transfer("n1", late)).accepted == 2
    for epoch in (1, 2):
        frames, _ = await target.read({"a": (epoch, 0)}, frames_max=10, block_ms=100)
        assert [frame.epoch for frame in frames] == [epoch]
    frames, _ = await target.read({"b": (2, 0)}, frames_max=10, block_ms=100)
    assert len(frames) == 1
    for node in (source, target):
        await node.close()


async def count_as_gone(client: redis.Redis, name: str) -> None:
    """Have a connection count as not heard of for too long, and wait until the leader has seen it."""
    client.zadd(ControlKeys.alive, {name: 0})
    await until(lambda: not client.hexists(ControlKeys.connections, name))


async def plan_for(url: str) -> None:
    """Have a network of one node make plans, as those of several do."""
    await register(url, {"n1": ""}, may_lose=True)


async def test_who_was_taken_for_gone_goes_on_as_if_nothing_had_been(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="frozen") as frozen,
        gamecast.connect(redis_server.url, name="other") as other,
    ):
        for cast in (frozen, other):
            await cast.subscribe("a", "b")
        with redis.Redis.from_url(redis_server.url) as client:
            await count_as_gone(client, "frozen")
            await other.subscribe("c")
            await other.publish("a", 1)
            await frozen.ping()
            await until(lambda: client.hexists(ControlKeys.said, "frozen"))
        await frozen.publish("b", 2)
        await frozen.subscribe("c")
        await other.publish("c", 3)
        assert [[event.payload for event in await take(cast, 3)] for cast in (frozen, other)] == [[1, 2, 3]] * 2


async def test_that_one_counted_as_gone_may_be_told_to_nobody_once(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="frozen") as frozen:
        await frozen.subscribe("a")
        with redis.Redis.from_url(redis_server.url) as client:
            await count_as_gone(client, "frozen")
            control = LeaderControl(redis_server.url)
            assert await control.beat("frozen", frozen._network._connection)  # type: ignore[attr-defined]
            await control.close()
            await frozen.ping()
            await until(lambda: client.hkeys(ControlKeys.rows("frozen")) == [b"a"])


async def test_who_was_gone_while_another_had_its_name_is_told_so(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="x") as gone:
        await gone.subscribe("a")
        with redis.Redis.from_url(redis_server.url) as client:
            await count_as_gone(client, "x")
        async with gamecast.connect(redis_server.url, name="x") as other:
            await other.subscribe("a")
            await other.publish("a", 1)
        with pytest.raises(gamecast.Superseded):
            await gone.ping()
        with pytest.raises(gamecast.Superseded):
            await gone.subscribe("b")


async def test_whom_the_network_went_on_without_is_told_and_comes_back(redis_server: EmbeddedServer) -> None:
    await plan_for(redis_server.url)
    async with (
        gamecast.connect(redis_server.url, name="frozen", resume_s=0.01) as frozen,
        gamecast.connect(redis_server.url, name="other", resume_s=0.01) as other,
    ):
        for cast in (frozen, other):
            await cast.subscribe("a", "b")
        receipt = await other.publish("a", 0)
        assert [event.payload for event in await take(frozen, 1)] == [0]
        with redis.Redis.from_url(redis_server.url) as client:
            await count_as_gone(client, "frozen")
        await asyncio.sleep(0.1)  # longer than it may be away
        await other.declare_overlaps([("a", "b")])
        with pytest.raises(gamecast.SessionExpired, match="went on without 'frozen'"):
            await take(frozen, 1)
        with pytest.raises(gamecast.SessionExpired):
            await frozen.subscribe("c")
        with pytest.raises(gamecast.SessionExpired):
            await frozen.publish("a", 0)
        for publish in (lambda: frozen.publish_async("a", 0), lambda: frozen.publish_batch([("a", 0)])):
            with pytest.raises(gamecast.SessionExpired):
                publish()
        async with gamecast.connect(redis_server.url, name="frozen") as again:
            await again.subscribe("a", "b", since={"a": f"{receipt.epoch}-{receipt.sequence}", "b": 0})
            await other.publish("a", 1)
            assert [event.payload for event in await take(again, 1)] == [1]
            assert [event.payload for event in await take(other, 2)] == [0, 1]


async def test_nobody_is_taken_for_gone_because_the_control_redis_was_away() -> None:
    async with (
        EmbeddedServer(appendfsync="always") as server,
        gamecast.connect(server.url, name="one") as one,
        gamecast.connect(server.url, name="other") as other,
    ):
        await one.subscribe("a")
        with redis.Redis.from_url(server.url) as client:
            long_ago = time.time() * 1000 - 60_000
            client.set(ControlKeys.looked, f"{long_ago:.0f}")
            client.zadd(ControlKeys.alive, dict.fromkeys(("one", "other"), long_ago + TTL_MS / 2))
        server.kill()
        server.restart()
        await other.subscribe("a")
        await other.publish("a", 1)
        assert [len(await take(cast, 1)) for cast in (one, other)] == [1, 1]


async def test_an_ingress_that_stays_away_fails_publishes_as_uncertain(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s", publish_timeout_s=0.3) as cast:
        await cast.publish("a", 1)
        redis_server.kill()
        with pytest.raises(gamecast.PublishUncertain) as raised:
            await cast.publish("a", 2)
        assert not raised.value.definite
        assert raised.value.retriable


async def test_publishing_goes_on_after_an_outage_under_new_numbers() -> None:
    async with (
        EmbeddedServer(appendfsync="always") as server,
        gamecast.connect(server.url, name="s", publish_timeout_s=0.2) as cast,
    ):
        await cast.subscribe("a")
        before = await cast.publish("a", 1)
        server.kill()
        with pytest.raises(gamecast.NetworkError):
            await cast.publish("a", "in the dark")
        server.restart()
        failures: list[gamecast.NetworkError] = []
        receipt: gamecast.Receipt | None = None
        async with patience(15):
            while receipt is None:
                try:
                    receipt = await cast.publish("a", 2)
                except gamecast.NetworkError as error:
                    failures.append(error)
        assert receipt.sequence == before.sequence + 1
        assert all(failure.definite for failure in failures)
        assert [event.payload for event in await take(cast, 2)] == [1, 2]


async def test_a_connection_tells_while_a_server_is_away_and_when_it_is_back() -> None:
    async with EmbeddedServer(appendfsync="always") as server:
        cast, states = gamecast.connect(server.url, name="cast"), list[gamecast.Status]()
        changed = asyncio.Event()

        @cast.on_status
        async def note(state: gamecast.Status) -> None:
            states.append(state)
            changed.set()

        async def becomes(name: str) -> gamecast.Status:
            async with patience(20):
                while not states or states[-1].name != name:
                    changed.clear()
                    await changed.wait()
            return states[-1]

        async with cast:
            await becomes("connected")
            await cast.subscribe("a")
            server.kill()
            assert isinstance((await becomes("disconnected")).error, gamecast.Unreachable)
            await server.restart_async()
            await becomes("connected")
            await cast.publish("a", 1)
            assert [event.payload for event in await cast.fetch(timeout=scaled(10)) if isinstance(event, Event)] == [1]
        await becomes("closed")
        # Ways are lost and found one by one, and on a busy machine again.
        assert [state.name for state in states] == [
            "connected",
            *["disconnected", "connected"] * (len(states) // 2 - 1),
            "closed",
        ]


async def test_what_was_cast_and_failed_is_told_and_leaves_no_noise(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[gamecast.PublishFailure] = []
    async with gamecast.connect(redis_server.url, name="cast", publish_timeout_s=0.3) as cast:
        await cast.publish("a", "before")
        redis_server.kill()
        for number in range(100):
            cast.publish_nowait("a", number)
        await until(lambda: cast.statistics().refused_events >= 100)
        cast.on_publish_error(failed.append)
        cast.publish_nowait("a", "once more")
        await until(lambda: failed)
        await redis_server.restart_async()
    assert [(each.region, each.events) for each in failed] == [("a", 1)]
    assert isinstance(failed[0].error, gamecast.NetworkError)
    said = [record.getMessage() for record in caplog.records]
    assert sum("may not have been published" in line for line in said) == 1
    assert not any("never retrieved" in line for line in said)


async def test_a_server_without_room_for_another_client_says_so() -> None:
    async with EmbeddedServer(settings={"maxclients": "1"}) as server:
        with redis.Redis.from_url(server.url) as client:
            client.ping()
            with pytest.raises(gamecast.Unreachable, match="accepts no more connections"):
                await gamecast.connect(server.url).open()


async def test_nothing_answers_at_the_url() -> None:
    with pytest.raises(gamecast.Unreachable, match="is a server running there") as raised:
        await gamecast.connect(f"redis://127.0.0.1:{free_port()}").open()
    assert raised.value.definite
    assert raised.value.retriable


async def test_a_wrong_password_is_told_apart_and_not_repeated() -> None:
    async with EmbeddedServer(password="open sesame") as server:
        async with gamecast.connect(server.url) as cast:
            await cast.publish("a", 1)
        for url in (server.url.replace("open%20sesame", "s3cret"), server.url.replace(":open%20sesame@", "")):
            with pytest.raises(gamecast.AuthenticationFailed) as raised:
                await gamecast.connect(url).open()
            assert "s3cret" not in str(raised.value)
            assert not raised.value.retriable


async def test_a_server_that_is_too_old_is_refused() -> None:
    async with server_that_claims("5.0.14") as url:
        with pytest.raises(gamecast.UnsupportedServer, match=r"5\.0\.14 is too old: gamecast needs 6\.2"):
            await gamecast.connect(url).open()


async def test_a_node_that_is_away_gets_nothing_new_and_holds_up_nobody(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="first") as first:
        await register(redis_server.url, {"n1": "", "n2": f"redis://127.0.0.1:{free_port()}"})
        async with casts_on(redis_server.url) as casts:
            await publish_and_check(casts, 5, lambda _: None)
        plan = await first.plan()
        assert plan is not None
        assert {node for path in plan.paths.values() for node in path} == {"n1"}


async def test_a_node_that_never_comes_back_is_replaced_by_an_empty_one_that_may_lose() -> None:
    async with EmbeddedServer() as server, EmbeddedServer() as node:
        control = LeaderControl(server.url)
        await control.register_node("n1", node.url)
        async with (
            gamecast.connect(server.url, name="one") as one,
            gamecast.connect(server.url, name="other", publish_timeout_s=0.5) as other,
        ):
            for cast in (one, other):
                await cast.subscribe("a", "b")
            await other.publish("a", "before")
            assert [event.payload for cast in (one, other) for event in await take(cast, 1)] == ["before"] * 2
            node.kill()
            node.restart()  # with nothing of what it had, which nobody expects
            with suppress(gamecast.GamecastError):  # unless its closed connection was noticed before
                await other.publish("a", "into the void")
            await control.register_node("n1", node.url, may_lose=True)
            async with patience(20):
                while True:
                    with suppress(gamecast.GamecastError):
                        await other.publish("a", "after")
                        break
                for cast in (one, other):
                    gaps = 0
                    async for item in cast:
                        gaps += isinstance(item, Gap)
                        if isinstance(item, Event) and item.payload == "after":
                            break
                    assert gaps, "what the node had is announced"
        await control.close()


async def test_a_node_that_syncs_every_second_goes_on_and_what_it_may_have_lost_is_a_gap() -> None:
    """A killed server keeps what it has written; after a power loss, its disk may lack the last second."""
    async with EmbeddedServer(appendfsync="always") as server, EmbeddedServer(appendfsync="everysec") as node:
        await register(server.url, {"n1": node.url}, may_lose=True)
        async with (
            gamecast.connect(server.url, name="one") as one,
            gamecast.connect(server.url, name="other", publish_timeout_s=20) as other,
            patience(60),
        ):
            await one.subscribe("a")
            sent = 0
            for _ in range(2):
                for _ in range(20):
                    with suppress(gamecast.PublishUncertain):
                        await other.publish("a", sent)
                    sent += 1
                node.kill()
                await node.restart_async()
            while True:
                with suppress(gamecast.PublishUncertain):
                    await other.publish("a", "after")
                    break
            seen: list[object] = []
            async for item in one:
                seen.append(item.payload if isinstance(item, Event) else "gap")
                if seen[-1] == "after":
                    break
            numbers = [each for each in seen if isinstance(each, int)]
            assert numbers == sorted(set(numbers))
            assert numbers == list(range(sent)) or "gap" in seen


async def test_when_no_node_can_be_reached_publishes_fail_for_certain_and_joins_wait() -> None:
    async with EmbeddedServer() as server, EmbeddedServer() as away:
        await register(server.url, {"n1": away.url})
        away.kill()
        async with gamecast.connect(server.url, publish_timeout_s=0.3) as cast:
            with pytest.raises(gamecast.Unreachable, match="no plan has a place") as raised:
                await cast.publish("a", 1)
            assert raised.value.definite
            joining = asyncio.create_task(cast.subscribe("a"))
            await asyncio.sleep(0.2)
            assert not joining.done()
            away.restart()
            await joining
            await cast.publish("a", 2)
            assert [event.payload for event in await take(cast, 1)] == [2]


async def test_a_causal_publisher_goes_on_after_its_ingress_stood_still_for_too_long(
    redis_server: EmbeddedServer,
) -> None:
    async with gamecast.connect(
        redis_server.url, name="s", ordering="causal", publish_timeout_s=0.5, subscribe_timeout_s=30
    ) as cast:
        await cast.subscribe("a", "b", "c")
        await cast.publish("a", 0)
        os.kill(redis_server.pid, signal.SIGSTOP)
        try:
            waiting = [cast.publish_async(region, number) for number, region in enumerate("abcabc", start=1)]
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            os.kill(redis_server.pid, signal.SIGCONT)
        assert all(isinstance(each, gamecast.GamecastError) for each in outcomes), outcomes
        async with patience(20):
            while True:
                with suppress(gamecast.GamecastError):
                    receipts = [await cast.publish(region, region) for region in "cab"]
                    break
        assert [receipt.region for receipt in receipts] == ["c", "a", "b"]


async def test_an_error_that_nobody_expected_fails_what_is_published_and_is_logged_once(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with gamecast.connect(redis_server.url, name="s") as cast:
        await cast.publish("a", 0)

        def wrong(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(Publisher, "answered", wrong)
        monkeypatch.setattr(Publisher, "answered_lone", wrong)
        async with patience(10):
            with pytest.raises(gamecast.GamecastError, match="a bug"):
                await cast.publish("a", 1)
            with pytest.raises(gamecast.GamecastError, match="a bug"):
                await cast.publish("b", 2)
        assert [record.name for record in caplog.records if record.exc_info] == ["gamecast.client.serving"]


@pytest.mark.parametrize(
    "url", ["http://x", "redis+replicas://127.0.0.1:1", "nonsense", "", "embedded://name", "memory://"]
)
async def test_a_url_of_an_unknown_kind_is_wrong_use(url: str) -> None:
    with pytest.raises(gamecast.UsageError) as raised:
        await gamecast.connect(url).open()
    assert raised.value.definite


async def test_a_frame_that_cannot_be_read_becomes_a_gap_in_its_place(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s") as cast:
        await cast.subscribe("a")
        _, epoch, last = await cast.publish("a", 1)
        assert len(await take(cast, 1)) == 1
        with redis.Redis.from_url(redis_server.url) as client:
            entry = {"m": "0 2 1 2 s", "s": "", "b": "not a body"}
            client.xadd(NodeKeys(SOLE_NODE).egress(epoch, "a"), entry, id=f"{epoch}-{last + 2}")
        async with patience(5):
            gap = await anext(cast)
        assert isinstance(gap, Gap)
        assert (gap.region, gap.first_sequence, gap.last_sequence) == ("a", last + 1, last + 2)
        assert "cannot be read" in gap.reason


async def test_events_that_the_node_no_longer_has_become_a_gap(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="other") as other,
        gamecast.connect(redis_server.url, name="slow", inbox_events_max=1) as cast,
    ):
        # Both have both, so an atom orders them; and b stays quiet.
        await other.subscribe("a", "b")
        await cast.subscribe("a", "b")
        first = (await cast.publish("a", 0)).sequence
        assert len(await take(cast, 1)) == 1
        for number in range(1, 401):
            await cast.publish("a", number)
        with redis.Redis.from_url(redis_server.url) as client:
            epoch = (await cast.publish("a", 401)).epoch
            client.xtrim(NodeKeys(SOLE_NODE).egress(epoch, "a"), maxlen=50, approximate=False)
        missing, last = 0, first
        async with patience(10):
            async for item in cast:
                if isinstance(item, Event):
                    assert item.sequence == last + 1
                    last = item.sequence
                else:
                    assert isinstance(item, Gap)
                    assert item.first_sequence == last + 1
                    missing += item.last_sequence - item.first_sequence + 1
                    last = item.last_sequence
                if last == first + 401:
                    break
        assert missing > 0


@asynccontextmanager
async def server_that_claims(version: str) -> AsyncIterator[str]:
    """Listen and answer INFO as a server of another version would; everything else is OK."""

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int((await reader.readline())[1:])
                words.append((await reader.readexactly(length + 2))[:-2])
            info = f"# Server\r\nredis_version:{version}\r\n".encode()
            writer.write(b"$%d\r\n%s\r\n" % (len(info), info) if words[0] == b"INFO" else b"+OK\r\n")
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        # The connection's end reaches the server in the loop's next rounds.
        async with patience(5):
            await ended.wait()


async def test_publishers_that_are_gone_are_forgotten_and_nothing_of_them_is_taken_later(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "PACE", replace(leader.PACE, forget_every_s=0.05))
    keys = NodeKeys(SOLE_NODE)
    async with gamecast.connect(redis_server.url, name="old", resume_s=0.05) as old:
        await old.subscribe("a")
        receipt = gamecast.Receipt("a", 0, 0)
        for number in range(30):
            async with gamecast.connect(redis_server.url, name=f"guest-{number}") as guest:
                receipt = await guest.publish("a", number)
                await guest.publish("b", number)
        with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
            await until(lambda: set(client.hkeys(keys.publishers)) == {"a\n", "b\n"})
            assert client.hkeys(ControlKeys.incarnations) == ["", BORN]
            assert int(client.hget(ControlKeys.incarnations, "") or 0) >= 31
        node = RedisNode(SOLE_NODE, redis_server.url)
        late = PublishedFrame("a", receipt.epoch, "guest-29", 31, 1, 1, b"[0,[0],[29]]")
        assert (await node.publish([late]))[0].verdict is Verdict.FORGOTTEN
        await node.close()
        # Who is there still goes on, also where it has not published before; and so does who comes back.
        await old.publish("b", "of old")
        await old.publish("a", "of old")
        async with gamecast.connect(redis_server.url, name="guest-29") as guest:
            await guest.publish("a", "again")
        payloads = [event.payload for event in await take(old, 32)]
        assert payloads == [*range(30), "of old", "again"]


async def test_an_event_that_is_too_large_for_its_server_is_told_as_that(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("proto-max-bulk-len", 20_000_000)
    limits = LimitOptions(payload_bytes_max=50_000_000, publish_timeout_s=5)
    async with gamecast.connect(redis_server.url, **limits) as cast:
        await cast.subscribe("a")
        with pytest.raises(gamecast.PublishUncertain, match=r"did not take 3\d MB in one request .*proto-max-bulk-len"):
            await cast.publish("a", bytes(30_000_000))
        assert (await cast.publish("a", bytes(10_000_000))).region == "a"
    with pytest.raises(gamecast.UsageError, match="payload_bytes_max is 500,000,000 at most"):
        gamecast.connect(redis_server.url, payload_bytes_max=500_000_001)
