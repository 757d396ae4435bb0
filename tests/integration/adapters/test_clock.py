"""The clock of the control Redis jumps: leases and connections, over real Redis.

That a clock jumped by some seconds is, for what is stored, the same as all stored times having moved the other way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import gamecast
import laboratory.chaos.clock as clock
from adapters.embedded.server import EmbeddedServer
from adapters.leader import Leader
from adapters.leadership import LEASE_MS, LOOK_EVERY_MS, RESUME_S, TTL_MS
from adapters.redis import presence as redis_presence
from adapters.redis.control import RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LATE_S_MAX, LeaderControl
from adapters.redis.operating import RedisNodeOperator
from laboratory.chaos.clock import SHARED_MEMORY, Clock, ClockedServer, clock_library
from laboratory.chaos.faults import cannot
from laboratory.chaos.schedule import Kind
from sequencing.errands import Seen
from sequencing.plan import Plan
from sequencing.record import Record
from tests.events import next_event
from tests.patience import Deadline, patience, scaled

SHORT_MS = 200
"""A lease for tests."""

EVERY_S = 0.02
JUMP_MS = 60_000


@pytest.fixture
def client(redis_server: EmbeddedServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
async def controls(redis_server: EmbeddedServer) -> AsyncIterator[tuple[LeaderControl, LeaderControl]]:
    """What two candidates for leading use."""
    pair = LeaderControl(redis_server.url), LeaderControl(redis_server.url)
    yield pair
    for control in pair:
        await control.close()


def record() -> Record:
    return Record(Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, ()))


async def looks_until_it_leads(
    control: LeaderControl, token: str, *, lease_ms: int = SHORT_MS, seconds: float = 10.0
) -> Seen:
    async with patience(seconds):
        while True:
            seen = await control.look(token, lease_ms)
            if seen is not None:
                return seen
            await asyncio.sleep(EVERY_S)


def now_ms(client: redis.Redis) -> float:
    seconds, micros = client.time()
    return float(seconds * 1000 + micros / 1000)


def jump(client: redis.Redis, by_ms: int) -> None:
    """Move what is stored of times as if the clock had jumped; the lease apart."""
    before = float(client.get(ControlKeys.looked) or now_ms(client))
    client.set(ControlKeys.looked, f"{before - by_ms:.0f}")
    client.zadd(ControlKeys.alive, {name: until - by_ms for name, until in alive_until_ms(client).items()})


def alive_until_ms(client: redis.Redis) -> dict[str, float]:
    """Return until when each connection counts as alive, by the clock of the control Redis."""
    entries: Any = client.zrange(ControlKeys.alive, 0, -1, withscores=True)  # typed as all that zrange may answer
    return {name.decode(): until for name, until in entries}


async def test_a_lease_that_redis_does_not_let_run_out_ends_all_the_same(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl]
) -> None:
    old, new = controls
    assert await old.look("old", SHORT_MS) is not None
    client.pexpire(ControlKeys.lease, JUMP_MS)  # the clock was set back
    begun, limit = time.monotonic(), Deadline(2 * SHORT_MS / 1000 + 0.5)
    seen = await looks_until_it_leads(new, "new")
    assert time.monotonic() - begun > SHORT_MS / 1000
    assert not limit.passed
    assert seen.taken
    assert client.get(ControlKeys.lease) == b"new"
    assert client.pttl(ControlKeys.lease) <= SHORT_MS
    assert not await old.keep("old", SHORT_MS)
    assert not await old.save("old", record())
    assert not await old.announce("old", record())
    assert await new.save("new", record())


@pytest.mark.parametrize("way", ["look", "keep"])
async def test_a_leader_that_is_heard_of_is_not_replaced_however_long_its_lease_lasts(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl], way: str
) -> None:
    old, new = controls
    assert await old.look("old", SHORT_MS) is not None
    until = time.monotonic() + 5 * SHORT_MS / 1000
    while time.monotonic() < until:
        if way == "look":
            again = await old.look("old", SHORT_MS)
            assert again is not None
            assert not again.taken
        else:
            assert await old.keep("old", SHORT_MS)
        client.pexpire(ControlKeys.lease, JUMP_MS)
        assert await new.look("new", SHORT_MS) is None
        await asyncio.sleep(EVERY_S)


async def test_a_candidate_that_slept_does_not_take_the_lease_from_a_leader_that_is_there(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl]
) -> None:
    old, new = controls
    assert await old.look("old", JUMP_MS) is not None
    assert await new.look("new", SHORT_MS) is None
    await asyncio.sleep(2 * SHORT_MS / 1000)  # what it measures is time that passes
    assert await old.keep("old", JUMP_MS)
    assert await new.look("new", SHORT_MS) is None
    await looks_until_it_leads(new, "new")


async def test_who_lost_the_lease_to_a_jump_ahead_is_fenced_also_when_nobody_leads_any_more(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl]
) -> None:
    old, new = controls
    assert await old.look("old", JUMP_MS) is not None
    client.delete(ControlKeys.lease)  # it ran out
    assert await old.keep("old", JUMP_MS), "nobody led in between"
    client.delete(ControlKeys.lease)
    assert (seen := await new.look("new", JUMP_MS)) is not None
    assert seen.taken
    for _ in range(2):
        assert not await old.keep("old", JUMP_MS)
        assert not await old.save("old", record())
        assert not await old.announce("old", record())
        client.delete(ControlKeys.lease)  # it ran out again
    assert (again := await old.look("old", JUMP_MS)) is not None
    assert again.taken, "what it knew may be outdated"


async def test_a_leader_goes_on_with_what_it_does_only_if_nobody_led_since(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl], redis_server: EmbeddedServer
) -> None:
    old, new = controls
    leader = Leader(
        old, RedisNodeOperator(redis_server.url, retention_events=100), "acyclic", "old", asyncio.Event(), RESUME_S
    )
    assert await old.look("old", JUMP_MS) is not None
    client.delete(ControlKeys.lease)
    assert await leader.carry_out(leader.machine._goes_on(record().plan, wait_s=0.0))
    client.delete(ControlKeys.lease)
    assert await new.look("new", JUMP_MS) is not None
    client.delete(ControlKeys.lease)
    leader.machine._look_at = 0.0
    assert not await leader.carry_out(leader.machine._goes_on(record().plan, wait_s=0.0))
    await leader.close()


async def hears_one_of_two(client: redis.Redis, control: LeaderControl, silent: str, jump_ms: int) -> None:
    """After a jump of the clock both connections, also the silent one, are taken for alive for about the usual time."""
    incarnations = {name: await control.introduce(name) for name in (silent, "heard")}
    assert await control.look("leader", SHORT_MS) is not None
    jump(client, jump_ms)
    await control.beat("heard", incarnations["heard"])
    assert await looks_until_it_leads(control, "leader") is not None
    left = {name: until - now_ms(client) for name, until in alive_until_ms(client).items()}
    assert left.keys() == {silent, "heard"}
    assert all(0.8 * TTL_MS < ms <= TTL_MS for ms in left.values()), left


async def test_nobody_is_taken_for_gone_because_the_clock_jumped_ahead_and_who_dies_then_is_soon(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl]
) -> None:
    await hears_one_of_two(client, controls[0], "silent", JUMP_MS)


async def test_a_clock_that_is_set_back_neither_loses_anybody_nor_keeps_who_is_gone(
    client: redis.Redis, controls: tuple[LeaderControl, LeaderControl]
) -> None:
    await hears_one_of_two(client, controls[0], "dead", -JUMP_MS)


@pytest.mark.parametrize("installed", [False, True])
def test_a_library_that_is_not_there_or_does_nothing_is_not_used(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        file = tmp_path / "some-architecture" / clock.LIBRARY
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(clock, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(clock, "SEEN_S_MAX", 0.5)
    clock_library.cache_clear()
    assert clock_library() is None
    assert Kind.CLOCK_JUMPED in cannot()
    clock_library.cache_clear()


def test_without_the_library_a_clock_is_the_machines(tmp_path: Path) -> None:
    with ClockedServer(Clock(tmp_path / "clock", None)) as server:
        assert asyncio.run(server.jump(0))


LIBRARY = clock_library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed, or not for this Redis")


@pytest.fixture
async def clocked(tmp_path: Path) -> AsyncIterator[ClockedServer]:
    async with ClockedServer(Clock(tmp_path / "clock", LIBRARY), appendfsync="always") as server:
        yield server


async def off_ms(server: EmbeddedServer) -> float:
    with redis.Redis.from_url(server.url) as client:
        return now_ms(client) - time.time() * 1000


@needs_library
async def test_a_clock_jumps_and_is_put_right_and_leaves_nothing_behind(clocked: ClockedServer) -> None:
    for seconds in (90, -90, 0):
        assert await clocked.jump(seconds)
        assert await off_ms(clocked) == pytest.approx(seconds * 1000, abs=500)
    await clocked.jump(30)
    clocked.kill()
    await clocked.restart_async()
    assert await off_ms(clocked) == pytest.approx(30_000, abs=500)
    assert not [file for file in SHARED_MEMORY.iterdir() if file.name.endswith(f"m_{clocked.pid}")]


@needs_library
@pytest.mark.parametrize("seconds", [60, -60])
async def test_a_network_goes_on_while_the_clock_of_its_control_jumps(clocked: ClockedServer, seconds: int) -> None:
    async with (
        gamecast.connect(clocked.url, name="one") as one,
        gamecast.connect(clocked.url, name="other") as other,
    ):
        await one.subscribe("a", "b")
        for at in (seconds, 0):
            assert await clocked.jump(at)
            await asyncio.wait_for(other.subscribe("a", f"region{at}"), scaled(5))
            await asyncio.wait_for(other.publish("a", at), scaled(5))
            for cast in (one, other):
                assert (await asyncio.wait_for(next_event(cast), scaled(5))).payload == at


@needs_library
async def test_a_leader_does_not_wait_for_wishes_as_long_as_the_clock_was_set_back(clocked: ClockedServer) -> None:
    control = LeaderControl(clocked.url)
    limit = Deadline(LOOK_EVERY_MS / 1000 + 2.5 + LATE_S_MAX + 0.5)
    waits = asyncio.create_task(control.asked("0-0 0-0", block_ms=LOOK_EVERY_MS + 2_500))  # until the jump is seen
    assert await clocked.jump(-60)
    with pytest.raises(gamecast.Unreachable):
        await waits
    assert not limit.passed
    await control.close()


@needs_library
async def test_a_leader_that_dies_when_the_clock_was_set_back_is_replaced_in_time(clocked: ClockedServer) -> None:
    old, new = LeaderControl(clocked.url), LeaderControl(clocked.url)
    assert await old.look("old", 5_000) is not None  # the jump takes up to two seconds to be seen
    assert await clocked.jump(-60)
    with redis.Redis.from_url(clocked.url) as client:
        assert client.pttl(ControlKeys.lease) > 60_000
    await looks_until_it_leads(new, "new", lease_ms=LEASE_MS, seconds=2 * LEASE_MS / 1000)
    for control in (old, new):
        await control.close()


async def test_who_is_gone_is_due_soon_and_who_is_there_never_when_the_clock_goes_back(
    client: redis.Redis, redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_presence, "PRESENT_MS", 4 * SHORT_MS)
    control, turn = RedisControl(redis_server.url), asyncio.Lock()
    here, gone = (redis_presence.RedisPresence(control, turn, name, 1) for name in ("here", "gone"))
    for each in (here, gone):
        assert await each.be({"hall": ""}, 0, is_known=False)
    assert await here.due() == []
    looked = client.hget(f"{ControlKeys.present}:", "looked")
    assert looked is not None
    client.hset(f"{ControlKeys.present}:", "looked", int(looked) + 60 * JUMP_MS)
    for member in ("here\n1", "gone\n1"):
        assert client.zincrby(ControlKeys.present, 60 * JUMP_MS, member)
    found: list[str] = []
    async with patience(10):
        while not found:
            assert await here.beat()
            found += [each.name for each in await here.due()]
            await asyncio.sleep(EVERY_S)
    assert found == ["gone"]
    await control.close()
