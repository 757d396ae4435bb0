"""The deployment of deploy/three-places: users, TLS, replicas, sentinels, nodes that lead and gateways, under faults.

What the table of docs/operations.md promises is what is seen here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
import pytest
import redis
import trustme

import gamecast
from adapters.embedded.ports import free_port
from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServer
from adapters.redis.survey import survey
from adapters.redis.users import FINDER, RedisUser, found_by
from cli.doctor import findings_of
from tests.patience import patience, scaled, until

ROOT = Path(__file__).parents[3]
PLACES = ROOT / "deploy" / "three-places"
NODES = ("n1", "n2", "n3")
HUNG_S = 12.0
GROUPS = tuple(tuple(f"{group}-{number}" for number in range(2)) for group in "abcdef")
"""The regions of each are on one node, and the groups on all."""
REGIONS = tuple(region for group in GROUPS for region in group)
BIN = Path(sys.executable).parent


def configured(name: str) -> dict[str, str]:
    """Return the settings of a file of the deployment, but for its own places."""
    lines = [line.split(" ", 1) for line in (PLACES / name).read_text().splitlines() if line and line[0] != "#"]
    own = "port", "tls-", "aclfile", "masterauth", "requirepass", "sentinel"
    return {key: value for key, value in lines if not key.startswith(own)}


def promised() -> dict[str, dict[str, float]]:
    """Return the rows of the page's table: fault → for how many seconds events wait at most, and until it is said."""
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (.+?) \| none \| (\d+) s \| .*?(\d+) s \|$", page, re.MULTILINE)
    return {fault: {"stall_s": float(stall), "said_s": float(said)} for fault, stall, said in rows}


@dataclass
class Deployment:
    """What runs in the three places, and what game servers saw."""

    servers: ReplicatedServers
    folder: Path
    environment: dict[str, str]
    places: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)

    def url(self, role: str) -> str:
        known = orjson.loads((self.folder / "users.json").read_bytes())
        [url, *_] = self.servers.urls
        return found_by(RedisUser(role, known[role]).url(url), RedisUser(FINDER, known[FINDER]))

    def start(self, node: str) -> None:
        own = {"PORT": str(self.ports[node]), "METRICS": f"127.0.0.1:{self.metrics[node]}"}
        with (self.folder / f"{node}.log").open("ab") as log:
            self.places[node] = subprocess.Popen(
                [PLACES / "start.sh", "place", node],
                env=self.environment | own,
                stderr=log,
                stdout=log,
                process_group=0,
            )

    def children(self, node: str, command: str) -> list[int]:
        """Return the processes of a place that run a command of gamecast."""
        group = os.getpgid(self.places[node].pid)
        found = []
        for each in Path("/proc").glob("[0-9]*"):  # `ps` cuts lines off where COLUMNS says how long they may be
            with suppress(OSError):
                said = (each / "cmdline").read_bytes().split(b"\0")
                if os.getpgid(int(each.name)) == group and command.encode() in said[1:3]:
                    found.append(int(each.name))
        return found

    def kill_gateway(self, node: str) -> None:
        [gateway] = self.children(node, "gateway")
        os.kill(gateway, signal.SIGKILL)

    async def metric(self, node: str, name: str) -> dict[str, float]:
        """Return the series of a metric, as the gateway of a place tells it."""
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{self.metrics[node]}/metrics") as answer,
        ):
            rows = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", await answer.text(), re.MULTILINE)
        return {labels: float(value) for labels, value in rows}


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[Deployment]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    files = dict.fromkeys(("tls-cert-file", "tls-key-file"), str(tmp_path / "server.pem"))
    tls = {**files, "tls-ca-cert-file": str(tmp_path / "ca.crt")}
    servers = ReplicatedServers(3, 1, password="secret", tls=tls, more=configured("redis.conf"))
    environment = os.environ | {
        "CA": str(tmp_path / "ca.crt"),
        "USERS": str(tmp_path / "users.json"),
        "ADMIN": "secret",
        "CERTIFICATE": str(tmp_path / "server.pem"),
        "KEY": str(tmp_path / "server.pem"),
        "KEYS": str(tmp_path / "keys.json"),
        "LISTEN": "127.0.0.1",
        "GAMECAST": str(BIN / "gamecast"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    async with servers:
        keeping = asyncio.create_task(servers.keep())  # as systemd would
        environment["SENTINELS"] = re.findall(r"@(.*?)/", servers.urls[0])[0]
        made = await asyncio.to_thread(
            partial(subprocess.run, [PLACES / "start.sh", "users"], env=environment, capture_output=True, check=False)
        )
        assert made.returncode == 0, made.stderr
        await asyncio.to_thread(run, "token", "keygen", "--out", str(tmp_path / "keys.json"))
        found = Deployment(servers, tmp_path, environment)
        for node in NODES:
            found.ports[node], found.metrics[node] = free_port(), free_port()
            found.start(node)
        try:
            for node in NODES:
                await until(partial(_says, tmp_path / f"{node}.log", "is registered", "listens at"), 60)
            yield found
        finally:
            for place in found.places.values():
                with suppress(ProcessLookupError):
                    os.killpg(place.pid, signal.SIGKILL)
                await asyncio.to_thread(place.wait)
            keeping.cancel()


def run(*command: str) -> str:
    """Run a command of gamecast; return what it prints."""
    return subprocess.run([BIN / "gamecast", *command], check=True, capture_output=True, text=True).stdout.strip()


def _says(log: Path, *words: str) -> bool:
    said = log.read_text()
    return all(word in said for word in words)


class Game:
    """Game servers that publish all the time, and note what they get."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted: dict[int, tuple[str, str]] = {}
        self.uncertain = 0
        self.delivered: dict[str, list[tuple[int, str, str]]] = {}
        self.gaps = 0
        self._answered: dict[str, float] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._publishers: list[asyncio.Task[None]] = []
        self._clients: list[gamecast.Client] = []
        self._stop = asyncio.Event()
        self._number = 0

    async def __aenter__(self) -> Self:
        for group in GROUPS:
            for number in range(2):
                name = f"{group[0]}-server-{number}"
                client = await gamecast.connect(self._url, name=name, publish_timeout_s=scaled(60)).open()
                self._clients.append(client)
                await client.subscribe(*group)
                self.delivered[name] = []
                self._readers.append(asyncio.create_task(self._read(client)))
        # Who joins later has no part in what was published before.
        for client, group in zip(self._clients, (group for group in GROUPS for _ in range(2)), strict=True):
            self._publishers.append(asyncio.create_task(self._publish(client, group)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (tasks := [*self._readers, *self._publishers]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients), return_exceptions=True)

    async def _read(self, client: gamecast.Client) -> None:
        async for item in client:
            if isinstance(item, gamecast.Event):
                self.delivered[client.name].append((item.payload, item.region, str(item.position)))
            elif isinstance(item, gamecast.Gap):
                self.gaps += 1

    async def _publish(self, client: gamecast.Client, group: tuple[str, ...]) -> None:
        while not self._stop.is_set():
            self._number += 1
            number = self._number
            region = group[number % 2]
            try:
                receipt = await client.publish(region, number)
            except gamecast.PublishUncertain:
                self.uncertain += 1
                continue
            self.accepted[number] = region, str(receipt.position)
            self._answered[region] = time.monotonic()
            await asyncio.sleep(0.05)

    async def goes_on(self) -> float:
        """Return for how long, from now on, events of some region are not accepted."""
        begun = time.monotonic()
        async with patience(90):
            while waiting := [region for region in REGIONS if self._answered.get(region, 0.0) <= begun]:
                for publisher in self._publishers:
                    assert not publisher.done(), (waiting, publisher.exception())
                await asyncio.sleep(0.02)
        return max(self._answered.values()) - begun

    async def judge(self) -> None:
        """All that was accepted came to all, once, in one order."""
        self._stop.set()
        await asyncio.gather(*self._publishers)
        for reader in self._readers:
            assert not reader.done(), reader.result()
        for group in GROUPS:
            wanted = {(number, *place) for number, place in self.accepted.items() if place[0] in group}
            one, other = (self.delivered[f"{group[0]}-server-{number}"] for number in range(2))
            try:
                await until(partial(_have_all, wanted, one, other), 60)
            except TimeoutError:
                raise AssertionError([sorted(wanted.difference(each))[:5] for each in (one, other)]) from None
            assert one == other
            assert len({each[0] for each in one}) == len(one)
        assert self.gaps == 0


def _have_all(wanted: set[tuple[int, str, str]], *delivered: list[tuple[int, str, str]]) -> bool:
    return all(wanted <= set(mine) for mine in delivered)


async def says_a_problem(deployment: Deployment, words: str) -> bool:
    """Return whether doctor reports a problem in these words."""
    with suppress(gamecast.GamecastError):
        return any(words in each.seen for each in await findings_of(deployment.url("manager")) if each.level != "ok")
    return words == "control"


async def _is_well(deployment: Deployment) -> bool:
    with suppress(gamecast.GamecastError):
        return not any(each.level == "problem" for each in await findings_of(deployment.url("manager")))
    return False


async def kill(server: EmbeddedServer) -> None:
    os.kill(server.pid, signal.SIGKILL)


@pytest.mark.alone
@pytest.mark.timeout(600)
async def test_each_fault_is_what_the_page_promises(deployment: Deployment) -> None:
    rows = promised()
    saw: dict[str, tuple[float, float]] = {}
    servers = deployment.servers

    async def row(
        fault: str, cause: Callable[[], Any], is_said: Callable[[], Any], undo: Callable[[], Any] | None = None
    ) -> None:
        begun = time.monotonic()
        caused = cause()
        if asyncio.iscoroutine(caused):
            await caused
        going_on = asyncio.create_task(game.goes_on())

        async def says() -> bool:
            with suppress(gamecast.GamecastError):  # a busy machine does not answer in time
                said = is_said()
                return bool(await said if asyncio.iscoroutine(said) else said)
            return False

        await until(says, 90)
        said_s = time.monotonic() - begun
        if undo is not None:
            await asyncio.sleep(max(0.0, HUNG_S - said_s))
            undo()
        saw[fault] = await going_on, said_s
        print("ROW", fault, saw[fault], flush=True)
        for number in range(3):
            await asyncio.to_thread(until_whole, servers, number)
        await asyncio.sleep(1)

    async def leader_pid() -> int:
        leader = (await survey(deployment.url("watcher"))).leader or "::"
        return int(leader.split(":")[-2] or 0)

    async with Game(deployment.url("subscriber")) as game:
        await asyncio.sleep(1)
        assert set(await until(partial(_nodes_of_plan, deployment))) == {*NODES}
        await until(partial(_is_well, deployment), 60)
        master = await asyncio.to_thread(servers.master, 1)
        await row("a node's master dies", partial(kill, master), partial(is_replaced, servers, 1, master))
        master = await asyncio.to_thread(servers.master, 0)
        await row("the control's master dies", partial(kill, master), partial(is_replaced, servers, 0, master))
        master = await asyncio.to_thread(servers.master, 2)
        [replica] = [each for each in servers.members(2) if each is not master]
        await row(
            "a replica hangs for 12 s",
            partial(os.kill, replica.pid, signal.SIGSTOP),
            partial(says_a_problem, deployment, "too few of its replicas are there"),
            partial(os.kill, replica.pid, signal.SIGCONT),
        )
        first = await leader_pid()
        await row(
            "the node that leads dies",
            partial(os.kill, first, signal.SIGKILL),
            lambda: _leads_anew(leader_pid, first),
        )
        await row(
            "a gateway dies",
            partial(deployment.kill_gateway, "n1"),
            partial(_is_refused, deployment.ports["n1"]),
        )
        await game.judge()
    print(saw)
    for fault, (stall_s, said_s) in saw.items():
        assert stall_s <= scaled(rows[fault]["stall_s"]), (fault, saw)
        assert said_s <= scaled(rows[fault]["said_s"]), (fault, saw)
    assert rows.keys() == saw.keys()
    assert await deployment.metric("n2", "gamecast_leader") == {"": 1.0}
    mint = "token", "mint", "--keys", str(deployment.folder / "keys.json"), "--subject", "ann", "--write", "**"
    token = await asyncio.to_thread(run, *mint, "--expires", "1h")
    trusted = ssl.create_default_context(cafile=str(deployment.folder / "ca.crt"))
    async with aiohttp.ClientSession() as client:
        url = f"https://127.0.0.1:{deployment.ports['n2']}/v1/regions/region-1/events"
        headers = {"Authorization": f"Bearer {token}"}
        async with client.post(url, json={"payload": "hello"}, headers=headers, ssl=trusted) as answer:
            assert answer.status == 200, await answer.text()


async def _nodes_of_plan(deployment: Deployment) -> set[str]:
    with suppress(gamecast.Unreachable):  # while all of it starts
        if (plan := (await survey(deployment.url("watcher"))).plan) is not None:
            return {*plan.visits}
    return set()


async def _leads_anew(leader_pid: Callable[[], Any], before: int) -> bool:
    return await leader_pid() not in (0, before)


def until_whole(servers: ReplicatedServers, number: int) -> None:
    deadline = time.monotonic() + scaled(60)
    while not servers.is_whole(number):
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def is_replaced(servers: ReplicatedServers, number: int, dead: EmbeddedServer) -> bool:
    with suppress(redis.RedisError, KeyError):
        return await asyncio.to_thread(servers.master, number) is not dead
    return False


async def _is_refused(port: int) -> bool:
    try:
        async with asyncio.timeout(1):  # a server that ends may take no connection, and refuse none
            _, writer = await asyncio.open_connection("127.0.0.1", port)
    except TimeoutError:
        return False
    except OSError:
        return True
    writer.close()
    return False
