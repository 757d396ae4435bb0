"""The control store: announcements as differences, what is noted for leaders, requests that are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from adapters.embedded.server import EmbeddedServer
from adapters.network import Forgotten
from adapters.redis.announced import Told
from adapters.redis.connection import RedisConnection
from adapters.redis.control import REGIONS_MAX
from adapters.redis.controlclient import ControlClient
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.ledger import NEWS_KEPT, READINGS_MAX, read_record
from sequencing.errors import NoLeader, PlanError, SessionExpired, Superseded
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Interest, Record, Request

ME, LEASE_MS = "me", 60_000
FIRST = Plan(1, 1, "acyclic", {"n1": "", "n2": "redis://two"}, {f"old-{n}": ("n1",) for n in range(200)}, ())


def record(version: int) -> Record:
    """Return the record in which a version of the plan is announced, without a change."""
    return Record(replace(FIRST, version=version))


@pytest.fixture
async def control(redis_server: EmbeddedServer) -> AsyncIterator[LeaderControl]:
    control = LeaderControl(redis_server.url)
    assert await control.look(ME, LEASE_MS) is not None
    yield control
    await control.close()


async def seen_by_another(server: EmbeddedServer) -> tuple[Record | None, tuple[int, int]]:
    """Return what the next leader goes on from, and what is announced."""
    other = LeaderControl(server.url)
    try:
        seen = await other.look(ME, LEASE_MS)
        assert seen is not None
        return seen.record, seen.announced
    finally:
        await other.close()


async def ask(control: LeaderControl, name: str, request: Request) -> None:
    [answer] = await control.join([(name, request)])
    if isinstance(answer, Exception):
        raise answer
    assert answer is False


async def interests(control: LeaderControl) -> dict[str, Interest]:
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    return dict(seen.interests)


def moved(first: Plan) -> Record:
    """Return the record in which two regions move, one is new, and others stay."""
    plan = replace(
        first,
        epoch=2,
        version=1,
        paths={**first.paths, "old-1": ("n1", "n2"), "new": ("n2",)},
        atoms=(*first.atoms, Atom(AtomId(1), ("new", "old-1"), "n2")),
        epochs={region: 1 for region in first.paths if region not in ("old-1", "old-2")},
        runs={"n2": "one"},
    )
    heard = {"s": Interest(3, 2, {"old-1": 1, "new": 2}, 1)}
    return Record(plan, {"s": frozenset({"old-1", "new"})}, heard, (first,), next_atom=2)


def stored(record: Record) -> Record:
    """Return a record as it comes back: what was heard is known without its regions."""
    return replace(record, heard={name: replace(each, since={}) for name, each in record.heard.items()})


async def test_the_next_leader_goes_on_from_what_was_saved_and_others_hear_what_was_announced(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    assert await control.settle(ME, record(1))
    assert await seen_by_another(redis_server) == (record(1), (1, 1))
    following = replace(
        moved(FIRST),
        abandoned=(replace(FIRST, version=9, paths={**FIRST.paths, "given up": ("n1",)}),),
        ended={"n2": (("x", 1),)},
        expected=frozenset({("a", "b")}),
        leaving={"t": frozenset({"old-3"})},
    )
    assert await control.save(ME, following)
    assert await seen_by_another(redis_server) == (stored(following), (1, 1))
    assert await control.newest() == record(1), "it is not announced"
    assert await control.announce(ME, following)
    assert await seen_by_another(redis_server) == (stored(following), (2, 1))
    newest = await control.newest()
    assert newest is not None
    assert newest.plan == following.plan
    assert newest.ending() == following.ending() == {("old-1", 1), ("old-2", 1)}
    assert await control.save(ME, following.settled())
    assert (await control.record()) == stored(following.settled())
    assert await control.ending() == set()


@pytest.mark.parametrize("changes", [1, READINGS_MAX])
async def test_who_only_looks_reads_plan_and_people_of_one_moment(
    redis_server: EmbeddedServer, control: LeaderControl, changes: int
) -> None:
    await control.settle(ME, record(1))
    first = moved(FIRST)
    announced = [
        replace(first, plan=replace(first.plan, version=1 + n), members={"s": frozenset({f"old-{n}"})})
        for n in range(changes)
    ]
    reader, coming = RedisConnection(redis_server.url), iter(announced)

    async def call(*command: Any) -> Any:
        answer = await reader.call(*command)
        if command == ("HGETALL", ControlKeys.state) and (following := next(coming, None)) is not None:
            assert await control.announce(ME, following)
        return answer

    try:
        if changes < READINGS_MAX:
            assert await read_record(call, reader.pipeline) == stored(announced[-1])
        else:
            with pytest.raises(PlanError, match="has changed each time"):
                await read_record(call, reader.pipeline)
    finally:
        await reader.close()


@pytest.mark.parametrize("is_announced", [False, True])
async def test_a_leader_that_takes_over_announces_what_the_one_before_had_saved(
    redis_server: EmbeddedServer, control: LeaderControl, is_announced: bool
) -> None:
    await control.settle(ME, record(1))
    following = moved(FIRST)
    await control.save(ME, following)
    if is_announced:
        await control.announce(ME, following)
    other = LeaderControl(redis_server.url)
    try:
        seen = await other.look(ME, LEASE_MS)
        assert seen is not None
        assert seen.record is not None
        assert await other.announce(ME, seen.record)
        assert await other.save(ME, seen.record.settled())
        [told] = await control.news(FIRST, block_ms=1)
        assert told.plan == following.plan
        [(name, change)] = told.people.items()
        assert (name, sorted(change.joined), change.left) == ("s", ["new", "old-1"], frozenset())
        assert [plan.paths.keys() for plan in told.behind] == [{"old-1", "old-2"}]
        assert not await control.save(ME, record(9)), "somebody else has written since"
    finally:
        await other.close()


async def test_people_that_come_go_and_change_are_told_and_found_by_the_next_leader(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    told: list[Told] = []
    here, told_until = record(1), None
    standings: dict[str, frozenset[str]] = {}
    for version, members in enumerate(({"s": "ab"}, {"s": "bc", "t": "a"}, {"t": "a"}, {"t": "ac", "s": "x"}), 1):
        heard = {name: Interest(7 if version < 4 else 8, version) for name in members}
        counted = {name: frozenset(regions) for name, regions in members.items()}
        here = Record(replace(FIRST, version=version), counted, heard)
        assert await control.settle(ME, here)
        if told_until is not None:
            told = await control.news(told_until, block_ms=1)
            assert len(told) == 1
            for name, change in told[0].people.items():
                before = standings.get(name, frozenset()) if not change.is_whole else frozenset()
                standings[name] = (before - change.left) | change.joined
            assert {name: regions for name, regions in standings.items() if regions} == counted
        else:
            standings = dict(counted)
        told_until = here.plan
        assert await seen_by_another(redis_server) == (here, (1, version))


async def test_who_does_not_lead_writes_nothing(redis_server: EmbeddedServer, control: LeaderControl) -> None:
    await control.settle(ME, record(1))
    for write in (control.save, control.announce, control.settle):
        assert not await write("somebody else", moved(FIRST))
    assert await control.begin_to_plan("somebody else") is None
    assert await seen_by_another(redis_server) == (record(1), (1, 1))


async def test_what_an_announcement_costs_follows_what_it_changes(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    def received() -> int:
        with redis.Redis.from_url(redis_server.url) as client:
            return int(client.info("stats")["total_net_input_bytes"])

    costs: list[int] = []
    for regions in (20, 2_000):
        plan = replace(FIRST, epoch=regions, paths={f"r{regions}-{n}": ("n1",) for n in range(regions)})
        members = {f"s{n}": frozenset({f"r{regions}-{n % regions}"}) for n in range(regions)}
        heard = {name: Interest(1, 1) for name in members}
        before = Record(plan, members, heard)
        await control.settle(ME, before)
        costs.append(-received())
        for version in range(2, 52):
            joined = {**before.members, "s1": before.members["s1"] | {f"r{regions}-{version % 9}"}}
            told = {**before.heard, "s1": Interest(1, version)}
            before = Record(replace(before.plan, version=version), joined, told)
            await control.settle(ME, before)
        costs[-1] += received()
    assert costs[1] < 1.1 * costs[0], costs
    assert costs[1] < 50 * 1_500, costs


async def test_what_is_ending_is_told_from_before_it_is_announced_until_it_has_ended(control: LeaderControl) -> None:
    seat = ControlClient(control, asyncio.Lock())
    assert await seat.ending() == set()
    await control.settle(ME, record(1))
    await control.save(ME, moved(FIRST))
    assert await seat.ending() == {("old-1", 1), ("old-2", 1)}
    await control.announce(ME, moved(FIRST))
    await control.save(ME, moved(FIRST).settled())
    assert await seat.ending() == set()


async def test_a_leader_whose_store_has_gone_back_reads_it_again(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    await control.settle(ME, record(1))
    with redis.Redis.from_url(redis_server.url) as client:
        kept = {key: client.dump(key) for key in client.keys("gamecast:{control}:*")}
        await control.settle(ME, moved(FIRST))
        client.delete(*client.keys("gamecast:{control}:*"))
        for key, value in kept.items():
            client.restore(key, 0, value)
    assert not await control.save(ME, moved(FIRST))
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.record == record(1)


async def test_a_network_of_another_wire_is_refused(redis_server: EmbeddedServer, control: LeaderControl) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(ControlKeys.plan, b"\n[3,{}]\n{}")
        with pytest.raises(PlanError, match="wire is of version 3, and this gamecast speaks version 8"):
            await control.newest()
        client.delete(ControlKeys.plan)
        client.xadd(ControlKeys.news, {"record": b"0123\n[3,{}]\n{}"}, "1-1")
        with pytest.raises(PlanError, match="wire is of version 3"):
            await control.news(None, block_ms=1)
        client.set("gamecast:{control}:record", "of version 3")
    with pytest.raises(PlanError, match="wire is of version 3"):
        await control.look(ME, LEASE_MS)


async def test_of_requests_that_are_sent_together_each_has_its_own_answer(control: LeaderControl) -> None:
    old, new = await control.introduce("a"), await control.introduce("a")
    other = await control.introduce("b")
    answers = await control.join(
        [
            ("a", Request(old, 1, {"x": 1})),
            ("a", Request(new, 1, {"y": 1}, floor=4)),
            ("b", Request(other, 2, {"z": 2}, whole=True)),
        ]
    )
    assert [type(answer) for answer in answers] == [Superseded, bool, bool]
    assert await interests(control) == {"a": Interest(new, 1, {"y": 1}, 4), "b": Interest(other, 2, {"z": 2})}
    await ask(control, "b", Request(other, 1, {"old": 1}))
    assert (await interests(control))["b"] == Interest(other, 2, {"z": 2})
    await ask(control, "b", Request(other, 3, {"z": 0, "v": 3}))
    assert (await interests(control))["b"] == Interest(other, 3, {"v": 3})
    await control.place("b", other, [f"p{number}" for number in range(2 * REGIONS_MAX + 1)])
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert len(seen.published) == 2 * REGIONS_MAX + 1


async def test_what_takes_several_parts_is_heard_when_all_of_it_is_there(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    connection = await control.introduce("a")
    many = {f"r{number}": 1 for number in range(2 * REGIONS_MAX + 5)}
    await ask(control, "a", Request(connection, 1, many))
    assert await interests(control) == {"a": Interest(connection, 1, many)}
    leaves = {**dict.fromkeys(many, 0), "new": 2}

    class Dying(LeaderControl):
        calls = 0

        async def _run(self, *arguments: object) -> object:
            self.calls += 1
            if self.calls == 3:
                raise ConnectionError
            return await super()._run(*arguments)

    dying = Dying(redis_server.url)
    with pytest.raises(ConnectionError):
        await dying.join([("a", Request(connection, 2, leaves))])
    await dying.close()
    for look in (interests(control), _interests_of_another(redis_server)):
        found = (await look)["a"]
        assert found.said == 1, "the second request is not there to its end"
        assert "new" in found.since
    assert await control.beat("a", connection, 3), "it is not known that it said so much"
    await ask(control, "a", Request(connection, 2, leaves))
    assert await interests(control) == {"a": Interest(connection, 2, {"new": 2})}
    assert await _interests_of_another(redis_server) == {"a": Interest(connection, 2, {"new": 2})}
    assert not await control.beat("a", connection, 2)


async def _interests_of_another(server: EmbeddedServer) -> dict[str, Interest]:
    other = LeaderControl(server.url)
    try:
        return await interests(other)
    finally:
        await other.close()


async def test_a_renewed_incarnation_is_above_what_nodes_have_forgotten(control: LeaderControl) -> None:
    connection = await control.introduce("a")
    # The next one after each is kept for its leaves.
    assert await control.renew("a", connection) == connection + 2
    assert await control.renew("a", connection, after=500) == 502
    assert await control.introduce("b") == 504
    assert await control.renew("a", connection, after=5) == 506
    assert await control.incarnations() == (506, frozenset({"a", "b"}))


@pytest.mark.parametrize("by", ["beat", "join"])
async def test_who_counted_as_gone_is_back_when_it_is_heard_of_unless_another_has_its_name(
    redis_server: EmbeddedServer, control: LeaderControl, by: str
) -> None:
    connection = await control.introduce("a")
    request = Request(connection, 1, {"x": 1}, whole=True)
    await ask(control, "a", request)
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.alive, {"a": 0})
    assert await interests(control) == {}
    if by == "beat":
        assert await control.beat("a", connection, 1)
    else:
        await ask(control, "a", request)
    assert await control.beat("a", connection, 1) == (by == "beat")
    await ask(control, "a", request)
    assert not await control.beat("a", connection, 1)
    assert await interests(control) == {"a": Interest(connection, 1, {"x": 1})}
    newer = await control.introduce("a")
    for _ in range(2):
        with pytest.raises(Superseded):
            await control.beat("a", connection)
        with pytest.raises(Superseded):
            await ask(control, "a", request)
        with pytest.raises(Superseded):
            await control.place("a", connection, ["x"])
        await control.leave("a", newer)


async def test_what_has_changed_is_not_taken_for_all_when_the_rest_is_forgotten(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    connection = await control.introduce("a")
    await ask(control, "a", Request(connection, 1, {"x": 1, "y": 1}))
    await ask(control, "a", Request(connection, 2, {"y": 0, "v": 2}))
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.alive, {"a": 0})
    assert await interests(control) == {}
    for _ in range(2):
        with pytest.raises(Forgotten):
            await ask(control, "a", Request(connection, 3, {"z": 3}))
        assert (await interests(control)).get("a", Interest(0, 0)).since == {}
        assert await control.beat("a", connection, 2)
    await ask(control, "a", Request(connection, 3, {"x": 1, "v": 2, "z": 3}, whole=True))
    assert await interests(control) == {"a": Interest(connection, 3, {"x": 1, "v": 2, "z": 3})}
    assert not await control.beat("a", connection, 3)


async def test_whose_request_is_not_known_is_told_so_until_it_is(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    before = await control.introduce("a")
    await ask(control, "a", Request(before, 1, {"x": 1}))
    connection = await control.introduce("a")
    assert [await control.beat("a", connection) for _ in range(2)] == [True, True]
    await ask(control, "a", Request(connection, 1, {"x": 1}))
    assert not await control.beat("a", connection, 1)
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.alive, {"a": 0})
        await control.look(ME, LEASE_MS)
        assert client.zcard(ControlKeys.gone) == 1
        assert [await control.beat("a", connection) for _ in range(2)] == [True, True]
        assert client.zcard(ControlKeys.gone) == 0


async def test_of_names_that_are_gone_the_latest_are_remembered(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.zadd(ControlKeys.gone, {f"name-{number}": number - 20_000 for number in range(12_000)})
        await control.look(ME, LEASE_MS)
        assert client.zcard(ControlKeys.gone) == 10_000
        assert client.zscore(ControlKeys.gone, "name-11999") == -8_001


async def test_who_has_left_does_not_come_back_by_a_late_command(control: LeaderControl) -> None:
    connection = await control.introduce("a")
    await ask(control, "a", Request(connection, 1, {"x": 1}))
    await control.leave("a", connection)
    with pytest.raises(Superseded):
        await ask(control, "a", Request(connection, 2, {"y": 2}))
    with pytest.raises(Superseded):
        await control.beat("a", connection)
    assert await interests(control) == {}


async def test_who_may_have_missed_an_announcement_is_told(control: LeaderControl) -> None:
    for version in range(1, 2 * NEWS_KEPT):
        await control.settle(ME, record(version))
    late = replace(FIRST, version=NEWS_KEPT)
    assert len(await control.news(late, block_ms=1)) == NEWS_KEPT - 1
    with pytest.raises(SessionExpired):
        await control.news(FIRST, block_ms=1)


async def test_a_leader_that_is_far_behind_reads_what_all_want(
    redis_server: EmbeddedServer, control: LeaderControl
) -> None:
    connection = await control.introduce("a")
    with redis.Redis.from_url(redis_server.url) as client:
        for said in range(1, 400):
            await control.join([("a", Request(connection, said, {f"r{said}": said}))])
        client.xtrim(ControlKeys.changes, 100, approximate=False)
    found = await interests(control)
    assert found["a"].since == {f"r{said}": said for said in range(1, 400)}


async def test_one_plan_is_proposed_at_a_time_and_its_answer_is_for_who_proposed_it(control: LeaderControl) -> None:
    await control.propose("one", FIRST)
    with pytest.raises(PlanError, match="another proposal is being"):
        await control.propose("two", FIRST)
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.proposed == "one"
    assert await control.proposal() == ("one", FIRST)
    assert await control.answered("one") is None
    assert await control.answer(ME, "another", "it does not matter")
    assert await control.answered("one") is None
    assert await control.answer(ME, "one", "it does not fit")
    assert await control.answered("one") == "it does not fit"
    seen = await control.look(ME, LEASE_MS)
    assert seen is not None
    assert seen.proposed == ""
    await control.propose("two", FIRST)
    with pytest.raises(PlanError, match="has taken its place"):
        await control.answered("one")
    assert not await control.answer("not the leader", "two", "")
    await control.resign(ME)
    with pytest.raises(NoLeader):
        await control.propose("three", FIRST)


async def test_what_another_program_puts_in_place_of_a_proposal_keeps_no_leader_from_leading(
    control: LeaderControl, redis_server: EmbeddedServer
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(ControlKeys.proposal, "text")
        seen = await control.look(ME, LEASE_MS)
        assert seen is not None
        assert seen.proposed == ""
        await control.propose("one", FIRST)
        client.delete(ControlKeys.proposal)
        client.hset(ControlKeys.proposal, mapping={"id": b"\xff", "plan": b"{}"})
        seen = await control.look(ME, LEASE_MS)
        assert seen is not None
        with pytest.raises(PlanError, match="not a gamecast plan"):
            await control.proposal()


async def test_what_a_turn_writes_is_refused_once_the_state_was_written_by_others(
    control: LeaderControl, redis_server: EmbeddedServer
) -> None:
    """Even by the candidate itself: a write that had no answer in time, and came late."""
    assert await control.settle(ME, record(1))
    late = LeaderControl(redis_server.url)
    assert await late.look(ME, LEASE_MS) is not None
    assert await late.settle(ME, record(2))
    await late.close()
    seen = await control.look(ME, LEASE_MS, begins=False)
    assert seen is not None
    assert seen.announced == (1, 2)
    assert not await control.settle(ME, record(2))
    assert not await control.save(ME, record(1))
    assert await control.begin_to_plan(ME) is None
    assert await control.look(ME, LEASE_MS, begins=False) is not None
    assert not await control.settle(ME, record(2))
    assert await control.look(ME, LEASE_MS) is not None
    assert await control.settle(ME, record(3))
    assert await control.look(ME, LEASE_MS, begins=False) is not None
    assert await control.settle(ME, record(4))
    assert (await seen_by_another(redis_server))[1] == (1, 4)
