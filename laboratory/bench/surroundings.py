"""The surroundings of a crowd of connections: a server that takes them all, a manager, and files to open."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from redis import Redis

from adapters.embedded.server import EmbeddedServer
from adapters.redis.controlkeys import ControlKeys
from adapters.redis.leadercontrol import LeaderControl
from adapters.redis.network import RedisNetwork
from adapters.redis.relays import RedisRelays
from demo.patience import Deadline
from gamecast.client.configuration import Limits
from laboratory.processes.worker import Worker
from sequencing.errors import ProcessFailed, UsageError

CONNECTIONS_A_SUBSCRIBER = 6
LEADS_S_MAX = 30.0


@contextmanager
def server_for(subscribers: int) -> Iterator[EmbeddedServer]:
    """Start a private redis-server that this many subscribers can connect to."""
    connections = CONNECTIONS_A_SUBSCRIBER * subscribers + 100
    with EmbeddedServer(settings={"maxclients": str(connections)}) as server:
        yield server


@contextmanager
def managed(url: str, *, nodes: int = 0) -> Iterator[int]:
    """Start a manager in a process of its own, and yield its id, so that no server has the work of leading beside its
    own. It leads when this begins; raises `ProcessFailed` if it does not become leader.

    ``nodes``: how many it registers first, all in the control Redis, whose relays run beside it.
    """
    with Worker(_manage, url, nodes) as manager, Redis.from_url(url) as redis:
        deadline = Deadline(LEADS_S_MAX)
        while not redis.exists(ControlKeys.lease):
            if deadline.passed or not manager.is_alive:
                raise ProcessFailed("the manager does not lead")
            time.sleep(0.01)
        yield manager.pid


def allow_connections(subscribers: int) -> None:
    """Let this process open enough files for this many subscribers; raises `UsageError` if it may not."""
    wanted = CONNECTIONS_A_SUBSCRIBER * subscribers + 200
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise UsageError(
            f"{subscribers} subscribers may open {wanted} files, and the system allows {hard}: raise ulimit -n, or "
            "measure fewer"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _manage(url: str, nodes: int, _: Connection) -> None:
    network = RedisNetwork(url, ordering="acyclic", retention_events=Limits().retention_events)
    for number in range(1, nodes + 1):
        await network.register_node(f"n{number}", "")
    if nodes:
        RedisRelays(url).start()
    network.stand(LeaderControl(url))
    await asyncio.Event().wait()
