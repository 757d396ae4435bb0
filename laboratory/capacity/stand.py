"""The stand of a capacity measurement: a network, a process with publishers and one with subscribers, for all runs.

The workload is that of `gamecast bench`: S subscribers on S regions, three each, about 190 bytes of JSON an event. The
publishers keep to a schedule, even if their events are delayed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

import gamecast
from adapters.redis.survey import survey
from laboratory.bench.cpu import process_cpu_s
from laboratory.bench.workload import ring
from laboratory.capacity.publishing import publish
from laboratory.capacity.receiving import receive
from laboratory.capacity.search import Run
from laboratory.capacity.task import Task
from laboratory.processes.worker import Worker

READY_S_MAX = 60.0
ENDS_S_MAX = 10.0
DRAIN_S_MAX = 20.0
"""How long the last published events are awaited; those that have not arrived by then are lost to the run."""


class Stand:
    """A context manager; ``url`` None starts a network of ``nodes`` on this machine, and ends it."""

    def __init__(self, url: str | None, *, nodes: int, size: int) -> None:
        self.url = url
        self._nodes = nodes
        self._world = ring(size)
        self._children: list[Worker] = []
        self._servers: list[int] = []

    def __enter__(self) -> Self:
        try:
            if self.url is None:
                network = self._start(_serve, self._nodes)
                self.url, self._servers = network.hear(READY_S_MAX)
            task = Task(self.url, self._world, f"capacity-{secrets.token_hex(3)}")
            self._subscribers = self._start(receive, task)
            self._subscribers.hear(READY_S_MAX)
            self._publishers = self._start(publish, task)
            self._publishers.hear(READY_S_MAX)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._children:
            self._children.pop().end(gently_s=ENDS_S_MAX)  # a network ends its servers

    def measure(self, rate_per_s: float, *, seconds: float, seed: int) -> Run:
        """Publish at a rate for so long, and wait for the deliveries. Blocks. Raises `ProcessFailed`."""
        events = max(1, round(rate_per_s * seconds))
        before_s, began_s = self._used_s(), time.monotonic()
        self._subscribers.say(("begin", seed, events))
        self._subscribers.hear(READY_S_MAX)
        self._publishers.say((rate_per_s, events, seed))
        published = self._publishers.hear(seconds + DRAIN_S_MAX + READY_S_MAX)
        self._subscribers.say(("end", published["events"], DRAIN_S_MAX))
        received = self._subscribers.hear(DRAIN_S_MAX + READY_S_MAX)
        took_s = time.monotonic() - began_s
        cores = {part: (used - before_s[part]) / took_s for part, used in self._used_s().items()}
        return Run(
            rate_per_s=rate_per_s,
            published_per_s=published["events"] / published["seconds"],
            deliveries_per_s=received["deliveries_per_s"],
            p50_ms=received["p50_ms"],
            p99_ms=received["p99_ms"],
            hold_p99_ms=received["hold_p99_ms"],
            hold_longest_ms=received["hold_longest_ms"],
            late_ms=published["late_ms"],
            lost=received["lost"],
            duplicated=received["duplicated"],
            pairs_out_of_order=received["pairs_out_of_order"],
            cores=cores,
        )

    def _start(self, work: Callable[..., Any], task: object) -> Worker:
        child = Worker(work, task)
        self._children.append(child)
        return child

    def _used_s(self) -> dict[str, float]:
        used = {
            "publishers": process_cpu_s([self._publishers.pid]),
            "subscribers": process_cpu_s([self._subscribers.pid]),
        }
        if self._servers:
            used |= {"servers": process_cpu_s(self._servers), "relays": process_cpu_s([self._children[0].pid])}
        return used


async def _serve(nodes: int, pipe: Connection) -> None:
    async with gamecast.connect(f"embedded://?nodes={nodes}", name=f"capacity-{os.getpid()}") as cast:
        servers = (await survey(cast.url)).nodes
        pipe.send(("ready", (cast.url, [node.server.pid for node in servers if node.server is not None])))
        try:
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        except EOFError:
            return
