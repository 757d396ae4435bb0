"""`gamecast status` and `gamecast doctor` on real servers, healthy and not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

import gamecast
import gamecast.blocking
import gamecast.cli.doctor
from adapters import redis_probe
from adapters.embedded import EmbeddedServer, EmbeddedServers
from adapters.ports import free_port
from adapters.redis_network import ControlKeys
from adapters.redis_relays import RedisRelays
from adapters.redis_survey import survey
from gamecast.cli.doctor import Examination, judge
from gamecast.cli.main import cli
from gamecast.errors import AuthenticationFailed, UnknownScheme, Unreachable, UsageError
from sequencing.node import NodeKeys
from tests.integration.test_faults import CHAIN, server_that_claims

Finding = dict[str, str]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the doctor look again sooner than people need."""
    monkeypatch.setattr(gamecast.cli.doctor, "LOOK_AGAIN_S", 0.2)


def call(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, arguments, auto_envvar_prefix="GAMECAST")


def status(url: str, *options: str, expected: int = 0) -> Any:
    """Return what ``gamecast status --json`` prints."""
    result = call("status", url, "--json", *options)
    assert (result.exit_code, result.stderr) == (expected, ""), result.exception
    return json.loads(result.stdout)


def doctor(url: str, *, expected: int) -> list[Finding]:
    """Return what ``gamecast doctor --json`` finds, but for what is fine."""
    result = call("doctor", url, "--json")
    assert (result.exit_code, result.stderr) == (expected, ""), (result.stdout, result.exception)
    report = json.loads(result.stdout)
    findings: list[Finding] = report["findings"]
    for level, count in (("problem", report["problems"]), ("warning", report["warnings"])):
        assert sum(finding["level"] == level for finding in findings) == count
    for finding in findings:
        assert finding.keys() == {"level", "subject", "seen", "advice"}
        assert (finding["level"] == "ok") is (finding["advice"] == "")
    return [finding for finding in findings if finding["level"] != "ok"]


def found(findings: list[Finding], words: str) -> Finding:
    """Return the only finding whose text has some words."""
    (finding,) = [finding for finding in findings if words in finding["seen"]]
    return finding


@asynccontextmanager
async def world(servers: EmbeddedServers, *, relays: bool) -> AsyncIterator[None]:
    """Have some memberships and their first events on nodes n1, n2, …, with or without relays between them."""
    url = servers.urls[0]
    with redis.Redis.from_url(url) as client:
        client.hset(ControlKeys.nodes, mapping={f"n{n}": at for n, at in enumerate(servers.urls, start=1)})
    async with AsyncExitStack() as stack:
        if relays:
            running = RedisRelays(url)
            running.start()
            stack.push_async_callback(running.stop)
        casts = {name: await stack.enter_async_context(gamecast.connect(url, name=name)) for name in CHAIN}
        for name, cast in casts.items():
            await cast.subscribe(*CHAIN[name])
        for name, cast in casts.items():
            await asyncio.gather(*(cast.publish_soon(region, name) for region in CHAIN[name]))
        yield


def keyspace(url: str) -> dict[bytes, bytes | None]:
    with redis.Redis.from_url(url) as client:
        return {key: client.dump(key) for key in client.scan_iter()}


@pytest.fixture
def two_redis_servers() -> Iterator[EmbeddedServers]:
    with EmbeddedServers(2, appendfsync="always") as servers:
        yield servers


def test_a_redis_without_a_network_is_shown_and_has_nothing_wrong() -> None:
    with EmbeddedServer(appendfsync="always") as server:
        seen = status(server.url)
        assert seen["plan"] is None
        assert seen["connections"] == []
        assert seen["lease"] == {"held": False, "ends_in_ms": None}
        assert [(node["name"], node["reachable"], node["steps"]) for node in seen["nodes"]] == [("n1", True, 0)]
        assert seen["control"]["version"].count(".") == 2
        assert "No plan yet" in call("status", server.url).stdout
        assert doctor(server.url, expected=0) == []
        said = call("doctor", server.url).stdout
        assert "nothing acknowledged is lost" in said
        assert said.endswith("0 problems, 0 warnings\n")
        assert keyspace(server.url) == {}


async def test_a_network_at_work_is_shown_and_left_as_it_is(two_redis_servers: EmbeddedServers) -> None:
    url = two_redis_servers.urls[0]
    async with world(two_redis_servers, relays=True):
        state = await survey(url, regions=True)
        plan = state.plan
        assert plan is not None
        assert plan.links
        async with asyncio.timeout(10):
            while any(link.frames for node in state.nodes for link in node.links) or not all(
                region.last == region.drawn for region in state.regions
            ):
                state = await survey(url, regions=True)
        # The heartbeats of the connections go on: those keys are not compared.
        before = [keyspace(at) for at in two_redis_servers.urls]
        seen = await asyncio.to_thread(status, url, "--regions")
        shown = await asyncio.to_thread(call, "status", url, "--regions")
        wrong = await asyncio.to_thread(doctor, url, expected=0)
        after = [keyspace(at) for at in two_redis_servers.urls]
        for each in (*before, *after):
            each.pop(ControlKeys.alive.encode(), None)
        assert after == before
    assert wrong == []
    assert seen["plan"] == {"epoch": 1, "version": 1, "ordering": "acyclic", "regions": 4, "atoms": len(plan.atoms)}
    assert seen["membership"] == {"epoch": 1, "settled": True}
    for node, at in zip(seen["nodes"], two_redis_servers.urls, strict=True):
        assert (node["url"], node["epoch"], node["plan_version"], node["reachable"]) == (at, 1, 1, True)
        assert node["steps"] == sum(node["name"] in path for path in plan.paths.values())
        assert not any(node["links"].values())
    assert [(each["name"], each["regions"]) for each in seen["connections"]] == [(name, 2) for name in CHAIN]
    assert all(each["alive"] and 0 <= each["heard_ms_ago"] < 10_000 for each in seen["connections"])
    expected = {region: sum(region in regions for regions in CHAIN.values()) for region in "abcd"}
    assert {region["name"]: region["last"] for region in seen["regions"]} == expected
    assert {region["name"]: tuple(region["path"]) for region in seen["regions"]} == plan.paths
    assert "Plan 1.1, acyclic order: 4 regions" in shown.stdout


async def test_a_link_that_nobody_carries_is_found(two_redis_servers: EmbeddedServers) -> None:
    url = two_redis_servers.urls[0]
    async with world(two_redis_servers, relays=False):
        seen = await asyncio.to_thread(status, url)
        (waiting,) = [node for node in seen["nodes"] if node["links"]]
        ((target, frames),) = waiting["links"].items()
        assert frames > 0
        wrong = await asyncio.to_thread(doctor, url, expected=1)
    link = found(wrong, "waiting; the first, 1-0, for more than 0.2 s")
    assert link["subject"] == f"link {waiting['name']} → {target}"
    assert f"gamecast node --name {waiting['name']}" in link["advice"]
    assert found(wrong, "nothing has come out for 0.2 s")["level"] == "problem"


async def test_nodes_that_are_down_or_have_lost_their_data_are_found(two_redis_servers: EmbeddedServers) -> None:
    control, other = two_redis_servers.servers
    async with world(two_redis_servers, relays=False):
        with redis.Redis.from_url(other.url) as client:
            client.flushall()
        lost = found(await asyncio.to_thread(doctor, control.url, expected=1), "has plan none installed")
        assert (lost["level"], lost["subject"]) == ("problem", "n2")
    other.kill()
    seen = await asyncio.to_thread(status, control.url, "--regions", expected=1)
    assert [node["reachable"] for node in seen["nodes"]] == [True, False]
    assert "is a server running there" in seen["nodes"][1]["trouble"]
    shown = await asyncio.to_thread(call, "status", control.url)
    assert (shown.exit_code, "not reachable" in shown.stdout) == (1, True)
    down = found(await asyncio.to_thread(doctor, control.url, expected=1), "is a server running there")
    assert (down["level"], down["subject"]) == ("problem", "n2")


async def test_an_ingress_that_begins_to_count_anew_is_found(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s") as cast:
        await asyncio.gather(*(cast.publish_soon("a", number) for number in range(10)))
        with redis.Redis.from_url(redis_server.url) as client:
            client.hset(NodeKeys("n1").counters, "r 1 a", "3")
        wrong = await asyncio.to_thread(doctor, redis_server.url, expected=1)
    assert found(wrong, "the ingress gives numbers that were given before")["seen"].startswith("a:")


def test_streams_of_earlier_epochs_are_found(redis_server: EmbeddedServer) -> None:
    for _ in range(2):
        with gamecast.blocking.connect(redis_server.url) as cast:
            cast.subscribe("a")
            cast.publish("a", 1)
    left = found(doctor(redis_server.url, expected=0), "of earlier epochs")
    assert left["level"] == "warning"
    assert left["seen"].endswith(
        "1 egress stream of earlier epochs, which nothing trims, e.g. gamecast:{n1}:egress:1:a"
    )


def test_streams_that_outgrow_their_bounds_are_found(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, retention_events=10) as cast:
        cast.publish("a", 1)
        keys = NodeKeys("n1")
        with redis.Redis.from_url(redis_server.url) as client, client.pipeline() as pipeline:
            for number in range(2, 2500):
                pipeline.xadd(keys.egress(1, "a"), {"m": "", "s": "", "b": ""}, id=f"1-{number}")
            pipeline.hset(keys.counters, "r 1 a", "2499")
            pipeline.execute()
        wrong = doctor(redis_server.url, expected=0)
        assert found(wrong, "keep more frames than the 10 events")["seen"].endswith("a (2,499)")
        with redis.Redis.from_url(redis_server.url) as client:
            client.hset(keys.node, "retention", str(10**12))
        assert "retention_events" in found(doctor(redis_server.url, expected=0), "when full")["advice"]


def test_settings_that_lose_something_are_found(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    with redis.Redis.from_url(url) as client:
        assert "everything is lost" in found(doctor(url, expected=0), "appendonly no")["seen"]
        client.config_set("save", "60 1")
        assert "since the last snapshot is lost" in found(doctor(url, expected=0), "appendonly no")["seen"]
        client.config_set("appendonly", "yes")
        for fsync, lost in (("everysec", "the last second may be lost"), ("no", "half a minute")):
            client.config_set("appendfsync", fsync)
            assert lost in found(doctor(url, expected=0), f"appendfsync {fsync}")["seen"]
        client.config_set("appendfsync", "always")
        assert doctor(url, expected=0) == []
        client.config_set("maxmemory-policy", "volatile-lru")
        assert found(doctor(url, expected=0), "volatile-lru")["level"] == "warning"
        client.config_set("maxmemory-policy", "allkeys-lru")
        evicting = found(doctor(url, expected=1), "allkeys-lru")
        assert (evicting["level"], evicting["subject"]) == ("problem", "control, n1")
        assert "CONFIG SET maxmemory-policy noeviction" in evicting["advice"]
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "100kb")
        full = doctor(url, expected=1)
        assert found(full, "in use (")["level"] == "problem"
        assert "OOM" in next(finding["seen"] for finding in full if "is refused" in finding["seen"])


def test_a_replica_is_told_from_its_primary(redis_server: EmbeddedServer) -> None:
    with EmbeddedServer(settings={"replicaof": redis_server.url.rpartition("/")[2].replace(":", " ")}) as replica:
        wrong = doctor(replica.url, expected=1)
        assert found(wrong, "is a replica")["level"] == "problem"


def test_what_a_user_may_not_do_is_found(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        for user, refused, words in (
            ("everything", "", ""),
            ("advised", "-@admin -@dangerous +info", ""),
            ("streams", "-xadd", "NOPERM this user has no permissions to run the 'xadd' command"),
            ("scripts", "-evalsha -eval", "NOPERM this user has no permissions to run the 'evalsha' command"),
            ("inside", "-hset", "HSET in a script: "),
            ("removal", "-zrem", "ZREM in a script: "),
            ("blind", "-info", "NOPERM this user has no permissions to run the 'info' command"),
        ):
            client.execute_command("ACL", "SETUSER", user, "on", ">x", "~gamecast:*", "+@all", *refused.split())
            url = redis_server.url.replace("127", f"{user}:x@127")
            wrong = [each for each in doctor(url, expected=1 if words else 0) if "is refused" in each["seen"]]
            assert [each["subject"] for each in wrong] == (["control", "n1"] if words else [])
            for each in wrong:
                assert f"user {user} is refused: " in each["seen"]
                assert words in each["seen"]
                assert f"ACL SETUSER {user} " in each["advice"]
            assert client.dbsize() == 0
            seen = status(url)
            assert (seen["nodes"][0]["version"] is None or not seen["nodes"][0]["version"]) is (user == "blind")


def test_a_user_who_may_not_look_is_told_so_and_nothing_is_made_up(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url) as cast:
        cast.publish("a", 1)
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", "elsewhere", "on", ">x", "~other:*", "+@all")
    url = redis_server.url.replace("127", "elsewhere:x@127")
    seen = status(url)
    assert (seen["plan"], seen["membership"]) == (None, {"epoch": None, "settled": None})
    assert seen["lease"] == {"held": None, "ends_in_ms": None}
    shown = call("status", url).stdout
    assert "Membership: cannot be read\nLease: cannot be read\n" in shown
    hidden = [each for each in doctor(url, expected=1) if "hides some things" in each["seen"]]
    assert [(each["subject"], each["level"]) for each in hidden] == [("control", "warning"), ("n1", "warning")]


def test_strangers_keys_are_left_alone_and_told_where_they_are_in_the_way(redis_server: EmbeddedServer) -> None:
    keys = NodeKeys("n1")
    with redis.Redis.from_url(redis_server.url) as client:
        client.mset({"cache:1": "x", "gamecast": "x", "gamecast:{other}:node": "x", f"{keys.egress(1, 'a')}": "x"})
        client.xadd("gamecast:{n1}:mine", {"a": "b"})
        assert status(redis_server.url)["unread"] == []
        assert {each["level"] for each in doctor(redis_server.url, expected=0)} == {"warning"}
        with gamecast.blocking.connect(redis_server.url) as cast:
            cast.publish("b", 1)
        assert {each["level"] for each in doctor(redis_server.url, expected=0)} == {"warning"}
        client.flushall()
        client.set(ControlKeys.nodes, "x")
        client.xadd(ControlKeys.plans, {"plan": "nonsense"})
        client.hset(ControlKeys.state, "epoch", "nonsense")
        client.hset(ControlKeys.members, mapping={"one": "[1", "two": "7"})
        client.zadd(ControlKeys.alive, {b"\xff\x1b[2J": 1})
        client.lpush(keys.node, "x")
        client.hset(keys.counters, "o n2", "x")
        client.set(keys.link("n2"), "x")
        client.set(ControlKeys.lease, "x")
        seen = status(redis_server.url, "--regions")
        assert (seen["plan"], seen["membership"]["epoch"], len(seen["connections"])) == (None, 0, 3)
        assert len(seen["unread"]) == 2
        assert "\x1b[2J" not in call("status", redis_server.url).stdout
        wrong = doctor(redis_server.url, expected=1)
        assert found(wrong, "this is not a gamecast plan")["level"] == "problem"
        assert found(wrong, f"HGETALL {ControlKeys.nodes}: WRONGTYPE")["level"] == "problem"
        assert found(wrong, f"HGETALL {keys.node}: WRONGTYPE")["subject"] == "n1"
        assert found(wrong, "held without an end")["subject"] == "lease"


def test_a_registered_node_that_is_nowhere_is_found(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.hset(ControlKeys.nodes, mapping={"n1": "", "n2": f"redis://127.0.0.1:{free_port()}", "n3": "nonsense"})
        seen = status(redis_server.url, expected=1)
        assert [node["reachable"] for node in seen["nodes"]] == [True, False, False]
        wrong = doctor(redis_server.url, expected=1)
        assert found(wrong, "is a server running there")["advice"].endswith("HDEL gamecast:{control}:nodes n2")
        assert found(wrong, "is not a Redis URL")["subject"] == "n3"


def test_a_server_that_hangs_is_not_waited_for_long(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_probe, "ANSWER_S_MAX", 0.2)
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        assert isinstance(call("status", redis_server.url).exception, Unreachable)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)


async def test_a_server_that_is_too_old_is_found() -> None:
    async with server_that_claims("5.0.14") as url:
        old = found(await asyncio.to_thread(doctor, url, expected=1), "too old")
        assert (old["subject"], old["level"]) == ("control", "problem")


async def test_clocks_that_differ_are_found(redis_server: EmbeddedServer) -> None:
    state = await survey(redis_server.url)
    for ahead_ms, round_trip_ms, expected in ((99.0, 1.0, []), (160.0, 140.0, []), (-150.0, 10.0, ["150 ms behind"])):
        control = replace(state.control, clock_ahead_ms=ahead_ms, round_trip_ms=round_trip_ms)
        network = replace(state, control=control)
        warned = [each.seen for each in judge(Examination(network, network)) if "clock" in each.seen and each.advice]
        assert [each.partition("its clock is ")[2].partition(" this")[0] for each in warned] == expected


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_what_cannot_be_asked_has_its_status(command: str) -> None:
    for url, error in (
        ("http://x", UnknownScheme),
        ("memory://world", UsageError),
        ("embedded://", UsageError),
        (f"redis://127.0.0.1:{free_port()}", Unreachable),
        ("unix:///nowhere", Unreachable),
    ):
        result = call(command, url, "--json")
        assert isinstance(result.exception, error), result.exception
        assert result.stdout == ""
    assert call(command).exit_code == 2


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_passwords_are_needed_and_not_shown(command: str) -> None:
    with EmbeddedServer(password="open sesame") as server:
        for url in (server.url.replace("open%20sesame", "s3cret"), server.url.replace(":open%20sesame@", "")):
            error = call(command, url).exception
            assert isinstance(error, AuthenticationFailed)
            assert "s3cret" not in str(error)
        with redis.Redis.from_url(server.url) as client:
            client.hset(ControlKeys.nodes, "n1", server.url)
        result = call(command, server.url)
        assert result.exit_code == 0
        assert "sesame" not in result.stdout


def test_an_absent_redis_ends_the_command_with_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gamecast.cli.main import main

    for command in ("status", "doctor"):
        monkeypatch.setenv("GAMECAST_URL", f"redis://127.0.0.1:{free_port()}")
        monkeypatch.setattr("sys.argv", ["gamecast", command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 3
        assert capsys.readouterr().err.startswith("gamecast: nothing answers at redis://127.0.0.1:")
