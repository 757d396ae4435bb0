"""What the bench is to show beside what it showed."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from laboratory.bench.bound import decoding_per_s
from laboratory.bench.goals import goals_of, report


def peers(**ratios: dict[str, dict[str, float]]) -> dict[str, Any]:
    measured = {size: {"deliveries_per_s": 200_000.0} for size in ("8", "32")}
    return {
        "peers": dict.fromkeys(("streams", "pubsub", "single-stream"), measured),
        "decoding_per_s": 1_000_000.0,
        "ratios": {"deliveries_per_s": {}, "p50_ms": {}, "p99_ms": {}} | ratios,
    }


def test_more_is_to_be_more_and_delay_is_to_be_less() -> None:
    part = peers(
        deliveries_per_s={"streams": {"8": 4.0, "32": 3.9}, "single-stream": {"8": 1.0, "32": 20.5}},
        p50_ms={"streams": {"8": 1.2}, "pubsub": {"8": 9.0}},
        p99_ms={"streams": {"8": 1.6}},
    )
    assert [(goal.figure, goal.is_reached) for goal in goals_of({"peers": part})] == [
        ("deliveries/s, x streams, S = 8", True),
        ("deliveries/s, x streams, S = 32", False),
        ("deliveries/s, x single-stream, S = 32", True),
        ("p50, x streams, S = 8", True),
        ("p99, x streams, S = 8", False),
    ]


def test_a_bound_tells_what_is_out_of_reach() -> None:
    [goal] = goals_of({"peers": peers(deliveries_per_s={"pubsub": {"8": 3.3}})})
    assert (goal.wanted, goal.bound, goal.is_reached) == (6.0, 5.0, False)


def test_batching_by_hand_may_be_what_bounds() -> None:
    part = peers(deliveries_per_s={"pubsub": {"8": 3.3}})
    part["peers"]["batched-streams"] = {"8": {"ceiling_deliveries_per_s": 900_000.0}}
    [goal] = goals_of({"peers": part})
    assert goal.bound == 4.5


def test_decoding_alone_is_measured() -> None:
    assert decoding_per_s(6_400) > 10_000


def test_what_could_not_be_measured_is_not_reached() -> None:
    joins = {"kinds": {"in place": {"joins_per_s": math.nan, "alone_latency_ms": {"p99": math.nan}}}}
    goals = goals_of({"recording": {"overhead": math.nan}, "joins": joins})
    assert [goal.is_reached for goal in goals] == [False, False, False]


def test_a_dense_world_is_held_against_one_stream_for_all() -> None:
    part = peers(
        deliveries_per_s={"streams": {"8": 2.1}, "single-stream": {"8": 2.9}, "pubsub": {"8": 0.1}},
        p50_ms={"streams": {"8": 9.0}, "single-stream": {"8": 1.2}},
        p99_ms={"single-stream": {"8": 1.4}},
    )
    assert [(goal.figure, goal.is_reached) for goal in goals_of({"dense-500": part})] == [
        ("dense, S = 8: deliveries/s, x single-stream", False),
        ("dense, S = 8: deliveries/s, x streams", True),
        ("dense, S = 8, 500/s: p50, x single-stream", True),
        ("dense, S = 8, 500/s: p99, x single-stream", False),
    ]
    assert [goal.figure for goal in goals_of({"trace-3000": part})] == [
        "trace, S = 8, 3000/s: p50, x single-stream",
        "trace, S = 8, 3000/s: p99, x single-stream",
    ]


def test_the_table_of_goals_fits_eighty_columns() -> None:
    part = peers(deliveries_per_s={"single-stream": {"32": 1234.5}})
    console = Console(width=80)
    with console.capture() as capture:
        console.print(report(goals_of({"peers": part})))
    assert "reached" in capture.get()
    assert max(map(len, capture.get().splitlines())) <= 80
