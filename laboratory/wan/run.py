"""`gamecast demo --wan`: a replay on the real network under a matrix's delays, beside the prediction for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import groupby

from demo.match.hosting import Publication, Workload
from demo.outcome import Outcome
from demo.plain import replay_plain
from demo.recording import stamps_recorded
from demo.replay import Progress, Replay, replay_over, subscribe_all
from gamecast.errors import PlanError
from gamecast.recording.options import Recording
from laboratory.simulation.distant import Conditions
from laboratory.wan.network import WanNetwork
from laboratory.wan.prediction import of_paths_alone, predict
from laboratory.wan.report import WanReport
from laboratory.wan.stretch import Stretch, stretch_of
from placement.topologies.distances import Standing
from sequencing.plan import Plan

DURATION_S = 30.0
"""The default part of a match that is replayed: the replay takes as long."""

TICK_S_MAX = 1.0
"""Clocks of recordings are coarse; events of one time are spread until the next time, or for this long at most."""


async def run_wan(
    workload: Workload,
    standing: Standing,
    *,
    nodes: int,
    speed: float,
    begin: Callable[[str, int], Progress],
    record: Recording | None = None,
) -> tuple[Outcome, WanReport]:
    """Replay a workload whose servers do not roam, paced by ``speed``, and over Pub/Sub on the same servers.

    ``begin``: called with the name of each part and the number of its deliveries; it shows the progress.
    """
    expected = sum(workload.expected_deliveries().values())
    workload = spread(workload)
    async with AsyncExitStack() as stack:
        names = node_names(nodes)
        network = await stack.enter_async_context(WanNetwork(standing, names))
        conditions = Conditions(whole_reads=await network.reads_whole())
        servers = {name: network.connect(name, record) for name in workload.servers}
        # All at once: one after the other, far servers would take minutes.
        opened = await asyncio.gather(*map(stack.enter_async_context, servers.values()), return_exceptions=True)
        for failure in opened:
            if isinstance(failure, BaseException):
                raise failure
        await stack.enter_async_context(stamps_recorded(network.url, record))
        await subscribe_all(servers, workload)
        observer = servers[workload.servers[0]]
        plan = await observer.plan()
        ours = await replay_over(servers, workload, speed=speed, progress=begin("gamecast", expected))
        after = await observer.plan()
        if plan is None or after is None:
            raise PlanError("the network has no plan after a replay")
        urls = {name: network.urls(name) for name in workload.servers}
        plain = await replay_plain(workload, urls, speed=speed, progress=begin("plain Pub/Sub", expected))
    prediction = await asyncio.to_thread(predict, plan, workload, standing, speed=speed, conditions=conditions)
    report = WanReport(
        standing,
        measured=_stretch(ours, standing),
        prediction=prediction,
        paths_alone=of_paths_alone(plan, workload, standing),
        plain=_stretch(plain, standing),
        same_plan=_number(plan) == _number(after),
    )
    return Outcome(workload, plan, ours, plain), report


def node_names(nodes: int) -> tuple[str, ...]:
    """Return the names of ``nodes`` nodes; the first is the control Redis too."""
    return tuple(f"n{number}" for number in range(1, nodes + 1))


def spread(workload: Workload) -> Workload:
    """Spread events of one time evenly until the next: otherwise a second's events come in one burst, and queue."""
    rounds = [list(same) for _, same in groupby(workload.publications, key=lambda each: each.t_s)]
    publications: list[Publication] = []
    for place, same in enumerate(rounds):
        until_s = rounds[place + 1][0].t_s - same[0].t_s if place + 1 < len(rounds) else TICK_S_MAX
        step_s = min(until_s, TICK_S_MAX) / len(same)
        publications += [replace(each, t_s=each.t_s + number * step_s) for number, each in enumerate(same)]
    return replace(workload, publications=tuple(publications))


def _stretch(replayed: Replay, standing: Standing) -> Stretch:
    arrivals = {
        name: [(d.sender, (d.delivered_at_ns - d.sent_at_ns) / 1e6) for d in seen]
        for name, seen in replayed.deliveries.items()
    }
    return stretch_of(arrivals, standing)


def _number(plan: Plan) -> tuple[int, int]:
    return plan.epoch, plan.version
