"""The publishers' process of a trial."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import accumulate

from laboratory.bench.board import FAST, PACED, WARM_UP, Board
from laboratory.bench.cpu import PARTS, process_cpu_s
from laboratory.bench.peers.peer import Peer, Publish, Site
from laboratory.bench.workload import PUBLISHERS, Phases, World, payload_of


@dataclass(frozen=True)
class PublishingReport:
    """`schedule_late_ms`: how far the worst paced publisher was behind its schedule; CPU in cores, fast phase.

    `paced_us`: publishers, servers and relays → microseconds of CPU that they spent on a paced event.
    """

    deliveries_per_s: float
    publishers_cpu_cores: float
    servers_cpu_cores: float
    relays_cpu_cores: float
    schedule_late_ms: float
    paced_us: dict[str, float]


async def publish_phases(peer: Peer, site: Site, world: World, phases: Phases, board: Board) -> PublishingReport:
    """Publishes the three phases, each after the one before has been delivered, or has been given up as lost."""
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(peer.publisher(site.url, f"publisher-{index}"))
            for index in range(PUBLISHERS)
        ]
        traffic = _Traffic(publishers, phases.regions(world), world, phases, board)
        board.phase = WARM_UP
        await traffic.fast(phases.warm_up)
        gc.collect()
        gc.freeze()  # see workload.py

        delivered = board.delivered
        before_s = _used_s(site)
        board.phase = FAST
        began_ns = time.monotonic_ns()
        await traffic.fast(phases.fast)
        fast_s = max(1, board.delivered_at_ns - began_ns) / 1e9
        cpu_cores = [used_s / fast_s for used_s in _used_s(site, before_s)]
        delivered = board.delivered - delivered

        board.phase = PACED
        gc.collect()
        before_s = _used_s(site)
        late_s = await traffic.paced(phases.paced)
        paced_s = _used_s(site, before_s)
    own, servers, relays = cpu_cores
    paced_us = {part: used_s / len(phases.paced) * 1e6 for part, used_s in zip(PARTS, paced_s, strict=False)}
    return PublishingReport(delivered / fast_s, own, servers, relays, late_s * 1e3, paced_us)


class _Traffic:
    """The publishers take turns: publisher i of n has the events whose id is i modulo n."""

    def __init__(
        self,
        publishers: Sequence[Publish],
        region_of: Sequence[int],
        world: World,
        phases: Phases,
        board: Board,
    ) -> None:
        self._publishers = publishers
        names, fan_out = world.regions, world.fan_out()
        self._region_of = [names[index] for index in region_of]
        self._causes = [0, *accumulate(fan_out[index] for index in region_of)]
        """The deliveries that all events before each cause."""
        self._phases = phases
        self._board = board
        self._due = 0  # deliveries that have been caused so far, less those that were given up

    async def fast(self, events: range) -> None:
        async with asyncio.TaskGroup() as group:
            for index, publish in enumerate(self._publishers):
                group.create_task(self._publish_fast(publish, events[index :: len(self._publishers)]))
        await self._delivered(0)

    async def paced(self, events: range) -> float:
        """The longest time, in seconds, by which a publisher was behind its schedule."""
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._publish_paced(publish, events[index :: len(self._publishers)], begin, index))
                for index, publish in enumerate(self._publishers)
            ]
        await self._delivered(0)
        return max(task.result() for task in tasks)

    async def _publish_fast(self, publish: Publish, events: range) -> None:
        window = self._phases.window_events * self._causes[-1] // len(self._region_of)
        for start in range(0, len(events), _BATCH_EVENTS):
            batch = events[start : start + _BATCH_EVENTS]
            if self._due - self._board.delivered > window:
                await self._delivered(window // 2)
            self._due += sum(self._causes[event + 1] - self._causes[event] for event in batch)
            await publish([(self._region_of[event], payload_of(event)) for event in batch])

    async def _publish_paced(self, publish: Publish, events: range, begin: float, index: int) -> float:
        late_s = 0.0
        for due_s, at_once in self._phases.schedule(events, index, len(self._publishers)):
            due = begin + due_s
            ahead = due - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            late_s = max(late_s, time.monotonic() - due)
            self._due += sum(self._causes[event + 1] - self._causes[event] for event in at_once)
            await publish([(self._region_of[event], payload_of(event, due)) for event in at_once])
        return late_s

    async def _delivered(self, remaining: int) -> None:
        """Return when at most `remaining` deliveries are in flight; give up those that do not arrive for long."""
        seen, seen_at = self._board.delivered, time.monotonic()
        while self._due - self._board.delivered > remaining:
            await asyncio.sleep(_POLL_S)
            if self._board.delivered != seen:
                seen, seen_at = self._board.delivered, time.monotonic()
            elif time.monotonic() - seen_at > _LOST_AFTER_S:
                self._due = seen


def _used_s(site: Site, before_s: Sequence[float] = (0.0, 0.0, 0.0)) -> list[float]:
    """Return the CPU seconds of publishers, servers and relays since they were ``before_s``."""
    now_s = time.process_time(), process_cpu_s(site.servers), process_cpu_s(site.relays)
    return [used_s - earlier_s for used_s, earlier_s in zip(now_s, before_s, strict=True)]


_BATCH_EVENTS = 64  # a pipeline of 32 to 128 commands is where redis-py stops gaining
_LOST_AFTER_S = 3.0
_POLL_S = 0.0005
