"""A node that does not come back: its regions go on elsewhere, and what only it had is a gap."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.urls import OwnOptions, own_options, with_own_options
from cli.doctor import findings_of
from cli.node import node as node_command
from gamecast import Client, Event, Gap, Item
from gamecast.client.regionhistory import RegionHistory
from sequencing.plan import GIVEN_UP, Plan
from tests.integration.networks import register, relaying
from tests.patience import patience

GIVE_UP_S = 1.5
REGIONS = tuple("abcdef")


@asynccontextmanager
async def network(servers: EmbeddedServers, *, may_lose: bool = True) -> AsyncIterator[str]:
    """Register a node at each server but the first, which is the control Redis; yield its URL."""
    url, *others = servers.urls
    control = LeaderControl(url)
    for number, other in enumerate(others, start=1):
        at = with_own_options(other, OwnOptions(give_up_s=GIVE_UP_S))
        await control.register_node(f"n{number}", at, may_lose=may_lose)
    await control.close()
    async with relaying(url):
        yield url


async def plan_of(client: Client) -> Plan:
    plan = await client.plan()
    assert plan is not None
    return plan


def busiest(plan: Plan) -> str:
    """The node where most regions end."""
    ends = list(plan.egresses.values())
    return max(plan.nodes, key=ends.count)


def server_of(servers: EmbeddedServers, node: str) -> EmbeddedServer:
    return servers.servers[int(node.removeprefix("n"))]


async def kill_busiest(client: Client, servers: EmbeddedServers) -> tuple[str, list[str]]:
    """Kill the server of the node where most regions end; return the node and its regions."""
    plan = await plan_of(client)
    dead = busiest(plan)
    server_of(servers, dead).kill()
    return dead, [region for region, node in plan.egresses.items() if node == dead]


async def until_without(client: Client, node: str) -> Plan:
    """Wait until no path visits a node."""
    return await until(client, lambda plan: node not in plan.visits)


async def until(client: Client, holds: Callable[[Plan], bool]) -> Plan:
    """Wait for a plan."""
    async with patience(30):
        while not holds(plan := await plan_of(client)):  # noqa: ASYNC110 - the plan changes in Redis
            await asyncio.sleep(0.05)
    return plan


async def take_last(client: Client, *last: object) -> list[Item]:
    """Take what is delivered until each of some payloads has come."""
    items: list[Item] = []
    missing = set(last)
    async with patience(30):
        while missing:
            item = await anext(client)
            items.append(item)
            if isinstance(item, Event):
                missing.discard(item.payload)
    return items


async def test_the_regions_of_a_dead_node_go_on_at_the_others_and_what_only_it_had_is_a_gap(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="p", publish_timeout_s=30) as publisher,
        gamecast.connect(url, name="s") as one,
        gamecast.connect(url, name="t") as other,
    ):
        await one.subscribe(*REGIONS)
        await other.subscribe(*REGIONS[::2])
        for region in REGIONS:
            await publisher.publish(region, f"{region} before")
        await take_last(one, *(f"{region} before" for region in REGIONS))
        dead = busiest(await plan_of(one))
        gone = [region for region, node in (await plan_of(one)).egresses.items() if node == dead]
        assert gone
        server_of(three_redis_servers, dead).kill()
        late = [publisher.publish_async(region, f"{region} late") for region in REGIONS]
        plan = await until_without(one, dead)
        assert plan.given_up == {dead}
        assert plan.epochs == {} or plan.epoch > min(plan.epochs.values())
        await asyncio.gather(*late, return_exceptions=True)
        for region in REGIONS:
            await publisher.publish(region, f"{region} after")
        items = await take_last(one, *(f"{region} after" for region in REGIONS))
        gaps = [item for item in items if isinstance(item, Gap)]
        assert {gap.region for gap in gaps} >= set(gone)
        assert all(gap.last_sequence == 0 for gap in gaps)
        theirs = await take_last(other, *(f"{region} after" for region in REGIONS[::2]))
        common = [item.payload for item in items if isinstance(item, Event) and item.region in REGIONS[::2]]
        events = [item.payload for item in theirs if isinstance(item, Event)]
        assert [each for each in common if each in events] == [each for each in events if each in common]


@pytest.mark.parametrize("hangs", [False, True])
async def test_connections_are_connected_again_when_a_node_was_given_up(
    three_redis_servers: EmbeddedServers, hangs: bool
) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="p", publish_timeout_s=2) as publisher,
        gamecast.connect(url, name="s") as subscriber,
    ):
        await subscriber.subscribe(*REGIONS)
        dead = busiest(await plan_of(subscriber))
        server = server_of(three_redis_servers, dead)
        statuses: list[str] = []
        subscriber.on_status(lambda status: statuses.append(status.name))
        os.kill(server.pid, signal.SIGSTOP if hangs else signal.SIGKILL)
        try:
            late = [publisher.publish_async(region, "late") for region in REGIONS]
            await until_without(subscriber, dead)
            await asyncio.gather(*late, return_exceptions=True)
            for region in REGIONS:
                await publisher.publish(region, f"{region} after")
            await take_last(subscriber, *(f"{region} after" for region in REGIONS))
            async with patience(20):
                while {publisher.status.name, subscriber.status.name} != {"connected"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            if hangs:
                os.kill(server.pid, signal.SIGCONT)
        assert statuses[0] == "disconnected"


async def test_a_node_that_hangs_is_given_up_although_somebody_joins_meanwhile(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="s", publish_timeout_s=30) as client,
        gamecast.connect(url, name="t") as joining,
    ):
        await client.subscribe("a", "b")
        await joining.subscribe("c", "d")
        node = busiest(await plan_of(client))
        server = server_of(three_redis_servers, node)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(GIVE_UP_S / 3)
            joins = asyncio.create_task(joining.subscribe("a", "b"))  # an epoch begins, and its ends hang
            await until_without(client, node)
            async with patience(20):
                await joins
                for region in "abcd":
                    await client.publish(region, f"{region} after")
            await take_last(joining, *(f"{region} after" for region in "abcd"))
        finally:
            os.kill(server.pid, signal.SIGCONT)


async def test_a_leader_knows_the_runs_that_the_one_before_has_seen(three_redis_servers: EmbeddedServers) -> None:
    """Else a restarted node would count as one that is still in the run in which it was given up."""
    async with network(three_redis_servers, may_lose=False) as url:
        async with gamecast.connect(url, name="s") as client:
            await client.subscribe(*REGIONS)
            node = busiest(await plan_of(client))
            control = LeaderControl(url)
            async with patience(10):
                while node not in (runs := await control.runs_seen()):  # noqa: ASYNC110 - a leader writes them to Redis
                    await asyncio.sleep(0.05)
            await control.close()
            server_of(three_redis_servers, node).kill()
        async with gamecast.connect(url, name="next") as client:
            plan = await until_without(client, node)
            assert plan.runs[node] == GIVEN_UP + runs[node]
            server_of(three_redis_servers, node).restart()
            await until(client, lambda plan: not plan.given_up)


async def test_history_that_is_asked_for_while_a_node_is_dead_does_not_wait_for_it(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="s", publish_timeout_s=30) as client,
    ):
        await client.subscribe(*REGIONS)
        first = {region: (await client.publish(region, f"{region} before")).position for region in REGIONS}
        _, gone = await kill_busiest(client, three_redis_servers)
        async with gamecast.connect(url, name="later", subscribe_timeout_s=30) as later:
            async with patience(30):
                await later.subscribe(*REGIONS, since=first)
            for region in REGIONS:
                await client.publish(region, f"{region} after")
            async with patience(20):
                items = await take_last(later, *(f"{region} after" for region in REGIONS))
            assert {item.region for item in items if isinstance(item, Gap)} >= set(gone)
        history = RegionHistory(RedisNetwork(url, ordering="acyclic", retention_events=1))
        page = await history.page(gone[0], after="0-0", events_max=10)
        await history.close()
        assert [type(item) for item in page.items] == [Gap, Event]


async def test_it_starts_empty_when_its_server_is_back(three_redis_servers: EmbeddedServers) -> None:
    async with network(three_redis_servers) as url, gamecast.connect(url, name="s", publish_timeout_s=30) as client:
        await client.subscribe(*REGIONS)
        dead = busiest(await plan_of(client))
        server = server_of(three_redis_servers, dead)
        server.kill()
        await until_without(client, dead)
        server.restart()
        plan = await until(client, lambda plan: not plan.given_up)
        assert dead in plan.runs
        async with gamecast.connect(url, name="t") as newcomer:  # the new regions go to the node that has none
            await newcomer.subscribe("x", "y")
            assert (await plan_of(newcomer)).paths["x"] == (dead,)
            await newcomer.publish("x", "there again")
            assert [item.payload for item in await take_last(newcomer, "there again") if isinstance(item, Event)] == [
                "there again"
            ]
        for region in REGIONS:
            await client.publish(region, f"{region} after")
        await take_last(client, *(f"{region} after" for region in REGIONS))


async def test_a_node_that_was_only_cut_off_stays_out_until_its_server_is_restarted(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="s", publish_timeout_s=30) as client,
    ):
        await client.subscribe(*REGIONS)
        node = busiest(await plan_of(client))
        server = server_of(three_redis_servers, node)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await until_without(client, node)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        for region in REGIONS:
            await client.publish(region, f"{region} after")
        await take_last(client, *(f"{region} after" for region in REGIONS))
        await asyncio.sleep(1)
        plan = await plan_of(client)
        assert plan.given_up == {node}
        await client.subscribe("x")
        assert (await plan_of(client)).paths["x"] != (node,)
        [finding] = [each for each in await findings_of(url) if each.subject == node and "given up" in each.seen]
        assert finding.level == "warning"
        assert "restart its server" in finding.advice
        server.restart()
        await until(client, lambda plan: not plan.given_up)


async def test_history_at_a_node_that_is_given_up_is_a_gap(three_redis_servers: EmbeddedServers) -> None:
    async with (
        network(three_redis_servers) as url,
        gamecast.connect(url, name="p", publish_timeout_s=30) as publisher,
        gamecast.connect(url, name="s") as client,
    ):
        await client.subscribe(*REGIONS)
        first = {region: (await publisher.publish(region, f"{region} before")).position for region in REGIONS}
        dead, gone = await kill_busiest(client, three_redis_servers)
        await until_without(client, dead)
        for region in REGIONS:
            await publisher.publish(region, f"{region} after")
        async with gamecast.connect(url, name="later") as later:
            async with patience(30):
                await later.subscribe(*gone, since={region: first[region] for region in gone})
            items = await take_last(later, *(f"{region} after" for region in gone))
            assert {item.region for item in items if isinstance(item, Gap)} == set(gone)


async def test_a_node_without_that_option_is_waited_for(three_redis_servers: EmbeddedServers) -> None:
    url, other, third = three_redis_servers.urls
    await register(url, {"n1": other, "n2": third}, may_lose=True)
    async with gamecast.connect(url, name="s", publish_timeout_s=30) as client:
        await client.subscribe(*REGIONS)
        node = busiest(await plan_of(client))
        server, before = server_of(three_redis_servers, node), (await plan_of(client)).runs[node]
        server.kill()
        await asyncio.sleep(2 * GIVE_UP_S)
        assert not (await plan_of(client)).given_up
        server.restart()
        await until(client, lambda plan: plan.runs[node] != before)
        async with patience(20):
            for region in REGIONS:
                await client.publish(region, 1)


@pytest.mark.parametrize("wrong", ["0", "-1", "soon", "1e3", ""])
def test_the_option_is_a_number_of_seconds(wrong: str) -> None:
    with pytest.raises(ValueError, match="give_up_s must be a number of seconds"):
        own_options(f"redis://h?give_up_s={wrong}")


def test_a_node_with_an_option_that_is_no_number_is_refused() -> None:
    told = CliRunner().invoke(
        node_command, ["--name", "n1", "--redis", "redis://h?give_up_s=x", "--control", "redis://h"]
    )
    assert "give_up_s must be a number of seconds" in str(told.exception)


def test_options_are_taken_from_a_url_and_put_into_it() -> None:
    assert own_options("redis://h:1/0?give_up_s=2.5&protocol=3&replicas=1") == (
        "redis://h:1/0?protocol=3",
        OwnOptions(1, 2.5),
    )
    assert with_own_options("redis://h?replicas=1", OwnOptions(give_up_s=30)) == "redis://h?give_up_s=30"
    assert with_own_options("redis://h?replicas=1", OwnOptions()) == "redis://h"
    assert (
        with_own_options("redis://h?protocol=3", OwnOptions(2, 0.5)) == "redis://h?protocol=3&replicas=2&give_up_s=0.5"
    )
