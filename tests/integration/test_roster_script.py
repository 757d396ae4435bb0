"""The roster script and the roster are one: same calls in, same answers out, same state kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.embedded import EmbeddedServer
from adapters.redis_connection import RedisConnection
from adapters.redis_network import ROSTER, ControlKeys
from sequencing.errors import MembershipSettled, Superseded
from sequencing.roster import Roster

NAMES = ("s1", "server with blanks", "höhle {x}")
REGIONS = ("forest", "river", "7", 'quo"te \\ /', "höhle %d")

NOW_MS = 0
FOREVER_MS = 10**9
"""The script has the server's clock. Who beats lives for days by any clock, and who beat with a negative time to live
has been gone for days: no test run takes so long, so that the clocks need not agree."""


@dataclass(frozen=True)
class Call:
    verb: str
    name: str
    incarnation: int
    ttl_ms: int
    regions: tuple[str, ...] = ()


names = st.sampled_from(NAMES)
lifetimes = st.sampled_from((FOREVER_MS, FOREVER_MS, FOREVER_MS, -FOREVER_MS))
regions = st.lists(st.sampled_from(REGIONS), unique=True).map(tuple)
incarnations = st.sampled_from((1, 1, 1, 2, 3))
some_verbs = st.sampled_from(("subscribe", "subscribe", "unsubscribe"))
subscriptions = st.builds(Call, some_verbs, names, incarnations, lifetimes, regions)
other_verbs = st.sampled_from(
    ("introduce", "introduce", "renew", "leave", "leave", "publishing", "settle", "reopen", "beat", "subscribed")
)
calls = st.one_of(subscriptions, st.builds(Call, other_verbs, names, incarnations, lifetimes))


def ask_machine(roster: Roster, call: Call) -> Any:
    roster.ttl_ms = call.ttl_ms
    try:
        match call.verb:
            case "introduce":
                return roster.introduce(call.name, NOW_MS)
            case "renew":
                return roster.renew(call.name, call.incarnation, NOW_MS)
            case "beat":
                return roster.beat(call.name, call.incarnation, NOW_MS)
            case "subscribe":
                return roster.subscribe(call.name, call.incarnation, call.regions, NOW_MS)
            case "unsubscribe":
                return roster.unsubscribe(call.name, call.incarnation, call.regions)
            case "subscribed":
                return roster.subscribed(call.name, call.incarnation)
            case "leave":
                return roster.leave(call.name, call.incarnation)
            case "publishing":
                return roster.publishing(call.name, call.incarnation)
            case "settle":
                return roster.settle(NOW_MS)
            case _:
                return roster.reopen()
    except MembershipSettled:
        return "settled"
    except Superseded:
        return "superseded"


async def ask_script(connection: RedisConnection, call: Call) -> Any:
    who = (call.verb, call.name, call.incarnation, call.ttl_ms)
    answer = await connection.run(ROSTER, ControlKeys.roster, *who, *call.regions)
    superseded = answer == b"superseded"
    match call.verb:
        case "settle":
            epoch, flat = answer
            return epoch, members(dict(zip(flat[::2], flat[1::2], strict=True)))
        case "subscribe" | "introduce" | "renew" | "publishing":
            return answer.decode() if isinstance(answer, bytes) else answer
        case "unsubscribe":
            return not superseded and bool(answer)
        case "subscribed":
            return frozenset() if superseded else frozenset(orjson.loads(answer))
        case _:
            return None


def members(packed: dict[bytes, bytes]) -> dict[str, frozenset[str]]:
    lists = {name.decode(): orjson.loads(regions) for name, regions in packed.items()}
    assert all(isinstance(regions, list) for regions in lists.values()), packed
    return {name: frozenset(regions) for name, regions in lists.items()}


def kept_by_machine(roster: Roster) -> dict[str, Any]:
    return {
        "epoch": roster.epoch,
        "settled": roster.settled,
        "members": roster.members,
        "alive": {name: until_ms > NOW_MS for name, until_ms in roster.alive_until_ms.items()},
        "participants": roster.participants,
        "incarnations": roster.incarnations,
    }


def kept_by_script(client: redis.Redis) -> dict[str, Any]:
    state: Any = client.hgetall(ControlKeys.state)
    alive: Any = client.zrange(ControlKeys.alive, 0, -1, withscores=True)
    incarnations: Any = client.hgetall(ControlKeys.incarnations)
    participants: Any = client.smembers(ControlKeys.participants)
    packed: Any = client.hgetall(ControlKeys.members)
    clock: Any = client.time()
    return {
        "epoch": int(state.get(b"epoch", 1)),
        "settled": state.get(b"settled") == b"1",
        "members": members(packed),
        "alive": {name.decode(): until_ms > clock[0] * 1000 for name, until_ms in alive},
        "participants": {name.decode() for name in participants},
        "incarnations": {name.decode(): int(count) for name, count in incarnations.items()},
    }


async def play(script: list[Call], url: str) -> None:
    roster, connection = Roster(FOREVER_MS), RedisConnection(url)
    with redis.Redis.from_url(url) as client:
        client.delete(*ControlKeys.roster)
        try:
            for call in script:
                assert await ask_script(connection, call) == ask_machine(roster, call), call
                assert kept_by_script(client) == kept_by_machine(roster), call
        finally:
            await connection.close()
            client.delete(*ControlKeys.roster)


@settings(max_examples=150, deadline=None)
@given(script=st.lists(calls, min_size=1, max_size=20))
def test_the_script_answers_and_keeps_what_the_roster_does(shared_redis: EmbeddedServer, script: list[Call]) -> None:
    asyncio.run(play(script, shared_redis.url))


async def test_a_life_of_a_network_from_one_epoch_to_the_next(shared_redis: EmbeddedServer) -> None:
    story = [
        Call("introduce", "s1", 0, FOREVER_MS),
        Call("introduce", "silent", 0, FOREVER_MS),
        Call("introduce", "p", 0, FOREVER_MS),
        Call("introduce", "late", 0, FOREVER_MS),
        Call("subscribe", "s1", 1, FOREVER_MS, ("forest", "river")),
        Call("subscribe", "silent", 1, -FOREVER_MS, ("river",)),
        Call("unsubscribe", "s1", 1, FOREVER_MS, ("forest",)),
        Call("publishing", "p", 1, FOREVER_MS),
        Call("settle", "p", 1, FOREVER_MS),
        Call("subscribed", "silent", 1, FOREVER_MS),
        Call("beat", "p", 1, FOREVER_MS),
        Call("subscribe", "late", 1, FOREVER_MS, ("forest",)),
        Call("leave", "p", 1, FOREVER_MS),
        Call("subscribe", "late", 1, FOREVER_MS, ("forest",)),
        Call("introduce", "s1", 0, FOREVER_MS),
        Call("leave", "s1", 1, FOREVER_MS),
        Call("subscribe", "late", 1, FOREVER_MS, ("forest",)),
        Call("settle", "late", 1, FOREVER_MS),
        Call("reopen", "late", 1, FOREVER_MS),
        Call("subscribe", "s1", 2, FOREVER_MS, ("forest",)),
        Call("settle", "s1", 2, FOREVER_MS),
    ]
    await play(story, shared_redis.url)
