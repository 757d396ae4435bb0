"""The Prometheus metrics of the network behind a gateway: a survey of it, taken when metrics are read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from adapters.redis.control import SOLE_NODE
from adapters.redis.networkstate import NetworkState, RegionState, without_egress
from adapters.redis.refusals import REFUSALS
from adapters.redis.survey import survey
from gamecast.holding import HOLD_BOUNDS_MS
from gateway.dashboard.rates import target_of
from gateway.gateway import Extension, Gateway
from gateway.lag import LAG_EVENTS_MIN, Lag, lags
from gateway.metrics import OTHER, REGIONS_MAX
from sequencing.errors import GamecastError

logger = logging.getLogger("gamecast.metrics")

SURVEY_EVERY_S = 5.0
"""The minimum interval between two surveys, however often metrics are read: a survey asks every node."""
SURVEY_S_MAX = 4.0
NODE_ANSWER_S_MAX = 1.0
"""A node that hangs must not take the figures of all others with it."""

LAGS_MAX = 20
"""The maximum number of readers with a metric of their own: the worst ones."""


class NetworkMetrics(Collector):
    """The newest survey, as metrics.

    While surveys fail, there are no metrics of nodes, links and regions: old ones would say that all is well.
    """

    def __init__(self, url: str, gateway: Gateway) -> None:
        self._url, self._gateway = url, gateway
        self._state: NetworkState | None = None
        self._looked_at = -SURVEY_EVERY_S
        self._numbered = _Numbered()
        self._turn = asyncio.Lock()
        """One survey at a time: who comes meanwhile gets its result."""

    async def look(self) -> None:
        """Survey the network, unless the last survey is recent."""
        async with self._turn:
            if time.monotonic() - self._looked_at < SURVEY_EVERY_S:
                return
            try:
                async with asyncio.timeout(SURVEY_S_MAX):
                    self._state = await survey(self._url, regions=True, node_answer_s_max=NODE_ANSWER_S_MAX)
                self._numbered.count(self._state.regions)
            except (GamecastError, TimeoutError):
                self._state = None
            except Exception:  # whatever is in Redis, the metrics of the gateway itself must not go with it
                logger.exception("cannot survey the network")
                self._state = None
            self._looked_at = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        is_there = float(self._state is not None)
        yield _gauge("gamecast_control_up", "Whether the control Redis answers.", [((), is_there)])
        yield from self._of_connections()
        yield from _of_lags(lags(self._gateway, self._state.regions if self._state is not None else ()))
        if self._state is not None:
            yield from _of_nodes(self._state)
            yield from _of_control(self._state)
            yield from _of_regions(self._state, self._numbered)

    def _of_connections(self) -> Iterator[Metric]:
        def total(name: str) -> list[tuple[tuple[str, ...], float]]:
            return [((), float(sum(getattr(each, name) for each in numbers)))]

        numbers = self._gateway.connections.statistics()
        yield _gauge(
            "gamecast_gateway_held_frames",
            "Received frames that wait for other frames, in all connections of the gateway.",
            total("held_frames"),
        )
        yield _gauge(
            "gamecast_gateway_inbox_events",
            "Events that wait in the inboxes of all sessions of the gateway.",
            total("inbox_events"),
        )
        yield _gauge(
            "gamecast_gateway_buffered_events",
            "Published events that wait for their ingress, in all connections of the gateway.",
            total("buffered_events"),
        )
        held = accumulate(map(float, self._gateway.connections.hold_counts()))
        bounds = [str(bound / 1000) for bound in HOLD_BOUNDS_MS] + ["+Inf"]
        family = HistogramMetricFamily(
            "gamecast_gateway_hold_seconds", "How long frames waited for other frames, in the gateway's connections."
        )
        family.add_metric([], list(zip(bounds, held, strict=True)), sum_value=None)
        yield family


def _of_lags(behind: Sequence[Lag]) -> Iterator[Metric]:
    yield _gauge(
        "gamecast_gateway_readers_behind",
        f"Readers for which {LAG_EVENTS_MIN} events or more wait in the gateway.",
        [((), float(len(behind)))],
    )
    yield _gauge(
        "gamecast_gateway_lag_events_max",
        "Events that the reader that is furthest behind has not been sent.",
        [((), float(max((lag.behind for lag in behind), default=0)))],
    )
    yield _gauge(
        "gamecast_gateway_lag_events",
        f"Events that a reader has not been sent, of the {LAGS_MAX} that are furthest behind.",
        [((lag.name,), float(lag.behind)) for lag in behind[:LAGS_MAX]],
        ["reader"],
    )


def _of_nodes(state: NetworkState) -> Iterator[Metric]:
    nodes = state.nodes
    there = [node for node in nodes if node.server is not None]
    waiting: Counter[tuple[str, str]] = Counter()  # two nodes have one link, of as many lanes as plans gave it
    for node in there:
        for link in node.links:
            waiting[node.name, target_of(link)] += link.frames
    yield _gauge(
        "gamecast_node_up",
        "Whether a node answers.",
        [((n.name,), float(n.server is not None)) for n in nodes],
        ["node"],
    )
    yield _gauge(
        "gamecast_node_memory_bytes",
        "Memory that the node's Redis uses.",
        [((n.name,), float(n.server.memory_bytes)) for n in there if n.server and n.server.memory_bytes is not None],
        ["node"],
    )
    yield _gauge(
        "gamecast_node_memory_max_bytes",
        "Memory that the node's Redis may use: its maxmemory or, without one, all memory of its machine.",
        [((n.name,), float(limit)) for n in there if n.server and (limit := n.server.memory_limit_bytes)],
        ["node"],
    )
    yield _gauge(
        "gamecast_node_carried",
        "Whether a gamecast node runs for a node from which links go on to others.",
        [((n.name,), float(n.is_carried)) for n in nodes if n.is_carried is not None],
        ["node"],
    )
    yield _gauge(
        "gamecast_node_epoch",
        "Epoch of the newest plan that the node has.",
        [((n.name,), float(n.installed[0])) for n in there if n.installed],
        ["node"],
    )
    yield _gauge(
        "gamecast_link_frames",
        "Frames that wait on a link.",
        [(link, float(frames)) for link, frames in waiting.items()],
        ["node", "target"],
    )
    if state.plan is not None:
        yield _gauge("gamecast_plan_epoch", "Epoch of the newest plan.", [((), float(state.plan.epoch))])
        yield _gauge("gamecast_plan_version", "Version of the newest plan.", [((), float(state.plan.version))])
        yield _gauge("gamecast_plan_regions", "Regions that have a path.", [((), float(len(state.plan.paths)))])
        yield _gauge("gamecast_plan_atoms", "Sequence-number spaces.", [((), float(len(state.plan.atoms)))])
    behind = state.transition.plans_behind if state.transition is not None else 0
    yield _gauge("gamecast_transition_plans_behind", "Plans that are ending.", [((), float(behind))])
    yield _gauge(
        "gamecast_connections",
        "Connections that are registered in the network.",
        [] if state.connections_unread else [((), float(sum(each.alive for each in state.connections)))],
    )
    yield _gauge(
        "gamecast_unplaced_regions", "Regions without a path for which events wait.", [((), float(len(state.unplaced)))]
    )


def _of_control(state: NetworkState) -> Iterator[Metric]:
    leading = [((), float(bool(state.leader)))] if state.leader is not None else []
    yield _gauge("gamecast_leader", "Whether a leader candidate leads; absent if that cannot be read.", leading)
    servers = {node.name: node.server for node in state.nodes if node.server is not None}
    servers.setdefault(SOLE_NODE, state.control)
    yield _gauge(
        "gamecast_writes_refused",
        "Whether a node's Redis, or that of `control`, answers and accepts no writes, by reason.",
        [((name, why), float(why in server.refuses)) for name, server in servers.items() for why in REFUSALS],
        ["node", "reason"],
    )


class _Numbered:
    """How many numbers were drawn in all regions without a label of their own: a sum that never falls.

    The sum of what is known falls when a node is silent, when an epoch begins, or when a region ends. Prometheus takes
    that for a restart, and counts the whole sum once more.
    """

    def __init__(self) -> None:
        self.total = 0
        self._drawn: dict[tuple[str, int], int] = {}

    def count(self, regions: Iterable[RegionState]) -> None:
        """Add what the regions have drawn since the last survey."""
        drawn: dict[tuple[str, int], int] = {}
        for region in sorted(regions, key=lambda each: each.name)[REGIONS_MAX:]:
            key = region.name, region.epoch
            before = self._drawn.get(key, 0)
            if region.drawn is None:
                drawn[key] = before
            else:
                drawn[key] = region.drawn
                self.total += region.drawn - before if region.drawn >= before else region.drawn
        self._drawn = drawn


def _of_regions(state: NetworkState, numbered: _Numbered) -> Iterator[Metric]:
    """Yield the metrics of regions.

    Regions beyond `REGIONS_MAX`, by name, are one region with the worst lag of them.
    """
    forgotten = without_egress(state)
    lags: dict[str, float] = {}
    numbers: dict[str, float] = {}
    for place, region in enumerate(sorted(state.regions, key=lambda each: each.name)):
        label = region.name if place < REGIONS_MAX else OTHER
        if region.drawn is not None and region.last is not None and region.name not in forgotten:
            lags[label] = max(lags.get(label, 0.0), float(max(0, region.drawn - region.last)))
        if label == OTHER:
            numbers[label] = float(numbered.total)
        elif region.drawn is not None:
            numbers[label] = float(region.drawn)
    yield _gauge(
        "gamecast_region_lag_events",
        "Events that are numbered and have not reached their egress.",
        [((label,), lag) for label, lag in lags.items()],
        ["region"],
    )
    family = CounterMetricFamily("gamecast_region_events", "Numbers drawn in a region's epoch.", labels=["region"])
    for label, number in numbers.items():
        family.add_metric([label], number)
    yield family


def _gauge(
    name: str, about: str, values: Iterable[tuple[tuple[str, ...], float]], labels: list[str] | None = None
) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels or [])
    for label, value in values:
        family.add_metric(list(label), value)
    return family


def network_metrics(url: str) -> Extension:
    """Return an extension that adds the network of a control Redis to a gateway's metrics."""

    def extend(application: web.Application, gateway: Gateway) -> None:
        metrics = NetworkMetrics(url, gateway)
        gateway.metrics.registry.register(metrics)
        gateway.before_metrics.append(metrics.look)

    return extend
