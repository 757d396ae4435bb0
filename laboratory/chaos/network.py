"""The network that is put to the test: Redis servers, proxies before them, relays, managers and game servers.

Each is a process of its own, and each that faults befall is named: ``n1``, ``relay-n1``, ``manager-1``, ``server-1``.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import redis

from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServer
from adapters.manager import pid_in
from adapters.redis.connection import RedisConnection
from adapters.redis.control import RedisControl
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.users import ALL, FINDER, create_users, found_by, new_users, save_users
from adapters.urls import without_user
from demo.patience import Deadline
from laboratory.chaos.board import Board, Phase
from laboratory.chaos.clock import Clock, ClockedServer
from laboratory.chaos.kept import Kept
from laboratory.chaos.proxy import Proxy
from laboratory.chaos.server import serve
from laboratory.processes.children import TELL, Child, Guard
from sequencing.errors import GamecastError, NetworkError
from sequencing.keyspace import NodeKeys
from sequencing.plan import Plan

NODES = ("n1", "n2", "n3")
"""The first is also the control Redis."""

MANAGERS = ("manager-1", "manager-2")

REGIONS = tuple(f"region-{letter}" for letter in "abcdefghij")

ENTRY = "entry"
"""The port of a proxy."""

CHECK_EVERY_S = 0.2
START_AGAIN_S = 0.5
"""A process that ended by itself is started again after this time, as a supervisor would."""

READ_ENTRIES = 500
ASK_S_MAX = 1.0
TELL_S = 0.5


class ChaosError(GamecastError):
    """The network under test could not be started, or its end could not be seen."""


class Network:
    """An async context manager; everything that it starts ends with it."""

    def __init__(
        self,
        directory: Path,
        *,
        servers: int,
        seed: int,
        lasting: bool,
        lossy: bool,
        walk: bool,
        replicas: int,
        clock_library: Path | None,
        command: Callable[..., None],
    ) -> None:
        """``directory``: where all logs go, removed with this process unless ``lasting``; ``lossy``: only the first
        node keeps its data, the others have nothing after a restart, and say so; ``walk``: whether servers only go from
        a region to the next ones; ``replicas``: of each node, for which receipts wait; ``clock_library``: the library
        that makes the clocks of Redis servers jump, where they have no replicas;
        ``command``: runs ``gamecast ARGUMENTS`` in a process of its own, so it can be pickled."""
        self.directory = directory
        self.server_names = tuple(f"server-{number}" for number in range(1, servers + 1))
        self.relay_names = tuple(f"relay-{node}" for node in NODES)
        self.board = Board(servers)
        self.losing = frozenset(NODES[1:]) if lossy else frozenset[str]()
        self.redis: dict[str, ClockedServer] = {}
        """Node → its only server."""
        self.groups: ReplicatedServers | None = None
        """A master and its replicas for each node, with the users of a secured network."""
        self._users = new_users(ALL) if replicas else {}
        if replicas:
            password = new_users(["operator"])["operator"].password
            self.groups = ReplicatedServers(len(NODES), replicas, announced=self._announced, password=password)
        else:
            self.redis = {node: self._server(node, clock_library) for node in NODES}
        self.proxies: dict[str, Proxy] = {}
        """Node → the proxy before its only server."""
        self.proxy_of: dict[EmbeddedServer, Proxy] = {}
        """Server → the proxy before it."""
        self.children: dict[str, Child] = {}
        self.ended_by_themselves: list[tuple[str, int, int]] = []
        """(process, status, when in ns)."""
        self.held: set[str] = set()
        """Processes that a fault keeps down, and that must not be started again."""
        self._seed = seed
        self._walk = walk
        self._command = command
        self._guard = Guard(None if lasting else directory)
        self._supervisor: asyncio.Task[None] | None = None

    def _server(self, node: str, clock_library: Path | None) -> ClockedServer:
        clock = Clock(self.directory / f"clock-{node}", clock_library)
        return ClockedServer(clock, appendfsync=None if node in self.losing else "always")

    def delivery_file(self, server: str) -> Path:
        """Return the file of a server's notes."""
        return self.directory / f"{server}.notes.jsonl"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _start(self) -> None:
        urls = await self._start_servers()
        control = self._url_of("manager", urls[NODES[0]])
        for node, name in zip(NODES, self.relay_names, strict=True):
            loses = "--may-lose" if node in self.losing else "--keeps-all"
            url = self._url_of("", urls[node])
            self._add(name, "node", "--name", node, "--redis", url, "--control", control, loses)
        for name in MANAGERS:
            self._add(name, "manager", "--control", control)
        await self._registered()
        for number, name in enumerate(self.server_names):
            file = str(self.delivery_file(name))
            url = self._url_of("subscriber", urls[NODES[0]])
            task = name, number, url, REGIONS, self._seed, file, self.board, self._walk
            self.children[name] = Child(name, serve, task, self.directory / f"{name}.log", self._guard)
            self.children[name].start()
        self._supervisor = asyncio.create_task(self._supervise(), name="chaos supervisor")

    async def _start_servers(self) -> dict[str, str]:
        """Start the servers and the proxies before them; return node → URL for all processes."""
        if self.groups is not None:
            await self.groups.start_async()
            await create_users(self.groups.urls, self._users)
            await save_users(self.groups.urls)
            return dict(zip(NODES, self.groups.urls, strict=True))
        await asyncio.gather(*(server.start_async() for server in self.redis.values()))
        self.proxies = {node: self._proxy(f"proxy-{node}", server) for node, server in self.redis.items()}
        return {node: proxy.url(ENTRY) for node, proxy in self.proxies.items()}

    def _url_of(self, role: str, url: str) -> str:
        """Return a URL with the user of a role, and with none for no role, as nodes are registered."""
        if not self._users:
            return url
        user = self._users.get(role)
        return found_by(user.url(url) if user is not None else without_user(url), self._users[FINDER])

    def _announced(self, server: EmbeddedServer) -> int:
        return self._proxy(f"proxy-{len(self.proxy_of)}", server).ports[ENTRY]

    def _proxy(self, name: str, server: EmbeddedServer) -> Proxy:
        port = int(server.url.rpartition(":")[2])
        self.proxy_of[server] = proxy = Proxy(name, port, (ENTRY,), self.directory / f"{name}.log", self._guard)
        proxy.start()
        return proxy

    async def server_url(self, node: str) -> str:
        """Return the URL of a node's server, past the proxies. Raises `NetworkError`."""
        if self.groups is None:
            return self.redis[node].url
        try:
            return (await asyncio.to_thread(self.groups.master, NODES.index(node))).url
        except (redis.RedisError, KeyError) as error:
            raise NetworkError(f"the master of {node} is not known: {error!r}") from error

    def _add(self, name: str, *arguments: str) -> None:
        self.children[name] = Child(name, self._command, arguments, self.directory / f"{name}.log", self._guard)
        self.children[name].start()

    async def _registered(self) -> None:
        """Wait until all nodes are registered: else the first servers would plan without them."""
        deadline = Deadline(30.0)
        connection = RedisConnection(await self.server_url(NODES[0]))
        try:
            while await connection.call("HLEN", ControlKeys.nodes) < len(NODES):
                ended = {name: status for name, child in self.children.items() if (status := child.ended()) is not None}
                if ended or deadline.passed:
                    raise ChaosError(f"the nodes were not registered in time; ended: {ended}; see {self.directory}")
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            for name, child in self.children.items():
                if name not in self.held and (status := child.ended()) is not None:
                    self.ended_by_themselves.append((name, status, time.monotonic_ns()))
                    self.held.add(name)
                    asyncio.get_running_loop().call_later(START_AGAIN_S, self._start_again, name)

    def _start_again(self, name: str) -> None:
        if self._supervisor is not None and not self._supervisor.done():
            self.held.discard(name)
            self.children[name].start()

    async def leader(self) -> tuple[str | None, str | None]:
        """Return the token that has the lease, and the name of the process that stands with it, each if known."""
        try:
            connection = RedisConnection(await self.server_url(NODES[0]))
        except NetworkError:
            return None, None
        try:
            token = await connection.call("GET", ControlKeys.lease, timeout_s=ASK_S_MAX)
        except GamecastError:
            return None, None
        finally:
            await connection.close()
        if token is None:
            return None, None
        holder = pid_in(token.decode())
        running = ((name, child) for name, child in self.children.items() if child.running)
        return token.decode(), next((name for name, child in running if child.pid == holder), None)

    async def kept(self) -> list[Kept]:
        """Return the events in the egress streams; raises `NetworkError` if a server does not answer."""
        found: list[Kept] = []
        for node in NODES:
            connection = RedisConnection(await self.server_url(node))
            try:
                prefix = NodeKeys(node).egress(0, "").removesuffix("0:")
                for key in await connection.call("KEYS", prefix + "*"):
                    epoch, _, region = key.decode().removeprefix(prefix).partition(":")
                    after = "-"
                    while entries := await connection.call("XRANGE", key, after, "+", "COUNT", READ_ENTRIES):
                        found += (Kept.of(node, region, int(epoch), *entry) for entry in entries)
                        after = f"({entries[-1][0].decode()}"
            finally:
                await connection.close()
        return found

    async def plan(self) -> Plan:
        """Return the plan that managers go on from; raises `NetworkError` if there is none."""
        control = RedisControl(await self.server_url(NODES[0]))
        try:
            record = await control.record()
        finally:
            await control.close()
        if record is None:
            raise NetworkError("no plan was ever made")
        return record.plan

    async def end_servers(self, seconds: float) -> list[str]:
        """Have the servers close and end; return those that had to be killed, after they have logged what they were
        doing."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        self.board.phase = Phase.STOP
        deadline = time.monotonic() + seconds
        hanging = list(self.server_names)
        while hanging and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            hanging = [name for name in hanging if self.children[name].running]
        for name in hanging:
            self.children[name].signal(TELL)
        if hanging:
            await asyncio.sleep(TELL_S)
        for name in self.server_names:
            self.children[name].kill()
        return hanging

    def keep_redis_logs(self) -> None:
        """Put the logs of the Redis servers beside the others."""
        for name, server in self._servers():
            with suppress(OSError, GamecastError):
                shutil.copyfile(server.directory / "redis.log", self.directory / f"redis-{name}.log")

    def _servers(self) -> Iterator[tuple[str, EmbeddedServer]]:
        yield from self.redis.items()
        if self.groups is not None:
            for number, node in enumerate(NODES):
                members = self.groups.members(number)
                yield from ((f"{node}-{place}", server) for place, server in enumerate(members, start=1))
            yield from self.groups.sentinels.items()

    async def close(self) -> None:
        """Kill everything; the directory stays until `release`, or for as long as this process."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        for child in self.children.values():
            child.kill()
        for proxy in self.proxy_of.values():
            proxy.stop()
        self.keep_redis_logs()
        everything = [*self.redis.values(), *([self.groups] if self.groups is not None else [])]
        await asyncio.gather(*(each.stop_async() for each in everything))

    def release(self, *, keep: bool) -> None:
        """Remove the directory, unless it is to last or to be kept now."""
        if keep:
            self._guard.keep()
        self._guard.close()
