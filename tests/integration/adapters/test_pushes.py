"""What is pushed is what a look would have found, in the order of the node; where nothing is pushed there are looks."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import cycle, pairwise
from typing import Any

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.places import Places
from adapters.redis import listening as listening_life
from adapters.redis import pushes
from adapters.redis.node import RedisNode
from adapters.redis.nodestreams import NodeStreams
from gamecast.errors import GamecastError, NotAllowed, Unreachable
from sequencing.frames import PublishedFrame, StampedFrame, node_number
from sequencing.plan import Plan
from tests.events import next_event, take
from tests.patience import Deadline, patience, until

REGIONS = "abcde"
PLAN = Plan(1, 1, "overlap", {"n1": ""}, dict.fromkeys(REGIONS, ("n1",)), ())
LARGE = 2_000
BLOCK_MS = 300


class Publisher:
    """Publishes nonsense in some regions of a node."""

    def __init__(self, node: RedisNode) -> None:
        self._node = node
        self.last = dict.fromkeys(REGIONS, 0)

    async def publish(self, regions: Sequence[str], count: int = 1, *body_bytes: int) -> None:
        """Publish a frame of ``count`` events in each region, of one size after the other, or small."""
        frames = []
        for region, size in zip(regions, cycle(body_bytes or (10,)), strict=False):
            first, self.last[region] = self.last[region] + 1, self.last[region] + count
            frames.append(PublishedFrame(region, 1, "p", 1, first, count, b"x" * size))
        answers = await self._node.publish(frames)
        assert [answer.numbers for answer in answers] == [(1, self.last[region]) for region in regions]


def listeners(server: EmbeddedServer) -> int:
    """How many connections listen to anything."""
    with redis.Redis.from_url(server.url) as client:
        return len(client.client_list(_type="pubsub"))


class Reading:
    """Reads streams of a node, as a process does, but that nothing is handed on while a read waits."""

    def __init__(self, url: str, regions: str = REGIONS) -> None:
        self.node = RedisNode("n1", url)
        self.waiting: tuple[()] = ()
        self.streams = NodeStreams(self.node, self)
        self.after: Places[tuple[str, int]] = Places(((region, 1), (1, 0)) for region in regions)

    def take(self, frames: Sequence[StampedFrame]) -> bool:
        raise AssertionError("there is no room")

    async def read(self, block_ms: int | None = BLOCK_MS) -> list[StampedFrame]:
        frames = await self.streams.read(self.after, frames_max=3, block_ms=block_ms)
        for frame in frames:
            assert frame.last > self.last(frame.region)
            self.after.moved((frame.region, 1), frame.epoch, frame.last)
        return frames

    async def regions(self, block_ms: int | None = BLOCK_MS) -> list[str]:
        return [frame.region for frame in await self.read(block_ms)]

    def last(self, region: str) -> int:
        return self.after[region, 1][1]

    def add(self, region: str, last: int = 0) -> None:
        self.after.put((region, 1), (1, last))

    async def close(self) -> None:
        await self.streams.close()


async def listening(server: EmbeddedServer, publisher: Publisher, regions: str = REGIONS) -> Reading:
    """Return one that listens."""
    reading = Reading(server.url, regions)
    deadline = Deadline(20)
    while not listeners(server):
        assert not deadline.passed
        await publisher.publish(regions[0])
        while reading.last(regions[0]) < publisher.last[regions[0]]:
            await reading.read()
    return reading


@pytest.fixture
async def publisher(redis_server: EmbeddedServer) -> AsyncIterator[Publisher]:
    node = RedisNode("n1", redis_server.url)
    await node.install(PLAN, 10_000)
    yield Publisher(node)
    await node.close()


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_comes_is_read_once_and_in_the_order_of_the_node(
    redis_server: EmbeddedServer, publisher: Publisher, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_life, "LONE_READS", 2)
    monkeypatch.setattr(listening_life, "QUIET_WAITS", 2)
    chance = random.Random(seed)
    reading = Reading(redis_server.url)
    after = reading.after
    ahead: list[int] = []
    order: list[int] = []
    pushed = 0

    async def look() -> None:
        nonlocal pushed
        frames = await reading.streams.read(after, frames_max=3, block_ms=BLOCK_MS)
        pushed += reading.streams._is_caught_up and bool(frames)
        found = Counter[str]()
        for frame in frames:
            assert frame.last == reading.last(frame.region) + int(frame.meta.split()[1])
            after.moved((frame.region, 1), frame.epoch, frame.last)
            ahead.append(abs(node_number(frame.stamp)))
            found[frame.region] += 1
        if max(found.values(), default=0) < 3:
            order.extend(sorted(ahead))
            ahead.clear()

    async def publish_many(count: int, regions: list[str]) -> None:
        for _ in range(count):
            sizes = chance.choices([10, LARGE], [4, 1], k=len(regions))
            await publisher.publish(chance.sample(regions, chance.randint(1, min(3, len(regions)))), 1, *sizes)
            await asyncio.sleep(chance.choice([0, 0, 0, 0.001, 0.003]))

    def regions() -> list[str]:
        return [region for region, _ in after]

    async def look_at_all() -> None:
        while ahead or any(publisher.last[region] > last for (region, _), (_, last) in after.items()):
            await look()

    async with patience(60):
        for _ in range(60):
            what = chance.random()
            if what < 0.6:
                await publisher.publish(chance.choice(regions()))
            elif what < 0.75:
                several = chance.sample(regions(), chance.randint(1, len(after)))
                await publisher.publish(several, chance.randint(1, 3), chance.choice([10, LARGE]))
            elif what < 0.82:
                burst = asyncio.create_task(publish_many(chance.randint(2, 60), regions()))
                while not burst.done():
                    await look()
            elif what < 0.85:
                with redis.Redis.from_url(redis_server.url) as client:
                    client.client_kill_filter(_type="pubsub")
            elif what < 0.9:
                waiting = asyncio.create_task(look())
                await asyncio.sleep(0.02)
                await reading.streams.interrupt()
                with suppress(GamecastError):
                    await waiting
            elif what < 0.95 and len(after) > 2:
                await look_at_all()
                after.drop(chance.choice([*after]))
            else:
                await look_at_all()
                for region in set(REGIONS) - set(regions()):
                    reading.add(region, publisher.last[region])
            if chance.random() < 0.7:
                await look_at_all()
        await look_at_all()
    await reading.close()
    assert pushed > 10
    assert all(before < number for before, number in pairwise(order))


async def test_in_quiet_times_events_are_pushed_and_busy_ones_read(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = await listening(redis_server, publisher)
    commands = reading.node.connection.call_packed
    asked = 0

    async def counted(command: bytes, **options: float) -> object:
        nonlocal asked
        asked += 1
        return await commands(command, **options)

    monkeypatch.setattr(reading.node.connection, "call_packed", counted)
    await reading.read()  # the look with which listening begins
    asked = 0
    for region in REGIONS * 3:
        await publisher.publish(region)
        assert await reading.regions() == [region]
    assert asked == 0
    await publisher.publish("b", 1, LARGE)
    assert [(frame.region, len(frame.body)) for frame in await reading.read()] == [("b", LARGE)]
    assert asked == 1
    for _ in range(listening_life.BUSY_READS + 1):
        for _ in range(listening_life.MUCH_FRAMES * 2):
            await publisher.publish("c")
        while reading.last("c") < publisher.last["c"]:
            await reading.read()
    await until(lambda: not listeners(redis_server))
    await reading.close()


async def test_who_goes_back_reads_what_was_before(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    reading = await listening(redis_server, publisher)
    await publisher.publish("b")
    while await reading.read(20):
        pass
    for _ in range(2):
        reading.add("b")
        assert [(frame.region, frame.last) for frame in await reading.read()] == [("b", 1)]
        assert listeners(redis_server) == 1
    await reading.close()


async def test_who_does_not_read_does_not_listen(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    reading = await listening(redis_server, publisher)
    await until(lambda: not listeners(redis_server))
    await publisher.publish("ab")
    assert set(await reading.regions()) == {"a", "b"}
    await reading.close()


async def test_a_server_that_stands_still_while_listening_begins_is_waited_for(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_life, "LONE_READS", 2)
    monkeypatch.setattr(pushes, "PAUSE_S", 0.1)
    reading = Reading(redis_server.url)
    while reading.streams._pushes.worth.lone < 2:
        await publisher.publish("a")
        await reading.read()
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_pause(500)
    await reading.read()
    assert listeners(redis_server) == 1
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_kill_filter(_type="pubsub")
        while reading.streams._pushes.worth.lone < 2:
            await publisher.publish("a")
            await reading.read()
        client.client_pause(500)
    waiting = asyncio.create_task(reading.read())
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await reading.streams.interrupt()
    with pytest.raises(Unreachable):
        await waiting
    assert time.monotonic() - began < 0.3
    await publisher.publish("b")
    assert await reading.regions() == ["b"]
    await reading.close()


async def test_after_some_quiet_waits_nobody_listens(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    reading = await listening(redis_server, publisher)
    for _ in range(listening_life.QUIET_WAITS + 2):
        assert await reading.read(20) == []
    await until(lambda: not listeners(redis_server))
    await reading.close()


async def test_a_read_that_waited_for_pushes_in_vain_does_not_wait_once_more(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As listening ends with the last quiet wait, it did, for twice as long: and counted as a server that hangs."""
    reading = await listening(redis_server, publisher)
    waits: list[str] = []
    pushed, together = reading.streams._pushed, reading.node.read_together

    async def pushed_noted(*arguments: Any) -> Any:
        waits.append("pushes")
        return await pushed(*arguments)

    async def together_noted(read: Any, frames_max: int, block_ms: int | None) -> Any:
        waits.extend(["block"] if block_ms is not None else [])
        return await together(read, frames_max, block_ms)

    monkeypatch.setattr(reading.streams, "_pushed", pushed_noted)
    monkeypatch.setattr(reading.node, "read_together", together_noted)
    for _ in range(listening_life.QUIET_WAITS + 2):
        waits.clear()
        assert await reading.read(20) == []
        assert len(waits) == 1
    assert waits == ["block"], "it does not listen any more"
    await reading.close()


async def test_the_end_of_an_epoch_that_is_sealed_is_found_at_once(
    redis_server: EmbeddedServer, publisher: Publisher
) -> None:
    reading = await listening(redis_server, publisher)
    await reading.read()
    sealer = RedisNode("n1", redis_server.url)
    waiting = asyncio.create_task(reading.read(20_000))
    await asyncio.sleep(0.05)
    await sealer.seal([("b", 1, 1)])
    async with patience(5):
        assert [(frame.region, frame.last) for frame in await waiting] == [("b", 1)]
    await sealer.close()
    await reading.close()


async def test_a_connection_that_is_pushed_to_may_break_without_a_word(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="s1") as cast,
        gamecast.connect(redis_server.url, name="p") as publisher,
        patience(60),
    ):
        await cast.subscribe("a", "b")
        for number in range(3 * listening_life.LONE_READS):
            await publisher.publish("ab"[number % 2], number)
            assert (await next_event(cast)).payload == number
        assert listeners(redis_server) == 1
        for number in range(60):
            if number % 20 == 5:
                with redis.Redis.from_url(redis_server.url) as client:
                    client.client_kill_filter(_type="pubsub")
            await publisher.publish("ab"[number % 2], number)
            assert (await next_event(cast)).payload == number
        assert cast.statistics().reconnects == 0


async def test_joining_and_leaving_does_not_end_the_listening(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="s1") as cast,
        gamecast.connect(redis_server.url, name="p") as publisher,
        patience(60),
    ):
        await cast.subscribe("a")
        for number in range(3 * listening_life.LONE_READS):
            await publisher.publish("a", number)
            assert (await next_event(cast)).payload == number
        assert listeners(redis_server) == 1
        for round_ in range(3):
            await cast.subscribe("b")
            for region in "abab":
                await publisher.publish(region, round_)
            assert [event.region for event in await take(cast, 4)] == [*"abab"]
            await cast.unsubscribe("b")
        assert listeners(redis_server) == 1


async def test_who_may_not_push_publishes_nothing(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.acl_setuser("p", enabled=True, nopass=True, keys=["*"], commands=["+@all"], reset_channels=True)
        before = client.xlen("gamecast:{n1}:egress:1:a")
        refused = RedisNode("n1", redis_server.url.replace("://", "://p:x@"))
        with pytest.raises(NotAllowed):
            await refused.publish([PublishedFrame("a", 1, "q", 1, 1, 1, b"x")])
        with pytest.raises(NotAllowed):
            await refused.seal([("a", 1, 1)])
        assert client.xlen("gamecast:{n1}:egress:1:a") == before
    await refused.close()


async def test_who_may_not_listen_reads(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.acl_setuser("s", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-subscribe"])
    reading = Reading(redis_server.url.replace("://", "://s:x@"))
    for region in REGIONS * 4:
        await publisher.publish(region)
        assert await reading.regions() == [region]
    assert listeners(redis_server) == 0
    await reading.close()


@pytest.mark.parametrize(
    ("url", "keys"),
    [("redis://h", 4), ("rediss://h/0", 4), ("redis+sentinel://h/game", 4), ("redis://h/1", 5), ("redis://h?db=2", 5)],
)
async def test_all_scripts_for_one_database_push_or_none_does(url: str, keys: int) -> None:
    assert len(RedisNode("n1", url)._step_keys) == keys


async def test_networks_in_databases_of_one_server_hear_nothing_of_each_other(redis_server: EmbeddedServer) -> None:
    readings = [Reading(f"{redis_server.url}/{number}") for number in (0, 1)]
    for reading in readings:
        await reading.node.install(PLAN, 10_000)
    publishers = [Publisher(RedisNode("n1", f"{redis_server.url}/{number}")) for number in (0, 1)]
    for region in REGIONS * 4:
        await asyncio.gather(*(publisher.publish(region) for publisher in publishers))
        for reading in readings:
            assert await reading.regions() == [region]
    assert listeners(redis_server) == 1
    await publishers[1].publish("a")
    assert await readings[0].read(50) == []
    for reading in readings:
        await reading.close()
    for each in publishers:
        await each._node.close()


async def test_a_stream_that_is_added_while_listening_is_looked_at_by_itself(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = await listening(redis_server, publisher, "ab")
    await reading.read(10)
    await publisher.publish("a")
    assert await reading.regions() == ["a"]
    together: list[object] = []
    read_together = reading.node.read_together

    async def counted(*arguments: Any) -> list[StampedFrame]:
        together.append(arguments)
        return await read_together(*arguments)

    monkeypatch.setattr(reading.node, "read_together", counted)
    reading.add("d")
    waiting = asyncio.create_task(reading.regions(5_000))
    await asyncio.sleep(0.1)
    await publisher.publish("d")
    assert await waiting == ["d"]
    assert not together, "nothing else had to be looked at"
    await publisher.publish("c")  # before it is listened to
    reading.add("c")
    assert await reading.regions() == ["c"]
    assert len(together) == 1
    reading.after.drop(("a", 1))
    await publisher.publish("ab")
    assert await reading.regions() == ["b"]
    await reading.close()


async def test_listening_that_ends_while_a_new_stream_is_looked_at_leaves_all_to_a_read(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = await listening(redis_server, publisher, "ab")
    await reading.read(10)
    await publisher.publish("a")
    assert await reading.regions() == ["a"]
    call = reading.node.connection.call

    async def ending(*words: Any) -> Any:
        reading.streams._pushes.end()
        return await call(*words)

    monkeypatch.setattr(reading.node.connection, "call", ending)
    reading.add("d")
    assert await reading.read() == []
    await publisher.publish("d")
    assert await reading.regions() == ["d"]
    await reading.close()
