"""The knee of each peer: the most events/s of servers that tick at which the p99 of delays stays within a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table

from laboratory.bench.campaign import versions
from laboratory.bench.cpu import cores_in_words, usable_cores
from laboratory.bench.peers.peer import Peer
from laboratory.bench.table import table_of
from laboratory.bench.trial import run_trial
from laboratory.bench.workload import Phases, World
from laboratory.capacity.search import Bounds, Run, Search
from sequencing.errors import ProcessFailed

START_PER_S, RATE_MAX_PER_S = 4_000.0, 512_000.0
WARMING_EVENTS = 4_000
"""At full speed, before the paced phase: connections, scripts and plans are there then."""

WINDOW_EVENTS = 4_096


@dataclass(frozen=True, slots=True)
class Knee:
    """``rate_per_s``: the highest rate within the bound, None if even the lowest is not; ``p99_ms``: there;
    ``fails_at_per_s``: the lowest rate beyond it; ``broken``: promises broken, over all runs."""

    peer: str
    world: str
    tick_hz: int
    rate_per_s: float | None
    p99_ms: float
    fails_at_per_s: float | None
    broken: int


def find_knee(
    peer: Peer, world: World, tick_hz: int, *, p99_ms: float, seconds: float, begin: Callable[[float], None]
) -> Knee:
    """Search with a trial of so many seconds for each rate; ``begin`` is called with each. Blocks for a minute.

    A trial that ends with an error, or loses anything, is beyond the knee.
    """
    search, broken = Search(Bounds(p99_ms, math.inf), START_PER_S, RATE_MAX_PER_S, repeats=1), 0
    while (rate := search.next_rate()) is not None:
        begin(rate)
        phases = Phases(WARMING_EVENTS, seconds, round(rate), WINDOW_EVENTS, seed=len(search.runs), tick_hz=tick_hz)
        try:
            trial = run_trial(peer, world, phases)
        except ProcessFailed:
            search.add(_run(rate, math.inf, lost=1))
            continue
        broken += trial.duplicated + trial.pairs_out_of_order
        search.add(_run(rate, trial.p99_ms, lost=trial.lost))
    found = search.passed_per_s
    p99 = search.at(found)[0].p99_ms if found is not None else math.nan
    return Knee(peer.name, world.title, tick_hz, found, p99, search.failed_per_s, broken)


def _run(rate: float, p99_ms: float, *, lost: int) -> Run:
    """What the search needs of a run; peers that do not promise an order are not stopped for it."""
    return Run(rate, rate, math.nan, math.nan, p99_ms, 0.0, 0.0, 0.0, lost, 0, 0, {})


def measure_knees(
    peers: Sequence[Peer],
    worlds: Sequence[World],
    ticks_hz: Sequence[int],
    *,
    p99_ms: float,
    seconds: float,
    begin: Callable[[str], None],
) -> dict[str, Any]:
    """Return what ``gamecast bench knee --json`` prints; ``peers``: gamecast first."""
    knees: list[Knee] = []
    for world in worlds:
        for tick_hz in ticks_hz:
            for peer in peers:

                def on_rate(rate: float, where: str = f"{peer.name}, {world.title}, {tick_hz} ticks/s") -> None:
                    begin(f"{where}: {rate:,.0f} events/s")

                knees.append(find_knee(peer, world, tick_hz, p99_ms=p99_ms, seconds=seconds, begin=on_rate))
    return {
        "knees": [asdict(knee) for knee in knees],
        "p99_ms": p99_ms,
        "seconds": seconds,
        "cores": usable_cores(),
        "versions": versions(),
    }


def ratios(result: Mapping[str, Any], ours: str) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Yield each other peer's knee, and ours in multiples of it; NaN where one of the two has none."""
    own = {(knee["world"], knee["tick_hz"]): knee["rate_per_s"] for knee in result["knees"] if knee["peer"] == ours}
    for knee in result["knees"]:
        if knee["peer"] != ours:
            rate, theirs = own[knee["world"], knee["tick_hz"]], knee["rate_per_s"]
            yield knee, rate / theirs if rate and theirs else math.nan


def report(result: Mapping[str, Any], ours: str) -> Group:
    """A table for each world and tick, of 80 columns."""
    times = {(knee["peer"], knee["world"], knee["tick_hz"]): ratio for knee, ratio in ratios(result, ours)}
    tables: dict[tuple[str, int], Table] = {}
    for knee in result["knees"]:
        where = knee["world"], knee["tick_hz"]
        if where not in tables:
            headings = "events\nper s", "p99\nms", "not at\nper s", "\nx"
            tables[where] = table_of("", headings, title=f"{where[0]}, {where[1]} ticks/s")
        ratio = times.get((knee["peer"], *where))
        tables[where].add_row(
            knee["peer"],
            f"{knee['rate_per_s']:,.0f}" if knee["rate_per_s"] is not None else "none",
            f"{knee['p99_ms']:.1f}",
            f"{knee['fails_at_per_s']:,.0f}" if knee["fails_at_per_s"] is not None else "",
            "" if ratio is None else f"{ratio:.2f}",
            style="bold" if knee["peer"] == ours else None,
        )
    return Group(
        *tables.values(),
        f"The most events/s with a p99 within {result['p99_ms']:g} ms, from the tick to the callback, on "
        f"{cores_in_words(result['cores'])};\n{result['seconds']:g} s a trial. Two publishers tick; their events of a "
        "tick go out together, and all\nsubscribers share a process. x: gamecast's rate in multiples of this peer's.",
    )
