"""A private network with replicas: masters die, one after the other, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest
import redis
from click.testing import CliRunner, Result

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection
from adapters.redis.users import ALL, REPLICATING, ROLES, create_users, found_by, users_of
from adapters.urls import stored_for_all, without_user
from cli.doctor import findings_of
from cli.up import up
from cli.users import users
from gamecast import Event
from gamecast.errors import AuthenticationFailed, Unreachable
from tests.events import take
from tests.integration.adapters.test_cluster import until
from tests.integration.networks import register, secured_network
from tests.patience import patience


async def test_each_master_that_dies_is_replaced_and_comes_back_as_a_replica() -> None:
    async with ReplicatedServers(1, 1) as servers:
        keeping = asyncio.create_task(servers.keep())
        [url] = servers.urls
        async with (
            gamecast.connect(url, name="p", publish_timeout_s=40) as publisher,
            gamecast.connect(url, name="s") as subscriber,
        ):
            await subscriber.subscribe("a")
            places: list[tuple[int, int]] = []
            for turn in range(2):
                master = await asyncio.to_thread(servers.master, 0)
                os.kill(master.pid, signal.SIGKILL)
                for number in range(20):
                    receipt = await publisher.publish("a", [turn, number])
                    places.append((receipt.epoch, receipt.sequence))
                await asyncio.to_thread(until, partial(_is_another, servers, master))
            got: list[tuple[int, int]] = []
            async with patience(20):
                while len(got) < len(places):
                    item = await anext(subscriber)
                    if isinstance(item, Event):
                        got.append((item.epoch, item.sequence))
        assert got == places
        keeping.cancel()


def _is_another(servers: ReplicatedServers, dead: EmbeddedServer) -> bool:
    return servers.master(0) is not dead and not any(server.has_ended for server in servers.servers)


def test_up_tells_a_url_that_waits_for_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.up.run_until_stopped", lambda run: asyncio.run(run(_Stopped())))
    told = CliRunner().invoke(up, ["--nodes", "2", "--replicas", "1", "--no-gateway", "--json"])
    assert told.exit_code == 0, told.output
    document = orjson.loads(told.stdout)
    assert document["url"].startswith("redis+sentinel://127.0.0.1:")
    assert document["url"].endswith("/n1?replicas=1")
    assert document["nodes"]["n2"].endswith("/n2?replicas=1")


class _Stopped:
    """A request to stop that comes at once."""

    def is_set(self) -> bool:
        return False

    async def wait(self) -> None:
        pass


@pytest.fixture
async def secured() -> AsyncIterator[EmbeddedNetwork]:
    async with secured_network(replicas=1) as network:
        yield network


async def test_users_go_on_at_each_replica_that_takes_over(secured: EmbeddedNetwork) -> None:
    servers = secured.replicated
    assert servers is not None
    url = secured.url_of("subscriber")
    async with (
        gamecast.connect(url, name="s1", publish_timeout_s=60) as one,
        gamecast.connect(url, name="s2", publish_timeout_s=60) as other,
    ):
        for cast in (one, other):
            await cast.subscribe("a", "b")
        for turn in range(2):  # the second time, what died first takes over again
            masters = [await asyncio.to_thread(servers.master, number) for number in range(2)]
            for master in masters:
                os.kill(master.pid, signal.SIGKILL)
            for cast in (one, other):
                for region in "ab":
                    await cast.publish(region, turn)
            for number, master in enumerate(masters):
                await asyncio.to_thread(until, partial(_is_replaced, servers, number, master))
        orders = [[(event.region, event.position) for event in await take(cast, 8)] for cast in (one, other)]
        assert orders[0] == orders[1]
    found = await findings_of(secured.url_of("manager"))
    assert not [each for each in found if each.level == "problem"]


def _is_replaced(servers: ReplicatedServers, number: int, dead: EmbeddedServer) -> bool:
    return servers.master(number) is not dead and servers.is_whole(number)


async def test_doctor_finds_a_replica_that_lacks_the_users_and_one_command_mends_it(secured: EmbeddedNetwork) -> None:
    servers = secured.replicated
    assert servers is not None
    [_, replica] = servers.members(1)
    with redis.Redis.from_url(replica.url) as client:
        client.acl_deluser("manager", "subscriber")
    found = await findings_of(secured.url_of("manager"))
    [problem] = [each for each in found if each.level == "problem"]
    assert problem.subject == "n2"
    assert f"its replica 127.0.0.1:{urlsplit(replica.url).port} does not let this user in" in problem.seen
    assert "gamecast users create" in problem.advice
    await create_users(servers.urls, secured.users)
    assert not [each for each in await findings_of(secured.url_of("manager")) if each.level == "problem"]


def test_one_command_sets_users_up_on_masters_replicas_and_sentinels(tmp_path: Path) -> None:
    file = str(tmp_path / "users.json")

    def run(arguments: Sequence[str]) -> Result:
        told = CliRunner().invoke(users, arguments)
        assert (told.exit_code, told.stderr) == (0, ""), told.exception
        return told

    with ReplicatedServers(1, 1, password="secret") as servers:
        run(["create", *servers.urls, "--file", file])
        assert {*orjson.loads(Path(file).read_bytes())} == {*ALL}
        states = orjson.loads(run(["show", *servers.urls, "--json"]).stdout)
        assert len(states) == 2 * (len(ROLES) + len(REPLICATING))
        assert len({state["server"] for state in states}) == 2
        password = orjson.loads(Path(file).read_bytes())["finder"]
        sentinel = next(iter(servers.sentinels.values()))
        port = urlsplit(sentinel.url).port
        finder = redis.Redis(port=port or 0, username="finder", password=password)
        with finder as client, pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("SENTINEL", "FAILOVER", "n1")
        run(["rotate", *servers.urls, "--file", file])
        run(["rotate", *servers.urls, "--file", file, "--drop-old"])
        assert orjson.loads(Path(file).read_bytes())["finder"] != password
        again = run(["create", *servers.urls, "--file", file])
        [line] = [line for line in again.stdout.splitlines() if line.startswith("subscriber")]
        url = line.split()[1]
        assert "sentinel_username=finder&sentinel_password=" in url
        # What the servers tell one another is said as their new users: they open all connections again.
        master = servers.master(0)
        for server in servers.servers:
            with redis.Redis.from_url(server.url) as client:
                client.acl_setuser("default", enabled=True, reset=True, passwords=["+secret"], commands=["-@all"])
        os.kill(master.pid, signal.SIGKILL)
        until(lambda: servers.master(0) is not master)
        assert asyncio.run(_who(url)) == b"subscriber"


async def _who(url: str) -> bytes:
    connection = RedisConnection(url)
    try:
        who: bytes = await connection.call("ACL", "WHOAMI")
    finally:
        await connection.close()
    return who


async def test_who_has_the_old_passwords_goes_on_over_failovers_until_these_are_dropped(tmp_path: Path) -> None:
    file = str(tmp_path / "users.json")

    async def run(arguments: Sequence[str]) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, users, arguments)

    def url_in(told: Result) -> str:
        [line] = [line for line in told.stdout.splitlines() if line.startswith("manager")]
        return line.split()[1]

    async with ReplicatedServers(2, 1, password="secret") as servers:
        keeping = asyncio.create_task(servers.keep())
        old = url_in(await run(["create", *servers.urls, "--file", file]))
        one, other = (found_by(without_user(url), None) for url in servers.urls)
        await register(old, {"n1": stored_for_all(one, old), "n2": stored_for_all(other, old)})
        async with gamecast.connect(old, name="old", publish_timeout_s=60) as before:
            for region in "abcd":
                await before.subscribe(region)
                await before.publish(region, 1)
            new = url_in(await run(["rotate", *servers.urls, "--file", file]))
            assert new != old
            # As restarted with the new passwords: the node is the same.
            await register(new, {"n2": stored_for_all(other, new)})
            for number in range(2):
                master = await asyncio.to_thread(servers.master, number)
                os.kill(master.pid, signal.SIGKILL)
                await asyncio.to_thread(until, partial(_is_replaced, servers, number, master))
            async with gamecast.connect(new, name="new", publish_timeout_s=60) as after:
                for region in "abcd":
                    await before.publish(region, 2)
                    await after.publish(region, 3)
            assert not [each for each in await findings_of(new) if each.level == "problem"]
        assert (await run(["rotate", *servers.urls, "--file", file, "--drop-old"])).exit_code == 0
        with pytest.raises(AuthenticationFailed):
            await gamecast.connect(old, name="late").open()
        keeping.cancel()


async def test_users_are_not_set_up_while_a_replica_is_down(tmp_path: Path) -> None:
    async with ReplicatedServers(1, 1, password="secret") as servers:
        [_, replica] = servers.members(0)
        os.kill(replica.pid, signal.SIGKILL)
        await asyncio.to_thread(until, partial(_says_down, servers))
        command = ["create", *servers.urls, "--file", str(tmp_path / "users.json")]
        told = await asyncio.to_thread(CliRunner().invoke, users, command)
        assert isinstance(told.exception, Unreachable)
        assert "which Sentinel knows of 'n1'" in str(told.exception)
        assert "SENTINEL RESET n1" in str(told.exception)


def _says_down(servers: ReplicatedServers) -> bool:
    for sentinel in servers.sentinels.values():
        with redis.Redis.from_url(sentinel.url) as client:
            if not all(each["is_sdown"] for each in client.sentinel_slaves("n1")):
                return False
    return True


async def test_who_asks_sentinels_with_a_wrong_password_is_told_how_to_name_theirs() -> None:
    async with ReplicatedServers(1, 1, password="secret") as servers:
        url = servers.urls[0].replace("sentinel_password=secret", "sentinel_password=wrong")
        with pytest.raises(AuthenticationFailed, match="sentinel_password"):
            await users_of([url])
