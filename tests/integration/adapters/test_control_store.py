"""The control store: records in parts, and wishes that are told together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from adapters.embedded.server import EmbeddedServer
from adapters.redis.control import NEWS_KEPT, RedisControl
from adapters.redis.controlclient import ControlClient
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.record import PARTS_KEPT, STORIES_AT_ONCE
from sequencing.errors import SessionExpired, Superseded
from sequencing.plan import Plan
from sequencing.record import Interest, Record

ME, LEASE_MS = "me", 60_000


def record(version: int, tag: str = "old") -> Record:
    """One whose regions take a part; those of one tag are the same."""
    return Record(Plan(1, version, "acyclic", {"n1": ""}, {f"{tag}-{n}": ("n1",) for n in range(200)}, ()))


def parts(server: EmbeddedServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        counted = client.hgetall(ControlKeys.held)
        assert counted.keys() == set(client.hkeys(ControlKeys.parts))
        return len(counted)


@pytest.fixture
async def control(redis_server: EmbeddedServer) -> AsyncIterator[RedisControl]:
    control = RedisControl(redis_server.url)
    assert await control.look(ME, LEASE_MS) is not None
    yield control
    await control.close()


async def test_a_part_is_kept_once_and_as_long_as_a_record_has_it(
    redis_server: EmbeddedServer, control: RedisControl
) -> None:
    for version in (1, 2):
        assert await control.save(ME, record(version))
        assert await control.announce(ME, record(version))
    assert parts(redis_server) == 1
    assert await control.save(ME, record(3, "new"))
    assert parts(redis_server) == 2, "the news still have the old one"
    for version in range(3, NEWS_KEPT + 2):
        assert await control.announce(ME, record(version, "new"))
        assert parts(redis_server) == 2
    assert await control.announce(ME, record(NEWS_KEPT + 2, "new"))
    assert parts(redis_server) == 1
    assert len(await control.news(None, block_ms=1)) == NEWS_KEPT


async def test_others_read_what_was_saved_and_announced(redis_server: EmbeddedServer, control: RedisControl) -> None:
    assert await control.save(ME, record(1))
    assert await control.announce(ME, record(1))
    other = RedisControl(redis_server.url)
    try:
        seen = await other.look(ME, LEASE_MS)
        assert seen is not None
        assert seen.record == record(1)
        assert await other.newest() == record(1)
        assert await other.latest_plan() == record(1).plan
        assert await other.news(None, block_ms=1) == [record(1)]
    finally:
        await other.close()


async def test_news_are_read_while_others_are_announced_and_the_oldest_dropped(
    redis_server: EmbeddedServer, control: RedisControl
) -> None:
    for version in range(1, NEWS_KEPT + 1):
        await control.announce(ME, record(version, f"racing-{version}"))

    class Overtaken(RedisControl):
        versions = iter(range(NEWS_KEPT + 1, 2 * NEWS_KEPT))

        async def _parts(self, digests: Sequence[bytes]) -> Any:
            await control.announce(ME, record(version := next(self.versions), f"racing-{version}"))
            return await super()._parts(digests)

    reader = Overtaken(redis_server.url)
    try:
        assert [told.plan.version for told in await reader.news(None, block_ms=1)][-1] == NEWS_KEPT
        assert [told.plan.version for told in await reader.news(None, block_ms=1)][-1] > NEWS_KEPT
    finally:
        await reader.close()


async def test_who_reads_much_lets_others_speak_in_between(redis_server: EmbeddedServer, control: RedisControl) -> None:
    for version in range(1, PARTS_KEPT + 1):
        await control.announce(ME, record(version, f"news-{version}"))
    turn = asyncio.Lock()
    seat = ControlClient(control, turn)
    await seat.introduce("a")

    reading = asyncio.create_task(control.news(None, block_ms=1, turn=turn))
    await asyncio.sleep(0)
    await seat.beat()
    assert not reading.done()
    assert len(await reading) == PARTS_KEPT
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.info("commandstats")["cmdstat_hmget"]["calls"] <= 1 + PARTS_KEPT // STORIES_AT_ONCE


async def test_what_is_ending_is_told_from_before_it_is_announced_until_it_has_ended(control: RedisControl) -> None:
    seat = ControlClient(control, asyncio.Lock())
    assert await seat.ending() == set()
    begun = Plan(2, 1, "acyclic", {"n1": ""}, {"old-1": ("n1",), "old-2": ("n1",)}, (), {"old-2": 1})
    leaving = Record(begun, behind=(record(1).plan,))
    await control.save(ME, leaving)
    assert {each for each in await seat.ending() if each[0] in begun.paths} == {("old-1", 1)}
    await control.announce(ME, leaving)
    await control.save(ME, leaving.settled())
    assert await seat.ending() == set()


async def test_a_part_that_the_store_lost_is_given_again(redis_server: EmbeddedServer, control: RedisControl) -> None:
    assert await control.save(ME, record(1))
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(ControlKeys.parts, ControlKeys.held, ControlKeys.record)
    assert await control.save(ME, record(2))
    assert parts(redis_server) == 1


async def test_whoever_does_not_lead_leaves_no_part_behind(redis_server: EmbeddedServer, control: RedisControl) -> None:
    assert not await control.save("somebody else", record(1))
    assert not await control.announce("somebody else", record(1))
    assert parts(redis_server) == 0


async def test_of_wishes_that_are_told_together_each_has_its_own_answer(control: RedisControl) -> None:
    old, new = await control.introduce("a"), await control.introduce("a")
    other = await control.introduce("b")
    answers = await control.set_interests(
        [
            ("a", Interest(old, 1, {"x": 1}), ["p"]),
            ("a", Interest(new, 1, {"y": 1}), ()),
            ("b", Interest(other, 2, {"z": 2}), [f"p{number}" for number in range(9_000)]),
        ]
    )
    assert [type(answer) for answer in answers] == [Superseded, type(None), type(None)]
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.interests == {"a": Interest(new, 1, {"y": 1}), "b": Interest(other, 2, {"z": 2})}
    assert len(seen.published) == 9_000
    await control.set_interests([("b", Interest(other, 1, {"old": 1}), ())])
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.interests["b"].said == 2


async def test_a_renewed_incarnation_is_above_what_nodes_have_forgotten(control: RedisControl) -> None:
    connection = await control.introduce("a")
    assert await control.renew("a", connection) == connection + 1
    assert await control.renew("a", connection, after=500) == 501
    assert await control.introduce("b") == 502
    assert await control.renew("a", connection, after=5) == 503
    assert await control.incarnations() == (503, frozenset({"a", "b"}))


@pytest.mark.parametrize("by", ["beat", "want"])
async def test_who_counted_as_gone_is_back_when_it_is_heard_of_unless_another_has_its_name(
    redis_server: EmbeddedServer, control: RedisControl, by: str
) -> None:
    connection = await control.introduce("a")
    interest = Interest(connection, 1, {"x": 1})
    await control.set_interest("a", interest)
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.alive, {"a": 0})
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.interests == {}
    if by == "beat":
        assert await control.beat("a", connection)
    else:
        await control.set_interest("a", interest)
    assert await control.beat("a", connection) == (by == "beat")
    await control.set_interest("a", interest)
    assert not await control.beat("a", connection)
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.interests == {"a": interest}
    newer = await control.introduce("a")
    for _ in range(2):
        with pytest.raises(Superseded):
            await control.beat("a", connection)
        with pytest.raises(Superseded):
            await control.set_interest("a", interest)
        await control.leave("a", newer)


async def test_whose_wish_is_not_known_is_told_so_until_it_is(
    redis_server: EmbeddedServer, control: RedisControl
) -> None:
    before = await control.introduce("a")
    await control.set_interest("a", Interest(before, 1, {"x": 1}))
    connection = await control.introduce("a")
    assert [await control.beat("a", connection) for _ in range(2)] == [True, True]
    await control.set_interest("a", Interest(connection, 1, {"x": 1}))
    assert not await control.beat("a", connection)
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.alive, {"a": 0})
        await control.look(ME, LEASE_MS)
        assert client.zcard(ControlKeys.gone) == 1
        assert [await control.beat("a", connection) for _ in range(2)] == [True, True]
        assert client.zcard(ControlKeys.gone) == 0


async def test_of_names_that_are_gone_the_latest_are_remembered(
    redis_server: EmbeddedServer, control: RedisControl
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.gone, {f"name-{number}": number - 20_000 for number in range(12_000)})
        await control.look(ME, LEASE_MS)
        assert client.zcard(ControlKeys.gone) == 10_000
        assert client.zscore(ControlKeys.gone, "name-11999") == -8_001


async def test_who_has_left_does_not_come_back_by_a_late_command(control: RedisControl) -> None:
    connection = await control.introduce("a")
    await control.set_interest("a", Interest(connection, 1, {"x": 1}))
    await control.leave("a", connection)
    with pytest.raises(Superseded):
        await control.set_interest("a", Interest(connection, 2, {"y": 2}))
    with pytest.raises(Superseded):
        await control.beat("a", connection)
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.interests == {}


async def test_who_may_have_missed_an_announcement_is_told(control: RedisControl) -> None:
    for version in range(1, NEWS_KEPT + 1):
        await control.announce(ME, record(version))
    assert len(await control.news(record(1).plan, block_ms=1)) == NEWS_KEPT - 1
    await control.announce(ME, record(NEWS_KEPT + 1))
    with pytest.raises(SessionExpired):
        await control.news(record(1).plan, block_ms=1)


async def test_what_nodes_need_not_do_is_kept_and_announced_at_once_or_not_at_all(
    redis_server: EmbeddedServer, control: RedisControl
) -> None:
    before = record(1)
    await control.settle(ME, Record(before.plan, behind=(before.plan,)))
    assert await control.record() == Record(before.plan)
    joined = Record(replace(before.plan, version=2), {"s": frozenset("a")}, behind=(before.plan,))
    assert not await control.settle("somebody else", joined)
    assert await control.record() == Record(before.plan)
    assert await control.settle(ME, joined)
    assert await control.record() == joined.settled()
    assert await control.news(before.plan, block_ms=1) == [joined.news()]
    with redis.Redis.from_url(redis_server.url) as client:
        client.delete(ControlKeys.parts, ControlKeys.held, ControlKeys.record, ControlKeys.news)
    assert await control.settle(ME, joined)
    assert await control.record() == joined.settled()
    assert await control.newest() == joined.news()
