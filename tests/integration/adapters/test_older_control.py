"""A control Redis that comes back with an old copy of its data, or with none, under nodes that have all of theirs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import pytest
import redis

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.network import RedisNetwork
from adapters.redis.survey import survey
from cli.doctor import findings_of
from gamecast import Client
from tests.events import take
from tests.integration.adapters.test_several_nodes import ring
from tests.integration.node_processes import end, start_node
from tests.patience import patience

REGIONS = ("a", "b", "c", "d")


@dataclass
class Deployment:
    """A control Redis, and three nodes with a daemon each, as an operator would start them."""

    control: EmbeddedServer
    nodes: dict[str, EmbeddedServer]
    daemons: dict[str, Popen[str]]

    def back_up(self, where: Path) -> None:
        shutil.copytree(self.control.directory / "appendonlydir", where)

    async def restore(self, where: Path) -> None:
        self.control.kill()
        await asyncio.to_thread(shutil.rmtree, self.control.directory / "appendonlydir")
        await asyncio.to_thread(shutil.copytree, where, self.control.directory / "appendonlydir")
        await self.control.restart_async()


@pytest.fixture
async def deployment() -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(EmbeddedServer(appendfsync="always"))
        nodes = {
            name: await stack.enter_async_context(EmbeddedServer(appendfsync="always")) for name in ("n1", "n2", "n3")
        }
        daemons = {name: await asyncio.to_thread(start_node, name, nodes[name].url, control.url) for name in nodes}
        try:
            manager = RedisNetwork(control.url, ordering="acyclic", retention_events=1000)
            await manager.open()
            manager.stand(manager.way_to_leading())
            stack.push_async_callback(manager.close)
            yield Deployment(control, nodes, daemons)
        finally:
            for daemon in daemons.values():
                await asyncio.to_thread(end, daemon)


async def again(cast: Client, *regions: str) -> None:
    """Open a connection again, when its network was begun again, and subscribe."""
    async with patience(30):
        while True:
            try:
                await cast.reconnect()
                await cast.subscribe(*regions)
            except gamecast.GamecastError:
                await asyncio.sleep(0.1)
            else:
                return


async def is_told(cast: Client) -> bool:
    """Return whether a connection ends with `NetworkRestarted`; what it delivers until then is passed over."""
    async with patience(30):
        try:
            async for _ in cast:
                pass
        except gamecast.NetworkRestarted:
            return True
    return False


async def until(control: str, holds: Callable[[set[str]], bool]) -> None:
    """Wait for registered nodes."""
    async with patience(20):
        while not holds({node.name for node in (await survey(control)).nodes if node.registered}):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_an_old_copy_of_the_control_redis_ends_all_connections_and_another_network_begins(
    deployment: Deployment, tmp_path: Path
) -> None:
    url, backup = deployment.control.url, tmp_path / "backup"
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="two") as two:
        await one.subscribe("a", "b")
        await two.subscribe("b", "c")
        await one.publish("a", 1)
        await asyncio.to_thread(deployment.back_up, backup)
        # New overlaps: all regions around begin a new epoch, of which the copy knows nothing.
        await one.subscribe(*REGIONS)
        await two.subscribe(*REGIONS)
        await asyncio.gather(*(cast.publish(region, 1) for cast in (one, two) for region in REGIONS))
        await deployment.restore(backup)
        assert all(await asyncio.gather(is_told(one), is_told(two)))
        await asyncio.gather(again(one, *REGIONS), again(two, *REGIONS))
        async with patience(30):
            await asyncio.gather(*(cast.publish(region, 2) for cast in (one, two) for region in REGIONS))
            orders = [[(each.region, each.position) for each in await take(cast, 8)] for cast in (one, two)]
        assert orders[0] == orders[1]
    assert not [daemon for daemon in deployment.daemons.values() if daemon.poll() is not None]
    assert not [each for each in await findings_of(url) if each.level == "problem"]


async def test_nodes_register_themselves_at_an_emptied_control_redis(deployment: Deployment) -> None:
    url = deployment.control.url
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="two") as two:
        for cast in (one, two):
            await cast.subscribe(*REGIONS)
        await asyncio.gather(*(cast.publish(region, 1) for cast in (one, two) for region in REGIONS))
        with redis.Redis.from_url(url) as client:
            client.flushall()
        assert all(await asyncio.gather(is_told(one), is_told(two)))
        await until(url, lambda there: there >= set(deployment.nodes))
        await asyncio.gather(again(one, *REGIONS), again(two, *REGIONS))
        async with patience(30):
            await asyncio.gather(*(cast.publish(region, 2) for cast in (one, two) for region in REGIONS))
            orders = [[(each.region, each.position) for each in await take(cast, 8)] for cast in (one, two)]
        assert orders[0] == orders[1]
        plan = (await survey(url)).plan
        assert plan is not None
        assert plan.visits.keys() <= deployment.nodes.keys(), "it begins when its nodes are there again"
    for daemon in deployment.daemons.values():
        assert daemon.poll() is None


async def test_a_node_that_another_network_used_forgets_it_and_no_connection_ends(deployment: Deployment) -> None:
    url = deployment.control.url
    async with gamecast.connect(url, name="one") as one, gamecast.connect(url, name="two") as two:
        for cast in (one, two):
            await cast.subscribe("a")
        with EmbeddedServer(appendfsync="always") as other, EmbeddedServer(appendfsync="always") as used:
            daemon = await asyncio.to_thread(start_node, "n4", used.url, other.url)
            async with gamecast.connect(other.url, name="elsewhere") as elsewhere:
                await elsewhere.subscribe("a")
                await elsewhere.publish("a", 1)
            await asyncio.to_thread(end, daemon)
            daemon = await asyncio.to_thread(start_node, "n4", used.url, url)
            async with AsyncExitStack() as stack:
                casts = [await stack.enter_async_context(gamecast.connect(url, name=f"s{place}")) for place in range(8)]
                for number, cast in enumerate(casts):
                    await cast.subscribe(f"more-{number}")  # of different parts, which go to the quietest nodes
                plan = (await survey(url)).plan
                assert plan is not None
                assert "n4" in plan.visits
                async with patience(30):
                    for number, cast in enumerate(casts):
                        receipt = await one.publish(f"more-{number}", number)
                        assert [each.position for each in await take(cast, 1)] == [receipt.position]
                    await two.publish("a", 1)
                    assert [[each.payload for each in await take(cast, 1)] for cast in (one, two)] == [[1], [1]]
            await asyncio.to_thread(end, daemon)


async def test_a_daemon_that_is_not_there_is_missed(deployment: Deployment) -> None:
    url = deployment.control.url
    async with AsyncExitStack() as stack:
        await ring(url, stack)
        state = await survey(url)
        plan = state.plan
        assert plan is not None
        carried = {node.name: node.is_carried for node in state.nodes}
        sources = {source for source, _ in plan.links}
        assert sources
        assert carried == {name: True if name in sources else None for name in carried}
        for name in sources:
            deployment.daemons[name].kill()
        async with patience(30):
            while any(node.is_carried for node in (await survey(url)).nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        found = {each.subject: each for each in await findings_of(url) if "no `gamecast node` runs" in each.seen}
        assert found.keys() == sources
        for name in sources:
            deployment.daemons[name].communicate()
            deployment.daemons[name] = await asyncio.to_thread(start_node, name, deployment.nodes[name].url, url)
