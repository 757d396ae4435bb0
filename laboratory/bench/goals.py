"""The goals of the bench, figure by figure, beside the measured values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table

from laboratory.bench.campaign import CEILING, PACED_COST
from laboratory.bench.embedding import BASES, CPU_MAX, MEMORY_MAX

OURS = "gamecast"
_ORDERED = "nats", "single-stream"
"""The peers with one order; the best of them is what a user would take instead."""
_BATCHED, _BARE, _UNORDERED = "batched-streams", "bare", ("pubsub", "streams")
_THROUGHPUT = {"ring": 5.0, "dense": 2.5}
_BATCHED_THROUGHPUT = 0.8
_DELAYS = {"p50_ms": (0.8, 1.1), "p99_ms": (1.0, 1.2)}
"""At most so many times the best ordered peer's, and Pub/Sub's."""
_COST = 1.0
_HOT = {"servers": 1.2, "subscribers": 1.3}
_HOT_P50 = 1.2
_KNEE = {"ordered": 2.0, "unordered": 1.0}
_SOCKETS = 1.0
_FULL_SPEED_WITH = "500"
"""Full speed is the same at each rate of the paced phase: it is reported once."""
_TWO_NODES = 0.5
_RECORDING = 0.05
_SCRIPT, _SCRIPT_FLAT = 1.3, 1.2
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
    table.add_column("figure")
    for heading in ("measured", "wanted", "", "bound"):
        table.add_column(heading, justify="right", no_wrap=True)
    for goal in goals:
        sign = "<=" if goal.at_most else ">="
        reached = "reached" if goal.is_reached else "short"
        bound = f"{goal.bound:,.2f}" if goal.bound is not None else ""
        table.add_row(goal.figure, f"{goal.measured:,.2f}", f"{sign} {goal.wanted:,.2f}", reached, bound)
    return Group(
        table,
        "x: gamecast's figure in multiples of the peer's, in the same run.\n"
        "S: subscribers, and regions.\n"
        "bound, of deliveries/s: if subscribers decoded and called back and did nothing\n"
        "else, or, if that is less, if events were batched by hand, with no order and no\n"
        "receipts, and kept all cores busy. Of delays and CPU: of the peer `bare`, which\n"
        "has our connection and the calls of our script, and nothing else.",
    )


def _times(ours: float, theirs: float) -> float:
    """Return ours in multiples of theirs; NaN where theirs is too small to be measured."""
    return ours / theirs if theirs else math.nan


def _most(figure: str, ours: float, theirs: float, wanted: float, bare: float | None = None) -> Goal:
    """Return the goal that ours is at most so many times theirs; ``bare``: what bounds it."""
    bound = _times(bare, theirs) if bare is not None else None
    return Goal(figure, _times(ours, theirs), wanted, at_most=True, bound=bound)


def _in_world(name: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    """Peers in one world, whose paced events come one at a time. ``name``: ``WORLD-RATE``."""
    world, _, rate = name.partition("-")
    for size, own in part["peers"][OURS].items():
        others = {peer: of_size[size] for peer, of_size in part["peers"].items() if peer != OURS and size in of_size}
        where = f"{world}, S = {size}"
        if rate == _FULL_SPEED_WITH:
            yield from _full_speed(world, where, own, others, part["decoding_per_s"])
        for measure, wanted in _DELAYS.items():
            figure = f"{where}, {rate}/s: {measure.removesuffix('_ms')}"
            yield from _delay(figure, measure, own, others, wanted)
        if (streams := others.get("streams")) is not None:
            figure = f"{where}, {rate}/s: CPU of an event, x streams"
            yield _most(figure, own[PACED_COST]["all"], streams[PACED_COST]["all"], _COST)


def _full_speed(
    world: str, where: str, own: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]], decoding_per_s: float
) -> Iterator[Goal]:
    batched = others.get(_BATCHED)
    ordered = [others[peer]["deliveries_per_s"] for peer in _ORDERED if peer in others]
    if ordered and world in _THROUGHPUT:
        most = min(decoding_per_s, batched[CEILING] if batched is not None else math.inf)
        ratio, bound = _times(own["deliveries_per_s"], max(ordered)), _times(most, max(ordered))
        yield Goal(f"{where}: deliveries/s, x best ordered", ratio, _THROUGHPUT[world], bound=bound)
    if batched is not None:
        ratio = _times(own["deliveries_per_s"], batched["deliveries_per_s"])
        yield Goal(f"{where}: deliveries/s, x {_BATCHED}", ratio, _BATCHED_THROUGHPUT)


def _delay(
    figure: str,
    measure: str,
    own: Mapping[str, Any],
    others: Mapping[str, Mapping[str, Any]],
    wanted: tuple[float, float],
) -> Iterator[Goal]:
    bare = others[_BARE][measure] if _BARE in others else None
    ordered = [others[peer][measure] for peer in _ORDERED if peer in others]
    if ordered:
        yield _most(f"{figure}, x best ordered", own[measure], min(ordered), wanted[0], bare)
    if "pubsub" in others:
        yield _most(f"{figure}, x pubsub", own[measure], others["pubsub"][measure], wanted[1], bare)


def _hot(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    """One region that all have, beside Pub/Sub."""
    for size, own in part["peers"][OURS].items():
        if (theirs := part["peers"].get("pubsub", {}).get(size)) is None:
            continue
        bare = part["peers"].get(_BARE, {}).get(size)
        spent, other, least = (found[PACED_COST] if found else {} for found in (own, theirs, bare))
        for process, wanted in _HOT.items():
            figure = f"hot, S = {size}: CPU of {process}, x pubsub"
            yield _most(figure, spent[process], other[process], wanted, least.get(process))
        least_ms = bare["p50_ms"] if bare is not None else None
        yield _most(f"hot, S = {size}: p50, x pubsub", own["p50_ms"], theirs["p50_ms"], _HOT_P50, least_ms)


def _knee(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for knee in part["knees"]:
        rates.setdefault((knee["world"], knee["tick_hz"]), {})[knee["peer"]] = knee["rate_per_s"] or math.nan
    for (world, tick_hz), of_peers in rates.items():
        for name, kind in (("ordered", _ORDERED), ("unordered", _UNORDERED)):
            if theirs := [of_peers[peer] for peer in kind if peer in of_peers]:
                figure = f"knee, {world}, {tick_hz} Hz, x best {name}"
                yield Goal(figure, _times(of_peers[OURS], max(theirs)), _KNEE[name])


def _sockets(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    own, theirs = part["peers"][OURS], part["peers"].get("socketio")
    for measure in ("p50_ms", "p99_ms") if theirs is not None else ():
        figure = f"WebSockets: {measure.removesuffix('_ms')}, x python-socketio"
        yield _most(figure, own[measure], theirs[measure], _SOCKETS)


def _paths(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    yield Goal("deliveries/s by two nodes, x one node", part["ratios"]["deliveries_per_s"]["2"], _TWO_NODES)
    alone, *_ = part["script"].values()
    figure = "script for a lone frame, x its calls alone"
    yield _most(figure, alone["script_us"], alone["calls_us"], _SCRIPT)
    for count, cost in list(part["script"].items())[1:]:
        figure = f"the same beside {count} regions, x beside none"
        yield _most(figure, cost["script_us"], alone["script_us"], _SCRIPT_FLAT)
    most = max(cost["stamp_bytes"] for cost in part["script"].values())
    yield Goal("stamp of a lone frame on one node, bytes", most, _STAMP_BYTES, at_most=True)


def _recording(_: str, part: Mapping[str, Any]) -> Iterator[Goal]:
    taken = 1 - part["ratios"][CEILING]
    yield Goal("throughput that recording takes, by CPU", taken, _RECORDING, at_most=True)


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
    "ring": _in_world,
    "dense": _in_world,
    "trace": _in_world,
    "hot": _hot,
    "knee": _knee,
    "gateway": _sockets,
    "paths": _paths,
    "recording": _recording,
    "joins": _joins,
    "embedding": _embedding,
}
