"""The demo with replicas: a master is killed in the middle of the match, and the match goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import gamecast
from adapters.embedded.network import EmbeddedNetwork
from adapters.embedded.replicated import ReplicatedServers
from demo.patience import Deadline
from demo.replay import Progress, Replay
from gamecast.client.configuration import Limits
from sequencing.errors import ProcessFailed

KILL_SPEED = 20.0
"""How many times as fast as it happened a match runs that is to have a middle."""

LOOK_S = 0.05
WHOLE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Killed:
    """A master that was killed. ``after``: how many deliveries; ``replaced_s``, ``whole_s``: how long after that a
    replica took over, and the dead server was back as a replica; ``slowest_s``: how long the slowest event took."""

    node: str
    pid: int
    after: int
    replaced_s: float
    whole_s: float
    slowest_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for ``--json``."""
        return asdict(self)


def told_of(killed: Killed) -> str:
    """Return the sentences about a master that was killed."""
    return (
        f"After {killed.after:,} deliveries, the master of {killed.node} (process {killed.pid}) was killed. A replica "
        f"took over after {killed.replaced_s:.1f} s, and the server was back as a replica after "
        f"{killed.whole_s:.1f} s. The slowest event took {killed.slowest_s:.1f} s. Plain Pub/Sub was spared."
    )


def slowest_s(replayed: Replay) -> float:
    """Return how long the slowest event took from its publishing to a delivery, in seconds."""
    taken = (
        delivered.delivered_at_ns - delivered.sent_at_ns for seen in replayed.deliveries.values() for delivered in seen
    )
    return max(taken, default=0) / 1e9


@asynccontextmanager
async def replicated(nodes: int, replicas: int) -> AsyncIterator[EmbeddedNetwork]:
    """Open a private network whose servers have replicas."""
    network = EmbeddedNetwork(
        f"embedded://?nodes={nodes}",
        ordering="acyclic",
        retention_events=Limits().retention_events,
        replicas=replicas,
    )
    await network.open()
    try:
        yield network
    finally:
        await network.close()


class Killer:
    """Kills the master of the node that most regions enter, once half of all is delivered."""

    def __init__(self, servers: ReplicatedServers, url: str, progress: Progress, expected: int) -> None:
        """``url``: of the control Redis; ``progress``: see `progress`; ``expected``: how many deliveries there will
        be."""
        self._servers, self._url, self._progress = servers, url, progress
        self._half, self._delivered = expected // 2, 0
        self._is_begun, self._is_half = asyncio.Event(), asyncio.Event()

    def progress(self, deliveries: int) -> None:
        """Count deliveries, and tell who else counts them."""
        self._progress(deliveries)
        self._delivered += deliveries
        self._is_begun.set()
        if self._delivered >= self._half:
            self._is_half.set()

    async def kill(self) -> Killed:
        """Wait until it is time, kill, and wait until the server is back as a replica. Raises `ProcessFailed`."""
        async with gamecast.connect(self._url) as client:
            await self._is_begun.wait()
            plan = await client.plan()
        assert plan is not None
        node = Counter(path[0] for path in plan.paths.values()).most_common(1)[0][0]
        number = int(node.removeprefix("n")) - 1
        master = await asyncio.to_thread(self._servers.master, number)
        await self._is_half.wait()
        pid, after, began = master.pid, self._delivered, time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await self._until(lambda: self._servers.master(number) is not master)
        replaced_s = time.monotonic() - began
        await self._until(lambda: self._servers.is_whole(number))
        return Killed(node, pid, after, replaced_s, time.monotonic() - began)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        deadline = Deadline(WHOLE_S_MAX)
        while not await asyncio.to_thread(is_so):
            if deadline.passed:
                raise ProcessFailed(f"the master that was killed was not replaced within {WHOLE_S_MAX:g} s")
            await asyncio.sleep(LOOK_S)


def urls_of_masters(servers: ReplicatedServers, nodes: int) -> Sequence[str]:
    """Return the URLs of the servers that are masters now. Blocks."""
    return [servers.master(number).url for number in range(nodes)]
