"""Faults of groups of a master and its replicas, carried out on real processes. Calls block, but for `befall`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping

import redis

from adapters.embedded.replicated import ReplicatedServers
from adapters.embedded.server import EmbeddedServer
from demo.patience import Deadline
from laboratory.chaos.proxy import Proxy
from laboratory.chaos.schedule import Kind
from sequencing.errors import GamecastError

WHOLE_S_MAX = 60.0
LOOK_S = 0.1


async def befall(
    groups: ReplicatedServers, proxies: Mapping[EmbeddedServer, Proxy], kind: Kind, number: int, seconds: float
) -> str:
    """Have a group suffer a fault; return a note when its replicas follow one master again.

    ``proxies``: server → the proxy before it. Raises `GamecastError` if the group does not get there.
    """
    group = _Group(groups, proxies, number)
    return await asyncio.to_thread(group.befall, kind, seconds)


class _Group:
    def __init__(self, groups: ReplicatedServers, proxies: Mapping[EmbeddedServer, Proxy], number: int) -> None:
        self._groups, self._proxies, self._number = groups, proxies, number

    def befall(self, kind: Kind, seconds: float) -> str:
        self._wait(lambda: self._groups.is_whole(self._number))
        master = self._groups.master(self._number)
        replica = next(server for server in self._groups.members(self._number) if server is not master)
        match kind:
            case Kind.MASTER_KILLED:
                master.kill()
                self._wait(lambda: self._groups.bring_back(self._number, master))
            case Kind.REPLICA_KILLED:
                replica.kill()
                time.sleep(seconds)
                self._wait(lambda: self._groups.bring_back(self._number, replica))
            case Kind.MASTER_STOPPED:
                self._stop(master, seconds)
            case Kind.REPLICA_STOPPED:
                self._stop(replica, seconds)
            case Kind.MASTER_PARTED:
                self._proxies[master].part()
                time.sleep(seconds)
                self._proxies[master].flow()
            case Kind.MASTER_REPLACED:
                self._groups.fail_over(self._number)
                self._wait(lambda: self._groups.master(self._number) is not master)
            case _:
                raise ValueError(kind)
        self._wait(lambda: self._groups.is_whole(self._number))
        return "replaced" if self._groups.master(self._number) is not master else ""

    @staticmethod
    def _stop(server: EmbeddedServer, seconds: float) -> None:
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(server.pid, signal.SIGCONT)

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline = Deadline(WHOLE_S_MAX)
        while True:
            try:
                if is_so():
                    return
                said = "its replicas do not follow one master"
            except (redis.RedisError, KeyError) as error:
                said = repr(error)
            if deadline.passed:
                raise GamecastError(f"group {self._number + 1} is not whole after {WHOLE_S_MAX:g} s: {said}")
            time.sleep(LOOK_S)
