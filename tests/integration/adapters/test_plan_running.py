"""`gamecast plan improve URL`: what is better elsewhere is said, done while the network runs, and measured."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import gamecast
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.running import apply, look
from gamecast.errors import NoLeader, PlanError
from gamecast.testing import DeliverySequence, judge
from sequencing.plan import Plan
from tests.integration.node_processes import end, start_node
from tests.patience import patience

GROUPS = [tuple(f"{group}{place}" for place in range(3)) for group in "abcdef"]
"""The regions of each are ordered against each other; two servers have them all."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a command said."""

    exit_code: int
    stdout: str
    stderr: str


async def planned(*options: object) -> Result:
    """Run the command, in a process of its own."""
    command = [sys.executable, "-m", "gamecast", "plan", "improve", *map(str, options)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    async with patience(60):
        stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Result(process.returncode, stdout.decode(), stderr.decode())


class Server:
    """A game server that notes what comes."""

    def __init__(self, client: gamecast.Client, regions: Sequence[str]) -> None:
        self.client, self.regions = client, regions
        self.events: list[gamecast.Event] = []
        self._came = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self.client:
            assert isinstance(item, gamecast.Event), item
            self.events.append(item)
            self._came.set()

    async def took(self, count: int) -> None:
        async with patience(30):
            while len(self.events) < count:
                self._came.clear()
                await self._came.wait()
        self._reading.cancel()

    def sequence(self) -> DeliverySequence:
        return DeliverySequence(
            self.client.name,
            [f"{each.region} {each.position}" for each in self.events],
            [each.region for each in self.events],
            [each.sender for each in self.events],
        )


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    """Two servers of each group, in a network of three nodes."""
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(gamecast.connect("embedded://?nodes=3", name="keeper"))
        found = []
        for group in GROUPS:
            for number in range(2):
                name = f"{group[0]}-{number}"
                client = await stack.enter_async_context(gamecast.connect(keeper.url, name=name))
                await client.subscribe(*group)
                found.append(Server(client, group))
        yield found


async def lopsided(url: str, folder: Path) -> tuple[Path, str]:
    """Return rates with which one node has nearly all load, whichever the leader has put on it, and that node."""
    running = await look(url, seconds=0.5)
    on = Counter(path[0] for path in running.plan.paths.values())
    node = max(on, key=lambda name: (on[name], name))
    text = io.StringIO()
    for region, path in running.plan.paths.items():
        csv.writer(text).writerow([region, 1000 if path[0] == node else 1])
    file = folder / "rates.csv"
    file.write_text(text.getvalue())
    return file, node


async def test_a_running_network_goes_over_to_better_places_in_one_order_and_loses_nothing(
    servers: list[Server], tmp_path: Path
) -> None:
    url = servers[0].client.url
    rates, node = await lopsided(url, tmp_path)
    stop, published = asyncio.Event(), Counter[str]()

    async def publish(server: Server) -> None:
        number = 0
        while not stop.is_set():
            region = server.regions[number % 3]
            await server.client.publish(region, number)
            published[region] += 1
            number += 1
            await asyncio.sleep(0.004)

    publishing = [asyncio.create_task(publish(server)) for server in servers]
    before = await look(url, seconds=0.5)
    said = await planned(url, "--rates", rates, "--rates", "0.5s")
    unchanged = await look(url, seconds=0.5)
    applied = await planned(url, "--rates", rates, "--rates", "0.5s", "--apply", "--json")
    after = await look(url, seconds=0.5)
    await asyncio.sleep(0.3)
    stop.set()
    await asyncio.gather(*publishing)
    for server in servers:
        await server.took(sum(published[region] for region in server.regions))

    assert (said.exit_code, "Nothing has changed. With --apply" in said.stdout) == (0, True), said.stderr
    assert unchanged.plan.paths == before.plan.paths
    assert applied.exit_code == 0, applied.stderr
    document = json.loads(applied.stdout)
    assert document["before"]["of_nodes"][node] == document["before"]["busiest"] > 1.5 * document["after"]["busiest"]
    moved = {region: path for move in document["moves"] for region, path in move["regions"].items()}
    assert moved
    assert {region: list(path) for region, path in after.plan.paths.items() if region in moved} == moved
    stayed = before.plan.paths.keys() - moved.keys()
    assert all(after.plan.paths[region] == before.plan.paths[region] for region in stayed)
    assert all(move["seconds"] is not None for move in document["moves"])
    assert document["measured"]["of_nodes"].keys() == {"n1", "n2", "n3"}
    for server in servers:
        assert len(server.events) == sum(published[region] for region in server.regions), "lost, or twice"
    verdict = judge([server.sequence() for server in servers])
    assert verdict.fine, verdict.examples


async def test_delays_by_a_topology_move_regions_to_the_node_near_their_servers(
    servers: list[Server], tmp_path: Path
) -> None:
    url = servers[0].client.url
    running = await look(url, seconds=0.5)
    nodes = sorted(running.plan.nodes)
    far = {"n1": "london", "n2": "tokyo", "n3": "sydney"}
    (tmp_path / "delays.csv").write_text(
        "host,london,tokyo,sydney\nlondon,1,110,130\ntokyo,110,1,55\nsydney,130,55,1\n"
    )
    (tmp_path / "nodes.csv").write_text("node,host\n" + "".join(f"{node},{far[node]}\n" for node in nodes))
    # Each group's servers stand far from its node.
    away = {node: far[nodes[(place + 1) % 3]] for place, node in enumerate(nodes)}
    rows = [
        f"{name},{away[running.plan.paths[next(iter(has))][0]]}" for name, has in running.subscribers.regions_of.items()
    ]
    (tmp_path / "hosts.csv").write_text("subscriber,host\n" + "\n".join(rows) + "\n")
    where = ["--topology", tmp_path / "delays.csv", "--nodes", tmp_path / "nodes.csv"]
    result = await planned(url, *where, "--hosts", tmp_path / "hosts.csv", "--rates", "0.5s", "--apply", "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["is_idle"]
    assert document["before"]["mean_ms"] > 100
    assert document["after"]["mean_ms"] == pytest.approx(2.0)
    assert document["measured"]["mean_ms"] == pytest.approx(2.0)
    after = await look(url, seconds=0.5)
    assert {far[path[0]] for path in after.plan.paths.values()} == set(away.values())


async def test_a_node_that_is_added_takes_its_share_at_once_and_a_new_leader_expels_no_subscriber(
    three_redis_servers: EmbeddedServers,
) -> None:
    control, *others = three_redis_servers.urls
    nodes = []
    try:
        for name, url in (("n1", control), ("n2", others[0])):
            nodes.append(await asyncio.to_thread(start_node, name, url, control))
        async with AsyncExitStack() as stack:
            leader = await stack.enter_async_context(gamecast.connect(control, name="leads, and goes"))
            clients = []
            for group in GROUPS:
                client = await stack.enter_async_context(gamecast.connect(control, name=group[0]))
                await client.subscribe(*group)
                clients.append(client)
            nodes.append(await asyncio.to_thread(start_node, "n3", others[1], control))
            await leader.close()
            result = await planned(control, "--rates", "0.5s", "--apply", "--json")
            assert result.exit_code == 0, result.stderr
            document = json.loads(result.stdout)
            assert document["before"]["of_nodes"]["n3"] == 0
            assert document["measured"]["of_nodes"]["n3"] == document["after"]["of_nodes"]["n3"] > 0
            async with patience(30):
                for group, client in zip(GROUPS, clients, strict=True):
                    await client.publish(group[0], "still here")
                    event = await anext(client)
                    assert isinstance(event, gamecast.Event)
                    assert event.payload == "still here"
    finally:
        for node in nodes:
            await asyncio.to_thread(end, node)


async def test_regions_leave_the_redis_that_a_network_began_with_for_nodes_that_are_added(
    three_redis_servers: EmbeddedServers,
) -> None:
    control, *others = three_redis_servers.urls
    nodes = []
    try:
        async with AsyncExitStack() as stack:
            clients = []
            for group in GROUPS:
                clients.append(await stack.enter_async_context(gamecast.connect(control, name=group[0])))
                await clients[-1].subscribe(*group)
            for name, url in zip(("n2", "n3"), others, strict=True):
                nodes.append(await asyncio.to_thread(start_node, name, url, control))
            async with patience(30):
                while (plan := await clients[0].plan()) is None or plan.sole:  # noqa: ASYNC110 - the leader acts
                    await asyncio.sleep(0.05)
            result = await planned(control, "--rates", "0.5s", "--apply", "--json")
            assert result.exit_code == 0, result.stderr
            document = json.loads(result.stdout)
            assert document["before"]["of_nodes"] == {"control": 18, "n2": 0, "n3": 0}
            loads = document["measured"]["of_nodes"]
            assert loads == document["after"]["of_nodes"]
            assert loads["n2"] > 0
            assert loads["n3"] > 0
            async with patience(30):
                for group, client in zip(GROUPS, clients, strict=True):
                    await client.publish(group[0], "still here")
    finally:
        for node in nodes:
            await asyncio.to_thread(end, node)


async def test_what_was_reviewed_is_what_is_applied_or_it_says_what_has_changed_since(
    servers: list[Server], tmp_path: Path
) -> None:
    url = servers[0].client.url
    rates, _ = await lopsided(url, tmp_path)
    file = tmp_path / "plan.json"
    reviewed = await planned(url, "--rates", rates, "--rates", "0.5s", "--out", file)
    assert reviewed.exit_code == 0, reviewed.stderr
    assert f"Later: --apply {file}" in reviewed.stdout.replace("\n", " ")
    document = json.loads(file.read_bytes())
    moved = {region: path for move in document["moves"] for region, path in Plan.from_document(move).paths.items()}
    assert moved
    applied = await planned(url, "--apply", file)
    assert (applied.exit_code, "Applied, in" in applied.stdout) == (0, True), applied.stderr
    after = (await look(url, seconds=0.0)).plan
    assert {region: after.paths[region] for region in moved} == moved
    again = await planned(url, "--apply", file)
    assert again.exit_code == 1
    assert f"since the plan was made, {min(moved)}" in again.stderr
    assert "moved. Make it again: gamecast plan improve URL --out FILE" in again.stderr
    assert (await look(url, seconds=0.0)).plan.paths == after.paths
    file.write_text("{}")
    broken = await planned(url, "--apply", file)
    assert (broken.exit_code, "is not a plan that" in broken.stderr) == (2, True)


async def test_what_no_longer_fits_is_refused_and_leaves_the_network_as_it_was(servers: list[Server]) -> None:
    url = servers[0].client.url
    running = await look(url, seconds=0.5)
    plan = running.plan
    group = GROUPS[0]
    elsewhere = next(node for node in plan.nodes if node != plan.paths[group[0]][-1])
    part = plan.only(frozenset(group[:2]))
    incomplete: dict[str, Any] = dict.fromkeys(group[:2], (elsewhere,))
    with pytest.raises(PlanError, match=f"region '{group[2]}' belongs to what would move"):
        await apply(url, made_of(part, {**plan.nodes}, incomplete))
    whole: dict[str, Any] = dict.fromkeys(group, (elsewhere,))
    with pytest.raises(PlanError, match="does not answer"):
        await apply(url, made_of(part, {**plan.nodes, "n9": ""}, dict.fromkeys(group, ("n9",))))
    assert (await look(url, seconds=0.5)).plan.paths == plan.paths
    assert await apply(url, made_of(part, {**plan.nodes}, whole)) < 30
    # A second time, it is what there is.
    await apply(url, made_of(part, {**plan.nodes}, whole))
    after = (await look(url, seconds=0.5)).plan
    assert {after.paths[region] for region in group} == {(elsewhere,)}
    assert after.epoch == plan.epoch + 1


def made_of(part: Plan, nodes: dict[str, str], paths: dict[str, tuple[str, ...]]) -> Plan:
    return replace(part, nodes=nodes, paths=paths, atoms=(), epochs={})


async def test_a_network_of_one_node_or_without_a_leader_has_nothing_to_choose(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    result = await planned(url, "--rates", "0.5s")
    assert (result.exit_code, "no plan yet" in result.stderr) == (2, True), result.stderr
    async with gamecast.connect(url, name="alone") as alone:
        await alone.subscribe("forest")
        running = await alone.plan()
        assert running is not None
        result = await planned(url, "--rates", "0.5s")
        assert (result.exit_code, "one node" in result.stderr) == (2, True), result.stderr
        with pytest.raises(PlanError, match="one node"):
            await apply(url, running)
    with pytest.raises(NoLeader):
        await apply(url, running)


async def test_rates_that_are_given_are_named_where_the_network_has_no_such_region_or_they_are_no_rates(
    servers: list[Server], tmp_path: Path
) -> None:
    url = servers[0].client.url
    rates = tmp_path / "rates.csv"
    rates.write_text("nowhere,5\n")
    result = await planned(url, "--rates", rates, "--rates", "0.5s")
    assert result.exit_code == 0, result.stderr
    assert "1 region that the network does not have" in result.stdout
    assert "without an event while it was measured" in result.stdout
    rates.write_text("a0,1e308\nb0,1e308\n")
    result = await planned(url, "--rates", rates, "--rates", "0.5s")
    assert (result.exit_code, "more events/s than a number can hold" in result.stderr) == (2, True), result.stderr
    result = await planned(url, "--rates", "nans")
    assert (result.exit_code, "'nans' is not a time" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["redis://localhost:1", "--ordering", "causal"], "No such option"),
        (["--apply"], "Missing argument 'URL'"),
        (["memory://x"], "private network"),
        (["redis://localhost:1", "--topology", "x.csv"], "needs --nodes FILE"),
        (["redis://localhost:1", "--nodes", "x.csv"], "need --topology"),
        (["redis://localhost:1", "--apply", "x.json", "--json"], "goes with URL alone"),
        (["redis://localhost:1", "--rates", "0.1s"], "is not a time from 0.5"),
    ],
)
async def test_wrong_use_is_said_before_anything_is_measured(options: list[Any], complaint: str) -> None:
    result = await planned(*options)
    assert (result.exit_code, complaint in result.stderr) == (2, True), result.stderr


async def test_a_network_that_cannot_be_reached_is_infrastructure(redis_server: EmbeddedServer) -> None:
    url = redis_server.url
    redis_server.stop()
    result = await planned(url, "--rates", "0.5s")
    assert result.exit_code == 3, result.stderr
