"""One run of the experiment of Lumezanu 2006 (§4.1, §4.2): a drawn internetwork, drawn groups, and every scheme on
them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from laboratory.placing import baselines
from laboratory.placing.transit_stub import TransitStub, transit_stub
from placement.bound import lower_bound
from placement.objective import PlanObjective
from placement.placed import Placed
from placement.placing import EFFORTS, Effort, LoadRule, Objective, place
from placement.stretch import Distances, Figures, figures
from placement.topology import FloatArray
from placement.workloads import Workload, clustered_hosts, zipf_groups
from placement.world import World
from sequencing.arrangement import meetings

SCHEMES = ("ours", "unlimited", "paper", "well_placed", "central", "random", "lower_bound")
"""``unlimited``: ours without the load rule; ``well_placed``: the paper's nodes in a better chain on better hosts."""
HOSTS, GROUPS, HEURISTIC, RANDOM, OURS = range(5)
"""Streams of chance of one seed, so that a scheme draws the same whether the others run or not."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The parameters; the defaults are the paper's, and for those that it leaves open see
    `placement.workloads.paper`."""

    nodes: int = 10_000
    subscribers: int = 128
    clusters: int = 16
    largest: float = 1.0
    groups: tuple[int, ...] = (8, 16, 32, 64)
    objective: Objective = "mean"
    effort: Effort = EFFORTS["normal"]


@dataclass(frozen=True, slots=True)
class Scheme:
    """The results of one scheme. ``stretch``, ``mean_ratio``: by destination, nan for those that receive nothing.

    ``handled``, ``ordered``: the busiest node's events/s, in those of the busiest receiver; None for the lower bound,
    which is no network. ``hops``: nodes that an event passes, on average; ``stamp_bytes``: what it carries.
    """

    stretch: FloatArray
    mean_ratio: FloatArray
    mean_ms: float
    p95_ms: float
    nodes: int
    hops: float
    handled: float | None
    ordered: float | None
    stamp_bytes: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One seed and one number of groups. ``clique``: the load that some node of every network has to handle (events/s
    of groups that all overlap pairwise), in those of the busiest receiver; ``seconds``: the time of our placement."""

    seed: int
    groups: int
    schemes: Mapping[str, Scheme]
    clique: float
    seconds: float


def run(experiment: Experiment, seed: int) -> list[Run]:
    """Return a run for each number of groups; they share the internetwork and the hosts."""
    internetwork = transit_stub(TransitStub().resized(experiment.nodes), np.random.default_rng([seed]))
    network = internetwork.network
    hosts = clustered_hosts(
        network,
        internetwork.stub_nodes,
        experiment.subscribers,
        np.random.default_rng([seed, HOSTS]),
        clusters=experiment.clusters,
    )
    up = network.ms_from(np.unique(hosts))
    found = []
    for groups in experiment.groups:
        random = np.random.default_rng([seed, GROUPS, groups])
        work = Workload.of(hosts, zipf_groups(experiment.subscribers, groups, random, largest=experiment.largest))
        # Links are alike in both directions.
        found.append(_run(experiment, seed, groups, Distances(work, network, up, up)))
    return found


def _run(experiment: Experiment, seed: int, groups: int, distances: Distances) -> Run:
    work = distances.workload
    begun = time.perf_counter()
    ours = place(
        distances,
        np.random.default_rng([seed, OURS, groups]),
        ordering="overlap",
        objective=experiment.objective,
        effort=experiment.effort,
    )
    seconds = time.perf_counter() - begun
    unlimited = place(
        distances,
        np.random.default_rng([seed, OURS, groups]),
        ordering="overlap",
        objective=experiment.objective,
        rule=LoadRule(np.inf),
        effort=experiment.effort,
    )
    networks = {
        "ours": ours,
        "unlimited": unlimited,
        "paper": baselines.paper(distances, np.random.default_rng([seed, HEURISTIC, groups])),
        "well_placed": baselines.well_placed(distances, np.random.default_rng([seed, HEURISTIC, groups])),
        "central": baselines.central(distances),
        "random": baselines.scattered(
            ours, len(distances.topology.names), np.random.default_rng([seed, RANDOM, groups])
        ),
    }
    schemes = {name: _scheme(distances, network) for name, network in networks.items()}
    bound = figures(distances, lower_bound(distances))
    schemes["lower_bound"] = _as_scheme(bound, nodes=groups, hops=1.0)
    return Run(seed, groups, schemes, clique(work), seconds)


def clique(work: Workload) -> float:
    """Return the load that some node of every network has to handle, in parts of the busiest receiver's."""
    receiver = float(work.received.max(initial=0.0)) or 1.0
    rule = PlanObjective("receiver", 1, receiver, receiver)
    return World(meetings(work.membership, "overlap"), work.region_rates, rule, 1).clique[1] / receiver


def _scheme(distances: Distances, network: Placed) -> Scheme:
    work = distances.workload
    rates = work.region_rates
    receiver = float(work.received.max(initial=0.0)) or 1.0
    return _as_scheme(
        figures(distances, network.routes(distances.topology)),
        nodes=sequencing_nodes(network),
        hops=float(np.average(baselines.hops(network), weights=rates)),
        handled=float(network.handled(rates).max()) / receiver,
        ordered=float(network.ordered(rates).max()) / receiver,
        stamp_bytes=float(np.average(baselines.stamp_bytes(network, len(rates)), weights=rates)),
    )


def sequencing_nodes(network: Placed) -> int:
    """Return the number of nodes that have an atom: Lumezanu 2006, §4.3 leaves ingress-only ones out."""
    return len({atom.node for atom in network.atoms})


def _as_scheme(
    found: Figures,
    *,
    nodes: int,
    hops: float,
    handled: float | None = None,
    ordered: float | None = None,
    stamp_bytes: float | None = None,
) -> Scheme:
    return Scheme(
        found.stretch, found.mean_ratio, found.mean_ms, found.p95_ms, nodes, hops, handled, ordered, stamp_bytes
    )
