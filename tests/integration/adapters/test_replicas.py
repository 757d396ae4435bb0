"""Receipts that wait for replicas: what was acknowledged outlives the master, and nothing is acknowledged without."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

import gamecast
from adapters.embedded.binary import find_redis_server
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import ON_DISK_VERSION_MIN, RedisConnection
from adapters.redis.evidence import Exchange
from adapters.redis.examination import Finding
from adapters.redis.node import STEP, RedisNode
from adapters.redis.probe import ServerProbe
from adapters.redis.serverfindings import server_findings
from adapters.redis.survey import survey
from adapters.redis.users import create_users, new_users
from adapters.relay import RelayTask
from adapters.urls import OwnOptions, own_options, redacted, with_own_options, with_replicas
from gamecast import Client, Event, Item, Receipt
from gamecast.errors import (
    GamecastError,
    NetworkError,
    PublishUncertain,
    UnknownScheme,
    Unreachable,
    UnsupportedServer,
)
from sequencing.frames import PublishedFrame
from sequencing.plan import Plan
from tests.events import take
from tests.integration.adapters.test_cluster import until
from tests.patience import patience

NEWER = Path(sys.prefix) / "newer" / "redis-server"
"""Where `./dev test --all` puts a newer server than that of the system."""


class Group:
    """A master with replicas, and a sentinel that watches over them."""

    def __init__(self, servers: list[EmbeddedServer], sentinel: EmbeddedServer) -> None:
        self.servers, self._sentinel = servers, sentinel

    @classmethod
    async def start(cls, stack: AsyncExitStack, replicas: int) -> Group:
        quick = {"repl-diskless-sync-delay": "0", "appendonly": "yes"}
        master = await stack.enter_async_context(EmbeddedServer(settings=quick))
        port = urlsplit(master.url).port
        following = quick | {"replicaof": f"127.0.0.1 {port}"}
        servers = [master]
        servers += [await stack.enter_async_context(EmbeddedServer(settings=following)) for _ in range(replicas)]
        watched = {
            "sentinel monitor": f"game 127.0.0.1 {port} 1",
            "sentinel down-after-milliseconds": "game 2000",  # no second failover because the machine is busy
            "sentinel failover-timeout": "game 3000",
        }
        sentinel = await stack.enter_async_context(EmbeddedServer(arguments=["--sentinel"], settings=watched))
        group = cls(servers, sentinel)
        await asyncio.to_thread(until, lambda: group.replicas_known() == replicas)
        return group

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{urlsplit(self._sentinel.url).port}/game"

    @property
    def master(self) -> EmbeddedServer:
        with redis.Redis.from_url(self._sentinel.url) as client:
            _, port = client.sentinel_get_master_addr_by_name("game")
        return next(server for server in self.servers if urlsplit(server.url).port == port)

    def has_settled(self, dead: EmbeddedServer, replicas: int) -> bool:
        """Whether another master has so many replicas, and no failover is under way."""
        with redis.Redis.from_url(self._sentinel.url) as client:
            known = client.sentinel_master("game")
        if known["port"] == urlsplit(dead.url).port or known["flags"] != "master":
            return False
        with redis.Redis.from_url(self.master.url) as client:
            told = client.info("replication")
        online = [told[f"slave{number}"]["state"] for number in range(told["connected_slaves"])]
        return told["role"] == "master" and online == ["online"] * replicas

    def replicas_known(self) -> int:
        with redis.Redis.from_url(self._sentinel.url) as client:
            found = client.sentinel_slaves("game")
        return sum(each["master-link-status"] == "ok" and "down" not in each["flags"] for each in found)


@pytest.fixture
async def pair() -> AsyncIterator[Group]:
    """A master and a replica."""
    async with AsyncExitStack() as stack:
        yield await Group.start(stack, 1)


@pytest.mark.parametrize("deaths", [1, 2])
async def test_what_was_acknowledged_is_delivered_after_the_master_has_died(deaths: int) -> None:
    async with AsyncExitStack() as stack:
        group = await Group.start(stack, 1 + deaths)
        url = with_replicas(group.url, 1)
        one, other, publisher = [
            await stack.enter_async_context(gamecast.connect(url, name=name, publish_timeout_s=30))
            for name in ("one", "other", "publisher")
        ]
        for client in (one, other):
            await client.subscribe("a", "b")
        receipts: list[Receipt] = []

        async def publish_more(count: int) -> None:
            for number in range(count):
                futures = [publisher.publish_async(region, number) for region in "ab"]
                receipts.extend(await asyncio.gather(*futures))

        await publish_more(50)
        for dead in range(1, deaths + 1):
            publishing = asyncio.create_task(publish_more(400))
            await asyncio.sleep(0.05)
            master = group.master
            master.kill()
            await publishing
            # Sentinel does not promote another one while it is still at the last one.
            await asyncio.to_thread(until, partial(group.has_settled, master, 1 + deaths - dead))
        last = {region: await publisher.publish(region, "last") for region in "ab"}
        receipts += last.values()
        seen = [await _everything(client) for client in (one, other)]
    places = [[(item.region, item.epoch, item.sequence) for item in items if isinstance(item, Event)] for items in seen]
    for mine in places:
        assert len(set(mine)) == len(mine)
        assert {tuple(receipt)[:3] for receipt in receipts} <= set(mine)
    both = set(places[0]) & set(places[1])
    assert [place for place in places[0] if place in both] == [place for place in places[1] if place in both]


async def _everything(client: Client) -> list[Item]:
    """Return what a connection delivers up to the last event of each of two regions."""
    items: list[Item] = []
    left = {"a", "b"}
    async with patience(30):
        async for item in client:
            items.append(item)
            if isinstance(item, Event) and item.payload == "last":
                left.discard(item.region)
                if not left:
                    return items
    raise AssertionError("it has ended")


async def test_nothing_is_acknowledged_while_a_replica_is_missing(pair: Group) -> None:
    url = with_replicas(pair.servers[0].url, 1)
    async with (
        gamecast.connect(url, name="p", publish_timeout_s=3) as publisher,
        gamecast.connect(url, name="s") as subscriber,
    ):
        await subscriber.subscribe("a")
        await publisher.publish("a", 0)
        os.kill(pair.servers[1].pid, signal.SIGSTOP)
        try:
            with pytest.raises(PublishUncertain):
                await publisher.publish("a", 1)
            late = publisher.publish_async("a", 2)
            await asyncio.sleep(0.5)
            assert not late.done()
        finally:
            os.kill(pair.servers[1].pid, signal.SIGCONT)
        receipt = await late
        await publisher.publish("a", "last")
        got = [(await anext(subscriber)).payload for _ in range(4)]  # type: ignore[union-attr]
    assert got == [0, 1, 2, "last"], "what was accepted comes once, acknowledged or not"
    assert receipt.sequence > 0


async def test_an_event_that_is_offered_again_is_acknowledged_once_it_is_copied(pair: Group) -> None:
    """Redis 7.2 answers WAIT for what its own connection has written: so something is written for a repeated frame."""
    url = with_replicas(pair.servers[0].url, 1)
    async with gamecast.connect(url, name="p") as publisher:
        await publisher.publish("a", 0)
    keys = [f"gamecast:{{control}}:{name}" for name in ("node", "steps", "counters", "publishers")]
    with redis.Redis.from_url(pair.servers[0].url) as client:
        [row] = [row for row in client.hgetall(keys[3]) if row.startswith(b"a\np")]
        incarnation, last, epoch, _ = client.hget(keys[3], row).split()
        frame = ("publish", "a", epoch, "p", incarnation, last, 1, 0, b"[0,[0],[0]]")
        before = client.info("replication")["master_repl_offset"]
        sha = client.script_load(STEP.text)
        # Not pushed (a key more): PUBLISH would be replicated as well.
        [answer] = client.evalsha(sha, 5, *keys, "gamecast:{control}:-", *frame)
        assert answer.startswith(b"seen")
        assert client.info("replication")["master_repl_offset"] > before


async def test_a_connection_that_breaks_while_it_is_copied_tells_nothing_is_known(pair: Group) -> None:
    connection = RedisConnection(with_replicas(pair.servers[0].url, 2))
    with pytest.raises(Unreachable, match="only 1 of the 2 replicas"):
        await connection.run(STEP, [f"{{x}}:{name}" for name in ("node", "steps", "counters", "publishers")], "close")
    await connection.close()


def is_on_disk_told() -> bool:
    """Whether servers here know WAITAOF."""
    told = subprocess.run([find_redis_server(), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+)\.(\d+)", told)
    assert version is not None
    return tuple(map(int, version.groups())) >= ON_DISK_VERSION_MIN


@pytest.fixture
def newer_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers that know WAITAOF."""
    if not is_on_disk_told():
        if not NEWER.exists():
            pytest.skip("needs Redis 7.2 or Valkey: ./dev test --all brings one")
        monkeypatch.setenv("PATH", str(NEWER.parent), prepend=os.pathsep)
        assert is_on_disk_told()


@pytest.mark.usefixtures("newer_server")  # before those of the arguments
async def test_a_receipt_waits_for_the_disk_of_server_and_replica(pair: Group) -> None:
    master, replica = pair.servers
    url = with_own_options(master.url, OwnOptions(replicas=1, durability="disk"))
    keys = [f"{{x}}:{name}" for name in ("node", "steps", "counters", "publishers")]
    for server in pair.servers:
        with redis.Redis.from_url(server.url) as there:
            there.config_set("appendfsync", "always")
    connection = RedisConnection(url)
    await connection.run(STEP, keys, "close")
    async with gamecast.connect(url, name="s", publish_timeout_s=30) as client:
        await client.subscribe("a")
        await client.publish("a", 1)
        assert [event.payload for event in await take(client, 1)] == [1]
    with redis.Redis.from_url(replica.url) as there:
        there.config_set("appendonly", "no")
    with pytest.raises(Unreachable, match=r"only 0 of the 1 replicas .* have it on disk"):
        await connection.run(STEP, keys, "close")
    with redis.Redis.from_url(master.url) as there:
        there.config_set("appendfsync", "no")
    seen = {finding.seen for finding in await _findings(url) if finding.level == "problem"}
    assert any("durability=disk" in each for each in seen)
    with redis.Redis.from_url(master.url) as there:
        there.config_set("appendonly", "no")
    with pytest.raises(GamecastError, match="appendonly is disabled"):
        await connection.run(STEP, keys, "close")
    await connection.close()


async def test_an_older_redis_cannot_tell_what_is_on_disk(redis_server: EmbeddedServer) -> None:
    if is_on_disk_told():
        pytest.skip("needs a Redis before 7.2")
    with pytest.raises(UnsupportedServer, match=r"durability=disk needs: use Redis 7\.2"):
        async with gamecast.connect(f"{redis_server.url}?durability=disk", name="s"):
            pass


async def test_nothing_is_delivered_and_no_position_begins_where_it_is_not_copied(pair: Group) -> None:
    """A new master would give the numbers to other events, and those who have had the first ones would miss these."""
    url = pair.servers[0].url
    async with (
        gamecast.connect(url, name="p") as careless,
        gamecast.connect(with_replicas(url, 1), name="s") as reader,
        gamecast.connect(with_replicas(url, 1), name="later") as later,
        gamecast.share(with_replicas(url, 1)) as shared,
        shared.connect(name="sharing") as sharing,
    ):
        for client in (reader, sharing):
            await client.subscribe("a")
        os.kill(pair.servers[1].pid, signal.SIGSTOP)
        try:
            await careless.publish("a", 1)
            joining = asyncio.create_task(later.subscribe("a"))
            for client in (reader, sharing):
                assert await client.fetch(1, timeout=0.7) == []
            assert not joining.done()
        finally:
            os.kill(pair.servers[1].pid, signal.SIGCONT)
        for client in (reader, sharing):
            [event] = await client.fetch(1, timeout=10)
            assert isinstance(event, Event)
            assert event.payload == 1
        await joining


async def test_a_comparison_that_breaks_off_is_made_again(redis_server: EmbeddedServer) -> None:
    connection, told = RedisConnection(redis_server.url), list[tuple[str, str]]()

    async def missing(run: str, before: str, exchange: Exchange) -> str:
        told.append((run, before))
        if len(told) == 1:
            raise ConnectionResetError
        return ""

    connection.missing = missing
    await connection.call("PING")
    first = connection.found_run
    await redis_server.restart_async()
    with pytest.raises(NetworkError):
        await connection.call("PING")
    await connection.call("PING")
    assert [before for _, before in told] == [first, first]
    await connection.close()


async def test_a_frame_leaves_a_node_when_it_is_copied(pair: Group) -> None:
    """Otherwise a new master could give its number on the link to another frame, which would count as accepted."""
    plan = Plan(1, 1, "acyclic", {"n1": "", "n2": ""}, {"a": ("n1", "n2")}, ())
    async with EmbeddedServer() as server:
        nodes = [RedisNode("n1", pair.servers[0].url, plan), RedisNode("n2", server.url, plan)]
        for node in nodes:
            await node.install(plan, retention_events=10)
        relay = RelayTask(
            RedisNode("n1", with_replicas(pair.servers[0].url, 1), plan),
            RedisNode("n2", server.url, plan),
            ("n1", "n2"),
        )
        os.kill(pair.servers[1].pid, signal.SIGSTOP)
        try:
            await nodes[0].publish([PublishedFrame("a", 1, "p", 1, 1, 1, b"[0,[0],[1]]")])
            running = asyncio.create_task(relay.run())
            await asyncio.sleep(1)
            assert await nodes[1].taken("n1") == 0
        finally:
            os.kill(pair.servers[1].pid, signal.SIGCONT)
        async with patience(10):
            while await nodes[1].taken("n1") == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await relay.stop()
        await running
        for node in nodes:
            await node.close()


async def test_users_of_a_secured_network_may_wait_for_replicas(pair: Group) -> None:
    users = new_users()
    await create_users([pair.servers[0].url], users)
    url = with_replicas(users["subscriber"].url(pair.servers[0].url), 1)
    async with gamecast.connect(with_replicas(users["manager"].url(pair.servers[0].url), 1), name="m") as manager:
        await manager.publish("a", 0)
        async with gamecast.connect(url, name="s") as client:
            await client.subscribe("a")
            assert (await client.publish("a", 1)).sequence > 0


@pytest.mark.parametrize(
    ("wanted", "level", "said"),
    [
        (1, "ok", "a receipt waits for all 1 replicas"),
        (2, "problem", "1 of the 2 replicas that its URL wants are there: nothing is acknowledged"),
    ],
)
async def test_doctor_says_what_a_receipt_waits_for(pair: Group, wanted: int, level: str, said: str) -> None:
    found = await _findings(with_replicas(pair.servers[0].url, wanted))
    assert any(each.level == level and said in each.seen for each in found)
    assert any("min-replicas-to-write 0" in each.seen for each in found)
    with redis.Redis.from_url(pair.servers[0].url) as client:
        client.config_set("min-replicas-to-write", 1)
    found = await _findings(with_replicas(pair.servers[0].url, wanted))
    assert not any("min-replicas-to-write" in each.seen for each in found)


async def test_doctor_warns_of_replicas_that_may_lack_what_was_acknowledged() -> None:
    async with AsyncExitStack() as stack:
        group = await Group.start(stack, 2)
        found = await _findings(with_replicas(group.servers[0].url, 1))
        assert any(each.level == "problem" and "waits for 1 of 2 replicas" in each.seen for each in found)
        assert not any("receipt" in each.seen for each in await _findings(group.servers[0].url))


async def _findings(url: str) -> list[Finding]:
    probe = ServerProbe(url, "x")
    try:
        return [*server_findings("n1", await probe.describe())]
    finally:
        await probe.close()


async def test_a_node_is_registered_with_its_replicas_and_counts_as_one_that_keeps_all(pair: Group) -> None:
    async with EmbeddedServer() as control:
        arguments = ["node", "--name", "n1", "--redis", pair.url, "--control", control.url, "--replicas", "1"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "gamecast", *arguments, stderr=PIPE)
        assert process.stderr is not None
        try:
            async with patience(20):
                while b"is registered" not in await process.stderr.readline():
                    pass
            [node] = (await survey(control.url)).nodes
        finally:
            process.terminate()
            await process.wait()
    assert node.url == with_replicas(pair.url, 1)
    assert not node.may_lose


def test_the_option_is_part_of_a_url_and_is_shown() -> None:
    assert own_options("redis://h:1/0?replicas=2&protocol=3") == ("redis://h:1/0?protocol=3", OwnOptions(2))
    assert own_options("redis://h:1?replicas=2") == ("redis://h:1", OwnOptions(2))
    assert own_options("redis://h:1") == ("redis://h:1", OwnOptions())
    assert with_replicas("redis+sentinel://h/s?db=0&replicas=1", 3) == "redis+sentinel://h/s?db=0&replicas=3"
    assert with_replicas("redis://h?replicas=1", 0) == "redis://h"
    assert redacted("redis://u:p@h?replicas=1") == "redis://u:***@h?replicas=1"
    with pytest.raises(UnknownScheme, match="replicas must be a number from 0 to 9, not 'many'"):
        RedisConnection("redis://h?replicas=many")


async def test_an_observer_reads_where_receipts_wait_for_replicas(pair: Group) -> None:
    users = new_users()
    await create_users([pair.servers[0].url], users)
    async with gamecast.connect(with_replicas(users["manager"].url(pair.servers[0].url), 1), name="m") as manager:
        receipt = await manager.publish("a", 1)
    node = RedisNode("control", with_replicas(users["watcher"].url(pair.servers[0].url), 1))
    with pytest.raises(Unreachable):  # it finds out that it may not write, and reads again
        await node.read({"a": (receipt.epoch, 0)}, frames_max=10, block_ms=None)
    for _ in range(2):
        found = await node.read({"a": (receipt.epoch, 0)}, frames_max=10, block_ms=None)
        assert [frame.last for frame in found.frames] == [receipt.sequence]
    await node.close()
