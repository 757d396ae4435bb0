"""Private redis-servers with replicas, and sentinels that promote a replica when a master dies."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

import redis

from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer, Startable, start_all
from adapters.urls import with_replicas
from sequencing.errors import EmbeddedServerError

SENTINELS, QUORUM = 3, 2
DOWN_AFTER_MS = 2_000
READY_S_MAX = 20.0
ASK_S_MAX = 2.0
LOOK_S = 0.5
"""How often `keep` looks for servers that have died."""

logger = logging.getLogger("gamecast.embedded")


class ReplicatedServers(Startable):
    """`count` groups of a master and its replicas, and three sentinels that watch over all of them.

    All of them run, or none. A server that has died comes back as a replica, while `keep` runs. Raises
    `EmbeddedServerError`.
    """

    def __init__(
        self,
        count: int,
        replicas: int,
        *,
        announced: Callable[[EmbeddedServer], int] | None = None,
        password: str | None = None,
        tls: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """``announced``: called for each server once it runs; returns the port by which all others reach it, for
        servers behind proxies. ``password``: of the default user of servers and sentinels, who keep further users.
        ``tls``: settings of redis.conf with which servers and sentinels are reached by TLS, with tls-ca-cert-file
        among them; without ``announced``. ``more``: further settings of the servers."""
        self.replicas = replicas
        self._tls = tls
        self._tls_ports: dict[EmbeddedServer, int] = {}
        self._password = password
        settings = {
            "appendonly": "yes",
            "repl-diskless-sync-delay": "0",
            "min-replicas-to-write": str(replicas),
            "min-replicas-max-lag": "2",
        }
        if password is not None:
            settings["masterauth"] = password
        settings |= more or {}
        self._groups = [[self._server(settings) for _ in range(1 + replicas)] for _ in range(count)]
        self._sentinels: list[EmbeddedServer] = []
        self._announced = announced
        self._given_up = threading.Event()
        self._ports: dict[int, EmbeddedServer] = {}
        """By which port each server is reached."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of each group: that of its master, wherever it is."""
        sentinels = ",".join(f"127.0.0.1:{self._port_of(sentinel)}" for sentinel in self._sentinels)
        user, options = (f":{self._password}@", [f"sentinel_password={self._password}"]) if self._password else ("", [])
        scheme = "redis"
        if self._tls is not None:
            scheme = "rediss"
            options.append(f"ssl_ca_certs={self._tls['tls-ca-cert-file']}")
        asking = f"?{'&'.join(options)}" if options else ""
        services = (
            f"{scheme}+sentinel://{user}{sentinels}/{_service(group)}{asking}" for group in range(len(self._groups))
        )
        return tuple(with_replicas(url, self.replicas) for url in services)

    @property
    def servers(self) -> tuple[EmbeddedServer, ...]:
        """All servers but the sentinels: for each group, the first master first."""
        return tuple(server for group in self._groups for server in group)

    @property
    def sentinels(self) -> Mapping[str, EmbeddedServer]:
        """Name → a sentinel."""
        return {f"sentinel-{number}": sentinel for number, sentinel in enumerate(self._sentinels, start=1)}

    def start(self) -> None:
        """Start everything; return when replicas and sentinels know all there is to know."""
        self._given_up.clear()
        try:
            start_all(self.servers)
            watched: list[str] = []
            for number, group in enumerate(self._groups):
                first, *others = (self._announce(server) for server in group)
                for server, port in zip(group[1:], others, strict=True):
                    server.change(_follows(first))
                    with _asking(server.url) as client:
                        client.replicaof("127.0.0.1", first)
                    self._ports[port] = server
                self._ports[first] = group[0]
                name = _service(number)
                watched += [
                    f"sentinel monitor {name} 127.0.0.1 {first} {QUORUM}",
                    f"sentinel down-after-milliseconds {name} {DOWN_AFTER_MS}",
                    f"sentinel failover-timeout {name} {3 * DOWN_AFTER_MS}",
                ]
                if self._password is not None:
                    watched.append(f"sentinel auth-pass {name} {self._password}")
            self._require_wanted()
            self._sentinels = [self._sentinel(watched) for _ in range(SENTINELS)]
            start_all(self._sentinels)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def give_up(self) -> None:
        """Have a start that another thread waits for fail soon."""
        self._given_up.set()

    def _require_wanted(self) -> None:
        if self._given_up.is_set():
            raise EmbeddedServerError("the servers are no longer wanted")

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
                        await asyncio.to_thread(self._keep, number, server)

    def master(self, number: int) -> EmbeddedServer:
        """Return the server that most sentinels name as the master of a group. Raises redis-py's errors."""
        named: list[int] = []
        for sentinel in self._sentinels:
            with _asking(sentinel.url) as client:
                named.append(int(client.sentinel_get_master_addr_by_name(_service(number))[1]))
        return self._ports[max(named, key=named.count)]

    def members(self, number: int) -> tuple[EmbeddedServer, ...]:
        """Return the servers of a group, of which one is the master."""
        return tuple(self._groups[number])

    def bring_back(self, number: int, dead: EmbeddedServer) -> bool:
        """Start a dead server again as a replica; return False, with nothing done, while it is not replaced.

        With less than its replicas have, it would take that from them. Raises redis-py's errors.
        """
        master = self.master(number)
        if master is dead or master.has_ended:
            return False
        dead.kill()
        port = next(port for port, server in self._ports.items() if server is master)
        dead.change(_follows(port))
        dead.restart()
        return True

    def fail_over(self, number: int) -> None:
        """Have a replica promoted although the master is well. Raises redis-py's errors."""
        with _asking(self._sentinels[0].url) as client:
            client.execute_command("SENTINEL", "FAILOVER", _service(number))

    def is_whole(self, number: int) -> bool:
        """Return whether a group has a master that all its replicas follow."""
        try:
            return online_replicas(self.master(number).url) >= self.replicas
        except (redis.RedisError, KeyError):
            return False

    def _server(self, settings: Mapping[str, str]) -> EmbeddedServer:
        port, by_tls = self._by_tls()
        server = EmbeddedServer(
            settings={**settings, **by_tls}, password=self._password, keeps_users=self._password is not None
        )
        self._tls_ports[server] = port
        return server

    def _sentinel(self, watched: Sequence[str]) -> EmbeddedServer:
        port, by_tls = self._by_tls()
        # By TLS it tells others that port, and not the other one, by which it is looked after here.
        told = {"sentinel announce-port": str(port), "sentinel announce-ip": "127.0.0.1"} if by_tls else {}
        sentinel = EmbeddedServer(
            arguments=("--sentinel",), lines=watched, password=self._password, settings={**by_tls, **told}
        )
        self._tls_ports[sentinel] = port
        return sentinel

    def _by_tls(self) -> tuple[int, Mapping[str, str]]:
        """Return another port of a server, and the settings with which it is reached there."""
        if self._tls is None:
            return 0, {}
        port = free_port()
        return port, {**self._tls, "tls-port": str(port), "tls-replication": "yes", "tls-auth-clients": "no"}

    def _port_of(self, server: EmbeddedServer) -> int:
        return self._tls_ports.get(server) or _port(server)

    def _announce(self, server: EmbeddedServer) -> int:
        """Have a server tell by which port it is reached; return it."""
        if self._announced is None and self._tls is None:
            return _port(server)
        port = self._announced(server) if self._announced is not None else self._port_of(server)
        told = {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(port)}
        server.change(told)
        with _asking(server.url) as client:
            for name, value in told.items():
                client.config_set(name, value)
        return int(told["replica-announce-port"])

    def _keep(self, number: int, dead: EmbeddedServer) -> None:
        try:
            if not self.bring_back(number, dead):
                return
        except (redis.RedisError, EmbeddedServerError) as error:
            logger.warning("a private redis-server that has died does not come back yet: %s", error)
        else:
            logger.warning("a private redis-server of %s has died, and is back as a replica", _service(number))

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not self._is_ready():
            self._require_wanted()
            if time.monotonic() > deadline:
                raise EmbeddedServerError(f"replicas and sentinels did not find one another within {READY_S_MAX:g} s")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        if any(online_replicas(group[0].url) < self.replicas for group in self._groups):
            return False
        for sentinel in self._sentinels:
            with _asking(sentinel.url) as client:
                for number in range(len(self._groups)):
                    known: Mapping[str, object] = client.sentinel_master(_service(number))
                    if known["num-other-sentinels"] != SENTINELS - 1 or known["num-slaves"] != self.replicas:
                        return False
        return True


def online_replicas(url: str) -> int:
    """Return how many replicas follow a server now; none, if it is a replica. Raises redis-py's errors."""
    with _asking(url) as client:
        told = client.info("replication")
    if told["role"] != "master":
        return 0
    return sum(told[f"slave{number}"]["state"] == "online" for number in range(told["connected_slaves"]))


def _asking(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=ASK_S_MAX)


def _follows(port: int) -> Mapping[str, str]:
    return {"replicaof": f"127.0.0.1 {port}"}


def _service(number: int) -> str:
    return f"n{number + 1}"


def _port(server: EmbeddedServer) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port
