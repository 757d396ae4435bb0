"""Where two calls of one connection meet: leaving while taking, replays that end, servers that hang."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from gamecast import Client, Event, Item, State, blocking
from gamecast.testing import memory_url
from tests.events import take
from tests.patience import patience, scaled, slowness, until


@pytest.fixture(params=["memory", "embedded"])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of a fresh network with one node, which lasts as long as the test."""
    async with gamecast.connect(memory_url() if request.param == "memory" else "embedded://") as keeper:
        yield keeper.url


async def arrived(client: Client, events: int) -> None:
    """Return when so many events wait for the application."""
    await until(lambda: client.statistics().inbox_events >= events)


@pytest.mark.parametrize("timeout_s", [0, 5, None])
async def test_take_returns_no_event_of_a_region_that_another_task_has_left(url: str, timeout_s: float | None) -> None:
    async with gamecast.connect(url, name="client") as client:
        await client.subscribe("forest", "river")
        await client.publish_batch([("forest", number) for number in range(3)])
        await arrived(client, 3)
        taking = asyncio.create_task(client.fetch(timeout=timeout_s))
        await asyncio.sleep(0)  # it has the three events, and looks whether there are more
        assert not taking.done()
        await client.unsubscribe("forest")
        await client.publish("river", "next")
        async with patience(10):
            taken = await taking or await client.fetch(timeout=None)
        assert [item.region for item in taken if not isinstance(item, State)] == ["river"]


async def test_a_cancelled_take_brings_back_no_event_of_a_region_that_was_left(url: str) -> None:
    async with gamecast.connect(url, name="client") as client:
        await client.subscribe("forest", "river")
        await client.publish_batch([("forest", 0), ("river", 1), ("forest", 2)])
        await arrived(client, 3)
        taking = asyncio.create_task(client.fetch())
        await asyncio.sleep(0)
        await client.unsubscribe("forest")
        taking.cancel()
        await asyncio.wait((taking,))
        assert [event.payload for event in await take(client, 1)] == [1]


async def taking(client: Client, got: list[Item]) -> None:
    while True:
        got += await client.fetch(10, timeout=None)


async def iterating(client: Client, got: list[Item]) -> None:
    async for item in client:
        got.append(item)
        await asyncio.sleep(0)


async def by_batches(client: Client, got: list[Item]) -> None:
    async for batch in client.batches():
        got += batch
        await asyncio.sleep(0)


async def handling(client: Client, got: list[Item]) -> None:
    client.on("*")(got.append)
    await client.run()


DOORS = {"take": taking, "iterate": iterating, "batches": by_batches, "run": handling}
"""The ways to get events; each adds what it gets to a list."""


def payloads(items: list[Item]) -> list[object]:
    """Return what the events among some items carry."""
    return [item.payload for item in items if isinstance(item, Event)]


@pytest.mark.parametrize("door", [*DOORS])
async def test_whatever_hands_out_events_has_none_of_a_region_that_was_left_and_all_of_the_others(
    url: str, door: str
) -> None:
    got: list[Item] = []
    async with gamecast.connect(url, name="client") as client, gamecast.connect(url, name="other") as other:
        await client.subscribe("forest", "river")
        getting = asyncio.ensure_future(DOORS[door](client, got))
        for number in range(8):
            await other.publish_batch([("forest", number), ("river", number)] * 20)
            for _ in range(number):
                await asyncio.sleep(0)
            await client.unsubscribe("forest")
            before = len(got)
            await other.publish_batch([("river", "end")])
            await until(lambda: "end" in payloads(got[-1:]))
            assert {item.region for item in got[before:] if not isinstance(item, State)} == {"river"}
            got.clear()
            await client.subscribe("forest")
        getting.cancel()
        await asyncio.wait((getting,))


def test_a_thread_gets_no_event_of_a_region_that_another_thread_has_left() -> None:
    with blocking.connect(memory_url(), name="client") as client:
        client.subscribe("forest", "river")
        got: list[Item] = []
        wait = client._wait
        came, left = threading.Event(), threading.Event()

        def late(call: object) -> object:
            found = wait(call)  # type: ignore[arg-type, var-annotated]
            if threading.current_thread() is thread:
                came.set()
                left.wait(10)
            return found

        thread = threading.Thread(target=lambda: got.extend(client.fetch(timeout=10)))
        client._wait = late  # type: ignore[method-assign, assignment]
        client.publish_batch([("forest", 1), ("river", 2)])
        thread.start()
        assert came.wait(10)
        client.unsubscribe("forest")
        left.set()
        thread.join(10)
        assert [item.region for item in got if not isinstance(item, State)] == ["river"]


@pytest.mark.parametrize("door", [*DOORS])
@pytest.mark.parametrize("events", [0, 1, 100])
async def test_replayed_events_say_so_and_the_end_of_a_replay_is_reported_between_them_and_live_ones(
    url: str, door: str, events: int
) -> None:
    got: list[Item | frozenset[str]] = []
    async with gamecast.connect(url, name="other") as other, gamecast.connect(url, name="client") as client:
        await other.publish_batch([(("forest", "river")[number % 2], number) for number in range(events)])
        client.on_caught_up(got.append)
        getting = asyncio.ensure_future(DOORS[door](client, got))  # type: ignore[arg-type]
        await client.subscribe("forest", "river", since=0)
        await client.subscribe("lake")
        await until(lambda: frozenset({"forest", "river"}) in got)
        for number in range(3):
            await other.publish("forest", events + number)
        await until(lambda: len(got) >= events + 4)
        getting.cancel()
        await asyncio.wait((getting,))
    assert got[events] == frozenset({"forest", "river"})
    delivered = [item for item in got if isinstance(item, Event)]
    assert sorted(event.payload for event in delivered) == list(range(events + 3))
    assert [event.replayed for event in delivered] == [True] * events + [False] * 3


async def test_a_tick_loop_hears_that_a_replay_has_ended_when_it_asks_again(url: str) -> None:
    async with gamecast.connect(url, name="other") as other, gamecast.connect(url, name="client") as client:
        await other.publish_batch([("forest", number) for number in range(100)])
        ended: list[frozenset[str]] = []
        client.on_caught_up(ended.append)
        await client.subscribe("forest", since=0)
        seen = 0
        async with patience(10):
            while not ended:
                taken = await client.fetch(7)
                seen += len(taken)
                assert not (taken and ended)
                await asyncio.sleep(0.001)
        assert (seen, ended) == (100, [frozenset({"forest"})])


async def test_the_end_of_a_replay_names_no_region_that_was_left(url: str) -> None:
    async with gamecast.connect(url, name="client") as client:
        await client.publish_batch([("forest", 1), ("river", 2), ("lake", 3)])
        ended: list[frozenset[str]] = []
        client.on_caught_up(ended.append)
        await client.subscribe("forest", "river", since=0)
        await client.subscribe("lake", since=0)
        await client.unsubscribe("forest", "lake")
        await client.publish("river", 4)
        assert [event.payload for event in await take(client, 2)] == [2, 4]
        assert ended == [{"river"}]


async def test_a_tick_ends_where_a_replay_ends(url: str) -> None:
    async with gamecast.connect(url, name="other") as other, gamecast.connect(url, name="client") as client:
        await other.publish_batch([("forest", number) for number in range(5)])
        ended: list[frozenset[str]] = []
        client.on_caught_up(ended.append)
        await client.subscribe("forest", since=0)
        await asyncio.sleep(0.1)
        await other.publish_batch([("forest", number) for number in range(5, 8)])
        got: list[tuple[bool, int]] = []
        async with patience(10):
            while len(got) < 8:
                taken = await client.fetch(1000, timeout=0)
                got += [(event.replayed, len(ended)) for event in taken if isinstance(event, Event)]
                await asyncio.sleep(0.01)
        assert all(heard == 0 for replayed, heard in got if replayed)
        assert all(heard == 1 for replayed, heard in got if not replayed)


async def test_an_end_that_is_not_reported_yet_is_of_no_later_replay(url: str) -> None:
    async with gamecast.connect(url, name="client") as client:
        await client.publish_batch([("forest", 1), ("forest", 2), ("river", 3)])
        got: list[object] = []
        client.on_caught_up(got.append)
        await client.subscribe("forest", "river", since=0)
        async with patience(10):
            taken = 0
            while taken < 3:
                taken += len(await client.fetch(3 - taken))
        await client.unsubscribe("forest")
        await client.subscribe("forest", since=0)
        async with patience(10):
            while got.count(frozenset({"forest"})) < 1:
                got += [event.payload for event in await client.fetch(2, timeout=0.05) if isinstance(event, Event)]
        assert got in ([{"river"}, 1, 2, {"forest"}], [1, 2, {"river"}, {"forest"}], [1, {"river"}, 2, {"forest"}])


@pytest.mark.parametrize("url", ["memory://caught-up", "embedded://"])
def test_a_blocking_connection_hears_that_a_replay_has_ended(url: str) -> None:
    with blocking.connect(url, name="client") as client:
        client.publish_batch([("forest", number) for number in range(40)])
        got: list[object] = []
        client.on_caught_up(got.append)
        client.subscribe("forest", since=0)
        client.publish("forest", "live")
        for event in client:
            got.append(event)
            if isinstance(event, Event) and not event.replayed:
                break
        assert got[-2] == {"forest"}
        assert len(got) == 42


async def test_regions_without_a_common_order_are_replayed_in_one_call_in_any_order() -> None:
    regions = [f"r{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(gamecast.connect("embedded://?nodes=3", name="keeper"))
        for region in regions:
            alone = await stack.enter_async_context(gamecast.connect(keeper.url, name=region))
            await alone.subscribe(region)
            await alone.publish_batch([(region, number) for number in range(50)])
        late = await stack.enter_async_context(gamecast.connect(keeper.url, name="late"))
        with pytest.raises(gamecast.UnorderedHistory, match='Pass order="any"'):
            await late.subscribe(*regions, since=0)
        before = asyncio.get_running_loop().time()
        await late.subscribe(*regions, since=0, order="any")
        replayed = await take(late, 300)
        assert asyncio.get_running_loop().time() - before < scaled(3)
        for region in regions:
            own = [event.payload for event in replayed if event.region == region]
            assert own == list(range(50))
        assert all(event.replayed for event in replayed)
        await keeper.publish("r0", "live")
        assert [event.payload for event in await take(late, 1)] == ["live"]


@pytest.mark.parametrize("nodes", [1, 3])
async def test_a_region_that_is_left_and_wanted_again_is_joined_at_once(nodes: int) -> None:
    async with (
        gamecast.connect(f"embedded://?nodes={nodes}", name="walker") as walker,
        gamecast.connect(walker.url, name="other") as other,
    ):
        await other.subscribe("a", "b")
        await walker.subscribe("a", "b")
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(5):
            await asyncio.sleep(0.1)  # a read waits again
            await walker.unsubscribe("a")
            before = loop.time()
            await walker.subscribe("a")
            took.append(loop.time() - before)
        assert sorted(took)[2] < scaled(0.5), "a read that waits takes up to 2 s"


async def test_regions_with_a_common_order_keep_it_beside_one_that_has_none() -> None:
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(gamecast.connect("embedded://?nodes=3", name="keeper"))
        both = await stack.enter_async_context(gamecast.connect(keeper.url, name="both"))
        await both.subscribe("a", "b")
        for name in ("c", "d", "e"):
            alone = await stack.enter_async_context(gamecast.connect(keeper.url, name=name))
            await alone.subscribe(name)
        for number in range(30):
            await keeper.publish("abcde"[number % 5], number)
        common = [event.payload for event in await take(both, 12)]
        late = await stack.enter_async_context(gamecast.connect(keeper.url, name="late"))
        await late.subscribe(*"abcde", since=0, order="any")
        replayed = await take(late, 30)
        assert [event.payload for event in replayed if event.region in "ab"] == common


@pytest.mark.parametrize("order", ["none", None, ["any"]])
async def test_an_order_that_there_is_not_is_refused(order: object) -> None:
    async with gamecast.connect(memory_url()) as client:
        with pytest.raises(gamecast.UsageError, match="order is 'common' or 'any', not"):
            await client.subscribe("a", since=0, order=order)  # type: ignore[arg-type]


@contextmanager
def stalled(server: EmbeddedServer) -> Iterator[None]:
    """Have a server stand still meanwhile: it accepts connections and answers nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def seconds_of(call: Awaitable[object]) -> tuple[float, object]:
    """Return how long a call took, and what it returned or raised."""
    before = time.monotonic()
    [outcome] = await asyncio.gather(call, return_exceptions=True)
    return time.monotonic() - before, outcome


async def test_a_publish_to_a_stalled_server_fails_after_its_timeout_and_closing_takes_two_seconds(
    redis_server: EmbeddedServer,
) -> None:
    client = await gamecast.connect(redis_server.url, name="client", publish_timeout_s=1).open()
    await client.subscribe("a")
    await client.publish("a", "before")
    with stalled(redis_server):
        took_s, error = await seconds_of(client.publish("a", "under way"))
        assert isinstance(error, gamecast.PublishUncertain)
        assert 0.9 < took_s < 2 * slowness()
        told_s = float(str(error).partition("ingress for ")[2].partition(" s")[0])
        assert told_s == pytest.approx(took_s, abs=0.3)
        for region in ("a", "b"):
            took_s, error = await seconds_of(client.publish(region, "waits"))
            assert isinstance(error, gamecast.Unreachable | gamecast.PublishUncertain)
            assert took_s < 2.5 * slowness()
        took_s, _ = await seconds_of(client.close())
        assert took_s < 2.5 * slowness()
    assert client.status.name == "closed"


async def test_after_a_stall_events_are_published_again_in_order(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="client", publish_timeout_s=1) as client:
        await client.subscribe("a")
        await client.publish("a", "before")
        with stalled(redis_server):
            _, error = await seconds_of(client.publish("a", "under way"))
            assert isinstance(error, gamecast.PublishUncertain)
        async with patience(15):
            while not isinstance((await seconds_of(client.publish("a", "again")))[1], gamecast.Receipt):
                pass
            await client.publish("a", "after")
            seen: list[str] = []
            while seen[-1:] != ["after"]:
                seen += [event.payload for event in await take(client, 1)]
        assert [each for each in seen if each != "under way"] == ["before", "again", "after"]


async def test_errors_of_futures_that_nobody_awaits_are_logged_once_and_reported(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    unpublished: list[gamecast.PublishFailure] = []
    async with gamecast.connect(redis_server.url, name="client", publish_timeout_s=1) as client:
        await client.publish("a", "before")
        with stalled(redis_server):
            for number in range(300):
                client.publish_async("a", number)
            client.publish_batch([("a", number) for number in range(300, 303)])
            awaited = client.publish_async("a", 303)
            await seconds_of(awaited)
            client.on_publish_error(unpublished.append)
            await until(lambda: sum(each.events for each in unpublished) >= 303, 5)
        await asyncio.sleep(0.1)
        gc.collect()
    assert sum(each.events for each in unpublished) == 303
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_futures_that_fail_when_the_connection_closes_do_not_flood_the_log(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = await gamecast.connect(redis_server.url, name="client").open()
    await client.publish("a", "before")
    with stalled(redis_server):
        for number in range(300):
            client.publish_async("a", number)
        await client.close()
    await asyncio.sleep(0.01)
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert len([record for record in caplog.records if "may not have been published" in record.getMessage()]) == 1


def test_closing_a_blocking_connection_to_a_stalled_server_leaves_no_thread_and_no_task(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = blocking.connect(redis_server.url, name="client").open()
    client.publish("a", "before")
    with stalled(redis_server):
        before = time.monotonic()
        client.close()
        assert time.monotonic() - before < 3 * slowness()
    gc.collect()
    assert "gamecast" not in {thread.name for thread in threading.enumerate()}
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("several", [False, True])
async def test_tail_replays_since_a_position(redis_server: EmbeddedServer, several: bool) -> None:
    async with gamecast.connect(redis_server.url, name="client") as client:
        receipts = [await client.publish("forest", number) for number in range(5)]
        await client.publish("river", "other")
        since = [f"--since={'forest=' if several else ''}{receipts[1].position}"]
        regions = ["forest"]
        if several:
            since.append("--since=river=0")
            regions.append("river")
        command = "tail", redis_server.url, *regions, *since, "--json", f"--count={3 + several}"
        tail = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gamecast", *command, stdout=asyncio.subprocess.PIPE
        )
        async with patience(20):
            said, _ = await tail.communicate()
    lines = [json.loads(line) for line in said.splitlines()]
    assert tail.returncode == 0
    assert [line["payload"] for line in lines if line["region"] == "forest"] == [2, 3, 4]
    assert len(lines) == 3 + several
    assert all(line["replayed"] for line in lines)


async def test_what_was_cast_and_failed_is_reported_with_its_payloads_and_can_be_published_again(
    redis_server: EmbeddedServer,
) -> None:
    given: list[object] = [{"type": "spell", "at": [1, 2.5, None]}, "ä", b"\x00[", b"", 7, [None]]
    unpublished: list[gamecast.PublishFailure] = []
    async with gamecast.connect(redis_server.url, name="client", publish_timeout_s=1) as client:
        await client.subscribe("a")
        await client.publish("a", "before")
        client.on_publish_error(unpublished.append)
        with stalled(redis_server):
            for payload in given:
                client.publish_nowait("a", payload)
            client.publish_async("a", "nobody awaits this")
            client.publish_batch([("a", "nor this"), ("a", "nor that")])
            await until(lambda: sum(each.events for each in unpublished) >= 9, 5)
        assert [(each.region, each.events) for each in unpublished] == [
            ("a", len(each.payloads)) for each in unpublished
        ]
        reported = [payload for each in unpublished for payload in each.payloads]
        assert reported == [*given, "nobody awaits this", "nor this", "nor that"]
        assert not unpublished[0].error.definite
        assert unpublished[-1].error.definite
        async with patience(15):
            for each in unpublished:
                for payload in each.payloads if each.error.definite else ():
                    while not isinstance((await seconds_of(client.publish(each.region, payload)))[1], gamecast.Receipt):
                        pass


async def test_closing_what_connections_share_takes_two_seconds_if_the_server_is_stalled(
    redis_server: EmbeddedServer,
) -> None:
    shared = await gamecast.share(redis_server.url, publish_timeout_s=1).open()
    casts = [await shared.connect(name=f"client-{number}").open() for number in range(3)]
    await asyncio.gather(*(client.subscribe("a") for client in casts))
    await casts[0].publish("a", "before")
    with stalled(redis_server):
        took_s, error = await seconds_of(casts[0].publish("a", "under way"))
        assert isinstance(error, gamecast.PublishUncertain)
        assert took_s < 2 * slowness()
        took_s, _ = await seconds_of(shared.close())
        assert took_s < 3 * slowness()
    async with patience(15):  # the rest goes on by itself, and ends when the server answers
        await until(lambda: not any(task.get_name() == "gamecast closing" for task in asyncio.all_tasks()))
