"""`gamecast manager`, `node` and `up`: processes that run until they are stopped, and may die without a word."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, EmbeddedServers
from adapters.leadership import LEASE_MS
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.networkstate import NetworkState
from adapters.redis.survey import survey
from adapters.redis.users import ROLES
from cli.main import main
from gamecast import Client, Event, Receipt
from sequencing.record import Record, Request
from tests.patience import Deadline, besides_waiting, patience, scaled, until

COMMAND = [sys.executable, "-m", "gamecast"]

END_S_MAX = 2.0
"""How long a daemon may take to end."""


class Daemon:
    """A process that runs beside the test; what it says is kept in files, so that it never waits for a reader."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._directory = directory / f"{len(list(directory.iterdir()))}"
        self._directory.mkdir()
        with (self._directory / "out").open("wb") as out, (self._directory / "err").open("wb") as err:
            self._process = subprocess.Popen([*COMMAND, *arguments], stdout=out, stderr=err)

    @property
    def said(self) -> str:
        """All of its standard output so far."""
        return (self._directory / "out").read_text()

    @property
    def complained(self) -> str:
        """All of its standard error so far."""
        return (self._directory / "err").read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()

    async def is_there(self, words: str) -> None:
        """Wait until it says some words."""
        await until(lambda: words in self.said + self.complained or self._process.poll() is not None)
        assert words in self.said + self.complained, self.complained

    async def ended(self, number: signal.Signals | None = None) -> int:
        """Wait until it ends, for `END_S_MAX` after a signal is sent, and return its exit status."""
        limit = Deadline(END_S_MAX)
        if number is not None:
            self._process.send_signal(number)
        status = await asyncio.to_thread(self._process.wait, scaled(10))
        assert number is None or not limit.passed
        return status


Start = Callable[..., Daemon]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Return what starts a command; those that still run at the end are killed."""
    daemons: list[Daemon] = []

    def start(*arguments: str) -> Daemon:
        daemons.append(Daemon(tmp_path, *arguments))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.kill()


def mode_of(file: str) -> int | None:
    """Who may do what with a file, None if there is none."""
    try:
        return Path(file).stat().st_mode & 0o777
    except FileNotFoundError:
        return None


async def seen_when(url: str, holds: Callable[[NetworkState], bool]) -> NetworkState:
    """Return the first look at a network of which something holds."""
    async with patience(10):
        while not holds(state := await survey(url)):
            pass
        return state


def is_ready(gateway: str) -> bool:
    """Whether a gateway reaches its network."""
    with urllib.request.urlopen(gateway + "/readyz") as answer:
        return bool(json.load(answer)["status"] == "ready")


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@asynccontextmanager
async def control_of(url: str) -> AsyncIterator[LeaderControl]:
    control = LeaderControl(url)
    try:
        yield control
    finally:
        await control.close()


async def with_nodes(control: LeaderControl) -> None:
    """Register two nodes, so that the leader has to make plans."""
    for node in ("n1", "n2"):
        await control.register_node(node, "")


async def granted(control: LeaderControl, name: str, *regions: str) -> Record:
    """Return the plan that grants regions to a new subscriber, which is no leader candidate itself."""
    incarnation = await control.introduce(name)
    await control.join([(name, Request(incarnation, 1, dict.fromkeys(regions, 1)))])
    async with patience(10):
        while True:
            newest = await control.record()
            if newest is not None and newest.members.get(name, frozenset()).issuperset(regions):
                return newest
            await control.beat(name, incarnation)
            await asyncio.sleep(0.01)


async def test_when_the_manager_that_leads_is_killed_another_one_takes_over(
    redis_server: EmbeddedServer, start: Start
) -> None:
    url = redis_server.url
    managers = [start("manager", "--control", url) for _ in range(3)]
    for manager in managers:
        await manager.is_there("is a leader candidate")
    await until(lambda: any(" leads\n" in manager.complained for manager in managers))
    async with control_of(url) as control:
        await with_nodes(control)
        assert (await granted(control, "s1", "forest")).plan.paths.keys() == {"forest"}
        for number in (2, 3):
            [leader] = [manager for manager in managers if " leads\n" in manager.complained]
            managers.remove(leader)
            leader.kill()
            limit = Deadline(2 * LEASE_MS / 1000)
            await granted(control, f"s{number}", f"cave {number}")
            assert not limit.passed
    [last] = managers
    assert " leads\n" in last.complained
    assert await last.ended(signal.SIGTERM) == 0
    assert last.complained.endswith(" leads no more\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_manager_that_is_stopped_gives_the_lease_to_the_next(
    redis_server: EmbeddedServer, start: Start, number: signal.Signals
) -> None:
    url = redis_server.url
    first = start("manager", "--control", url)
    await first.is_there(" leads\n")
    second = start("manager", "--control", url)
    await second.is_there("is a leader candidate")
    with redis.Redis.from_url(url) as client:
        held = client.get(ControlKeys.lease)
        assert held is not None
        ended = 130 if number is signal.SIGINT else 0
        assert await first.ended(number) == ended
        assert client.get(ControlKeys.lease) != held, "the next one would wait for the lease to run out"
        await second.is_there(" leads\n")
        assert await second.ended(number) == ended
        assert not client.exists(ControlKeys.lease)


async def test_a_manager_waits_out_a_control_redis_that_is_away_and_leads_again(start: Start) -> None:
    with EmbeddedServer(appendfsync="always") as server:
        manager = start("manager", "--control", server.url)
        await manager.is_there(" leads\n")
        server.kill()
        await manager.is_there("nothing answers at")
        server.restart()
        async with control_of(server.url) as control:
            await with_nodes(control)
            await granted(control, "s1", "forest")
        assert await manager.ended(signal.SIGTERM) == 0


async def test_a_server_that_hangs_does_not_keep_a_manager_from_ending(
    redis_server: EmbeddedServer, start: Start
) -> None:
    manager = start("manager", "--control", redis_server.url)
    await manager.is_there(" leads\n")
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        assert await manager.ended(signal.SIGTERM) == 3
        assert "did not stop within" in manager.complained
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)


async def test_a_manager_decides_what_plans_of_a_new_network_order_and_keep(
    redis_server: EmbeddedServer, start: Start
) -> None:
    start("manager", "--control", redis_server.url, "--ordering", "overlap", "--retention-events", "77")
    async with control_of(redis_server.url) as control:
        assert await control.newest() is None, "no connection has come yet"
        await control.introduce("s1")
        async with patience(30):
            while (newest := await control.newest()) is None:  # noqa: ASYNC110 - another process acts
                await asyncio.sleep(0.01)
        assert (newest.plan.ordering, newest.plan.sole) == ("overlap", "control")
    assert (await survey(redis_server.url)).nodes[0].retention_events == 77


async def take(cast: Client, receipts: list[Receipt]) -> list[tuple[str, int, int]]:
    """Return the positions of the next events, as many as there are receipts."""
    found: list[tuple[str, int, int]] = []
    async with patience(20):
        async for event in cast:
            assert isinstance(event, Event), event
            found.append((event.region, event.epoch, event.sequence))
            if len(found) == len(receipts):
                return found
    raise AssertionError(f"iteration ended after {len(found)} of {len(receipts)} events")


async def test_a_node_that_is_added_under_traffic_is_used_by_the_next_epoch_that_begins(
    three_redis_servers: EmbeddedServers, start: Start
) -> None:
    url = three_redis_servers.urls[0]

    async def add(number: int) -> None:
        place = three_redis_servers.urls[number - 1]
        await start("node", "--name", f"n{number}", "--redis", place, "--control", url).is_there("is registered")

    receipts: list[Receipt] = []
    stop = asyncio.Event()

    async def traffic(casts: list[Client]) -> None:
        while not stop.is_set():
            receipts.extend(
                await asyncio.gather(*(cast.publish(region, cast.name) for cast in casts for region in "ab"))
            )

    await add(1)
    async with AsyncExitStack() as stack:

        async def join(name: str, *regions: str) -> Client:
            cast = await stack.enter_async_context(gamecast.connect(url, name=name))
            await cast.subscribe(*regions)
            return cast

        first = [await join(name, "a", "b") for name in ("s0", "s1")]
        publishing = asyncio.create_task(traffic(first))
        for number, pair in ((2, "bc"), (3, "cd")):
            await add(number)
            seen = await seen_when(url, lambda state: len([n for n in state.nodes if n.registered]) == number)  # noqa: B023
            assert seen.plan is not None
            used = {node for path in seen.plan.paths.values() for node in path}
            assert f"n{number}" not in used, "nothing changes by itself"
            for name in (f"s{number}", f"t{number}"):
                await join(name, *pair)
        stop.set()
        await publishing
        plan = await first[0].plan()
        assert plan is not None
        assert {"n1", "n2", "n3"} == plan.nodes.keys()
        assert {node for path in plan.paths.values() for node in path} > {"n1"}
        assert len({receipt.epoch for receipt in receipts}) > 1
        orders = [await take(cast, receipts) for cast in first]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted((receipt.region, receipt.epoch, receipt.sequence) for receipt in receipts)


async def test_a_node_is_registered_by_what_its_server_may_lose_and_stays_where_it_is(start: Start) -> None:
    with EmbeddedServer(appendfsync="always") as control, EmbeddedServer() as other:
        url = control.url
        for name, place, *options in (
            ("safe", url),
            ("lossy", other.url),
            ("said", other.url, "--keeps-all"),
            ("feared", url, "--may-lose"),
        ):
            node = start("node", "--name", name, "--redis", place, "--control", url, *options)
            await node.is_there(f"node {name} at {place} is registered and relays")
            assert await node.ended(signal.SIGTERM) == 0
        nodes = {node.name: node.may_lose for node in (await survey(url)).nodes}
        assert nodes == {"safe": False, "lossy": True, "said": False, "feared": True}
        moved = start("node", "--name", "safe", "--redis", other.url, "--control", url)
        await moved.is_there("is already registered at ")
        assert await moved.ended() == 2
        changed = start("node", "--name", "safe", "--redis", url, "--control", url, "--give-up-s", "30")
        await changed.is_there("is already registered with other options")
        assert await changed.ended() == 2


async def test_a_node_whose_server_is_still_loading_is_not_taken_for_one_that_may_lose(start: Start) -> None:
    settings = {"key-load-delay": "50000", "loading-process-events-interval-bytes": "1024"}
    with (
        EmbeddedServer() as control,
        EmbeddedServer(appendfsync="always", settings=settings, start_time_s_max=scaled(60)) as server,
    ):
        with redis.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
            for number in range(1000):
                pipeline.set(f"other:{number}", os.urandom(100))
            pipeline.execute()
            client.bgrewriteaof()
            await until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        server.kill()
        restarting = asyncio.create_task(server.restart_async())
        info: dict[str, Any] = {}
        while not info.get("loading"):
            with suppress(redis.ConnectionError), redis.Redis.from_url(server.url) as client:
                info = client.info("persistence")
            await asyncio.sleep(0.01)
        assert info["aof_enabled"] == 0, "this is why a look at a server that loads tells nothing"
        node = start("node", "--name", "n1", "--redis", server.url, "--control", control.url)
        await node.is_there("is still loading its data")
        with redis.Redis.from_url(server.url) as client:
            client.config_set("key-load-delay", 0)  # the rest at once
        await node.is_there("is registered and relays")
        await restarting
        assert [(each.name, each.may_lose) for each in (await survey(control.url)).nodes] == [("n1", False)]


async def test_a_node_that_was_said_to_keep_all_later_is_taken_back_after_a_restart(start: Start) -> None:
    with EmbeddedServer() as control, EmbeddedServer(appendfsync="always") as server:
        for option in ("--may-lose", "--keeps-all"):
            node = start("node", "--name", "n1", "--redis", server.url, "--control", control.url, option)
            await node.is_there("is registered and relays")
            async with gamecast.connect(control.url, name="s") as cast, patience(30):
                await cast.subscribe("a")
                await cast.publish("a", option)
            assert await node.ended(signal.SIGTERM) == 0
        server.kill()
        await server.restart_async()
        async with gamecast.connect(control.url, name="s") as cast, patience(30):
            await cast.subscribe("a")
            await cast.publish("a", "after")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_up_is_a_network_and_leaves_nothing_behind(start: Start, number: signal.Signals) -> None:
    up = start("up", "--json")
    await until(lambda: up.said.endswith("\n"))
    ready: dict[str, Any] = json.loads(up.said)
    url, pids = ready["url"], ready["pids"]
    assert ready.keys() == {"url", "gateway", "dashboard", "nodes", "pids"}
    assert await asyncio.to_thread(is_ready, ready["gateway"])
    assert ready["dashboard"] == ready["gateway"] + "/dashboard/"
    assert ready["nodes"].keys() == {"n1", "n2", "n3"}
    assert ready["nodes"]["n1"] == url
    assert pids.keys() == {"up", "n1", "n2", "n3"}
    assert pids["up"] == up.pid
    directories = []
    for name, place in ready["nodes"].items():
        with redis.Redis.from_url(place) as client:
            assert client.info("server")["process_id"] == pids[name]
            directories.append(Path(client.config_get("dir")["dir"]))

    # It leads without any connection, so that one which may not lead is served.
    async with control_of(url) as control:
        await granted(control, "s1", "forest")
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(gamecast.connect(url)) for _ in range(2)]
        for cast in (one, other):
            await cast.subscribe("a", "b")
        receipts = await asyncio.gather(*(cast.publish(region, 1) for cast in (one, other) for region in "ab"))
        orders = [await take(cast, receipts) for cast in (one, other)]
        assert orders[0] == orders[1]

    if number is signal.SIGKILL:
        up.kill()
        await until(lambda: not any(map(is_running, pids.values())), END_S_MAX)
        await until(lambda: not any(directory.exists() for directory in directories), END_S_MAX)
    else:
        assert await up.ended(number) == (130 if number is signal.SIGINT else 0)
        assert not any(map(is_running, pids.values()))
        assert not any(directory.exists() for directory in directories)
    assert besides_waiting(up.complained) == ""


async def test_a_secure_network_lets_in_those_whom_it_told_of(start: Start) -> None:
    up = start("up", "--secure", "--nodes", "2", "--json")
    await until(lambda: up.said.endswith("\n"))
    ready: dict[str, Any] = json.loads(up.said)
    assert ready["users"].keys() == set(ROLES)
    assert ready["url"] == ready["users"]["subscriber"]
    assert not any("@" in place for place in ready["nodes"].values())
    with redis.Redis.from_url(ready["nodes"]["n1"]) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    async with gamecast.connect(ready["url"]) as cast:
        await cast.subscribe("forest", "river")
        await cast.publish("forest", 1)
        assert isinstance(await anext(cast), Event)
    assert await asyncio.to_thread(is_ready, ready["gateway"])
    keys = ready["keys"]
    assert mode_of(keys) == 0o600
    minting = start("token", "mint", "--keys", keys, "--subject", "alice", "--read", "**", "--write", "**")
    assert await minting.ended() == 0
    events = f"{ready['gateway']}/v1/regions/forest/events"
    async with aiohttp.ClientSession() as client:
        for headers, status in (({}, 401), ({"Authorization": f"Bearer {minting.said.strip()}"}, 200)):
            async with client.post(events, json={"payload": 2}, headers=headers) as answer:
                assert answer.status == status, await answer.text()
    assert await up.ended(signal.SIGTERM) == 0
    assert mode_of(keys) is None
    assert besides_waiting(up.complained) == ""


async def test_up_tells_people_how_to_use_it(start: Start) -> None:
    up = start("up", "--nodes", "1", "--ordering", "overlap", "--no-gateway")
    await up.is_there("gamecast.connect")
    url = up.said.partition("is ready at ")[2].partition(",")[0]
    assert up.said.startswith(f"A network of 1 node is ready at {url}, ")
    assert f"\n  gamecast tail {url} forest\n" in up.said
    assert "gateway" not in up.said
    async with gamecast.connect(url) as cast:
        await cast.subscribe("forest")
        plan = await cast.plan()
    assert plan is not None
    assert plan.ordering == "overlap"
    assert list(plan.nodes) == ["n1"]
    assert await up.ended(signal.SIGINT) == 130


async def test_a_server_that_hangs_does_not_keep_up_from_ending_nor_its_servers_alive(start: Start) -> None:
    up = start("up", "--json")
    await until(lambda: up.said.endswith("\n"))
    pids = json.loads(up.said)["pids"]
    os.kill(pids["n1"], signal.SIGSTOP)
    assert await up.ended(signal.SIGTERM) in (0, 3)
    await until(lambda: not any(map(is_running, pids.values())), END_S_MAX)


async def test_up_says_which_of_its_servers_has_ended(start: Start) -> None:
    up = start("up", "--json", "--nodes", "2", "--no-gateway")
    await until(lambda: up.said.endswith("\n"))
    os.kill(json.loads(up.said)["pids"]["n2"], signal.SIGKILL)
    await up.is_there("the redis-server of n2 has ended, and what passes through it waits")
    assert await up.ended(signal.SIGTERM) == 0
    assert up.complained.count("has ended") == 1


@pytest.mark.parametrize("options", [(), ("--replicas", "1"), ("--secure",)])
async def test_ctrl_c_ends_up_that_still_starts_its_servers_at_once_without_a_word(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    up = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gamecast", "up", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    await until(lambda: len(list(temporary.glob("gamecast-redis-*/redis.log"))) >= 3)
    limit = Deadline(END_S_MAX)
    os.killpg(up.pid, signal.SIGINT)  # as a terminal does: the processes that are being started get it, too
    said, complained = await up.communicate()
    assert not limit.passed
    assert (said, besides_waiting(complained.decode()), up.returncode) == (b"", "", 130)
    await until(lambda: not list(temporary.iterdir()), END_S_MAX)


@pytest.mark.parametrize("command", ["manager", "node"])
def test_wrong_use_and_absent_servers_have_their_statuses(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], redis_server: EmbeddedServer
) -> None:
    absent = f"redis://127.0.0.1:{free_port()}"
    rest = ("--name", "n1", "--redis", redis_server.url) if command == "node" else ()
    for arguments, expected, why in (
        (("--control", "http://x", *rest), 2, "is not a Redis URL"),
        (("--control", "memory://world", *rest), 2, "memory://world"),
        (("--control", absent, *rest, "--wait-s", "0"), 3, f"nothing answers at {absent} "),
        (("--control", redis_server.url, "--name", "n1", "--redis", absent, "--wait-s", "0"), 3 if rest else 2, ""),
        ((), 2, ""),
    ):
        monkeypatch.setattr(sys, "argv", ["gamecast", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said, complained = capfd.readouterr()
        assert (ended.value.code, said) == (expected, ""), complained
        assert why in complained
        assert (complained.startswith("gamecast: "), complained.count("\n")) == (True, 1) or not why
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("command", ["manager", "node"])
async def test_a_daemon_that_starts_before_its_redis_waits_for_it(command: str, start: Start) -> None:
    with EmbeddedServer() as server, EmbeddedServer() as other:
        rest = ("--name", "n1", "--redis", other.url) if command == "node" else ()
        server.kill()
        daemon = start(command, "--control", server.url, *rest)
        await daemon.is_there(f"nothing answers at {server.url} ")
        server.restart()
        await daemon.is_there("is registered and relays" if rest else " leads\n")
        assert daemon.complained.count("nothing answers") == 1
        assert await daemon.ended(signal.SIGTERM) == 0


async def test_a_node_waits_for_its_own_redis_too(redis_server: EmbeddedServer, start: Start) -> None:
    with EmbeddedServer() as own:
        own.kill()
        node = start("node", "--name", "n1", "--control", redis_server.url, "--redis", own.url)
        await node.is_there(f"nothing answers at {own.url} ")
        own.restart()
        await node.is_there("is registered and relays")
        assert await node.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("command", ["manager", "node"])
async def test_a_daemon_waits_for_its_redis_no_longer_than_it_is_told(command: str, start: Start) -> None:
    absent = f"redis://127.0.0.1:{free_port()}"
    rest = ("--name", "n1", "--redis", absent) if command == "node" else ()
    patient, hasty = (start(command, "--control", absent, *rest, "--wait-s", wait_s) for wait_s in ("60", "0.3"))
    assert await hasty.ended() == 3
    assert "Trying again for 0.3 s." in hasty.complained
    assert hasty.complained.splitlines()[-1].startswith(f"gamecast: nothing answers at {absent} ")
    logged = start(command, "--control", absent, *rest, "--wait-s", "0.3", "--log", "json")
    assert await logged.ended() == 3
    lines = [json.loads(line) for line in logged.complained.splitlines()]
    assert (lines[-1]["level"], lines[-1]["message"][:18]) == ("ERROR", "nothing answers at")
    await patient.is_there("Trying again for 60 s.")
    assert await patient.ended(signal.SIGTERM) == 0
    assert "registered" not in patient.complained
    assert "leads" not in patient.complained


def test_up_of_no_nodes_is_wrong_use(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gamecast", "up", "--nodes", "0"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--nodes" in capfd.readouterr().err
