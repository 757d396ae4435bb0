"""The goals of the bench, figure by figure, beside the measured values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from laboratory.bench.embedding import BASES, CPU_MAX, MEMORY_MAX

GOAL_SIZE = 32
"""With this many subscribers, the cost of reading everything must show."""

_THROUGHPUT = {"streams": 4.0, "pubsub": 6.0, "single-stream": 20.0}
_BATCHED = "batched-streams"
_DELAYS = {"p50_ms": 1.2, "p99_ms": 1.5}
_DENSE_THROUGHPUT = {"single-stream": 3.0, "streams": 2.0}
_DENSE_DELAYS = {"p50_ms": 1.2, "p99_ms": 1.3}
_FULL_SPEED_WITH = "500"
"""Full speed is the same at each rate of the paced phase: it is reported once."""
_TWO_NODES = 0.5
_RECORDING = 0.10
_SCRIPT_US, _SCRIPT_FLAT = 18.0, 1.2
_STAMP_BYTES = 12.0
_JOINS_PER_S = 5_000.0
_JOIN_P99_MS = 5.0


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure: ``measured`` is to be at least ``wanted``, or at most. ``bound``: there is no more here."""

    figure: str
    measured: float
    wanted: float
    at_most: bool = False
    bound: float | None = None

    @property
    def is_reached(self) -> bool:
        """Whether it is; a figure that could not be measured (NaN) is not."""
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "is_reached": self.is_reached}


def goals_of(parts: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    """Return the figures that there is something to say of: ``parts`` has what the commands of the bench print."""
    found: list[Goal] = []
    for name, part in parts.items():
        read = _READERS.get(name.partition("-")[0])
        found += read(name, part) if read is not None else ()
    return found


def report(goals: list[Goal]) -> Group:
    """A table of 80 columns."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("figure", no_wrap=True)
    for heading in ("measured", "wanted", "", "bound"):
        table.add_column(heading, justify="right")
    for goal in goals:
        sign = "<=" if goal.at_most else ">="
        reached = "reached" if goal.is_reached else "short"
        bound = f"{goal.bound:,.2f}" if goal.bound is not None else ""
        table.add_row(goal.figure, f"{goal.measured:,.2f}", f"{sign} {goal.wanted:,.2f}", reached, bound)
    return Group(
        table,
        "x: gamecast's figure in multiples of the peer's, in the same run.\n"
        "S: subscribers, and regions.\n"
        "bound: what it would be if subscribers decoded and called back and did nothing\n"
        "else, or, if that is less, if events were batched by hand, with no order and no\n"
        "receipts, and kept all cores busy.",
    )


def _compared(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    ratios, peers = part["ratios"], part["peers"]
    for peer, wanted in _THROUGHPUT.items():
        for size, ratio in ratios["deliveries_per_s"].get(peer, {}).items():
            if peer != "single-stream" or int(size) == GOAL_SIZE:
                batched = peers.get(_BATCHED, {}).get(size, {}).get("ceiling_deliveries_per_s", math.inf)
                bound = min(part["decoding_per_s"], batched) / peers[peer][size]["deliveries_per_s"]
                yield Goal(f"deliveries/s, x {peer}, S = {size}", ratio, wanted, bound=bound)
    for measure, wanted in _DELAYS.items():
        for size, ratio in ratios[measure].get("streams", {}).items():
            yield Goal(f"{measure.removesuffix('_ms')}, x streams, S = {size}", ratio, wanted, at_most=True)


def _in_world(name: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    """A dense world, or a match, whose events come one at a time: beside one stream for all, and one a region."""
    world, _, rate = name.partition("-")
    ratios = part["ratios"]
    if rate == _FULL_SPEED_WITH:
        for peer, wanted in _DENSE_THROUGHPUT.items():
            for size, ratio in ratios["deliveries_per_s"].get(peer, {}).items():
                yield Goal(f"{world}, S = {size}: deliveries/s, x {peer}", ratio, wanted)
    for measure, wanted in _DENSE_DELAYS.items():
        for size, ratio in ratios[measure].get("single-stream", {}).items():
            figure = f"{world}, S = {size}, {rate}/s: {measure.removesuffix('_ms')}, x single-stream"
            yield Goal(figure, ratio, wanted, at_most=True)


def _paths(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("deliveries/s by two nodes, x one node", part["ratios"]["deliveries_per_s"]["2"], _TWO_NODES)
    alone, *_ = part["script"].values()
    yield Goal("script for a lone frame, µs", alone["script_us"], _SCRIPT_US, at_most=True)
    for count, cost in list(part["script"].items())[1:]:
        figure = f"the same beside {count} regions, x beside none"
        yield Goal(figure, cost["script_us"] / alone["script_us"], _SCRIPT_FLAT, at_most=True)
    most = max(cost["stamp_bytes"] for cost in part["script"].values())
    yield Goal("stamp of a lone frame on one node, bytes", most, _STAMP_BYTES, at_most=True)


def _recording(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("part of the throughput that recording takes", part["overhead"], _RECORDING, at_most=True)


def _joins(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    for kind, figures in part["kinds"].items():
        yield Goal(f"joins/s, {kind}", figures["joins_per_s"], _JOINS_PER_S)
        yield Goal(f"a join, {kind}: p99, ms", figures["alone_latency_ms"]["p99"], _JOIN_P99_MS, at_most=True)


def _embedding(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    for kind, name, wanted in (("CPU", "cpu_s", CPU_MAX), ("memory", "memory_mb", MEMORY_MAX)):
        for program, most in wanted.items():
            figure = f"{kind} of {program}, x {BASES[program]}"
            yield Goal(figure, part["ratios"][program][name], most, at_most=True)


_READERS: dict[str, Callable[[str, Mapping[str, Any]], Iterator[Goal]]] = {
    "peers": _compared,
    "dense": _in_world,
    "trace": _in_world,
    "paths": _paths,
    "recording": _recording,
    "joins": _joins,
    "embedding": _embedding,
}
