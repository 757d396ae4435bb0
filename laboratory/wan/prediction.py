"""Predict the times of a network under a matrix's delays: by its paths alone, and by simulating it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from typing import Any

from demo.match.hosting import Workload
from gamecast.client.reading import BLOCK_MS
from laboratory.simulation.distant import Conditions
from laboratory.simulation.distant_network import Received, Sending, simulate
from laboratory.wan.stretch import Arrival, Stretch, stretch_of
from placement.topologies.distances import Standing
from sequencing.plan import Plan

RUNS = 8
JITTER_MS = 5.0
"""Smaller differences decide whether a frame arrives just before the next read or just after it. So there are several
runs, in each of which every publication is late by up to this."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits of a delivery, as the mean over deliveries of events from other publishers, in ms.

    ``publish_ms``: until the answer to the publisher's previous request arrives; ``links_ms``: until a relay is back;
    ``read_ms``: until the subscriber reads again, and until earlier events in the order have arrived.
    """

    publish_ms: float
    links_ms: float
    read_ms: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """``stretch``: of all runs together; ``means``: of each, the mean stretch, ascending."""

    stretch: Stretch
    means: tuple[float, ...]
    waits: Waits

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return self.stretch.as_dict() | {"means_of_runs": self.means, "waits": asdict(self.waits)}


def predict(
    plan: Plan,
    workload: Workload,
    standing: Standing,
    *,
    speed: float,
    conditions: Conditions | None = None,
    block_ms: float = BLOCK_MS,
    runs: int = RUNS,
) -> Prediction:
    """Simulate the replay several times, publication by publication; see `simulate`. Deterministic in its arguments."""
    begin_s = workload.publications[0].t_s
    together: dict[str, list[Arrival]] = {server: [] for server in workload.servers}
    means: list[float] = []
    everything: list[tuple[str, Received]] = []
    for seed in range(runs):
        random = Random(seed)
        latest: dict[str, float] = {}
        sendings: list[Sending] = []
        for each in workload.publications:
            at_ms = (each.t_s - begin_s) * 1000 / speed + random.uniform(0, JITTER_MS)
            at_ms = latest[each.server] = max(at_ms, latest.get(each.server, 0.0))  # a publisher keeps its order
            sendings.append(Sending(at_ms, each.server, each.region, each.event))
        received = simulate(
            plan, workload.membership, sendings, standing.ms, conditions=conditions, seed=seed, block_ms=block_ms
        )
        arrivals = {name: [(r.sender, r.delay_ms) for r in seen] for name, seen in received.items()}
        means.append(stretch_of(arrivals, standing).mean)
        for name, seen in received.items():
            together[name] += arrivals[name]
            everything += [(name, r) for r in seen if r.sender != name]
    return Prediction(stretch_of(together, standing), tuple(sorted(means)), _waits(everything, plan, standing))


def of_paths_alone(plan: Plan, workload: Workload, standing: Standing) -> Stretch:
    """Return the stretch without any wait: to the ingress, along the path, and to the destination."""
    inner_ms = _inner_ms(plan, standing)
    arrivals: dict[str, list[Arrival]] = {server: [] for server in workload.servers}
    for server, seen in arrivals.items():
        for each in workload.publications:
            if each.region in workload.membership[server]:
                path = plan.paths[each.region]
                ends_ms = standing.ms(each.server, path[0]) + standing.ms(path[-1], server)
                seen.append((each.server, ends_ms + inner_ms[each.region]))
    return stretch_of(arrivals, standing)


def _waits(deliveries: Sequence[tuple[str, Received]], plan: Plan, standing: Standing) -> Waits:
    inner_ms = _inner_ms(plan, standing)
    publish_ms = links_ms = read_ms = 0.0
    for server, received in deliveries:
        path = plan.paths[received.region]
        publish_ms += received.ingress_ms - standing.ms(received.sender, path[0])
        links_ms += received.egress_ms - received.ingress_ms - inner_ms[received.region]
        read_ms += received.delay_ms - received.egress_ms - standing.ms(path[-1], server)
    count = max(1, len(deliveries))
    return Waits(publish_ms / count, links_ms / count, read_ms / count)


def _inner_ms(plan: Plan, standing: Standing) -> dict[str, float]:
    return {
        region: sum(standing.ms(here, there) for here, there in pairwise(path)) for region, path in plan.paths.items()
    }
