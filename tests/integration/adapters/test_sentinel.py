"""Nodes and the control behind a real Sentinel: connections follow to the new master; what it lacks is announced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
import redis

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection
from adapters.redis.places import LOOK_AGAIN_S
from gamecast import Client, Event, Gap, Item, Receipt
from tests.events import take
from tests.integration.adapters.test_cluster import Player, Relays, command, until
from tests.integration.adapters.test_manager_live import REGIONS, Leaders, in_turn, judged, rest, roam
from tests.integration.live_player import stopped
from tests.integration.networks import register
from tests.integration.node_processes import end, start_node
from tests.patience import patience

PASSWORD = "open sesame"


class Service:
    """A master, its replica, and a sentinel that watches over both."""

    def __init__(self, servers: list[EmbeddedServer], sentinel: EmbeddedServer) -> None:
        self.servers = servers
        self._sentinel = sentinel
        self.url = self.url_with("open%20sesame")

    @classmethod
    async def start(cls, stack: AsyncExitStack) -> Service:
        quick = {"repl-diskless-sync-delay": "0", "masterauth": f'"{PASSWORD}"'}
        master = await stack.enter_async_context(EmbeddedServer(password=PASSWORD, settings=quick))
        quick["replicaof"] = f"127.0.0.1 {urlsplit(master.url).port}"
        replica = await stack.enter_async_context(EmbeddedServer(password=PASSWORD, settings=quick))
        watched = {
            "sentinel monitor": f"game 127.0.0.1 {urlsplit(master.url).port} 1",
            "sentinel auth-pass": f'game "{PASSWORD}"',
            "sentinel down-after-milliseconds": "game 1000",
        }
        sentinel = await stack.enter_async_context(EmbeddedServer(arguments=["--sentinel"], settings=watched))
        service = cls([master, replica], sentinel)
        await asyncio.to_thread(until, lambda: service.is_replicated() and service.master == 0)
        return service

    def url_with(self, password: str) -> str:
        """Return the service's URL; nobody is at the first address."""
        sentinels = f"127.0.0.1:{free_port()},127.0.0.1:{urlsplit(self._sentinel.url).port}"
        return f"redis+sentinel://:{password}@{sentinels}/game"

    @property
    def master(self) -> int:
        """Which of the servers Sentinel names."""
        with redis.Redis.from_url(self._sentinel.url) as client:
            _, port = client.sentinel_get_master_addr_by_name("game")
        return [urlsplit(server.url).port for server in self.servers].index(port)

    def is_replicated(self) -> bool:
        """Whether Sentinel knows a replica that has all that its master has."""
        with redis.Redis.from_url(self._sentinel.url) as client:
            known = client.sentinel_slaves("game")
        return bool(known) and known[0]["master-link-status"] == "ok" and not known[0]["flags"].count("down")

    def wait_for_replica(self) -> None:
        """Wait until the replica has all that its master had when this was called."""
        with redis.Redis.from_url(self.servers[self.master].url) as client:
            client.set("is-replicated", 1)  # WAIT speaks of what its own connection wrote
            assert client.wait(1, 5000) == 1

    def sever(self) -> None:
        """Let the replica hear nothing more from its master."""
        with redis.Redis.from_url(self.servers[self.master].url) as client:
            client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")

    def fail_over(self) -> None:
        """Begin a failover."""
        with redis.Redis.from_url(self._sentinel.url) as client:
            client.execute_command("SENTINEL", "FAILOVER", "game")


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        yield await Service.start(stack)


async def test_a_network_behind_sentinel_goes_on_at_the_new_master(service: Service) -> None:
    async with gamecast.connect(service.url, name="one") as one, gamecast.connect(service.url, name="other") as other:
        for cast in (one, other):
            await cast.subscribe("a", "b")
        await asyncio.gather(*(cast.publish(region, 1) for cast in (one, other) for region in "ab"))
        service.wait_for_replica()
        service.fail_over()
        await asyncio.to_thread(until, lambda: service.master == 1)
        await asyncio.sleep(LOOK_AGAIN_S)  # the old master goes on as if nothing had happened
        await asyncio.gather(*(cast.publish(region, 2) for cast in (one, other) for region in "ab"))
        orders = [[(event.region, event.sequence) for event in await take(cast, 8)] for cast in (one, other)]
        assert orders[0] == orders[1]
        with redis.Redis.from_url(service.servers[1].url) as client:
            assert sum(client.xlen(key) for key in client.keys("gamecast:{control}:egress:*")) >= 8


async def test_connections_follow_to_a_master_that_lacks_something_and_what_is_lost_is_a_gap(service: Service) -> None:
    async with EmbeddedServer() as control, AsyncExitStack() as stack:
        await register(control.url, {"n1": service.url}, may_lose=True)
        casts = [await stack.enter_async_context(gamecast.connect(control.url, name=name)) for name in ("one", "other")]
        for cast in casts:
            await cast.subscribe("a", "b")
        receipts: list[Receipt] = []

        async def publish_until(done: Callable[[], bool]) -> None:
            while not done():
                futures = [cast.publish_async(region, len(receipts)) for cast in casts for region in "ab"]
                answers = await asyncio.gather(*futures, return_exceptions=True)
                receipts.extend(answer for answer in answers if isinstance(answer, Receipt))
                assert all(isinstance(answer, Receipt | gamecast.NetworkError) for answer in answers), answers
                await asyncio.sleep(0.005)

        await publish_until(lambda: len(receipts) > 100)
        service.sever()
        await publish_until(lambda: len(receipts) > 200)
        service.fail_over()
        await publish_until(lambda: receipts[-1].epoch > receipts[0].epoch)
        last = {region: await casts[0].publish(region, "last") for region in "ab"}
        seen = [await everything(cast, dict(last)) for cast in casts]
        assert service.master == 1
    delivered = [[item for item in items if isinstance(item, Event)] for items in seen]
    places = [[(event.region, event.epoch, event.sequence) for event in events] for events in delivered]
    for one, other in (places, places[::-1]):
        assert len(set(one)) == len(one)
        assert [place for place in one if place in set(other)] == [place for place in other if place in set(one)]
    for items, mine in zip(seen, places, strict=True):
        gaps = [item for item in items if isinstance(item, Gap)]
        missing = [receipt for receipt in receipts if tuple(receipt) not in set(mine)]
        assert gaps
        assert all(any(covers(gap, receipt) for gap in gaps) for receipt in missing)


async def everything(cast: Client, last: dict[str, Receipt]) -> list[Item]:
    """Return what a connection delivers up to the last event of each region."""
    items: list[Item] = []
    async with patience(20):
        async for item in cast:
            items.append(item)
            if isinstance(item, Event) and item.payload == "last":
                del last[item.region]
                if not last:
                    break
    return items


def covers(gap: Gap, receipt: Receipt) -> bool:
    last = gap.last_sequence or receipt.sequence  # 0: nobody knows
    return gap[:2] == receipt[:2] and gap.first_sequence <= receipt.sequence <= last


async def test_servers_that_roam_over_failovers_see_one_order_and_every_loss(service: Service) -> None:
    async with EmbeddedServer() as control:
        urls = {"n1": service.url, "n2": control.url}
        await register(control.url, {"n2": control.url})
        await register(control.url, {"n1": service.url}, may_lose=True)
        leaders, relays = Leaders(control.url, 1), Relays(control.url, urls)
        relays.start_all()
        players = [await Player.join(control.url, urls, f"s{number}") for number in range(4)]
        turns = [(0.7, service.sever), (1.0, service.fail_over)]
        try:
            await roam(players, 4.0, seed=7, disturb=in_turn(turns))
            unrest = await rest(players)
        finally:
            await stopped(relays, *players)
            await leaders.stop()
        assert service.master == 1
        assert players[0].plan is not None
        epochs = range(players[0].plan.first_epoch, players[0].plan.epoch)
        may_lose = {(region, epoch): True for region in REGIONS for epoch in epochs}
        there = {"n1": service.servers[1].url, "n2": control.url}
        assert judged(players, there, unrest, may_lose) == []
        assert any(delivered.missing for player in players for delivered in player.session.deliveries)


async def test_nobody_who_speaks_at_once_with_others_speaks_to_the_old_master(service: Service) -> None:
    connections = [RedisConnection(service.url) for _ in range(5)]
    await asyncio.gather(*(connection.call("PING") for connection in connections))
    service.fail_over()
    await asyncio.to_thread(until, lambda: service.master == 1)
    await asyncio.sleep(LOOK_AGAIN_S)
    await asyncio.gather(*(connection.call("RPUSH", "k", "v") for connection in connections))
    with redis.Redis.from_url(service.servers[1].url) as client:
        assert client.llen("k") == len(connections)
    for connection in connections:
        await connection.close()


async def test_a_master_that_dies_is_replaced_by_itself(service: Service) -> None:
    connection = RedisConnection(service.url)
    run = await connection.run_id()
    await connection.call("SET", "k", "v")
    service.wait_for_replica()
    service.servers[0].kill()
    answer, begun = None, time.monotonic()
    while answer is None and time.monotonic() - begun < 20:
        try:
            answer = await connection.call("GET", "k", timeout_s=0.5)
            await connection.call("SET", "k", "v2")
        except gamecast.Unreachable:
            await asyncio.sleep(0.05)
    assert answer == b"v"
    assert await connection.run_id() != run
    await connection.close()


async def test_node_status_and_doctor_know_services(service: Service) -> None:
    process = await asyncio.to_thread(start_node, "n1", service.url, service.url)
    try:
        async with gamecast.connect(service.url, name="s") as cast:
            await cast.subscribe("a")
            await cast.publish("a", 1)
            for name in ("status", "doctor"):
                said = await command(name, service.url)
                assert "n1" in said
                assert "sesame" not in said
            assert '"may_lose": true' in await command("status", service.url, "--json")
    finally:
        end(process)


async def test_wrong_passwords_and_unknown_services_are_told_apart(service: Service) -> None:
    with pytest.raises(gamecast.AuthenticationFailed) as refused:
        await gamecast.connect(service.url_with("s3cret")).open()
    assert "s3cret" not in str(refused.value)
    with pytest.raises(gamecast.Unreachable, match="it does not monitor the service 'chess'"):
        await gamecast.connect(service.url.replace("/game", "/chess")).open()
    async with EmbeddedServer() as server:
        with pytest.raises(gamecast.OtherSideError, match=r"unknown command .SENTINEL"):
            await gamecast.connect(server.url.replace("redis://", "redis+sentinel://") + "/game").open()
