"""The publishers' process of a capacity measurement: they keep to a schedule, even if their events are delayed."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import AsyncExitStack
from multiprocessing.connection import Connection
from typing import Any

import gamecast
from laboratory.bench.workload import PUBLISHERS, payload_of
from laboratory.capacity.task import Task, regions_of
from sequencing.errors import BufferFull

TICK_S = 0.0005
"""Events due within it are published together, as a game's server publishes the events of one tick."""
HOPELESS_S = 5.0
"""Publishers that are so far behind their schedule do not catch up: the rest of the run is left out, as lost."""


async def publish(task: Task, pipe: Connection) -> None:
    """Carry out runs, (rate, events, seed) each, until the pipe is closed."""
    async with AsyncExitStack() as stack:
        casts = [
            await stack.enter_async_context(gamecast.connect(task.url, name=f"{task.name}-publisher-{number}"))
            for number in range(PUBLISHERS)
        ]
        for cast in casts:  # so that the first run need not wait for a plan with these regions
            await asyncio.gather(*(cast.publish(region, {"run": -1}) for region in task.regions))
        pipe.send(("ready", None))
        hear = asyncio.get_running_loop().run_in_executor
        while True:
            try:
                rate_per_s, events, seed = await hear(None, pipe.recv)
            except EOFError:
                return
            gc.collect()
            pipe.send(("done", await _run(casts, task.regions, rate_per_s=rate_per_s, events=events, seed=seed)))


async def _run(
    casts: list[gamecast.Client], regions: list[str], *, rate_per_s: float, events: int, seed: int
) -> dict[str, Any]:
    region_of = regions_of(seed, len(regions), events)
    under_way: set[asyncio.Future[gamecast.Receipt]] = set()
    failed = 0

    def resolved(receipt: asyncio.Future[gamecast.Receipt]) -> None:
        nonlocal failed
        under_way.discard(receipt)
        failed += receipt.exception() is not None

    began_s = time.monotonic()
    late_s, event = 0.0, 0
    while event < events:
        behind_s = time.monotonic() - began_s - event / rate_per_s
        if behind_s < 0:
            await asyncio.sleep(max(TICK_S, -behind_s))
            continue
        late_s = max(late_s, behind_s)
        if behind_s > HOPELESS_S:
            break
        due = min(events, int((time.monotonic() - began_s) * rate_per_s) + 1, event + 256)
        try:
            while event < due:
                payload = payload_of(event) | {
                    "run": seed,
                    "sent_at_ns": round((began_s + event / rate_per_s) * 1e9),
                }
                receipt = casts[event % len(casts)].publish_async(regions[region_of[event]], payload)
                under_way.add(receipt)
                receipt.add_done_callback(resolved)
                event += 1
        except BufferFull:
            break
        await asyncio.sleep(0)
    while under_way:
        await asyncio.wait(under_way)
    return {"events": event - failed, "seconds": time.monotonic() - began_s, "late_ms": late_s * 1e3}
