"""`gamecast status` and `gamecast doctor` on real servers, healthy and not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
import redis

import gamecast
import gamecast.blocking
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis import probe as redis_probe
from adapters.redis.control import SOLE_NODE
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.examination import Examination
from adapters.redis.findings import judge
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.networkstate import NetworkState
from adapters.redis.relays import RedisRelays
from adapters.redis.survey import survey
from cli import doctor as doctor_command
from gamecast.errors import AuthenticationFailed, UnknownScheme, Unreachable, UsageError
from sequencing.keyspace import NodeKeys
from sequencing.plan import Plan
from sequencing.record import Request
from tests.commands import call
from tests.integration.gamecast.test_faults import CHAIN, server_that_claims
from tests.integration.networks import relaying
from tests.patience import patience

Finding = dict[str, str]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the doctor look again sooner than people need."""
    monkeypatch.setattr(doctor_command, "LOOK_AGAIN_S", 0.2)


def as_user(url: str, user: str) -> str:
    """Return the URL with the name of a user, whose password is x."""
    return url.replace("://", f"://{user}:x@", 1)


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
async def world(servers: EmbeddedServers) -> AsyncIterator[RedisRelays]:
    """Have some memberships on nodes n1, n2, …, and relays between them, which may be stopped."""
    url = servers.urls[0]
    with redis.Redis.from_url(url) as client:
        client.hset(ControlKeys.nodes, mapping={f"n{n}": at for n, at in enumerate(servers.urls, start=1)})
    async with AsyncExitStack() as stack:
        relays = await stack.enter_async_context(relaying(url))
        for name, regions in CHAIN.items():
            cast = await stack.enter_async_context(gamecast.connect(url, name=name))
            await cast.subscribe(*regions)
        await seen_when(url, lambda state: state.transition is None)
        yield relays


async def publish_everywhere(url: str) -> None:
    """Publish an event to each region for each of its subscribers."""
    async with gamecast.connect(url, name="publisher") as cast:
        await asyncio.gather(*(cast.publish_async(region, name) for name in CHAIN for region in CHAIN[name]))


async def seen_when(url: str, holds: Callable[[NetworkState], bool]) -> NetworkState:
    """Return the first look at a network of which something holds."""
    async with patience(10):
        while not holds(state := await survey(url, regions=True)):
            pass
        return state


def at_rest(state: NetworkState) -> bool:
    """Return whether nothing is under way."""
    return (
        state.transition is None
        and not any(link.frames for node in state.nodes for link in node.links)
        and all(region.last == region.drawn for region in state.regions)
    )


def keyspace(url: str) -> dict[bytes, bytes | None]:
    """Return all that is on a server, but for what changes each time somebody looks around or is heard of."""
    with redis.Redis.from_url(url) as client:
        moving = {key.encode() for key in (ControlKeys.alive, ControlKeys.led, ControlKeys.looked)}
        return {key: client.dump(key) for key in client.scan_iter() if key not in moving}


@pytest.fixture
def two_redis_servers() -> Iterator[EmbeddedServers]:
    with EmbeddedServers(2, appendfsync="always") as servers:
        yield servers


def test_a_redis_without_a_network_is_shown_and_has_nothing_wrong() -> None:
    with EmbeddedServer(appendfsync="always") as server:
        seen = status(server.url)
        assert seen["plan"] is None
        assert seen["connections"] == []
        assert seen["leader"] == {"token": None, "lease_ends_in_ms": None, "trouble": None}
        assert [(node["name"], node["reachable"], node["steps"]) for node in seen["nodes"]] == [(SOLE_NODE, True, 0)]
        assert seen["control"]["version"].count(".") == 2
        assert "No plan yet" in call("status", server.url).stdout
        assert doctor(server.url, expected=0) == []
        said = call("doctor", server.url).stdout
        assert "nothing acknowledged is lost" in said
        assert said.endswith("0 problems, 0 warnings\n")
        assert keyspace(server.url) == {}


async def test_a_network_at_work_is_shown_and_left_as_it_is(two_redis_servers: EmbeddedServers) -> None:
    url = two_redis_servers.urls[0]
    async with world(two_redis_servers):
        await publish_everywhere(url)
        state = await seen_when(url, at_rest)
        plan = state.plan
        assert plan is not None
        assert plan.links
        before = [keyspace(at) for at in two_redis_servers.urls]
        seen = await asyncio.to_thread(status, url, "--regions")
        shown = await asyncio.to_thread(call, "status", url, "--regions")
        wrong = await asyncio.to_thread(doctor, url, expected=0)
        assert [keyspace(at) for at in two_redis_servers.urls] == before
    # Those who came one by one began epochs, and nothing removes what was published in earlier ones.
    assert {each["seen"].partition(" of earlier")[2][:7] for each in wrong} <= {" epochs"}
    number = {"epoch": plan.epoch, "version": plan.version}
    assert seen["plan"] == {**number, "ordering": "acyclic", "regions": 4, "atoms": len(plan.atoms)}
    assert (seen["transition"], seen["unplaced"]) == (None, [])
    assert len(seen["leader"]["token"]) > 8
    assert 0 < seen["leader"]["lease_ends_in_ms"] <= 2_000
    for node, at in zip(seen["nodes"], two_redis_servers.urls, strict=True):
        assert (node["url"], node["reachable"], node["lacking"]) == (at, True, [])
        assert (0, 0) < (node["epoch"], node["plan_version"]) <= (plan.epoch, plan.version)
        assert node["steps"] == sum(node["name"] in path for path in plan.paths.values())
        assert not any(node["links"].values())
    connections = {each["name"]: each for each in seen["connections"]}
    assert {name: (each["regions"], each["waiting"]) for name, each in connections.items()} == {
        name: (list(regions), []) for name, regions in CHAIN.items()
    }
    assert all(each["alive"] and 0 <= each["heard_ms_ago"] < 10_000 for each in connections.values())
    for region in seen["regions"]:
        assert region["last"] >= sum(region["name"] in regions for regions in CHAIN.values())
        assert region["epoch"] == plan.epoch_of(region["name"])
    assert {region["name"]: tuple(region["path"]) for region in seen["regions"]} == plan.paths
    assert f"Plan {plan.epoch}.{plan.version}, acyclic order: 4 regions" in shown.stdout
    assert f"Leader: {seen['leader']['token']} (the lease ends in " in shown.stdout


async def test_rates_are_shown_as_they_were_between_two_surveys(two_redis_servers: EmbeddedServers) -> None:
    url = two_redis_servers.urls[0]
    async with world(two_redis_servers):
        await publish_everywhere(url)
        await seen_when(url, at_rest)
        async with gamecast.connect(url, name="busy") as busy:
            await busy.publish("a", 0)
            surveying = asyncio.create_task(asyncio.to_thread(status, url, "--regions", "--rates", "2"))
            sent = 1
            while not surveying.done():
                await busy.publish("a", sent)
                sent += 1
                await asyncio.sleep(0.02)
            seen = await surveying
        quiet = await asyncio.to_thread(call, "status", url, "--rates", "0.5")
    rates = {region["name"]: region["events_per_s"] for region in seen["regions"]}
    assert 5 < rates["a"] <= 51
    assert rates["a"] > 3 * max(rate for name, rate in rates.items() if name != "a")
    path = next(region["path"] for region in seen["regions"] if region["name"] == "a")
    nodes = {node["name"]: node for node in seen["nodes"]}
    assert all(nodes[name]["events_per_s"] > 0.8 * rates["a"] for name in path)
    for source, target in pairwise(path):
        assert nodes[source]["links_frames_per_s"][target] > 0
    assert "events/s" in quiet.stdout.splitlines()[3] + quiet.stdout.splitlines()[4]


async def test_a_link_that_nobody_carries_is_found_and_so_is_a_plan_that_waits_for_it(
    two_redis_servers: EmbeddedServers,
) -> None:
    url = two_redis_servers.urls[0]
    async with AsyncExitStack() as stack:
        relays = await stack.enter_async_context(world(two_redis_servers))
        await relays.stop()
        await publish_everywhere(url)
        seen = await asyncio.to_thread(status, url)
        (waiting,) = [node for node in seen["nodes"] if any(node["links"].values())]
        ((target, frames),) = waiting["links"].items()
        assert frames > 0
        wrong = await asyncio.to_thread(doctor, url, expected=3)
        link = found(wrong, " waiting; the first, ")
        assert link["subject"] == f"link {waiting['name']} → {target}"
        assert f"gamecast node --name {waiting['name']}" in link["advice"]
        assert found(wrong, "none has reached the egress for 0.2 s")["level"] == "problem"

        late = await stack.enter_async_context(gamecast.connect(url, name="late"))
        subscribing = asyncio.create_task(late.subscribe(*"abcd"))
        moving = await seen_when(url, lambda state: state.transition is not None and state.transition.published)
        assert moving.plan is not None
        assert moving.transition is not None
        number = f"{moving.plan.epoch}.{moving.plan.version}"
        assert (moving.transition.epoch, moving.transition.version) == (moving.plan.epoch, moving.plan.version)
        assert moving.transition.old_epochs > 0
        shown = await asyncio.to_thread(call, "status", url)
        assert f"On the way to plan {number}, published: " in shown.stdout
        wrong = await asyncio.to_thread(doctor, url, expected=3)
        stuck = found(wrong, f"on the way to plan {number}, ")
        assert (stuck["level"], stuck["subject"]) == ("problem", "plan")
        assert "`gamecast node` runs for each node" in stuck["advice"]

        again = RedisRelays(url)
        again.start()
        stack.push_async_callback(again.stop)
        async with patience(10):
            await subscribing
        await seen_when(url, at_rest)
        assert await asyncio.to_thread(doctor, url, expected=0) == []


async def test_nodes_that_are_down_or_have_lost_their_data_are_found(two_redis_servers: EmbeddedServers) -> None:
    control, other = two_redis_servers.servers
    async with world(two_redis_servers):
        with redis.Redis.from_url(other.url) as client:
            client.flushall()
        lost = found(await asyncio.to_thread(doctor, control.url, expected=3), "its server has lost its data")
        assert (lost["level"], lost["subject"]) == ("problem", "n2")
        assert lost["seen"].startswith("does not know ")
        assert set((await asyncio.to_thread(status, control.url))["nodes"][1]["lacking"]) <= set("abcd")
    other.kill()
    seen = await asyncio.to_thread(status, control.url, "--regions", expected=3)
    assert [node["reachable"] for node in seen["nodes"]] == [True, False]
    assert "is a server running there" in seen["nodes"][1]["trouble"]
    shown = await asyncio.to_thread(call, "status", control.url)
    assert (shown.exit_code, "not reachable" in shown.stdout) == (3, True)
    down = found(await asyncio.to_thread(doctor, control.url, expected=3), "is a server running there")
    assert (down["level"], down["subject"]) == ("problem", "n2")


def test_a_server_that_is_a_replica_is_found(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.replicaof("127.0.0.1", "1")
    findings = doctor(redis_server.url, expected=3)
    assert found(findings, "is a replica")["level"] == "problem"
    assert not any("is refused" in finding["seen"] for finding in findings), "it refuses everybody, which is said"


async def test_a_control_redis_that_has_lost_its_data_is_found(two_redis_servers: EmbeddedServers) -> None:
    url, other = two_redis_servers.urls
    with redis.Redis.from_url(url) as client:
        client.hset(ControlKeys.nodes, "n2", other)
        async with gamecast.connect(url) as cast:
            await cast.publish("a", 1)
        assert await asyncio.to_thread(doctor, url, expected=0) == []
        client.flushall()
        client.hset(ControlKeys.nodes, "n2", other)
    lost = found(await asyncio.to_thread(doctor, url, expected=3), "the control Redis has lost its data")
    assert lost["subject"] == "n2"
    assert re.match(r"has plan \d{13}\.1 installed, published is none", lost["seen"])


async def test_a_node_that_was_restarted_is_found_until_it_is_taken_back(two_redis_servers: EmbeddedServers) -> None:
    url, other = two_redis_servers.servers[0].url, two_redis_servers.servers[1]
    network = RedisNetwork(url, ordering="acyclic", retention_events=100)
    await network.register_node("n2", other.url, may_lose=True)
    async with gamecast.connect(url) as cast:
        await cast.publish("a", 1)
    assert await asyncio.to_thread(doctor, url, expected=0) == []
    other.restart()
    away = found(
        await asyncio.to_thread(doctor, url, expected=3), "was restarted, and the plan does not include it again yet"
    )
    assert (away["subject"], away["level"]) == ("n2", "problem")
    network.stand(LeaderControl(url))
    await seen_when(
        url, lambda state: state.plan is not None and state.plan.epoch == state.plan.first_epoch + 2 and at_rest(state)
    )
    assert {each["level"] for each in await asyncio.to_thread(doctor, url, expected=0)} <= {"warning"}
    await network.close()


async def test_a_node_that_may_lose_more_than_it_is_registered_for_is_found(redis_server: EmbeddedServer) -> None:
    with EmbeddedServer(appendfsync="always") as control:
        network = RedisNetwork(control.url, ordering="acyclic", retention_events=100)
        for may_lose, expected in ((False, ["n2"]), (True, [])):
            await network.register_node("n2", redis_server.url, may_lose=may_lose)
            wrong = await asyncio.to_thread(doctor, control.url, expected=0)
            assert [each["subject"] for each in wrong if "as a node that loses nothing" in each["seen"]] == expected
            assert (await asyncio.to_thread(status, control.url))["nodes"][0]["may_lose"] is may_lose
        await network.close()


async def test_a_network_that_nobody_leads_is_found_and_so_are_wishes_that_are_not_granted(
    redis_server: EmbeddedServer,
) -> None:
    url = redis_server.url
    control = LeaderControl(url)
    for node in ("n1", "n2"):
        await control.register_node(node, "")
    incarnation = await control.introduce("s1")
    await control.join([("s1", Request(incarnation, 1, {"forest": 1, "river": 1}))])
    await control.place("s1", incarnation, {"cave"})
    connection = (await asyncio.to_thread(status, url))["connections"][0]
    assert (connection["regions"], connection["waiting"]) == (["forest", "river"], ["forest", "river"])
    shown = (await asyncio.to_thread(call, "status", url)).stdout
    assert "No path yet for 1 region that events wait for: cave" in shown
    assert "Leader: none" in shown
    alone = found(await asyncio.to_thread(doctor, url, expected=3), "no leader is running")
    assert alone["seen"] == "no leader is running, although 1 connection is open, 1 of which waits for regions"
    assert "gamecast manager --control URL" in alone["advice"]

    with redis.Redis.from_url(url) as client:
        client.set(ControlKeys.lease, "one that does nothing", px=60_000)
        wrong = await asyncio.to_thread(doctor, url, expected=3)
        assert found(wrong, "subscriptions have waited for more than 0.2 s")["seen"].endswith(
            "for regions: s1 (forest, river)"
        )
        assert found(wrong, "regions without a path")["seen"].endswith("without a path: cave")
        client.delete(ControlKeys.lease)

    network = RedisNetwork(url, ordering="acyclic", retention_events=100)
    network.stand(LeaderControl(url))
    # A survey reads one thing after the other: the plan may be older than the rest.
    state = await seen_when(url, lambda state: state.plan is not None and bool(state.plan.paths))
    assert state.plan is not None
    assert state.plan.paths.keys() == {"forest", "river", "cave"}
    await seen_when(url, lambda state: not state.unplaced and not any(c.waiting for c in state.connections))
    assert {each["level"] for each in await asyncio.to_thread(doctor, url, expected=0)} == {"warning"}
    await network.close()
    await control.close()


async def test_an_ingress_that_begins_to_count_anew_is_found(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="s") as cast:
        receipt, *_ = await asyncio.gather(*(cast.publish_async("a", number) for number in range(10)))
        with redis.Redis.from_url(redis_server.url) as client:
            client.hset(NodeKeys(SOLE_NODE).counters, f"r {receipt.epoch} a", "3")
        wrong = await asyncio.to_thread(doctor, redis_server.url, expected=3)
    assert found(wrong, "the ingress assigns numbers that were assigned before")["seen"].startswith("a:")


def test_streams_of_earlier_epochs_that_nothing_removes_are_found(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url) as cast:
        cast.subscribe("a")
        cast.publish("a", 1)
    lasting, expiring = (f"gamecast:{{{SOLE_NODE}}}:egress:0:{region}" for region in "bc")
    with redis.Redis.from_url(redis_server.url) as client:
        for key in (lasting, expiring):
            client.xadd(key, {"m": "", "s": "", "b": ""}, id="1-1")
        client.expire(expiring, 3600)
        # A plan newer than the one that was read may have begun it.
        client.xadd(f"gamecast:{{{SOLE_NODE}}}:egress:9999999999999:c", {"m": "", "s": "", "b": ""}, id="1-1")
    left = found(doctor(redis_server.url, expected=0), "of earlier epochs")
    assert left["level"] == "warning"
    assert left["seen"] == f"1 egress stream of earlier epochs, which nothing removes, e.g. {lasting}"
    assert not any(word in left["advice"] for word in ("UNLINK", "DEL"))


async def test_a_healthy_network_whose_servers_walk_has_nothing_to_mend(three_redis_servers: EmbeddedServers) -> None:
    walking = True

    async def walk(cast: gamecast.Client, regions: Sequence[str]) -> None:
        for one, other in pairwise(cycle(regions)):
            if not walking:
                return
            await cast.subscribe(other)
            await cast.unsubscribe(one)

    url = three_redis_servers.urls[0]
    async with (
        world(three_redis_servers),
        gamecast.connect(url, name="w1") as one,
        gamecast.connect(url, name="w2") as two,
    ):
        walks = [asyncio.create_task(walk(one, "aceg")), asyncio.create_task(walk(two, "bdfh"))]
        try:
            for _ in range(4):
                findings = await doctor_command.findings_of(url)
                wrong = [finding for finding in findings if finding.level == "problem"]
                assert wrong == []
                assert not [each for each in findings if re.search(r"\b(DEL|UNLINK|FLUSH\w*|empty)\b", each.advice)]
        finally:
            walking = False
            await asyncio.gather(*walks)


async def test_nodes_that_do_nothing_and_epochs_that_never_end_are_worth_a_warning(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with world(three_redis_servers):
        state = await survey(three_redis_servers.urls[0])
    assert state.plan is not None

    def warned(plan: Plan, *, minutes: float) -> list[str]:
        at_ms = int(plan.first_epoch + minutes * 60_000)
        found = judge(Examination(state, replace(state, plan=plan), 1.0, at_ms=at_ms))
        return [each.seen for each in found if each.subject == "plan" and each.level == "warning"]

    quiet = replace(state.plan, paths={}, atoms=(), epoch=state.plan.first_epoch + 29)
    assert warned(quiet, minutes=1) == []
    restless = replace(quiet, epoch=quiet.first_epoch + 60)
    assert warned(restless, minutes=11) == []
    [churn] = warned(restless, minutes=5)
    assert churn.startswith("60 epochs have begun in 5 minutes")
    heaped = replace(quiet, paths={f"r{number}": ("n1",) for number in range(20)})
    [heap] = warned(heaped, minutes=1)
    assert heap.startswith("all 20 regions are on node n1, of 3 that are registered")
    spread = {f"r{number}": (f"n{number % 3 + 1}",) for number in range(20)}
    assert warned(replace(quiet, paths=spread), minutes=1) == []


async def test_what_a_newer_plan_left_behind_during_a_look_is_no_loss_of_data(
    three_redis_servers: EmbeddedServers,
) -> None:
    async with world(three_redis_servers):
        state = await survey(three_redis_servers.urls[0], regions=True)
        lost = tuple(replace(node, lacking=frozenset({"a"}), installed=(2**53, 1)) for node in state.nodes)
        moved = replace(state, nodes=lost, has_moved=True, regions=tuple(replace(r, drawn=-1) for r in state.regions))
        assert not [each for each in judge(Examination(moved, moved, 1.0)) if each.level == "problem"]
        still = replace(moved, has_moved=False)
        assert any("has lost its data" in each.seen for each in judge(Examination(still, still, 1.0)))


def test_streams_that_outgrow_their_bounds_are_found(redis_server: EmbeddedServer) -> None:
    with gamecast.blocking.connect(redis_server.url, retention_events=10) as cast:
        epoch = cast.publish("a", 1).epoch
        keys = NodeKeys(SOLE_NODE)
        with redis.Redis.from_url(redis_server.url) as client, client.pipeline() as pipeline:
            for number in range(2, 2500):
                pipeline.xadd(keys.egress(epoch, "a"), {"m": "", "s": "", "b": ""}, id=f"{epoch}-{number}")
            pipeline.hset(keys.counters, f"r {epoch} a", "2499")
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
        evicting = found(doctor(url, expected=3), "allkeys-lru")
        assert (evicting["level"], evicting["subject"]) == ("problem", SOLE_NODE)
        assert "CONFIG SET maxmemory-policy noeviction" in evicting["advice"]
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "100kb")
        full = doctor(url, expected=3)
        assert found(full, "in use (")["level"] == "problem"
        assert not any("is refused" in finding["seen"] for finding in full), "it refuses everybody, which is said"


def refused_for(url: str) -> list[str]:
    """Return why a server refuses writes, by its status, which says so in one line too."""
    result = call("status", url)
    said = [line for line in result.stdout.splitlines() if "control refuses writes: " in line]
    reasons: list[str] = status(url, expected=result.exit_code)["control"]["refuses_writes"]
    assert (result.exit_code, len(said)) == ((3, 1) if reasons else (0, 0))
    return reasons


async def test_a_full_server_is_full_and_its_plan_is_neither_unread_nor_lost(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    async with gamecast.connect(url, name="a") as client:
        await client.publish("a", 1)
        await seen_when(url, at_rest)
        with redis.Redis.from_url(url) as server:
            server.config_set("maxmemory", "100kb")
            assert await asyncio.to_thread(refused_for, url) == ["memory"]
            wrong = await asyncio.to_thread(doctor, url, expected=3)
            server.config_set("maxmemory", "0")
    full = found(wrong, "is full, and refuses writes: ")
    assert (full["level"], full["advice"][:21]) == ("problem", "CONFIG SET maxmemory ")
    assert not [each for each in wrong if "cannot be read" in each["seen"] or "has lost its data" in each["seen"]]
    assert not [each for each in wrong if "other programs" in each["advice"]]
    assert await asyncio.to_thread(refused_for, url) == []


def test_a_server_that_cannot_save_or_lacks_replicas_refuses_writes_and_says_why() -> None:
    with EmbeddedServer(appendfsync="always") as server, redis.Redis.from_url(server.url) as client:
        dump = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
        dump.mkdir()
        (dump / "in the way").touch()
        client.config_set("save", "3600 1")
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.01)
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.set("x", "1")
        assert refused_for(server.url) == ["disk"]
        assert "BGSAVE" in found(doctor(server.url, expected=3), "could not write to its disk")["advice"]
        client.config_set("stop-writes-on-bgsave-error", "no")
        assert refused_for(server.url) == []
        client.config_set("min-replicas-to-write", 1)
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            client.set("x", "1")
        assert refused_for(server.url) == ["replicas"]
        assert found(doctor(server.url, expected=3), "min-replicas-to-write is 1")["level"] == "problem"
        client.execute_command("ACL", "SETUSER", "managed", "on", ">x", "~*", "+@all", "-config")
        assert refused_for(as_user(server.url, "managed")) == ["disk", "replicas"], "disk by Redis's default"
        unread = found(doctor(as_user(server.url, "managed"), expected=3), "to this user: not examined")
        assert (unread["level"], "min-replicas-to-write" in unread["seen"]) == ("warning", True)


def test_a_replica_is_told_from_its_primary(redis_server: EmbeddedServer) -> None:
    with EmbeddedServer(settings={"replicaof": redis_server.url.rpartition("/")[2].replace(":", " ")}) as replica:
        wrong = doctor(replica.url, expected=3)
        assert found(wrong, "is a replica")["level"] == "problem"


def test_what_a_user_may_not_do_is_found(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        for user, refused, words in (
            ("everything", "", ""),
            ("advised", "-@admin -@dangerous +info", ""),
            ("streams", "-xadd", "has no permissions to run the 'xadd' command"),
            ("scripts", "-evalsha -eval", "has no permissions to run the 'evalsha' command"),
            ("inside", "-hset", "HSET in a script: "),
            ("removal", "-zrem", "ZREM in a script: "),
            ("blind", "-info", "has no permissions to run the 'info' command"),
        ):
            client.execute_command("ACL", "SETUSER", user, "on", ">x", "~gamecast:*", "+@all", *refused.split())
            url = as_user(redis_server.url, user)
            wrong = [each for each in doctor(url, expected=3 if words else 0) if "is refused" in each["seen"]]
            assert [each["subject"] for each in wrong] == ([SOLE_NODE] if words else [])
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
    url = as_user(redis_server.url, "elsewhere")
    seen = status(url)
    assert (seen["plan"], seen["transition"], seen["connections"]) == (None, None, [])
    assert seen["leader"] == {"token": None, "lease_ends_in_ms": None, "trouble": None}
    shown = call("status", url).stdout
    assert "No plan can be read.\nLeader: cannot be read\n" in shown
    assert seen["nodes"][0]["steps"] is None
    assert "\nConnections: cannot be read\n" in shown
    hidden = [each for each in doctor(url, expected=3) if "refuses to show some things" in each["seen"]]
    assert [(each["subject"], each["level"]) for each in hidden] == [(SOLE_NODE, "warning"), (SOLE_NODE, "warning")]
    assert not [each for each in doctor(url, expected=3) if "has lost its data" in each["seen"]]


def test_strangers_keys_are_left_alone_and_told_where_they_are_in_the_way(redis_server: EmbeddedServer) -> None:
    keys = NodeKeys(SOLE_NODE)
    with redis.Redis.from_url(redis_server.url) as client:
        client.mset({"cache:1": "x", "gamecast": "x", "gamecast:{other}:node": "x", f"{keys.egress(1, 'a')}": "x"})
        client.xadd(f"gamecast:{{{SOLE_NODE}}}:mine", {"a": "b"})
        assert status(redis_server.url)["unread"] == []
        assert {each["level"] for each in doctor(redis_server.url, expected=0)} == {"warning"}
        with gamecast.blocking.connect(redis_server.url) as cast:
            cast.publish("b", 1)
        assert {each["level"] for each in doctor(redis_server.url, expected=0)} == {"warning"}
        client.flushall()
        client.set(ControlKeys.nodes, "x")
        client.set(ControlKeys.plan, "nonsense")
        client.hset(ControlKeys.state, "head", "[1")
        client.hset(ControlKeys.said, mapping={"one": "[1", "two": "7"})
        client.hset(ControlKeys.connections, "three", "x")
        client.lpush(ControlKeys.published, "x")
        client.zadd(ControlKeys.alive, {b"\xff\x1b[2J": 1})
        client.lpush(keys.node, "x")
        client.hset(keys.counters, "o n2", "x")
        client.set(keys.link("n2"), "x")
        client.set(ControlKeys.lease, "x")
        seen = status(redis_server.url, "--regions")
        assert (seen["plan"], seen["transition"], len(seen["connections"])) == (None, None, 2)
        assert len(seen["unread"]) == 8
        assert "\x1b[2J" not in call("status", redis_server.url).stdout
        wrong = doctor(redis_server.url, expected=3)
        assert found(wrong, f"the newest plan ({ControlKeys.plan}, ")["level"] == "problem"
        assert found(wrong, f"{ControlKeys.state}: this is not the state")["level"] == "problem"
        assert found(wrong, "what two wants: ")["level"] == "problem"
        assert found(wrong, f"HGETALL {ControlKeys.nodes}: WRONGTYPE")["level"] == "problem"
        assert found(wrong, f"HGETALL {keys.node}: WRONGTYPE")["subject"] == SOLE_NODE
        assert found(wrong, "the lease never expires")["subject"] == "leader"


def test_a_registered_node_that_is_nowhere_is_found(redis_server: EmbeddedServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.hset(ControlKeys.nodes, mapping={"n1": "", "n2": f"redis://127.0.0.1:{free_port()}", "n3": "nonsense"})
        seen = status(redis_server.url, expected=3)
        assert [node["reachable"] for node in seen["nodes"]] == [True, False, False]
        wrong = doctor(redis_server.url, expected=3)
        assert found(wrong, "is a server running there")["advice"].endswith("gamecast node retire n2 --control URL")
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
        old = found(await asyncio.to_thread(doctor, url, expected=3), "too old")
        assert (old["subject"], old["level"]) == ("control", "problem")


async def test_clocks_that_differ_are_found(redis_server: EmbeddedServer) -> None:
    state = await survey(redis_server.url)
    for ahead_ms, round_trip_ms, expected in ((99.0, 1.0, []), (160.0, 140.0, []), (-150.0, 10.0, ["150 ms behind"])):
        control = replace(state.control, clock_ahead_ms=ahead_ms, round_trip_ms=round_trip_ms)
        network = replace(state, control=control)
        warned = [
            each.seen for each in judge(Examination(network, network, 1.0)) if "clock" in each.seen and each.advice
        ]
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
    from cli.main import main

    for command in ("status", "doctor"):
        monkeypatch.setenv("GAMECAST_URL", f"redis://127.0.0.1:{free_port()}")
        monkeypatch.setattr("sys.argv", ["gamecast", command])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 3
        assert capsys.readouterr().err.startswith("gamecast: nothing answers at redis://127.0.0.1:")
