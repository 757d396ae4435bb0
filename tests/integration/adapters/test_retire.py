"""`gamecast node retire`: a node leaves a network, under load."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.survey import survey
from cli.doctor import findings_of
from sequencing.plan import Plan
from tests.events import take
from tests.integration.adapters.test_older_control import Deployment, deployment
from tests.integration.adapters.test_plan_running import Server
from tests.integration.adapters.test_several_nodes import RING, ring
from tests.integration.networks import register, relaying
from tests.patience import patience

__all__ = ["deployment"]

GROUPS = [tuple(f"{group}{place}" for place in range(2)) for group in "abcdefgh"]


async def retired(name: str, url: str) -> tuple[int, str]:
    """Run the command; return its status, and what it said."""
    command = [sys.executable, "-m", "gamecast", "node", "retire", name, "--control", url]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    async with patience(60):
        _, said = await process.communicate()
    return process.returncode or 0, said.decode()


async def plan_of(url: str) -> Plan:
    plan = (await survey(url)).plan
    assert plan is not None
    return plan


async def test_a_node_is_retired_under_load_and_nothing_is_lost(deployment: Deployment) -> None:
    url = deployment.control.url
    servers = []
    for group in GROUPS:
        for number in range(2):
            client = await gamecast.connect(url, name=f"{group[0]}-{number}").open()
            await client.subscribe(*group)
            servers.append(Server(client, group))
    assert set((await plan_of(url)).visits) == {"n1", "n2", "n3"}
    stop, published = asyncio.Event(), dict.fromkeys((region for group in GROUPS for region in group), 0)

    async def publish(server: Server) -> None:
        while not stop.is_set():
            for region in server.regions:
                await server.client.publish(region, published[region])
                published[region] += 1
            await asyncio.sleep(0.01)

    publishing = [asyncio.create_task(publish(server)) for server in servers]
    await asyncio.sleep(0.5)
    status, said = await retired("n2", url)
    await asyncio.sleep(0.3)
    stop.set()
    await asyncio.gather(*publishing)
    for server in servers:
        await server.took(sum(published[region] for region in server.regions))
    assert (status, "n2 is retired: no region is there any more" in said) == (0, True), said
    for one, other in zip(servers[::2], servers[1::2], strict=True):
        assert one.sequence().events == other.sequence().events
    assert "n2" not in (await plan_of(url)).visits
    # Its daemon ends by itself, and what remains to be done is to stop its server.
    daemon = deployment.daemons.pop("n2")
    async with patience(20):
        while daemon.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert daemon.returncode == 0
    assert daemon.stderr is not None
    assert "n2 was retired" in daemon.stderr.read()
    daemon.stderr.close()
    async with patience(30):
        while "n2" in (await plan_of(url)).nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    deployment.nodes["n2"].kill()
    await servers[0].client.subscribe("new")
    await servers[0].client.publish("new", 1)
    assert not [each for each in await findings_of(url) if each.level == "problem"]
    await asyncio.gather(*(server.client.close() for server in servers))
    # The name is not used again: a daemon that a supervisor starts again says why, and ends.
    again = [sys.executable, "-m", "gamecast", "node", "--name", "n2", "--redis", deployment.nodes["n1"].url]
    told = await asyncio.to_thread(subprocess.run, [*again, "--control", url], capture_output=True, check=False)
    assert (told.returncode, b"was retired" in told.stderr) == (2, True)


async def test_what_cannot_be_retired_is_said(deployment: Deployment) -> None:
    url = deployment.control.url
    async with gamecast.connect(url, name="one") as one:
        for group in GROUPS:
            await one.subscribe(group[0])
        assert await retired("n7", url) == (2, "gamecast: there is no node 'n7': n1, n2, n3 are registered\n")
        plan = await plan_of(url)
        [busy, *_] = plan.visits
        os.kill(deployment.nodes[busy].pid, signal.SIGKILL)
        status, said = await retired(busy, url)
        assert status == 3
        assert f"{busy} does not answer, so its regions cannot leave it" in said
        assert busy in {node.name for node in (await survey(url)).nodes if node.registered}
    deployment.nodes[busy].kill()
    await deployment.nodes[busy].restart_async()


async def test_a_daemon_started_again_carries_links_until_its_node_has_been_left(
    deployment: Deployment,
) -> None:
    url = deployment.control.url
    async with AsyncExitStack() as stack:
        clients = await ring(url, stack)
        plan = await plan_of(url)
        name = min({source for source, _ in plan.links})
        deployment.daemons[name].kill()
        deployment.daemons.pop(name).communicate()
        control = LeaderControl(url)
        assert await control.retire_node(name)
        await control.close()
        [half] = [each for each in await findings_of(url) if "was retired" in each.seen]
        assert (half.subject, f"repeat `gamecast node retire {name}" in half.advice) == (name, True)
        command = [sys.executable, "-m", "gamecast", "node", "--name", name, "--redis", deployment.nodes[name].url]
        again = await asyncio.create_subprocess_exec(*command, "--control", url, stderr=subprocess.PIPE)
        for client, regions in zip(clients, RING, strict=True):
            for region in regions:
                await client.publish(region, 1)
        for client in clients:
            assert len(await take(client, 4)) == 4
        status, said = await retired(name, url)
        assert status == 0, said
        async with patience(60):
            _, told = await again.communicate()
        assert (again.returncode, b"was retired, and no region is there" in told) == (0, True), told
        assert b"was retired, and relays until its regions have gone" in told


async def test_a_node_stays_while_nothing_that_answers_could_take_its_regions_over(deployment: Deployment) -> None:
    url = deployment.control.url
    async with gamecast.connect(url, name="one") as one:
        await one.subscribe("a")
        [there] = (await plan_of(url)).paths["a"]
        dead = sorted({"n1", "n2", "n3"} - {there})
        for gone in dead:
            os.kill(deployment.nodes[gone].pid, signal.SIGKILL)
        status, said = await retired(there, url)
        assert (status, f"of the other nodes ({', '.join(dead)}) none answers" in said) == (3, True), said
        assert there in {node.name for node in (await survey(url)).nodes if node.registered}
        await one.publish("a", 1)
    for gone in dead:
        deployment.nodes[gone].kill()
        await deployment.nodes[gone].restart_async()


async def test_without_a_leader_a_node_with_regions_stays_registered() -> None:
    with EmbeddedServer() as control, EmbeddedServer() as other:
        await register(control.url, {"n1": control.url, "n2": other.url})
        async with gamecast.connect(control.url, name="one") as one:
            for group in GROUPS:
                await one.subscribe(group[0])
        async with patience(30):
            while (await survey(control.url)).leader:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        [name, *_] = (await plan_of(control.url)).visits
        status, said = await retired(name, control.url)
        assert (status, "no leader is running" in said) == (3, True), said
        assert name in {node.name for node in (await survey(control.url)).nodes if node.registered}


async def test_the_redis_of_a_retired_node_stays_where_it_is_the_control_redis_too() -> None:
    with EmbeddedServer() as control, EmbeddedServer() as other:
        await register(control.url, {"n1": control.url, "n2": other.url})
        async with relaying(control.url), gamecast.connect(control.url, name="one") as one:
            for group in GROUPS:
                await one.subscribe(group[0])
            status, said = await retired("n1", control.url)
            assert (status, said.splitlines()[-1]) == (
                0,
                "n1 is retired: no region is there any more; its Redis is the control Redis, too: keep it running",
            )
            await one.publish("a0", 1)


@pytest.mark.parametrize("mistake", ["n9"])
async def test_a_name_that_was_a_mistake_is_retired(deployment: Deployment, mistake: str) -> None:
    url = deployment.control.url
    await register(url, {mistake: "redis://127.0.0.1:1"})
    status, said = await retired(mistake, url)
    assert status == 0, said
    assert mistake not in {node.name for node in (await survey(url)).nodes}


async def test_the_last_node_is_not_retired_and_a_retire_may_be_repeated(deployment: Deployment) -> None:
    url = deployment.control.url
    async with gamecast.connect(url, name="one") as one:
        for group in GROUPS:
            await one.subscribe(group[0])
        assert (await retired("n1", url))[0] == 0
        told = await asyncio.gather(retired("n2", url), retired("n3", url))
        assert sorted(status for status, _ in told) in ([0, 2], [0, 3], [2, 2], [2, 3])
        [left] = [node.name for node in (await survey(url)).nodes if node.registered]
        gone = "n2" if left == "n3" else "n3"
        for name in ("n1", gone):
            status, said = await retired(name, url)
            assert status == 0, said
        assert (await retired(left, url))[0] == 2
        assert set((await plan_of(url)).visits) == {left}
    for name in ("n1", gone):
        deployment.daemons.pop(name).communicate(timeout=20)
