"""Nodes and the control in a real Redis Cluster: slots that move, masters that die, replicas that take over."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import redis
from redis.crc import key_slot

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.connection import RedisConnection
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.node import RedisNode
from adapters.redis.places import places_of
from adapters.urls import redacted
from sequencing.frames import PublishedFrame
from sequencing.keyspace import NodeKeys
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from sequencing.record import Record
from tests.events import take
from tests.integration.adapters.test_manager_live import REGIONS, Leaders, Turns, in_turn, judged, rest, roam
from tests.integration.gamecast.test_faults import casts_on, publish_and_check
from tests.integration.live_player import Live, LivePlayer, LiveRelays, stopped
from tests.integration.networks import register, relaying
from tests.integration.node_processes import end, start_node
from tests.patience import Deadline, patience, scaled

NODES = ("n1", "n2", "n3")
RANGES = ((0, 8_000), (8_001, 11_900), (11_901, 16_383))
"""The three masters serve n1, n3, and n2 with the control."""

SETTINGS = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", "repl-diskless-sync-delay": "0"}
SETTLE_S_MAX = 15.0
MOVE_PAUSE_S = 0.03
MOVE_S_MAX = 1.5


class Cluster:
    """Three masters; with six servers, each has a replica."""

    def __init__(self, servers: Sequence[EmbeddedServer]) -> None:
        self.servers = servers
        self.ports = [int(server.url.rpartition(":")[2]) for server in servers]
        self.ids = [self.ask(number, "CLUSTER", "MYID").decode() for number in range(len(servers))]
        self._everybody = range(len(servers))

    @property
    def url(self) -> str:
        """Of the cluster; nobody is at the first address."""
        user = self.servers[0].url.partition("://")[2].rpartition("@")[0]
        places = f"127.0.0.1:{free_port()},127.0.0.1:{self.ports[0]},127.0.0.1:{self.ports[1]}"
        return f"redis+cluster://{user}{'@' if user else ''}{places}"

    def ask(self, number: int, *command: object) -> Any:
        """Return what one of the servers answers, as it came."""
        parts = urlsplit(self.servers[number].url)
        options = {"host": "127.0.0.1", "port": parts.port, "password": unquote(parts.password or "")}
        connection: Any = redis.Connection(**options, socket_timeout=5)  # type: ignore[no-untyped-call]
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            connection.disconnect()

    def form(self) -> None:
        for number, (first, last) in enumerate(RANGES):
            self.ask(number, "CLUSTER", "ADDSLOTS", *range(first, last + 1))
        for number in self._everybody:
            self.ask(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for port in self.ports[1:]:
            self.ask(0, "CLUSTER", "MEET", "127.0.0.1", port)
        until(lambda: all(self._knows_all(number) for number in self._everybody))
        for number in self._everybody[3:]:
            self.ask(number, "CLUSTER", "REPLICATE", self.ids[number - 3])
        until(lambda: all(self.follows(number, number - 3) for number in self._everybody[3:]))

    def follows(self, replica: int, master: int) -> bool:
        """Whether a server is a replica of another one, and up to date."""
        info = self.ask(replica, "INFO", "replication")
        return b"master_link_status:up" in info and b"master_port:%d\r" % self.ports[master] in info

    def has(self, number: int, tag: str) -> bool:
        """Whether a server serves what is under a hash tag."""
        slots = self.ask(number, "CLUSTER", "SLOTS")
        [owner] = [master for first, last, master, *_ in slots if first <= key_slot(tag.encode()) <= last]
        return bool(owner[1] == self.ports[number])

    def move(self, tag: str, source: int, target: int) -> None:
        """Move what is under a hash tag to another master, key by key, as `redis-cli --cluster reshard` does."""
        slot = key_slot(tag.encode())
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        time.sleep(MOVE_PAUSE_S)
        # As long as it takes, nothing that needs several keys is answered: it must be over in `publish_timeout_s`.
        many = self.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot)
        pause_s = min(MOVE_PAUSE_S, MOVE_S_MAX / max(1, many))
        while keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
            self.migrate(keys[0], source, target)
            time.sleep(pause_s)
        for number in (target, source, *self._everybody):
            self.ask(number, "CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])
            time.sleep(MOVE_PAUSE_S)
        # What one master heard of another meanwhile may have undone it there.
        deadline = Deadline(5)
        while not deadline.passed and (wrong := [each for each in (0, 1, 2) if not self._owns(each, slot, target)]):
            for number in wrong:
                self.ask(number, "CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])
            time.sleep(MOVE_PAUSE_S)

    def _owns(self, number: int, slot: int, target: int) -> bool:
        """Return whether a master knows that a slot is another one's, and moves no more."""
        lines = self.ask(number, "CLUSTER", "NODES").splitlines()
        if any(b"[%d-" % slot in line for line in lines):
            return False
        for first, last, owner, *_ in self.ask(number, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return bool(owner[2].decode() == self.ids[target])
        return False

    def sever(self, master: int) -> None:
        """Let the replica of a master hear nothing more from it."""
        self.ask(master, "ACL", "SETUSER", "default", "-psync", "-sync")
        self.ask(master, "CLIENT", "KILL", "TYPE", "replica")

    def take_over(self, replica: int) -> None:
        """Have a replica take over from its master, whatever it lacks, and that one follow it."""
        self.ask(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
        self.ask((replica + 3) % 6, "ACL", "SETUSER", "default", "+psync", "+sync")

    def migrate(self, key: bytes | str, source: int, target: int) -> None:
        self.ask(source, "MIGRATE", "127.0.0.1", self.ports[target], key, 0, 5000)

    def _knows_all(self, number: int) -> bool:
        known = self.ask(number, "CLUSTER", "NODES").count(b"connected")
        return known == len(self.servers) and b"cluster_state:ok" in self.ask(number, "CLUSTER", "INFO")


class Bound(Live):
    """Speaks to no server but in the run that is meant, also when that changes after it has asked."""

    def heard(self, record: Record) -> None:
        super().heard(record)
        for connection in self._connections:
            connection.follow(record.plan)


class Player(Bound, LivePlayer):
    """See `LivePlayer`."""


class Relays(Bound, LiveRelays):
    """See `LiveRelays`."""


def until(holds: Callable[[], bool]) -> None:
    deadline = Deadline(SETTLE_S_MAX)
    while not holds():
        assert not deadline.passed
        time.sleep(0.02)


@asynccontextmanager
async def cluster_of(count: int, password: str | None = None) -> AsyncIterator[Cluster]:
    async with EmbeddedServers(count, appendfsync="always", password=password, settings=SETTINGS) as servers:
        cluster = Cluster(servers.servers)
        await asyncio.to_thread(cluster.form)
        yield cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with cluster_of(3) as cluster:
        yield cluster


@asynccontextmanager
async def nodes_in(cluster: Cluster) -> AsyncIterator[None]:
    """Three nodes in a cluster, which lose nothing, and their relays."""
    await register(cluster.url, dict.fromkeys(NODES, cluster.url))
    async with relaying(cluster.url):
        yield


async def test_nodes_in_a_cluster_are_on_several_masters_and_order_is_one(cluster: Cluster) -> None:
    async with nodes_in(cluster), casts_on(cluster.url) as casts:
        await publish_and_check(casts, 20, lambda _: None)
        plan = await casts["s0"].plan()
        assert plan is not None
        assert plan.links
    used = {"control", *chain.from_iterable(plan.paths.values())}
    assert len(used) > 2
    for tag, number in (("n1", 0), ("n3", 1), ("n2", 2), ("control", 2)):
        assert tag not in used or cluster.ask(number, "CLUSTER", "COUNTKEYSINSLOT", key_slot(tag.encode())) > 0


async def test_a_network_without_registered_nodes_is_in_the_cluster_too(cluster: Cluster) -> None:
    async with gamecast.connect(cluster.url, name="one") as one, gamecast.connect(cluster.url, name="other") as other:
        await one.subscribe("a", "b")
        await other.subscribe("a", "b")
        await asyncio.gather(*(client.publish(region, 1) for client in (one, other) for region in "ab"))
        orders = [[(event.region, event.sequence) for event in await take(client, 4)] for client in (one, other)]
        assert orders[0] == orders[1]


async def test_slots_that_move_while_traffic_flows_lose_repeat_and_reorder_nothing(cluster: Cluster) -> None:
    moves: list[asyncio.Task[None]] = []
    plans = {20: ("n1", 0, 1), 60: ("n3", 1, 0), 100: ("control", 2, 1), 140: ("n1", 1, 2)}

    turn = asyncio.Lock()

    async def after_the_one_before(tag: str, source: int, target: int) -> None:
        async with turn:
            await asyncio.to_thread(cluster.move, tag, source, target)

    def move(number: int) -> None:
        if number in plans:
            moves.append(asyncio.create_task(after_the_one_before(*plans[number])))

    async with nodes_in(cluster), casts_on(cluster.url) as casts:
        await publish_and_check(casts, 200, move)
        assert sum(client.statistics().reconnects for client in casts.values()) > 0
        await asyncio.gather(*moves)
        for tag, number in (("n1", 2), ("n3", 0), ("control", 1)):
            assert cluster.has(number, tag)
        await publish_and_check(casts, 5, lambda _: None)


async def test_masters_killed_and_restarted_lose_nothing_when_they_sync_always(cluster: Cluster) -> None:
    def kill(number: int) -> None:
        if number % 30 == 10:
            server = cluster.servers[number // 30]
            server.kill()
            server.restart()

    async with nodes_in(cluster), casts_on(cluster.url) as casts:
        await publish_and_check(casts, 90, kill)
        assert casts["s0"].statistics().reconnects > 0


async def test_a_script_is_sent_back_before_it_begins_while_its_streams_are_under_way(cluster: Cluster) -> None:
    node, slot = RedisNode("n1", cluster.url), key_slot(b"n1")
    frames = [PublishedFrame(region, 1, "s", 1, 1, 1, b"[0,[0],[1]]") for region in "ab"]
    await node.install(Plan(1, 1, "overlap", {"n1": cluster.url}, {"a": ("n1",), "b": ("n1",)}, ()), 1000)
    await node.publish(frames)
    cluster.ask(1, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.ids[0])
    cluster.ask(0, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.ids[1])
    cluster.migrate(NodeKeys("n1").egress(1, "b"), 0, 1)
    after = [PublishedFrame(region, 1, "s", 1, 2, 1, b"[0,[0],[2]]") for region in "ab"]
    for _ in range(3):
        with pytest.raises(gamecast.Unreachable, match="has moved, or refuses commands now"):
            await node.publish(after)
    [newest] = await node.newest([("a", 1)])
    assert newest is not None
    assert newest.last == 1
    await asyncio.to_thread(cluster.move, "n1", 0, 1)
    answers: list[Answer] = []
    async with patience(5):
        while not answers:
            try:
                answers = await node.publish(after)
            except gamecast.Unreachable:
                await asyncio.sleep(0.02)
    assert answers == [Answer(Verdict.OK, (1, 2))] * 2
    found, _ = await node.read({"a": (1, 0), "b": (1, 0)}, frames_max=9, block_ms=1)
    assert [frame.last for frame in found] == [1, 2, 1, 2]
    await node.close()


async def test_a_replica_that_takes_over_is_another_run_and_what_is_lost_is_announced() -> None:
    async with cluster_of(6) as cluster:
        url, urls = cluster.url, dict.fromkeys(("n1", "n3"), cluster.url)
        await register(url, urls, may_lose=True)
        lookout = RedisConnection(url, "n1")
        runs = [await lookout.run_id()]
        leaders, relays = Leaders(url, 1), Relays(url, urls)
        relays.start_all()
        players = [await Player.join(url, urls, f"s{number}") for number in range(4)]
        sever, to_replica = partial(cluster.sever, 0), partial(cluster.take_over, 3)
        back = partial(cluster.take_over, 0)
        turns: Turns = [(0.7, sever), (1.0, to_replica), (2.2, back), (3.0, sever), (3.2, to_replica)]
        try:
            await roam(players, 4.0, seed=5, disturb=in_turn(turns))
            unrest = await rest(players)
        finally:
            await stopped(relays, *players)
            await leaders.stop()
        with pytest.raises(gamecast.Unreachable, match="has moved"):
            await lookout.run_id()
        runs.append(await lookout.run_id())
        await lookout.close()
        assert not turns
        assert runs[0] != runs[1]
        assert cluster.has(3, "n1")
        assert players[0].plan is not None
        assert players[0].plan.runs["n1"] == runs[1]
        epochs = range(players[0].plan.first_epoch, players[0].plan.epoch)
        may_lose = {(region, epoch): True for region in REGIONS for epoch in epochs}
        there = {"n1": cluster.servers[3].url, "n3": cluster.servers[1].url}
        # Whether any event was lost is a matter of milliseconds; if so, it was announced.
        assert judged(players, there, unrest, may_lose) == []
        assert sum(len(player.session.deliveries) for player in players) > 50


async def test_node_status_and_doctor_know_clusters(cluster: Cluster) -> None:
    process = await asyncio.to_thread(start_node, "n1", cluster.url, cluster.url)
    try:
        async with gamecast.connect(cluster.url, name="s") as client:
            await client.subscribe("a")
            await client.publish("a", 1)
            status = json.loads(await command("status", cluster.url, "--json", "--regions"))
            [node] = status["nodes"]
            assert (node["name"], node["reachable"], node["may_lose"], node["trouble"]) == ("n1", True, True, None)
            [region] = status["regions"]
            assert region["last"] == region["drawn"] > 0
            findings = json.loads(await command("doctor", cluster.url, "--json"))["findings"]
            assert [finding for finding in findings if finding["level"] == "problem"] == []
            assert {finding["subject"] for finding in findings} >= {"control", "n1", "leader"}
            assert cluster.ask(2, "SMEMBERS", ControlKeys.lossy) == [b"n1"]
    finally:
        end(process)


async def command(*arguments: str) -> str:
    call = [sys.executable, "-m", "gamecast", *arguments]
    done = await asyncio.to_thread(subprocess.run, call, capture_output=True, text=True, timeout=scaled(30))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_a_cluster_asks_for_its_password() -> None:
    async with cluster_of(3, password="open sesame") as cluster:
        async with gamecast.connect(cluster.url) as client:
            await client.publish("a", 1)
        for url in (cluster.url.replace("open%20sesame", "s3cret"), cluster.url.replace(":open%20sesame@", "")):
            with pytest.raises(gamecast.AuthenticationFailed) as raised:
                await gamecast.connect(url).open()
            assert "s3cret" not in str(raised.value)


async def test_servers_of_the_other_kind_say_so(cluster: Cluster) -> None:
    with pytest.raises(gamecast.OtherSideError, match=r"is part of a cluster: use redis\+cluster://"):
        await gamecast.connect(cluster.servers[0].url).open()
    async with EmbeddedServer() as server:
        with pytest.raises(gamecast.OtherSideError, match="cluster support disabled"):
            await gamecast.connect(server.url.replace("redis://", "redis+cluster://")).open()


async def test_a_cluster_of_which_nobody_answers_is_not_reachable() -> None:
    url = f"redis+cluster://:s3cret@127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(gamecast.Unreachable, match="no node of the cluster knows where the master is") as raised:
        await gamecast.connect(url).open()
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://host:1,",
        "redis+cluster://host:port",
        "redis+cluster://host/1",
        "redis+cluster://host?db=1",
        "redis+sentinel://host",
        "redis+sentinel://host:1:2/service",
        "redis+sentinel:///service",
        "redis+sentinel://host/service?db=one",
    ],
)
async def test_what_cannot_be_the_url_of_a_cluster_or_of_a_service_is_wrong_use(url: str) -> None:
    with pytest.raises(gamecast.UsageError, match="is not a Redis URL"):
        await gamecast.connect(url).open()


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("redis+cluster://u:pw@h1:1,h2:2", "redis+cluster://u:***@h1:1,h2:2"),
        ("redis+cluster://:p%2Cw@h1,[::1]:2/0", "redis+cluster://:***@h1,[::1]:2/0"),
        ("redis+cluster://:pw@h1,:pw@h2", "redis+cluster://:***@h2"),
        ("redis+sentinel://u:pw@h1,h2/s?db=1", "redis+sentinel://u:***@h1,h2/s?db=1"),
        (
            "rediss+sentinel://h1/s?password=pw&sentinel_password=p@w&db=1",
            "rediss+sentinel://h1/s?password=***&sentinel_password=***&db=1",
        ),
    ],
)
def test_passwords_are_not_shown(url: str, safe: str) -> None:
    assert redacted(url) == safe


def test_what_is_asked_and_reached_is_told_by_the_url() -> None:
    cluster = places_of("rediss+cluster://u:p%40w@h1,[::1]:2?ssl_cert_reqs=none", "n1")
    assert cluster is not None
    assert cluster.first_url == "rediss://u:p%40w@h1:6379?ssl_cert_reqs=none"
    service = places_of("redis+sentinel://u:pw@h1,h2:2/my%20game?db=3&sentinel_password=x", "n1")
    assert service is not None
    assert service.first_url == "redis://u:pw@h1:26379?db=3"
    assert service.seed_url(service._at) == "redis://h1:26379?password=x"
    assert service.question() == ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "my game")
    assert places_of("redis://h1", "n1") is None
