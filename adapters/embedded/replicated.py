"""Private redis-servers with replicas, and sentinels that promote a replica when a master dies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import redis

from adapters.embedded.server import EmbeddedServer, Startable, start_all
from adapters.urls import with_replicas
from sequencing.errors import EmbeddedServerError

SENTINELS, QUORUM = 3, 2
DOWN_AFTER_MS = 2_000
READY_S_MAX = 20.0
LOOK_S = 0.5
"""How often `keep` looks for servers that have died."""

logger = logging.getLogger("gamecast.embedded")


class ReplicatedServers(Startable):
    """`count` groups of a master and its replicas, and three sentinels that watch over all of them.

    All of them run, or none. A server that has died comes back as a replica, while `keep` runs. Raises
    `EmbeddedServerError`.
    """

    def __init__(self, count: int, replicas: int) -> None:
        self._replicas = replicas
        settings = {
            "appendonly": "yes",
            "repl-diskless-sync-delay": "0",
            "min-replicas-to-write": str(replicas),
            "min-replicas-max-lag": "2",
        }
        self._groups = [[EmbeddedServer(settings=settings) for _ in range(1 + replicas)] for _ in range(count)]
        self._sentinels: list[EmbeddedServer] = []

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of each group: that of its master, wherever it is."""
        sentinels = ",".join(f"127.0.0.1:{_port(sentinel)}" for sentinel in self._sentinels)
        services = (f"redis+sentinel://{sentinels}/{_service(group)}" for group in range(len(self._groups)))
        return tuple(with_replicas(url, self._replicas) for url in services)

    @property
    def servers(self) -> tuple[EmbeddedServer, ...]:
        """All servers but the sentinels: for each group, the first master first."""
        return tuple(server for group in self._groups for server in group)

    def start(self) -> None:
        """Start everything; return when replicas and sentinels know all there is to know."""
        try:
            start_all([group[0] for group in self._groups])
            for group in self._groups:
                for server in group[1:]:
                    server.change({"replicaof": f"127.0.0.1 {_port(group[0])}"})
            start_all([server for group in self._groups for server in group[1:]])
            watched: list[str] = []
            for number, group in enumerate(self._groups):
                name = _service(number)
                watched += [
                    f"sentinel monitor {name} 127.0.0.1 {_port(group[0])} {QUORUM}",
                    f"sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}",
                    f"sentinel failover-timeout {name} {3 * DOWN_AFTER_MS}",
                ]
            self._sentinels = [EmbeddedServer(arguments=("--sentinel",), lines=watched) for _ in range(SENTINELS)]
            start_all(self._sentinels)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything."""
        for server in (*self._sentinels, *reversed(self.servers)):
            server.stop()

    async def keep(self) -> None:
        """Start servers again that have died, as replicas, once they are replaced; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            for number, group in enumerate(self._groups):
                for server in group:
                    if server.has_ended:
                        await asyncio.to_thread(self._bring_back, number, server)

    def master(self, number: int) -> EmbeddedServer:
        """Return the server that most sentinels name as the master of a group."""
        named: list[int] = []
        for sentinel in self._sentinels:
            with redis.Redis.from_url(sentinel.url) as client:
                named.append(int(client.sentinel_get_master_addr_by_name(_service(number))[1]))
        port = max(named, key=named.count)
        return next(server for server in self._groups[number] if _port(server) == port)

    def _bring_back(self, number: int, server: EmbeddedServer) -> None:
        try:
            master = self.master(number)
            if master is server or master.has_ended:
                return  # with less than its replicas have, it would take that from them
            server.kill()
            server.change({"replicaof": f"127.0.0.1 {_port(master)}"})
            server.restart()
        except (redis.RedisError, EmbeddedServerError) as error:
            logger.warning("a private redis-server that has died does not come back yet: %s", error)
        else:
            logger.warning("a private redis-server of %s has died, and is back as a replica", _service(number))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise EmbeddedServerError(f"replicas and sentinels did not find one another within {READY_S_MAX:g} s")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        if any(online_replicas(group[0].url) < self._replicas for group in self._groups):
            return False
        for sentinel in self._sentinels:
            with redis.Redis.from_url(sentinel.url) as client:
                for number in range(len(self._groups)):
                    known: Mapping[str, object] = client.sentinel_master(_service(number))
                    if known["num-other-sentinels"] != SENTINELS - 1 or known["num-slaves"] != self._replicas:
                        return False
        return True


def online_replicas(url: str) -> int:
    """Return how many replicas follow a server now."""
    with redis.Redis.from_url(url) as client:
        told = client.info("replication")
    return sum(told[f"slave{number}"]["state"] == "online" for number in range(told["connected_slaves"]))


def _service(number: int) -> str:
    return f"n{number + 1}"


def _port(server: EmbeddedServer) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port
