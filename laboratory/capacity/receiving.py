"""The subscribers' process of a capacity measurement: delays, hold times, and whether all came, once and in order."""

from __future__ import annotations

import asyncio
import gc
import time
from array import array
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any

import gamecast
from gamecast.holding import HoldTimes
from laboratory.bench.figures import percentile
from laboratory.bench.receiving import count_missing, count_pairs_out_of_order
from laboratory.bench.workload import FAN_OUT, World
from laboratory.capacity.task import Task, regions_of

WARM_UP = 0.15
"""The first part of a run is not measured: batches and caches are still of the run before."""
STILL_S_MAX = 3.0


async def receive(task: Task, pipe: Connection) -> None:
    """Follow runs until the pipe is closed: ("begin", seed, events), then ("end", events published, seconds)."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        recorders = []
        for number, name in enumerate(task.world.subscribers):
            cast = await stack.enter_async_context(gamecast.connect(task.url, name=f"{task.name}-{name}"))
            recorder = _Recorder(cast)
            recorders.append(recorder)
            recorder.task = group.create_task(recorder.follow())
            await cast.subscribe(*(task.regions[at] for at in task.world.members[number]))
        pipe.send(("ready", None))
        hear = asyncio.get_running_loop().run_in_executor
        try:
            while True:  # until the pipe is closed
                _, seed, events = await hear(None, pipe.recv)
                gc.collect()
                for recorder in recorders:
                    recorder.begin(seed, measured_from=round(events * WARM_UP))
                pipe.send(("begun", None))
                _, published, seconds_max = await hear(None, pipe.recv)
                await _drained(recorders, published * FAN_OUT, seconds_max)
                pipe.send(("done", _report(recorders, task.world, regions_of(seed, len(task.regions), events))))
        except EOFError:
            pass
        finally:
            for recorder in recorders:
                if recorder.task is not None:
                    recorder.task.cancel()


async def _drained(recorders: list[_Recorder], awaited: int, seconds_max: float) -> None:
    """Return when all has come, when nothing more comes, or after so long."""
    began_s = grown_s = time.monotonic()
    seen = -1
    while (count := sum(len(recorder.events) for recorder in recorders)) < awaited:
        now_s = time.monotonic()
        if count != seen:
            seen, grown_s = count, now_s
        if now_s - grown_s > STILL_S_MAX or now_s - began_s > seconds_max:
            return
        await asyncio.sleep(0.01)


def _report(recorders: list[_Recorder], world: World, region_of: list[int]) -> dict[str, Any]:
    orders = [recorder.events for recorder in recorders]
    delays_ms = sorted(delay_ns / 1e6 for recorder in recorders for delay_ns in recorder.delays_ns)
    lost, duplicated = count_missing(orders, world, region_of)
    held = [recorder.held() for recorder in recorders]
    hold = HoldTimes.together(times for times, _ in held)
    first_s = min((recorder.first_ns for recorder in recorders if recorder.events), default=0) / 1e9
    last_s = max((recorder.last_ns for recorder in recorders), default=0) / 1e9
    return {
        "deliveries_per_s": sum(map(len, orders)) / max(last_s - first_s, 1e-3),
        "p50_ms": percentile(delays_ms, 50),
        "p99_ms": percentile(delays_ms, 99),
        "hold_p99_ms": hold.quantile_ms(0.99, frames=max(hold.frames, sum(frames for _, frames in held))),
        "hold_longest_ms": max((edge for edge in hold.waits_ms()), default=0.0),
        "lost": lost,
        "duplicated": duplicated,
        "pairs_out_of_order": count_pairs_out_of_order(orders, world, region_of),
    }


class _Recorder:
    """The deliveries to one subscriber in the current run; arrays, which the garbage collector need not walk."""

    def __init__(self, cast: gamecast.Client) -> None:
        self.task: asyncio.Task[None] | None = None
        self._cast = cast
        self.begin(0, measured_from=0)

    def begin(self, run: int, *, measured_from: int) -> None:
        """Forget the run before."""
        self._run = run
        self._measured_from = measured_from
        self.events = array("q")
        self.delays_ns = array("q")
        self.first_ns = self.last_ns = 0
        statistics = self._cast.statistics()
        self._hold, self._frames = statistics.hold, statistics.received_frames

    def held(self) -> tuple[HoldTimes, int]:
        """Return the hold times of the run, and how many frames it had."""
        statistics = self._cast.statistics()
        return statistics.hold.since(self._hold), statistics.received_frames - self._frames

    async def follow(self) -> None:
        """Record until cancelled. Late events of an earlier run are that run's loss."""
        kind = gamecast.Event
        async for batch in self._cast.batches():
            now_ns = time.monotonic_ns()
            for event in batch:
                if not isinstance(event, kind) or event.payload["run"] != self._run:
                    continue
                number = event.payload["id"]
                self.events.append(number)
                if number >= self._measured_from:
                    self.delays_ns.append(now_ns - event.payload["sent_at_ns"])
                self.first_ns = self.first_ns or now_ns
                self.last_ns = now_ns
