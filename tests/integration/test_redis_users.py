"""The users of a secured network: what each needs is allowed, and the rest refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.redis.connection import RedisConnection
from adapters.redis.control import ControlKeys, RedisControl
from adapters.redis.network import RedisNetwork
from adapters.redis.node import RedisNode
from adapters.redis.survey import survey
from adapters.redis.users import ROLES, new_users
from adapters.urls import as_user_of
from adapters.urls import without_user as plain
from gamecast.errors import AuthenticationFailed, NotAllowed
from tests.events import take
from tests.integration.gateway_clients import Socket, running_gateway
from tests.patience import patience


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedNetwork]:
    """Two nodes, and a manager of its own user."""
    network = EmbeddedNetwork("embedded://?nodes=2", ordering="acyclic", retention_events=1000, secure=True)
    try:
        await network.open()
        network.stand(RedisControl(network.url))
        yield network
    finally:
        await network.close()


async def test_game_servers_publish_and_subscribe_over_several_nodes_without_leading(secured: EmbeddedNetwork) -> None:
    async with (
        gamecast.connect(secured.url_of("subscriber"), name="s1") as one,
        gamecast.connect(secured.url_of("subscriber"), name="s2") as other,
        gamecast.share(secured.url_of("publisher")) as shared,
        shared.connect(name="p1") as publisher,
    ):
        for cast, regions in ((one, "ab"), (other, "abc")):
            await cast.subscribe(*regions)
        await asyncio.gather(*(cast.publish(region, 1) for cast in (one, other, publisher) for region in "abc"))
        await publisher.publish("elsewhere", b"1")
        orders = []
        for cast in (one, other):
            order: list[object] = []
            async with patience(10):
                while len(order) < 6:
                    event = await anext(cast)
                    assert isinstance(event, gamecast.Event)
                    if event.region != "c":
                        order.append((event.region, event.position))
            orders.append(order)
        assert orders[0] == orders[1]
    state = await survey(secured.url)
    assert all(node.server is not None for node in state.nodes)


async def test_a_manager_forgets_publishers_and_an_old_connection_goes_on(secured: EmbeddedNetwork) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="old") as old:
        async with gamecast.connect(secured.url_of("publisher"), name="guest") as guest:
            await guest.publish("a", 1)
        plan, control = await old.plan(), RedisControl(secured.url_of("manager"))
        assert plan is not None
        last, names = await control.incarnations()
        assert names == {"old"}
        for node, url in plan.nodes.items():
            reached = RedisNode(node, as_user_of(url or secured.url, secured.url_of("manager")))
            assert await reached.forget_publishers(last, names) is None
            forgotten = await reached.accepted(["a"])
            assert forgotten["a"].keys() <= {""}
            await reached.close()
        await control.close()
        await old.publish("a", 2)
        assert (await old.subscribe("a", since=0)).keys() == {"a"}
        assert [event.payload for event in await take(old, 2)] == [1, 2]


async def test_a_gateway_of_its_own_user_serves(secured: EmbeddedNetwork) -> None:
    async with running_gateway(secured.url_of("gateway")) as running, Socket.open(running.url) as socket:
        await socket.subscribe("forest")
        assert (await socket.publish("forest", 1))["type"] == "ack"
        await socket.take(1)
        assert await running.gateway.shelf.claim("once:x", b"1", 10) is None
    network = RedisNetwork(secured.url_of("gateway"), ordering="acyclic", retention_events=1)
    assert (len(await network.plans()) > 0, await network.ending()) == (True, frozenset())
    await network.close()


async def test_a_watcher_sees_everything(secured: EmbeddedNetwork) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="s1") as cast:
        await cast.subscribe("forest")
        await cast.publish("forest", 1)
        state = await survey(secured.url_of("watcher"), regions=True)
    assert (state.unread, [node.unread for node in state.nodes]) == ((), [(), ()])
    assert [(each.name, each.alive) for each in state.connections] == [("s1", True)]
    [region] = state.regions
    assert region.drawn == region.last
    assert region.stream_bytes


async def test_game_servers_that_record_find_each_other_and_a_tap_reads_along(secured: EmbeddedNetwork) -> None:
    control = RedisControl(secured.url_of("subscriber"))
    await control.announce_probe("s1", b"here")
    assert await control.probe_addresses() == {"s1": b"here"}
    await control.withdraw_probe("s1")
    assert await control.probe_addresses() == {}
    await control.close()
    with redis.Redis.from_url(secured.url_of("watcher")) as watcher:
        assert watcher.xread({ControlKeys.news: "0-0"}) == []
        with pytest.raises(redis.ResponseError, match="no such key"):
            watcher.xinfo_stream(ControlKeys.news)


CONTROL, NODE = "gamecast:{control}:", "gamecast:{n1}:"
EGRESS, LINK = f"{NODE}egress:1:forest", f"{NODE}link:n2"

REFUSED: dict[str, list[tuple[object, ...]]] = {
    "publisher": [
        ("XREAD", "STREAMS", EGRESS, "0-0"),
        ("XREAD", "STREAMS", LINK, "0-0"),
        ("GET", ControlKeys.lease),
        ("SET", ControlKeys.lease, "me"),
        ("SET", ControlKeys.record, "{}"),
        ("DEL", EGRESS),
        ("HGETALL", ControlKeys.wishes),
        ("SET", "gamecast:{gateway}:once:x", "1"),
    ],
    "subscriber": [
        ("XREAD", "STREAMS", LINK, "0-0"),
        ("SET", ControlKeys.lease, "me"),
        ("DEL", EGRESS),
        ("GET", "gamecast:{gateway}:once:x"),
    ],
    "relay": [
        ("XREAD", "STREAMS", EGRESS, "0-0"),
        ("XADD", ControlKeys.news, "*", "record", "{}"),
        ("HSET", ControlKeys.wishes, "s1", "[]"),
        ("SET", ControlKeys.lease, "me"),
        ("DEL", LINK),
    ],
    "gateway": [
        ("SET", ControlKeys.lease, "me"),
        ("SET", ControlKeys.record, "{}"),
        ("DEL", EGRESS),
        ("SET", "elsewhere", "1"),
    ],
    "watcher": [
        ("SET", ControlKeys.lease, "me"),
        ("DEL", EGRESS),
        ("XADD", EGRESS, "*", "f", "v"),
        ("HSET", f"{NODE}counters", "r 1 forest", "9"),
        ("EVAL", "return redis.call('DEL', KEYS[1])", 1, EGRESS),
        ("EVAL", "return redis.call('XTRIM', KEYS[1], 'MAXLEN', 0)", 1, EGRESS),
    ],
    "manager": [("GET", "elsewhere"), ("KEYS", "*")],
}
FOR_NOBODY: list[tuple[object, ...]] = [
    ("SET", "elsewhere", "1"),
    ("FLUSHALL",),
    ("CONFIG", "GET", "requirepass"),
    ("ACL", "LIST"),
    ("KEYS", "*"),
    ("SCRIPT", "FLUSH"),
    ("SHUTDOWN", "NOSAVE"),
    ("CLIENT", "LIST"),
    ("MONITOR",),
    ("SUBSCRIBE", "news"),
    ("EVAL", "return redis.call('SET', KEYS[1], '1')", 1, "elsewhere"),
    ("EVAL", "return redis.call('FLUSHALL')", 0),
]


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_does_not_need_is_refused(secured: EmbeddedNetwork, role: str) -> None:
    for command in (*REFUSED[role], *FOR_NOBODY):
        connection = RedisConnection(secured.url_of(role), "control")
        try:
            with pytest.raises(NotAllowed):
                await connection.call(*command)
        finally:
            await connection.close()


async def test_nobody_else_is_let_in(secured: EmbeddedNetwork) -> None:
    wrong = new_users()["publisher"].url(plain(secured.url))
    for url in (plain(secured.url), wrong):
        with pytest.raises(AuthenticationFailed):
            await gamecast.connect(url).open()


def test_a_node_without_a_user_is_reached_as_the_control_is() -> None:
    assert as_user_of("redis://h:1/2", "redis://u:p@c") == "redis://u:p@h:1/2"
    assert as_user_of("redis://h:1", "redis://:p@c") == "redis://h:1", "a password alone is of that server"
    assert as_user_of("redis://v:q@h:1", "redis://u:p@c") == "redis://v:q@h:1"
    assert as_user_of("", "redis://u:p@c") == ""
    assert repr(new_users()["relay"]) == "RedisUser('relay')"
