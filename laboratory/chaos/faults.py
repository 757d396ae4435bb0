"""Faults, carried out on real processes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from adapters.embedded.server import EmbeddedServer
from adapters.redis.connection import RedisConnection
from demo.patience import Deadline
from laboratory.chaos.clock import ClockedServer, clock_library
from laboratory.chaos.failovers import befall
from laboratory.chaos.network import NODES, Network
from laboratory.chaos.schedule import LEADER, OF_GROUPS, Fault, Kind

DISK_ROOM_BYTES = 7
"""The most that the append-only file may still grow when the disk is full: less than any entry takes."""

LEADER_S_MAX = 4.0
LEADER_LOOK_S = 0.1

FULL_MEMORY = "1mb"
"""Less than an empty server uses."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it was carried out: times are the machine's monotonic clock in nanoseconds.

    ``whom``: the node or process that it struck; ``note``: a remark about it; ``took_over``: whether another candidate
    led while the leader was stopped.
    """

    kind: Kind
    whom: str
    begin_ns: int
    end_ns: int
    note: str = ""
    took_over: bool = False


CANNOT = {
    Kind.DISK_FULL: "this system has no prlimit",
    Kind.CLOCK_JUMPED: "libfaketime is not installed, or does not work with this Redis",
}
"""Why a machine may have no means for something."""


def cannot() -> tuple[Kind, ...]:
    """Return what this machine has no means for. Blocks, see `clock_library`."""
    means = {Kind.DISK_FULL: hasattr(resource, "prlimit"), Kind.CLOCK_JUMPED: clock_library() is not None}
    return tuple(kind for kind, there in means.items() if not there)


async def carry_out(network: Network, faults: Sequence[Fault], struck: list[Struck]) -> None:
    """Carry out the faults of a schedule, each at its time from now; append each to ``struck`` as it ends.

    If this is cancelled, processes stay stopped and bytes held back: the network is to be closed.
    """
    begun = time.monotonic()
    turns: dict[str, asyncio.Lock] = {}

    async def happen(fault: Fault) -> None:
        await asyncio.sleep(max(0.0, begun + fault.at_s - time.monotonic()))
        token, whom = await _leader(network) if fault.target == LEADER else (None, fault.target)
        if whom is not None:
            async with turns.setdefault(whom, asyncio.Lock()):
                struck.append(await _strike(network, fault, whom, token))

    async with asyncio.TaskGroup() as group:
        for fault in faults:
            group.create_task(happen(fault))


async def _leader(network: Network) -> tuple[str | None, str | None]:
    """Wait for a leader; return the token and the process, None for both if there is none for long."""
    deadline = Deadline(LEADER_S_MAX)
    while not deadline.passed:
        token, whom = await network.leader()
        if whom is not None:
            return token, whom
        await asyncio.sleep(LEADER_LOOK_S)
    return None, None


async def _strike(network: Network, fault: Fault, whom: str, token: str | None) -> Struck:
    """Carry one fault out, to its end; ``token``: of the leader that is to be stopped."""
    begin = time.monotonic_ns()
    note, took_over = "", False
    seconds = fault.duration_s
    match fault.kind:
        case kind if kind in OF_GROUPS:
            assert network.groups is not None
            number = NODES.index(whom)
            note = await befall(network.groups, network.proxy_of, kind, number, seconds)
        case Kind.REDIS_KILLED:
            await _kill_redis(network.redis[whom], seconds)
        case Kind.REDIS_STOPPED:
            os.kill(network.redis[whom].pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(network.redis[whom].pid, signal.SIGCONT)
        case Kind.MEMORY_FULL:
            await _set_memory(network.redis[whom], FULL_MEMORY)
            await asyncio.sleep(seconds)
            await _set_memory(network.redis[whom], "0")
        case Kind.DISK_FULL:
            note = await _fill_disk(network.redis[whom], seconds)
        case Kind.CLOCK_JUMPED:
            note = await _jump_clock(network.redis[whom], fault.jump_s, seconds)
        case Kind.CONNECTIONS_CUT:
            note = f"{network.proxies[whom].cut()} connections"
            await asyncio.sleep(seconds)
        case Kind.CONNECTIONS_STALLED:
            network.proxies[whom].hold()
            await asyncio.sleep(seconds)
            network.proxies[whom].flow()
        case Kind.RELAY_KILLED | Kind.MANAGER_KILLED | Kind.SERVER_KILLED:
            network.held.add(whom)
            network.children[whom].kill()
            await asyncio.sleep(seconds)
            network.children[whom].start()
            network.held.discard(whom)
        case _:
            if not network.children[whom].signal(signal.SIGSTOP):
                note = "it had ended"
            network.held.add(whom)
            await asyncio.sleep(seconds)
            if token is not None:
                other, _ = await network.leader()
                took_over = other not in (None, token)
            network.children[whom].signal(signal.SIGCONT)
            network.held.discard(whom)
    return Struck(fault.kind, whom, begin, time.monotonic_ns(), note, took_over)


async def _kill_redis(server: EmbeddedServer, seconds: float) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(seconds)
    await server.restart_async()


async def _jump_clock(server: ClockedServer, ahead_s: int, seconds: float) -> str:
    seen = await server.jump(ahead_s)
    await asyncio.sleep(seconds)
    put_right = await server.jump(0)
    return f"by {ahead_s:+d} s" + ("" if seen and put_right else ", which was not seen in time")


async def _set_memory(server: EmbeddedServer, limit: str) -> None:
    connection = RedisConnection(server.url)
    try:
        await connection.call("CONFIG", "SET", "maxmemory", limit)
    finally:
        await connection.close()


async def _fill_disk(server: EmbeddedServer, seconds: float) -> str:
    """Let the append-only file grow no more; a Redis that syncs always then ends itself, and is started again."""
    pid = server.pid
    files = list((server.directory / "appendonlydir").glob("*.incr.aof"))
    if not files:
        return "it keeps no file"
    file = max(files, key=lambda path: path.stat().st_mtime_ns)
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (file.stat().st_size + DISK_ROOM_BYTES, before[1]))
    await asyncio.sleep(seconds)
    if _runs(pid):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        return "nothing was written meanwhile"
    await server.restart_async()
    return "Redis ended itself"


def _runs(pid: int) -> bool:
    """Return whether a child runs, without reaping it for the process that waits for it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
