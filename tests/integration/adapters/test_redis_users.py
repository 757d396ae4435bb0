"""The users of a secured network: what each needs is allowed, and the rest refused."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection, Script
from adapters.redis.control import CONTROL
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.examination import Finding
from adapters.redis.leadercontrol import LEADING, LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.node import INSTALL, RedisNode
from adapters.redis.running import apply
from adapters.redis.survey import survey
from adapters.redis.users import FUNCTIONS, ROLES, create_users, load_functions, new_users, users_of
from adapters.urls import as_user_of
from adapters.urls import without_user as plain
from cli.doctor import findings_of
from cli.main import cli
from gamecast.errors import AuthenticationFailed, NoLeader, NotAllowed, UsageError
from tests.events import take
from tests.integration.gateway_clients import Socket, running_gateway
from tests.integration.networks import register, secured_network
from tests.patience import Deadline, patience


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedNetwork]:
    async with secured_network() as network:
        yield network


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
        taken = await publisher.publish("keyed", 1, key="sword", only_if=None)
        with pytest.raises(gamecast.Conflict):
            await one.publish("keyed", 2, key="sword", only_if=None)
        await one.publish("keyed", None, key="sword", only_if=taken.position)
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


async def test_where_no_manager_runs_those_whose_user_may_not_lead_are_told_soon(shared_users: str) -> None:
    async with gamecast.connect(shared_users, name="s1") as cast:
        begun = time.monotonic()
        with pytest.raises(NoLeader, match="no leader is running"):
            await cast.subscribe("forest")
        assert time.monotonic() - begun < 25


async def test_only_a_manager_s_user_may_propose_another_plan(secured: EmbeddedNetwork) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="s1") as cast:
        await cast.subscribe("forest", "river")
        plan = await cast.plan()
        assert plan is not None
        for role in ("subscriber", "watcher", "operator"):
            with pytest.raises(NotAllowed, match="Only the user `manager` may change"):
                await apply(secured.url_of(role), plan)
        assert await apply(secured.url_of("manager"), plan) >= 0


@pytest.fixture
async def shared_users() -> AsyncIterator[str]:
    """The URL of a subscriber's user, of a secured Redis without a manager."""
    with EmbeddedServer() as server:
        users = new_users()
        await create_users([server.url], users)
        yield users["subscriber"].url(server.url)


async def test_a_manager_forgets_publishers_and_an_old_connection_goes_on(secured: EmbeddedNetwork) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="old") as old:
        async with gamecast.connect(secured.url_of("publisher"), name="guest") as guest:
            await guest.publish("a", 1)
        plan, control = await old.plan(), LeaderControl(secured.url_of("manager"))
        assert plan is not None
        last, names = await control.incarnations()
        assert names == {"old"}
        for node, url in plan.nodes.items():
            reached = RedisNode(node, as_user_of(url or secured.url, secured.url_of("manager")))
            cursor: int | None = 0
            while cursor is not None:
                cursor = await reached.forget_publishers(last, names, cursor)
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
        assert await running.gateway.replay_cache.claim("once:x", b"1", 10) is None
    network = RedisNetwork(secured.url_of("gateway"), ordering="acyclic", retention_events=1)
    assert (len(await network.plans(["forest"], 0)) > 0, await network.ending()) == (True, frozenset())
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
    control = LeaderControl(secured.url_of("subscriber"))
    await control.announce_probe("s1", b"here")
    assert await control.probe_addresses() == {"s1": b"here"}
    await control.withdraw_probe("s1")
    assert await control.probe_addresses() == {}
    await control.close()
    with redis.Redis.from_url(secured.url_of("watcher")) as watcher:
        assert watcher.xread({ControlKeys.news: "0-0"}) == []
        with pytest.raises(redis.ResponseError, match="no such key"):
            watcher.xinfo_stream(ControlKeys.news)


NODE = "gamecast:{n1}:"
EGRESS, LINK = f"{NODE}egress:1:forest", f"{NODE}link:n2"

REFUSED: dict[str, list[tuple[object, ...]]] = {
    "publisher": [
        ("XREAD", "STREAMS", EGRESS, "0-0"),
        ("XREAD", "STREAMS", LINK, "0-0"),
        ("GET", ControlKeys.lease),
        ("SET", ControlKeys.lease, "me"),
        ("HSET", ControlKeys.state, "head", "{}"),
        ("DEL", EGRESS),
        ("HGETALL", ControlKeys.said),
        ("SET", "gamecast:{gateway}:once:x", "1"),
        ("HSET", ControlKeys.nodes, "n1", "redis://mallory:6379"),
        ("FCALL", CONTROL.function, 1, ControlKeys.nodes, "introduce", "x", "1"),
        ("FCALL", LEADING.function, 1, ControlKeys.state, "register", "n3", "redis://mallory:6379", "0"),
        ("FCALL", INSTALL.function, 4, f"{NODE}node", f"{NODE}steps", f"{NODE}counters", f"{NODE}publishers", "seal"),
    ],
    "subscriber": [
        ("XREAD", "STREAMS", LINK, "0-0"),
        ("SET", ControlKeys.lease, "me"),
        ("DEL", EGRESS),
        ("GET", "gamecast:{gateway}:once:x"),
        ("HSET", ControlKeys.nodes, "n1", "redis://mallory:6379"),
        ("SADD", ControlKeys.lossy, "n1"),
        ("XADD", ControlKeys.news, "*", "record", "{}"),
    ],
    "operator": [
        ("XREAD", "STREAMS", EGRESS, "0-0"),
        ("HGET", ControlKeys.state, "head"),
        ("HGETALL", ControlKeys.nodes),
    ],
    "relay": [
        ("XREAD", "STREAMS", EGRESS, "0-0"),
        ("XADD", ControlKeys.news, "*", "record", "{}"),
        ("HSET", ControlKeys.said, "s1", "[]"),
        ("SET", ControlKeys.lease, "me"),
        ("DEL", LINK),
    ],
    "gateway": [
        ("SET", ControlKeys.lease, "me"),
        ("HSET", ControlKeys.state, "head", "{}"),
        ("DEL", EGRESS),
        ("SET", "elsewhere", "1"),
        ("HSET", ControlKeys.nodes, "n1", "redis://mallory:6379"),
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
    ("MONITOR",),
    ("SUBSCRIBE", "news"),
    ("EVAL", "return redis.call('SET', KEYS[1], '1')", 1, "elsewhere"),
    ("EVAL", "return redis.call('FLUSHALL')", 0),
    ("EVAL", "while true do end", 0),
    ("SCRIPT", "LOAD", "while true do end"),
    ("EVALSHA", "e" * 40, 0),
    ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() while true do end end)"),
    ("FUNCTION", "FLUSH"),
]


@pytest.mark.parametrize("role", ROLES)
async def test_what_a_role_does_not_need_is_refused(secured: EmbeddedNetwork, role: str) -> None:
    listing = [] if role == "operator" else [("CLIENT", "LIST")]
    for command in (*REFUSED[role], *FOR_NOBODY, *listing):
        connection = RedisConnection(secured.url_of(role), "control")
        try:
            with pytest.raises(NotAllowed):
                await connection.call(*command)
        finally:
            await connection.close()


def test_an_operator_ends_what_blocks_a_server() -> None:
    with (
        EmbeddedServer() as server,
        redis.Redis.from_url(server.url) as admin,
        ThreadPoolExecutor() as threads,
    ):
        users = new_users(["operator"])
        asyncio.run(create_users([server.url], users))
        admin.config_set("busy-reply-threshold", 100)
        running = threads.submit(admin.eval, "while true do end", 0)
        deadline = Deadline(10)
        while not running.done():
            assert not deadline.passed
            with redis.Redis.from_url(users["operator"].url(server.url)) as operator, suppress(redis.ResponseError):
                operator.script_kill()
        with pytest.raises(redis.ResponseError, match="killed"):
            running.result(10)


@pytest.fixture
def two_servers() -> Iterator[tuple[str, str]]:
    with EmbeddedServer() as one, EmbeddedServer() as other:
        yield one.url, other.url


def run_cli(*arguments: str, exits: int = 0) -> str:
    result = CliRunner().invoke(cli, ["users", *arguments])
    assert result.exit_code == exits, result.output
    assert ("configure an aclfile" in result.stderr) == (arguments[0] != "show")
    return result.stdout


async def test_users_made_by_hand_work_are_rotated_and_revoked(two_servers: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    told = await asyncio.to_thread(run_cli, "create", *two_servers, "--file", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    urls = dict(line.split() for line in told.splitlines())
    assert urls.keys() == ROLES.keys()
    await register(urls["manager"], {f"n{number}": url for number, url in enumerate(two_servers, start=1)})
    leading = gamecast.connect(urls["manager"], name="leads")
    async with leading, gamecast.connect(urls["subscriber"], name="s1") as cast:
        await cast.subscribe("forest", "river")
        await cast.publish("forest", 1)
        assert [event.payload for event in await take(cast, 1)] == [1]
        again = await asyncio.to_thread(run_cli, "create", *two_servers, "--file", str(file))
        assert again == told  # a server that is added gets the same
        rotated = await asyncio.to_thread(run_cli, "rotate", *two_servers, "--file", str(file), "--role", "subscriber")
        await cast.publish("forest", 2)
        async with (
            gamecast.connect(rotated.split()[1], name="s2") as new,
            gamecast.connect(urls["subscriber"], name="s3"),
        ):
            await new.publish("forest", 3)
        await asyncio.to_thread(
            run_cli, "rotate", *two_servers, "--file", str(file), "--role", "subscriber", "--drop-old"
        )
        with pytest.raises(AuthenticationFailed):
            await gamecast.connect(urls["subscriber"], name="s4").open()
    async with gamecast.connect(rotated.split()[1], name="s5") as cast:
        await cast.publish("forest", 4)
    await asyncio.to_thread(run_cli, "revoke", *two_servers, "--role", "subscriber")
    with pytest.raises(AuthenticationFailed):
        await gamecast.connect(rotated.split()[1], name="s6").open()


def test_what_servers_have_of_users_is_shown(two_servers: tuple[str, str], tmp_path: Path) -> None:
    told = run_cli("show", *two_servers, exits=1)
    assert told.count("not there") == 2 * len(ROLES)
    run_cli("create", *two_servers, "--file", str(tmp_path / "users.json"))
    told = run_cli("show", *two_servers)
    assert told.count("let in") == 2 * len(ROLES)
    with redis.Redis.from_url(two_servers[1]) as server:
        server.execute_command("ACL", "SETUSER", "relay", "-@all")
    told = run_cli("show", *two_servers, exits=1)
    assert told.count("gamecast users load") == 1
    run_cli("load", *two_servers)
    run_cli("show", *two_servers)
    run_cli("revoke", *two_servers, "--role", "relay")
    states = json.loads(run_cli("show", *two_servers, "--json", exits=1))
    assert {state["role"] for state in states if not state["is_on"]} == {"relay"}


@pytest.mark.parametrize("text", ["{", "[]", '{"nobody": "x"}', '{"relay": 7}', '{"relay": ""}'])
def test_a_file_that_has_no_passwords_is_refused_and_stays(
    text: str, two_servers: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "users.json"
    file.write_text(text)
    result = CliRunner().invoke(cli, ["users", "create", *two_servers, "--file", str(file)], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert "is not a password file" in str(result.exception)
    assert file.read_text() == text


async def test_functions_stay_over_a_restart_and_who_has_none_is_told_what_to_do(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        users = new_users()
        await create_users([server.url], users)
        with redis.Redis.from_url(server.url) as admin:
            assert len(admin.function_list()) == len(FUNCTIONS)
            admin.function_flush()
        assert not any(state.is_current for state in await users_of([server.url]) if state.role != "operator")
        with pytest.raises(NotAllowed, match="gamecast users load"):
            await gamecast.connect(users["subscriber"].url(server.url), name="s1").open()
        await load_functions([server.url])
        assert all(state.is_current for state in await users_of([server.url]))
        async with gamecast.connect(users["publisher"].url(server.url), name="p1"):
            pass


@pytest.mark.parametrize(
    ("role", "less"),
    [
        ("subscriber", ("-xread", "-xrange")),
        ("watcher", ("resetchannels",)),
        ("manager", ("resetkeys", "~gamecast:{control}:*")),
        ("publisher", ("clearselectors",)),
    ],
)
def test_a_user_who_lacks_a_right_is_shown_until_its_rights_are_loaded_again(role: str, less: tuple[str, ...]) -> None:
    with EmbeddedServer() as server, redis.Redis.from_url(server.url) as admin:
        asyncio.run(create_users([server.url], new_users()))
        admin.execute_command("ACL", "SETUSER", role, *less)
        shown = CliRunner().invoke(cli, ["users", "show", server.url])
        assert shown.exit_code == 1
        assert [line.split()[1] for line in shown.output.splitlines() if "lacks rights" in line] == [role]
        asyncio.run(load_functions([server.url]))
        assert CliRunner().invoke(cli, ["users", "show", server.url]).exit_code == 0
        admin.execute_command("ACL", "SETUSER", role, "allkeys", "allchannels")
        assert CliRunner().invoke(cli, ["users", "show", server.url]).exit_code == 0, "who may more lacks nothing"


async def test_who_runs_another_version_goes_on_when_the_functions_of_this_one_are_loaded() -> None:
    with EmbeddedServer() as server, redis.Redis.from_url(server.url) as admin:
        users = new_users()
        await create_users([server.url], users)
        older = Script(b"return redis.call('PING')", "step")
        admin.function_load(older.as_library)
        admin.execute_command("ACL", "SETUSER", "publisher", f"+fcall|{older.function}")
        with redis.Redis.from_url(users["publisher"].url(server.url)) as publisher:
            for change in (load_functions([server.url]), create_users([server.url], users)):
                assert publisher.fcall(older.function, 0) == b"PONG"
                await change
            assert publisher.fcall(older.function, 0) == b"PONG"


async def test_a_node_is_registered_without_the_user_that_registers_it(two_servers: tuple[str, str]) -> None:
    users = new_users()
    await create_users(two_servers, users)
    for url in two_servers:
        with redis.Redis.from_url(url) as admin:
            admin.config_set("requirepass", "only the operator's")
    control_url = users["manager"].url(two_servers[0])
    for redis_url in (two_servers[1], users["manager"].url(two_servers[1])):
        node = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gamecast", "node", "--name", "n1", "--redis", redis_url, "--control", control_url),
            stderr=asyncio.subprocess.PIPE,
        )
        assert node.stderr is not None
        async with patience(20):
            assert b"is registered" in (line := await node.stderr.readline()), line
        node.terminate()
        await node.communicate()
    with redis.Redis.from_url(control_url) as manager:
        assert manager.hgetall(ControlKeys.nodes) == {b"n1": two_servers[1].encode()}


@pytest.mark.parametrize("role", ["watcher", "gateway", "manager"])
async def test_the_doctor_does_not_have_a_limited_user_be_given_more(secured: EmbeddedNetwork, role: str) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="s1") as cast:
        await cast.subscribe("forest")
        await cast.publish("forest", 1)
        found = await findings_of(secured.url_of(role))
    assert [each.seen for each in found if each.level == "problem"] == []
    assert not any("SETUSER" in (each.advice or "") for each in found)


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


async def test_a_step_that_a_publisher_wrote_blocks_no_server(secured: EmbeddedNetwork) -> None:
    async with gamecast.connect(secured.url_of("subscriber"), name="s", publish_timeout_s=2) as cast:
        receipt = await cast.publish("a", 1)
        plan = await cast.plan()
        assert plan is not None
        node = plan.paths["a"][0]
        url = as_user_of(plan.nodes[node] or secured.url, secured.url_of("publisher"))
        key, field = f"gamecast:{{{node}}}:steps", f"{receipt.epoch} a"
        with redis.Redis.from_url(url) as client:
            written = client.hmget(key, field)[0]
            client.hset(key, field, json.dumps(["I", "-", *(str(atom) for atom in range(200_000))]))
            for _ in range(2):
                with pytest.raises(gamecast.GamecastError, match="which no manager writes"):
                    await cast.publish("a", 2)
            client.hset(key, field, written)
        await cast.publish("a", 3)


async def test_doctor_says_who_is_locked_out(secured: EmbeddedNetwork) -> None:
    def problems(found: list[Finding]) -> list[Finding]:
        return [each for each in found if each.level == "problem"]

    url = secured.url_of("manager")
    async with gamecast.connect(secured.url_of("subscriber"), name="s") as client:
        await client.subscribe("a")
    assert not problems(await findings_of(url))
    wrong = secured.users["subscriber"].url(plain(secured.url)).replace(secured.users["subscriber"].password, "old")
    with pytest.raises(AuthenticationFailed):
        await gamecast.connect(wrong, name="late").open()
    found = problems(await findings_of(url))
    assert [each.subject for each in found] == ["control"]
    assert "as subscriber failed in the last minute from 127.0.0.1" in found[0].seen
    assert "gamecast users create" in found[0].advice
