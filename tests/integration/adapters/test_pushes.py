"""What is pushed is what a look would have found, in the order of the node; where nothing is pushed there are looks."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import cycle, pairwise
from typing import Any

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.places import Places, Position
from adapters.redis import pushes
from adapters.redis.node import RedisNode
from gamecast.errors import GamecastError, NotAllowed, Unreachable
from sequencing.frames import PublishedFrame, StampedFrame, node_number
from sequencing.plan import Plan
from tests.events import next_event, take
from tests.patience import Deadline, patience

REGIONS = "abcde"
PLAN = Plan(1, 1, "overlap", {"n1": ""}, dict.fromkeys(REGIONS, ("n1",)), ())
LARGE = 2_000
After = dict[str, Position]
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


async def read(node: RedisNode, after: After, block_ms: int = BLOCK_MS) -> list[StampedFrame]:
    """One read, as connections do it."""
    frames, _ = await node.read(after, frames_max=3, block_ms=block_ms)
    for frame in frames:
        assert frame.last > after[frame.region][1]
        after[frame.region] = frame.epoch, frame.last
    return list(frames)


async def listening(server: EmbeddedServer, publisher: Publisher, regions: str = REGIONS) -> tuple[RedisNode, After]:
    """Return a reader that listens, and after what it reads."""
    node, after = RedisNode("n1", server.url), dict.fromkeys(regions, (1, 0))
    deadline = Deadline(20)
    while not listeners(server):
        assert not deadline.passed
        await publisher.publish(regions[0])
        while after[regions[0]][1] < publisher.last[regions[0]]:
            await read(node, after)
    return node, after


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
    monkeypatch.setattr(pushes, "LONE_READS", 2)
    monkeypatch.setattr(pushes, "QUIET_WAITS", 2)
    chance = random.Random(seed)
    node = RedisNode("n1", redis_server.url)
    after: After = dict.fromkeys(REGIONS, (1, 0))
    ahead: list[int] = []
    order: list[int] = []
    pushed = 0

    async def look() -> None:
        nonlocal pushed
        frames, whole = await node.read(after, frames_max=3, block_ms=BLOCK_MS)
        pushed += node._caught_up is not None and bool(frames)
        for frame in frames:
            assert frame.last == after[frame.region][1] + int(frame.meta.split()[1])
            after[frame.region] = frame.epoch, frame.last
            ahead.append(abs(node_number(frame.stamp)))
        if whole.keys() == after.keys():
            order.extend(sorted(ahead))
            ahead.clear()

    async def publish_many(count: int, regions: list[str]) -> None:
        for _ in range(count):
            sizes = chance.choices([10, LARGE], [4, 1], k=len(regions))
            await publisher.publish(chance.sample(regions, chance.randint(1, min(3, len(regions)))), 1, *sizes)
            await asyncio.sleep(chance.choice([0, 0, 0, 0.001, 0.003]))

    async def look_at_all() -> None:
        while ahead or any(publisher.last[region] > last for region, (_, last) in after.items()):
            await look()

    async with patience(60):
        for _ in range(60):
            what = chance.random()
            if what < 0.6:
                await publisher.publish(chance.choice([*after]))
            elif what < 0.75:
                several = chance.sample([*after], chance.randint(1, len(after)))
                await publisher.publish(several, chance.randint(1, 3), chance.choice([10, LARGE]))
            elif what < 0.82:
                burst = asyncio.create_task(publish_many(chance.randint(2, 60), [*after]))
                while not burst.done():
                    await look()
            elif what < 0.85:
                with redis.Redis.from_url(redis_server.url) as client:
                    client.client_kill_filter(_type="pubsub")
            elif what < 0.9:
                reading = asyncio.create_task(look())
                await asyncio.sleep(0.02)
                await node.interrupt()
                with suppress(GamecastError):
                    await reading
            elif what < 0.95 and len(after) > 2:
                await look_at_all()
                after = dict(chance.sample([*after.items()], len(after) - 1))
            else:
                await look_at_all()
                after = {region: (1, last) for region, last in publisher.last.items()} | after
            if chance.random() < 0.7:
                await look_at_all()
        await look_at_all()
    await node.close()
    assert pushed > 10
    assert all(before < number for before, number in pairwise(order))


async def test_in_quiet_times_events_are_pushed_and_busy_ones_read(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, after = await listening(redis_server, publisher)
    commands = node._connection.call_packed
    asked = 0

    async def counted(command: bytes, **options: float) -> object:
        nonlocal asked
        asked += 1
        return await commands(command, **options)

    monkeypatch.setattr(node._connection, "call_packed", counted)
    await read(node, after)  # the look with which listening begins
    asked = 0
    for region in REGIONS * 3:
        await publisher.publish(region)
        assert [frame.region for frame in await read(node, after)] == [region]
    assert asked == 0
    await publisher.publish("b", 1, LARGE)
    assert [(frame.region, len(frame.body)) for frame in await read(node, after)] == [("b", LARGE)]
    assert asked == 1
    for _ in range(pushes.BUSY_READS + 1):
        for _ in range(pushes.MUCH_FRAMES * 2):
            await publisher.publish("c")
        while after["c"][1] < publisher.last["c"]:
            await read(node, after)
    deadline = Deadline(10)
    while listeners(redis_server):
        assert not deadline.passed
        await asyncio.sleep(0.01)
    await node.close()


async def test_who_goes_back_reads_what_was_before(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    node, after = await listening(redis_server, publisher)
    await publisher.publish("b")
    while await read(node, after, 20):
        pass
    for _ in range(2):
        before = {**after, "b": (1, 0)}
        assert [(frame.region, frame.last) for frame in await read(node, before)] == [("b", 1)]
        assert listeners(redis_server) == 1
    await node.close()


async def test_who_does_not_read_does_not_listen(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    node, after = await listening(redis_server, publisher)
    deadline = Deadline(10)
    while listeners(redis_server):
        assert not deadline.passed
        await asyncio.sleep(0.1)
    await publisher.publish("ab")
    assert {frame.region for frame in await read(node, after)} == {"a", "b"}
    await node.close()


async def test_a_server_that_stands_still_while_listening_begins_is_waited_for(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushes, "LONE_READS", 2)
    monkeypatch.setattr(pushes, "PAUSE_S", 0.1)
    node, after = RedisNode("n1", redis_server.url), dict.fromkeys(REGIONS, (1, 0))
    while node._pushes._lone < 2:
        await publisher.publish("a")
        await read(node, after)
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_pause(500)
    await read(node, after)
    assert listeners(redis_server) == 1
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_kill_filter(_type="pubsub")
        while node._pushes._lone < 2:
            await publisher.publish("a")
            await read(node, after)
        client.client_pause(500)
    reading = asyncio.create_task(read(node, after))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await node.interrupt()
    with pytest.raises(Unreachable):
        await reading
    assert time.monotonic() - began < 0.3
    await publisher.publish("b")
    assert [frame.region for frame in await read(node, after)] == ["b"]
    await node.close()


async def test_after_some_quiet_waits_nobody_listens(redis_server: EmbeddedServer, publisher: Publisher) -> None:
    node, after = await listening(redis_server, publisher)
    for _ in range(pushes.QUIET_WAITS + 2):
        assert await read(node, after, 20) == []
    deadline = Deadline(10)
    while listeners(redis_server):
        assert not deadline.passed
        await asyncio.sleep(0.01)
    await node.close()


async def test_a_read_that_waited_for_pushes_in_vain_does_not_wait_once_more(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As listening ends with the last quiet wait, it did, for twice as long: and counted as a server that hangs."""
    node, after = await listening(redis_server, publisher)
    waits: list[str] = []
    pushed, together = node._pushed, node._read_together

    async def pushed_noted(*arguments: Any) -> Any:
        waits.append("pushes")
        return await pushed(*arguments)

    async def together_noted(reading: Any, frames_max: int, block_ms: int | None, *rest: Any) -> Any:
        waits.extend(["block"] if block_ms is not None else [])
        return await together(reading, frames_max, block_ms, *rest)

    monkeypatch.setattr(node, "_pushed", pushed_noted)
    monkeypatch.setattr(node, "_read_together", together_noted)
    for _ in range(pushes.QUIET_WAITS + 2):
        waits.clear()
        assert await read(node, after, 20) == []
        assert len(waits) == 1
    assert waits == ["block"], "it does not listen any more"
    await node.close()


async def test_the_end_of_an_epoch_that_is_sealed_is_found_at_once(
    redis_server: EmbeddedServer, publisher: Publisher
) -> None:
    node, after = await listening(redis_server, publisher)
    await read(node, after)
    sealer = RedisNode("n1", redis_server.url)
    reading = asyncio.create_task(read(node, after, 20_000))
    await asyncio.sleep(0.05)
    await sealer.seal([("b", 1, 1)])
    async with patience(5):
        assert [(frame.region, frame.last) for frame in await reading] == [("b", 1)]
    await sealer.close()
    await node.close()


async def test_a_connection_that_is_pushed_to_may_break_without_a_word(redis_server: EmbeddedServer) -> None:
    async with (
        gamecast.connect(redis_server.url, name="s1") as cast,
        gamecast.connect(redis_server.url, name="p") as publisher,
        patience(60),
    ):
        await cast.subscribe("a", "b")
        for number in range(3 * pushes.LONE_READS):
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
        for number in range(3 * pushes.LONE_READS):
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
    node = RedisNode("n1", redis_server.url.replace("://", "://s:x@"))
    after = dict.fromkeys(REGIONS, (1, 0))
    for region in REGIONS * 4:
        await publisher.publish(region)
        assert [frame.region for frame in await read(node, after)] == [region]
    assert listeners(redis_server) == 0
    await node.close()


@pytest.mark.parametrize(
    ("url", "keys"),
    [("redis://h", 4), ("rediss://h/0", 4), ("redis+sentinel://h/game", 4), ("redis://h/1", 5), ("redis://h?db=2", 5)],
)
async def test_all_scripts_for_one_database_push_or_none_does(url: str, keys: int) -> None:
    assert len(RedisNode("n1", url)._step_keys) == keys


async def test_networks_in_databases_of_one_server_hear_nothing_of_each_other(redis_server: EmbeddedServer) -> None:
    nodes = [RedisNode("n1", f"{redis_server.url}/{number}") for number in (0, 1)]
    afters: list[After] = [dict.fromkeys(REGIONS, (1, 0)) for _ in nodes]
    for node in nodes:
        await node.install(PLAN, 10_000)
    publishers = [Publisher(RedisNode("n1", f"{redis_server.url}/{number}")) for number in (0, 1)]
    for region in REGIONS * 4:
        await asyncio.gather(*(publisher.publish(region) for publisher in publishers))
        for node, after in zip(nodes, afters, strict=True):
            assert [frame.region for frame in await read(node, after)] == [region]
    assert listeners(redis_server) == 1
    await publishers[1].publish("a")
    assert await read(nodes[0], afters[0], 50) == []
    for node in (*nodes, *(publisher._node for publisher in publishers)):
        await node.close()


async def test_a_stream_that_is_added_while_listening_is_looked_at_by_itself(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, listened = await listening(redis_server, publisher, "ab")
    after = Places(listened.items())
    await read(node, after, block_ms=10)
    await publisher.publish("a")
    assert [frame.region for frame in await read(node, after)] == ["a"]
    together: list[object] = []
    read_together = node._read_together

    async def counted(*arguments: Any) -> list[StampedFrame]:
        together.append(arguments)
        return await read_together(*arguments)

    monkeypatch.setattr(node, "_read_together", counted)
    after.put("d", (1, 0))
    reading = asyncio.create_task(read(node, after, block_ms=5_000))
    await asyncio.sleep(0.1)
    await publisher.publish("d")
    assert [frame.region for frame in await reading] == ["d"]
    assert not together, "nothing else had to be looked at"
    await publisher.publish("c")  # before it is listened to
    after.put("c", (1, 0))
    assert [frame.region for frame in await read(node, after)] == ["c"]
    assert len(together) == 1
    after.drop("a")
    await publisher.publish("ab")
    frames, whole = await node.read(after, frames_max=3, block_ms=BLOCK_MS)
    assert ([frame.region for frame in frames], set(whole)) == (["b"], set("bcd"))
    await node.close()


async def test_listening_that_ends_while_a_new_stream_is_looked_at_leaves_all_to_a_read(
    redis_server: EmbeddedServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, listened = await listening(redis_server, publisher, "ab")
    after = Places(listened.items())
    await read(node, after, block_ms=10)
    await publisher.publish("a")
    assert [frame.region for frame in await read(node, after)] == ["a"]
    call = node._connection.call

    async def ending(*words: Any) -> Any:
        node._pushes.end()
        return await call(*words)

    monkeypatch.setattr(node._connection, "call", ending)
    after.put("d", (1, 0))
    assert await read(node, after) == []
    await publisher.publish("d")
    assert [frame.region for frame in await read(node, after)] == ["d"]
    await node.close()
