"""The subscribers' process of a trial."""

from __future__ import annotations

import asyncio
import gc
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laboratory.bench.board import FAST, PACED, WAITING, Board
from laboratory.bench.figures import percentile
from laboratory.bench.peers.peer import Deliver, Peer
from laboratory.bench.workload import Payload, Phases, World


@dataclass(frozen=True)
class ReceivingReport:
    """The deliveries of all phases, judged by the ids alone; the delays are those of the paced phase.

    `subscribers_cpu_cores`: in use in the fast phase; `paced_us`: microseconds of CPU that all spent on a paced event.
    """

    expected: int
    lost: int
    duplicated: int
    sharing_pairs: int
    pairs_out_of_order: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    subscribers_cpu_cores: float
    paced_us: dict[str, float]


async def receive_phases(
    peer: Peer, url: str, world: World, phases: Phases, board: Board, ready: Callable[[], None]
) -> ReceivingReport:
    """Subscribes all, calls `ready`, and records until the board says stop."""
    recorders = [Recorder(phases.measured_from) for _ in world.subscribers]
    async with asyncio.TaskGroup() as group:
        active = [asyncio.Event() for _ in world.subscribers]
        receivers = [
            group.create_task(
                peer.receive(
                    url,
                    name,
                    [world.regions[region] for region in world.members[index]],
                    recorders[index].deliver,
                    active[index].set,
                )
            )
            for index, name in enumerate(world.subscribers)
        ]
        for event in active:
            await event.wait()
        gc.collect()
        gc.freeze()  # see workload.py
        ready()
        cpu_cores, paced_s = await _report_progress(recorders, board)
        for receiver in receivers:
            receiver.cancel()
    delays_ms = sorted(delay_ns / 1e6 for recorder in recorders for delay_ns in recorder.delays_ns)
    orders = [recorder.events for recorder in recorders]
    lost, duplicated = count_missing(orders, world, phases.regions(world))
    pairs = world.sharing_pairs()
    return ReceivingReport(
        expected=sum(map(world.fan_out().__getitem__, phases.regions(world))),
        lost=lost,
        duplicated=duplicated,
        sharing_pairs=len(pairs),
        pairs_out_of_order=count_pairs_out_of_order(orders, world, phases.regions(world)),
        p50_ms=percentile(delays_ms, 50),
        p95_ms=percentile(delays_ms, 95),
        p99_ms=percentile(delays_ms, 99),
        subscribers_cpu_cores=cpu_cores,
        paced_us={"subscribers": paced_s / len(phases.paced) * 1e6},
    )


def count_missing(orders: Sequence[Sequence[int]], world: World, region_of: Sequence[int]) -> tuple[int, int]:
    """(deliveries that never came, deliveries that came again); `orders` has the ids that each subscriber delivered."""
    events_of: list[set[int]] = [set() for _ in world.regions]
    for event, region in enumerate(region_of):
        events_of[region].add(event)
    lost = duplicated = 0
    for subscriber, order in enumerate(orders):
        delivered = set(order)
        duplicated += len(order) - len(delivered)
        lost += sum(len(events_of[region] - delivered) for region in world.members[subscriber])
    return lost, duplicated


def count_pairs_out_of_order(orders: Sequence[Sequence[int]], world: World, region_of: Sequence[int]) -> int:
    """Pairs of subscribers that did not deliver the events of the regions that both have in one and the same order."""
    broken = 0
    delivered = [frozenset(order) for order in orders]
    for one, other, regions in world.sharing_pairs():
        both = delivered[one] & delivered[other]
        one_order, other_order = (
            [event for event in orders[subscriber] if region_of[event] in regions and event in both]
            for subscriber in (one, other)
        )
        broken += one_order != other_order
    return broken


class Recorder:
    """The deliveries to one subscriber, in order; arrays, which the garbage collector need not walk."""

    def __init__(self, measured_from: int) -> None:
        self.events = array("q")
        self.delays_ns = array("q")
        self.deliver = self._callback(measured_from)

    def _callback(self, measured_from: int) -> Deliver:
        record, record_delay, clock_ns = self.events.append, self.delays_ns.append, time.monotonic_ns

        def deliver(payload: Payload) -> None:
            event = payload["id"]
            record(event)
            if event >= measured_from:
                record_delay(clock_ns() - payload["sent_at_ns"])

        return deliver


async def _report_progress(recorders: Sequence[Recorder], board: Board) -> tuple[float, float]:
    """Report the subscribers' progress to the publishers, until told to stop.

    Returns the cores used in the fast phase, and the seconds of CPU of the paced one.
    """
    delivered = 0
    phase, phase_cpu_s, phase_began_ns = WAITING, 0.0, 0
    cpu_cores = 0.0
    while not board.stop:
        now_ns = time.monotonic_ns()
        if (total := sum(len(recorder.events) for recorder in recorders)) != delivered:
            delivered = total
            board.report(delivered, now_ns)
        if board.phase != phase:
            if phase == FAST:
                fast_s = max(1, board.delivered_at_ns - phase_began_ns) / 1e9
                cpu_cores = (time.process_time() - phase_cpu_s) / fast_s
                gc.collect()
            phase, phase_cpu_s, phase_began_ns = board.phase, time.process_time(), now_ns
        await asyncio.sleep(_QUIET_REPORT_S if phase == PACED else _REPORT_S)
    return cpu_cores, time.process_time() - phase_cpu_s


_REPORT_S = 0.001
_QUIET_REPORT_S = 0.02  # waking up costs delay, which is what the paced phase measures
