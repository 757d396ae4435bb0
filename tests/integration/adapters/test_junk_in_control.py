"""Whatever another program writes to the control keys: joins work again by themselves, or `doctor` names the key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.network import RedisNetwork
from adapters.redis.users import RedisUser, create_users, new_users
from cli.doctor import findings_of
from gamecast.errors import GamecastError
from tests.events import take
from tests.patience import until

Command = tuple[str | bytes, ...]

WRONG: dict[str, Command] = {
    "string": ("SET", "junk"),
    "list": ("RPUSH", "junk"),
    "set": ("SADD", "junk"),
    "zset": ("ZADD", "1", "junk"),
    "hash": ("HSET", "junk", "junk"),
    "stream": ("XADD", "*", "junk", "junk"),
}

JUNK = b"\xff\n\x00"
"""No text, no number and no name."""
LAST_ID = f"{2**64 - 1}-{2**64 - 1}"
"""After this, a stream takes no more."""

FIELDS: dict[str, list[Command]] = {
    ControlKeys.incarnations: [
        ("HSET", "", JUNK),
        ("HSET", "\n\n", JUNK),
        ("HSET", "new", JUNK),
    ],
    ControlKeys.connections: [("HSET", "dead", JUNK)],
    ControlKeys.alive: [("ZADD", "0", "dead"), ("ZADD", "+inf", JUNK)],
    ControlKeys.gone: [("ZADD", "inf", JUNK)],
    ControlKeys.said: [("HSET", JUNK, JUNK), ("HSET", "new", JUNK)],
    ControlKeys.boxes: [("HSET", "new", JUNK)],
    ControlKeys.doubted: [("HSET", "control", JUNK), ("HSET", JUNK, JUNK)],
    ControlKeys.asked: [("XADD", LAST_ID, JUNK, JUNK)],
    ControlKeys.changes: [("XADD", "*", JUNK, JUNK), ("XADD", LAST_ID, JUNK, JUNK)],
    ControlKeys.superseded: [("XADD", "*", JUNK, JUNK), ("XADD", LAST_ID, JUNK, JUNK)],
    ControlKeys.published: [("SADD", JUNK)],
    ControlKeys.expected: [("SADD", JUNK), ("SADD", "x")],
    ControlKeys.present: [("ZADD", "0", JUNK), ("ZADD", "0", "x\n-1")],
}
"""Key → what clients that may publish can write there."""

OF_LEADERS: dict[str, list[Command]] = {
    ControlKeys.state: [("HSET", "number", JUNK), ("HSET", "head", JUNK)],
    ControlKeys.plan: [("SET", JUNK)],
    ControlKeys.regions: [("HSET", JUNK, JUNK)],
    ControlKeys.atoms: [("HSET", JUNK, JUNK)],
    ControlKeys.heard: [("HSET", JUNK, JUNK)],
    ControlKeys.ordered: [("SADD", JUNK)],
    ControlKeys.nodes: [("HSET", JUNK, JUNK)],
    ControlKeys.lossy: [("SADD", JUNK)],
    ControlKeys.led: [("HSET", "pulse", JUNK), ("HSET", "token", JUNK)],
    ControlKeys.looked: [("SET", JUNK)],
    ControlKeys.seen_runs: [("HSET", JUNK, JUNK)],
    ControlKeys.probes: [("HSET", JUNK, JUNK)],
    ControlKeys.proposal: [("HSET", "id", JUNK)],
    ControlKeys.past: [("XADD", "1-1", JUNK, JUNK)],
    ControlKeys.woken: [("XADD", LAST_ID, JUNK, JUNK)],
    ControlKeys.trouble: [("SET", JUNK)],
    ControlKeys.news: [("XADD", "1-1", JUNK, JUNK)],
}


def at(key: str, command: Command) -> Command:
    return command[0], key, *command[1:]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


@pytest.fixture(scope="module")
def users(server: EmbeddedServer) -> dict[str, RedisUser]:
    made = new_users()
    asyncio.run(create_users([server.url], made))
    return made


@pytest.fixture
async def network(server: EmbeddedServer, users: dict[str, RedisUser]) -> AsyncIterator[EmbeddedServer]:
    """A network of two nodes on one server, which a manager leads."""
    with redis.Redis.from_url(server.url) as admin:
        admin.flushall()
    leading = RedisNetwork(users["manager"].url(server.url), ordering="acyclic", retention_events=100)
    for name in ("n1", "n2"):
        await leading.register_node(name, "")
    leading.stand(leading.way_to_leading())
    async with gamecast.connect(users["subscriber"].url(server.url), name="old") as client:
        await client.subscribe("old")
    try:
        yield server
    finally:
        await leading.close()


async def plays(url: str, name: str) -> None:
    """Join, see an event, leave the region, and leave."""
    async with gamecast.connect(url, name=name) as client:
        await client.subscribe("forest")
        await client.publish("forest", name)
        while [event.payload for event in await take(client, 1)] != [name]:
            pass
        await client.unsubscribe("forest")


async def works_again(url: str, within_s: float = 6.0) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while True:
                with suppress(GamecastError):
                    await plays(url, "new")
                    await plays(url, "new")
                    return True
                await asyncio.sleep(0.1)
    return False


async def require_works_or_named(server: EmbeddedServer, users: dict[str, RedisUser], key: str) -> None:
    within_s = 1.5 if key in ControlKeys.of_plans else 6.0  # of plans, nothing is removed
    if await works_again(users["subscriber"].url(server.url), within_s):
        return
    problems = [each.seen for each in await findings_of(users["manager"].url(server.url)) if each.level == "problem"]
    assert any(key in seen for seen in problems), problems


@pytest.mark.parametrize("key", ControlKeys.types)
async def test_after_a_wrong_type_joins_work_again_or_doctor_names_the_key(
    network: EmbeddedServer, users: dict[str, RedisUser], key: str
) -> None:
    with redis.Redis.from_url(network.url) as admin:
        kinds = [kind for kind in WRONG if kind != ControlKeys.types[key]]
        kind = kinds[[*ControlKeys.types].index(key) % len(kinds)]
        admin.delete(key)
        with suppress(redis.ResponseError):  # the network was faster
            admin.execute_command(*at(key, WRONG[kind]))
        await require_works_or_named(network, users, key)


@pytest.mark.parametrize("key", [*FIELDS, *OF_LEADERS])
async def test_after_junk_in_a_field_joins_work_again_or_doctor_names_the_key(
    network: EmbeddedServer, users: dict[str, RedisUser], key: str
) -> None:
    with redis.Redis.from_url(network.url) as admin:
        for command in FIELDS.get(key) or OF_LEADERS[key]:
            with suppress(redis.ResponseError):  # ids of streams only grow
                admin.execute_command(*at(key, command))
            await require_works_or_named(network, users, key)


@pytest.mark.parametrize("role", ["publisher", "subscriber", "gateway"])
async def test_game_servers_cannot_give_a_control_key_another_type(
    server: EmbeddedServer, users: dict[str, RedisUser], role: str
) -> None:
    with redis.Redis.from_url(server.url) as admin, redis.Redis.from_url(users[role].url(server.url)) as writer:
        admin.flushall()
        for key, right in ControlKeys.types.items():
            for kind, command in WRONG.items():
                if kind != right:
                    with pytest.raises(redis.ResponseError, match="no permissions"):
                        writer.execute_command(*at(key, command))
        for key, commands in FIELDS.items():
            for command in commands:
                writer.execute_command(*at(key, command))
                admin.delete(key)


async def test_the_leader_says_what_it_removes(
    network: EmbeddedServer, users: dict[str, RedisUser], caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis.from_url(network.url) as admin, caplog.at_level(logging.WARNING, "gamecast.manager"):
        admin.delete(ControlKeys.gone)
        admin.xadd(ControlKeys.gone, {"junk": "junk"})
        await until(lambda: admin.type(ControlKeys.gone) != b"stream")
        assert await works_again(users["subscriber"].url(network.url))
    [said] = {record.getMessage() for record in caplog.records if "removed" in record.getMessage()}
    assert said == (f"removed {ControlKeys.gone}: another program has written there; it was a stream and not a zset")


async def test_a_leader_that_cannot_go_on_is_a_problem_and_the_next_one_finds_it_mended(
    network: EmbeddedServer, users: dict[str, RedisUser]
) -> None:
    url = users["manager"].url(network.url)
    with redis.Redis.from_url(network.url) as admin:
        head = admin.hget(ControlKeys.state, "head")
        assert head is not None
        admin.hset(ControlKeys.state, mapping={"head": "junk", "number": "999999"})
        await until(lambda: ControlKeys.state.encode() in (admin.get(ControlKeys.trouble) or b""))
        problems = [each for each in await findings_of(url) if each.level == "problem" and each.subject == "leader"]
        assert ControlKeys.state in problems[0].seen
        admin.hset(ControlKeys.state, "head", head)
    assert await works_again(users["subscriber"].url(network.url))
    with redis.Redis.from_url(network.url) as admin:
        await until(lambda: not admin.exists(ControlKeys.trouble))
