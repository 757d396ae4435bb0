"""What the bench is to show beside what it showed."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from laboratory.bench.bound import decoding_per_s
from laboratory.bench.goals import goals_of, report


def figures(deliveries_per_s: float, p50_ms: float, p99_ms: float, paced_us: float = 100.0) -> dict[str, Any]:
    parts = {"servers": paced_us / 4, "subscribers": paced_us / 2, "all": paced_us}
    return {
        "deliveries_per_s": deliveries_per_s,
        "p50_ms": p50_ms,
        "p99_ms": p99_ms,
        "cpu_us_per_paced_event": parts,
        "ceiling_deliveries_per_s": 2 * deliveries_per_s,
    }


def world(**peers: dict[str, Any]) -> dict[str, Any]:
    return {"peers": {name.replace("_", "-"): {"8": of} for name, of in peers.items()}, "decoding_per_s": 1_000_000.0}


def found(name: str, part: dict[str, Any]) -> dict[str, tuple[float, bool, float | None]]:
    return {goal.figure: (round(goal.measured, 3), goal.is_reached, goal.bound) for goal in goals_of({name: part})}


def test_a_world_is_held_against_the_best_ordered_peer_and_against_pubsub() -> None:
    part = world(
        gamecast=figures(300_000, 0.6, 2.0, 600.0),
        nats=figures(100_000, 0.5, 1.0),
        single_stream=figures(120_000, 0.8, 4.0),
        pubsub=figures(900_000, 0.3, 2.0),
        streams=figures(900_000, 0.1, 0.1, 800.0),
        bare=figures(0, 0.2, 0.5),
    )
    assert found("dense-500", part) == {
        "dense, S = 8: deliveries/s, x best ordered": (2.5, True, 1_000_000 / 120_000),
        "dense, S = 8, 500/s: p50, x best ordered": (1.2, False, 0.2 / 0.5),
        "dense, S = 8, 500/s: p50, x pubsub": (2.0, False, 0.2 / 0.3),
        "dense, S = 8, 500/s: p99, x best ordered": (2.0, False, 0.5),
        "dense, S = 8, 500/s: p99, x pubsub": (1.0, True, 0.25),
        "dense, S = 8, 500/s: CPU of an event, x streams": (0.75, True, None),
    }


def test_full_speed_is_reported_once_and_batching_by_hand_may_be_what_bounds() -> None:
    part = world(
        gamecast=figures(300_000, 1, 1),
        nats=figures(100_000, 1, 1),
        batched_streams=figures(400_000, 1, 1),
    )
    assert found("ring-500", part)["ring, S = 8: deliveries/s, x best ordered"] == (3.0, False, 8.0)
    assert found("ring-500", part)["ring, S = 8: deliveries/s, x batched-streams"] == (0.75, False, None)
    assert not any("deliveries/s" in figure for figure in found("ring-1500", part))


def test_a_hot_region_is_held_against_pubsub_process_by_process() -> None:
    part = world(gamecast=figures(1, 2.0, 9, 400.0), pubsub=figures(1, 2.0, 9, 200.0), bare=figures(1, 1.0, 9, 100.0))
    assert found("hot", part) == {
        "hot, S = 8: CPU of servers, x pubsub": (2.0, False, 0.5),
        "hot, S = 8: CPU of subscribers, x pubsub": (2.0, False, 0.5),
        "hot, S = 8: p50, x pubsub": (1.0, True, 0.5),
    }


def test_a_knee_is_held_against_the_best_of_each_kind_and_one_that_is_nowhere_is_not_reached() -> None:
    def knee(peer: str, rate: float | None) -> dict[str, Any]:
        return {"peer": peer, "world": "8 of 77", "tick_hz": 20, "rate_per_s": rate}

    knees = [knee("gamecast", 20_000), knee("nats", 8_000), knee("single-stream", 10_000), knee("pubsub", 40_000)]
    assert found("knee", {"knees": knees}) == {
        "knee, 8 of 77, 20 Hz, x best ordered": (2.0, True, None),
        "knee, 8 of 77, 20 Hz, x best unordered": (0.5, False, None),
    }
    [goal] = goals_of({"knee": {"knees": [knee("gamecast", None), knee("nats", 8_000)]}})
    assert not goal.is_reached


def test_sockets_are_held_against_socketio_where_it_is_installed() -> None:
    peers = {"gamecast": {"p50_ms": 3.0, "p99_ms": 9.0}, "socketio": {"p50_ms": 3.0, "p99_ms": 3.0}}
    assert found("gateway", {"peers": peers}) == {
        "WebSockets: p50, x python-socketio": (1.0, True, None),
        "WebSockets: p99, x python-socketio": (3.0, False, None),
    }
    del peers["socketio"]
    assert goals_of({"gateway": {"peers": peers}}) == []


def test_decoding_alone_is_measured() -> None:
    assert decoding_per_s(6_400) > 10_000


def test_what_could_not_be_measured_is_not_reached() -> None:
    joins = {"kinds": {"in place": {"joins_per_s": math.nan, "alone_latency_ms": {"p99": math.nan}}}}
    recording = {"ratios": {"ceiling_deliveries_per_s": math.nan}}
    goals = goals_of({"recording": recording, "joins": joins})
    assert [goal.is_reached for goal in goals] == [False, False, False]


def test_the_table_of_goals_fits_eighty_columns() -> None:
    part = world(gamecast=figures(123_456_789, 1234.5, 1), nats=figures(100, 1, 1), bare=figures(1, 123, 1))
    console = Console(width=80)
    with console.capture() as capture:
        console.print(report(goals_of({"dense-500": part, "hot": part})))
    assert "reached" in capture.get()
    assert "1,234,567.89" in capture.get(), "no figure is cut off"
    assert max(map(len, capture.get().splitlines())) <= 80
