"""Real servers reached by routes, far servers, and the demo under the delays of a small matrix."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import gamecast
import gamecast.blocking
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.redis.operating import RedisNodeOperator
from adapters.redis.relays import RedisRelays
from gamecast.errors import UsageError
from laboratory.processes.children import Guard
from laboratory.wan.delayproxy import DelayProxy, Leg
from tests.events import take
from tests.integration.networks import register
from tests.patience import besides_waiting, scaled, slowness

MATRIX = "from,west,east,south\nwest,0.5,30,70\neast,40,0.5,50\nsouth,60,45,0.5\n"
"""Not symmetric, and two machines in one place are not in one."""


def demo(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gamecast", "demo", "--wan", str(file)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=scaled(110))


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    file = tmp_path / "matrix.csv"
    file.write_text(MATRIX)
    return file


async def test_a_network_whose_urls_mean_nothing_here_is_reached_by_routes(
    three_redis_servers: EmbeddedServers,
) -> None:
    """Control, manager, publishers, subscribers and relays: whatever went past the routes would reach nobody."""
    control, *real = three_redis_servers.urls
    known = {f"redis://node-{number}.invalid:6379": url for number, url in enumerate(real, start=1)}
    routes = known | {"redis://control.invalid:6379": control}
    await register(control, {f"n{number}": url for number, url in enumerate(known, start=1)})
    relays = RedisRelays("redis://control.invalid:6379", routes=routes)
    relays.start()
    here, there = ("forest", "river", "town"), ("river", "town", "cave")
    wanted = {"one": here, "two": here, "three": there, "four": there}
    try:
        async with AsyncExitStack() as stack:
            url = "redis://control.invalid:6379"
            casts = [await stack.enter_async_context(gamecast.connect(url, name=n, routes=routes)) for n in wanted]
            await asyncio.gather(*(client.subscribe(*wanted[client.name]) for client in casts))
            assert casts[0].url == url
            for number in range(40):
                await casts[number % 4].publish(("river", "town")[number // 4 % 2], number)
            seen = [[event.payload for event in await take(client, 40)] for client in casts]
            plan = await casts[0].plan()
    finally:
        await relays.stop()
    assert seen == [seen[0]] * 4
    assert sorted(seen[0]) == list(range(40))
    assert plan is not None
    assert set(plan.nodes.values()) == set(known)
    assert plan.links, "no relay had anything to do"


def test_routes_lead_to_servers_of_a_network_that_is_there() -> None:
    for connect in (gamecast.connect, gamecast.blocking.connect):
        with pytest.raises(UsageError, match="routes lead to servers that are there already, and memory:// has none"):
            connect("memory://routes", routes={"redis://a": "redis://b"})


async def test_a_leader_finds_the_run_of_a_node_on_the_other_side_of_the_world(
    shared_redis: EmbeddedServer, tmp_path: Path
) -> None:
    """A connection's opening, its greeting and the question take three round trips of 0.4 s."""
    guard = Guard(None)
    proxy = DelayProxy({"far": Leg(int(shared_redis.url.rpartition(":")[2]), 200.0, 200.0)}, tmp_path / "log", guard)
    proxy.start()
    operator = RedisNodeOperator(shared_redis.url, retention_events=1)
    try:
        there = {"near": shared_redis.url, "far": proxy.url("far")}
        first = await operator.runs(there)
        assert set(first) == {"near"}
        found = first
        for _ in range(4):
            found = await operator.runs(there)
            if "far" in found:
                break
        assert found == {"near": first["near"], "far": first["near"]}
        assert await operator.runs(there) == found  # from now on a question takes one round trip
    finally:
        await operator.close()
        proxy.stop()
        guard.close()


async def test_hands_that_are_closed_while_they_wait_leave_nothing_behind(shared_redis: EmbeddedServer) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    operator = RedisNodeOperator(shared_redis.url, retention_events=1)
    looking = asyncio.create_task(operator.runs({"silent": f"redis://127.0.0.1:{port}"}))
    await asked.wait()
    await operator.close()
    assert await looking == {}
    silent.close()
    await silent.wait_closed()


def test_the_demo_measures_the_stretch_that_the_simulation_predicts(matrix: Path) -> None:
    found: dict[str, Any] = {}
    for _ in range(3):
        done = demo(
            matrix,
            *("--servers", "4", "--nodes", "3", "--hosts", "west,east,south", "--node-hosts", "east,west,south"),
            *("--start-s", "200", "--duration-s", "10", "--json"),
        )
        assert done.returncode == 0, done.stderr
        assert besides_waiting(done.stderr) == ""
        found = json.loads(done.stdout)
        # Once more where the machine stood still: the model knows the ways, and not how long a process has to wait.
        if found["wan"]["measured_over_predicted"] <= 1 + 0.1 * slowness():
            break
    assert [found[broken] for broken in ("lost", "duplicated", "inversions", "cycles")] == [0, 0, 0, 0]
    wan = found["wan"]
    assert wan["hosts"] == {
        "server-1": "west",
        "server-2": "east",
        "server-3": "south",
        "server-4": "west",
        "n1": "east",
        "n2": "west",
        "n3": "south",
    }
    assert wan["same_plan"]
    assert wan["measured"]["deliveries"] == wan["predicted"]["deliveries"] / 8 == wan["paths_alone"]["deliveries"] > 100
    assert wan["measured"]["direct_ms"] == pytest.approx(wan["predicted"]["direct_ms"])
    # Nothing is faster than its path; what waits on it is what is predicted.
    for destination, least in wan["paths_alone"]["by_destination"].items():
        assert wan["measured"]["by_destination"][destination] >= least
    assert wan["measured"]["mean"] > 1.05 * wan["paths_alone"]["mean"]
    assert 0.9 <= wan["measured_over_predicted"] <= 1 + 0.1 * slowness()


def test_the_table_tells_measured_and_predicted_and_who_stands_where(matrix: Path) -> None:
    done = demo(matrix, "--servers", "3", "--duration-s", "4", "--start-s", "200", "--speed", "2")
    assert done.returncode == 0, done.stderr
    for said in ("measured", "predicted", "paths alone", "from predicted", "west: server-1, n1"):
        assert said in done.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (MATRIX, ["--hosts", "west,mars"], "--hosts: the matrix has no host 'mars'; it has west, east, south"),
        (MATRIX, ["--node-hosts", "mars"], "--node-hosts: the matrix has no host 'mars'"),
        (MATRIX.replace("40,", ","), [], "line 3: row 'east', column 'west' is missing"),
        ("a,b\n1,2\n3,4\n", [], "is not square"),
        (MATRIX, ["--roam"], "leave out --roam"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    matrix: Path, text: str, arguments: list[str], said: str
) -> None:
    matrix.write_text(text)
    done = demo(matrix, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_option_about_a_matrix_needs_one() -> None:
    command = [sys.executable, "-m", "gamecast", "demo", "--rtt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(60))
    assert done.returncode == 2
    assert "--rtt is about a latency matrix: name one with --wan" in done.stderr
