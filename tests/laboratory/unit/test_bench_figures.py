"""The bench's arithmetic: percentiles, medians, ratios, and the judgement of what was delivered."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from dataclasses import replace
from io import StringIO
from typing import cast

import orjson
import pytest
from rich.console import Console

from laboratory.bench import campaign as campaigns
from laboratory.bench.campaign import Campaign, document, violations
from laboratory.bench.cpu import ceiling_per_s, parse_ps_time, process_cpu_s
from laboratory.bench.figures import median, percentile, ratios
from laboratory.bench.peers.pubsub import PubSubPeer
from laboratory.bench.peers.streams import StreamsPeer
from laboratory.bench.receiving import count_missing, count_pairs_out_of_order
from laboratory.bench.table import report
from laboratory.bench.trial import Trial
from laboratory.bench.workload import Phases, match, payload_of, ring
from tests.shared_data import SHARED_DATA, needs_shared_data

PHASES = Phases(events=100, paced_s=0.5, rate_per_s=100, window_events=10, seed=1)
TRIAL = Trial(
    deliveries_per_s=100.0,
    p50_ms=1.0,
    p95_ms=2.0,
    p99_ms=4.0,
    expected=300,
    lost=0,
    duplicated=0,
    sharing_pairs=16,
    pairs_out_of_order=0,
    publishers_cpu_cores=0.5,
    subscribers_cpu_cores=1.0,
    servers_cpu_cores=0.1,
    relays_cpu_cores=0.0,
    schedule_late_ms=0.2,
    paced_us={"publishers": 50.0, "servers": 20.0, "relays": 0.0, "subscribers": 30.0},
)


def test_a_percentile_is_a_value_that_so_many_do_not_exceed() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 95, 99, 100)] == [1, 1, 50, 95, 99, 100]
    assert percentile([7.0], 50) == 7.0
    assert math.isnan(percentile([], 50))


def test_a_median_over_a_run_that_measured_nothing_is_nothing() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5
    assert math.isnan(median([1.0, math.nan, 3.0]))
    assert math.isnan(median([]))


def test_ratios_are_ours_over_theirs_where_both_have_figures() -> None:
    ours = {"8": 4.0, "32": 3.0, "64": 1.0, "128": math.nan}
    assert ratios(ours, {"8": 2.0, "32": 0.0, "128": 1.0}) == {"8": 2.0}


@pytest.mark.parametrize("size", [3, 4, 5, 8, 32])
def test_on_the_grid_each_subscriber_has_three_regions_and_each_region_three_subscribers(size: int) -> None:
    grid = ring(size)
    regions = [grid.members[subscriber] for subscriber in range(size)]
    assert all(len(set(of_one)) == 3 for of_one in regions)
    assert set(Counter(region for of_one in regions for region in of_one).values()) == {3}
    if size >= 5:
        assert len(grid.sharing_pairs()) == 2 * size
    assert all(shared == set(regions[one]) & set(regions[other]) for one, other, shared in grid.sharing_pairs())


def test_the_phases_follow_each_other_without_a_hole() -> None:
    assert list(PHASES.warm_up) + list(PHASES.fast) + list(PHASES.paced) == list(range(10 + 100 + 20 + 50))
    assert PHASES.measured_from == 130
    regions = PHASES.regions(ring(8))
    assert len(regions) == PHASES.paced.stop
    assert regions == PHASES.regions(ring(8))
    assert regions != replace(PHASES, seed=2).regions(ring(8))


def test_an_event_is_about_190_bytes_of_json() -> None:
    assert 180 <= len(orjson.dumps(payload_of(123_456))) <= 200


def test_what_is_missing_or_repeated_is_counted() -> None:
    grid, region_of = ring(4), [0, 1, 2, 3]
    complete = [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]
    assert count_missing(complete, grid, region_of) == (0, 0)
    assert count_missing([[0, 1, 1], [], [2, 3, 0], [3, 0, 1]], grid, region_of) == (4, 1)


def test_pairs_that_disagree_on_what_both_delivered_are_counted() -> None:
    grid, region_of = ring(4), [0, 1, 2, 3]
    assert count_pairs_out_of_order([[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]], grid, region_of) == 2
    assert count_pairs_out_of_order([[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]], grid, region_of) == 0
    assert count_pairs_out_of_order([[2], [1, 2, 3], [3, 0], [0, 1, 3]], grid, region_of) == 1


def test_the_document_has_medians_ratios_and_what_each_run_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "versions", dict)  # they would be asked of a redis-server
    ours = [replace(TRIAL, deliveries_per_s=value, p50_ms=value / 100) for value in (100.0, 900.0, 400.0)]
    theirs = [replace(TRIAL, deliveries_per_s=200.0, lost=5, pairs_out_of_order=8)] * 3
    campaign = Campaign(peers=(StreamsPeer("ours"), PubSubPeer()), sizes=(8,), runs=3, phases=PHASES)
    result = document({"ours": {8: ours}, "pubsub": {8: theirs}}, campaign, "ours")
    assert result["peers"]["ours"]["8"]["deliveries_per_s"] == 400.0
    assert result["peers"]["ours"]["8"]["spread"]["deliveries_per_s"] == {"min": 100.0, "max": 900.0}
    assert [run["p50_ms"] for run in result["peers"]["ours"]["8"]["runs"]] == [1.0, 9.0, 4.0]
    assert result["ratios"]["deliveries_per_s"] == {"pubsub": {"8": 2.0}}
    assert result["ratios"]["p50_ms"] == {"pubsub": {"8": 4.0}}
    # Medians of cores over deliveries/s: 0.5, 0.1 and 1.0 cores for 400 of ours and 200 of theirs.
    assert result["peers"]["ours"]["8"]["cpu_us_per_delivery"] == pytest.approx(
        {"publishers": 1_250, "servers": 250, "relays": 0, "subscribers": 2_500, "all": 4_000}
    )
    assert result["ratios"]["cpu_us_per_delivery"]["pubsub"]["8"] == pytest.approx(0.5)
    assert result["ratios"]["ceiling_deliveries_per_s"]["pubsub"]["8"] == pytest.approx(2.0)
    assert violations(result["peers"]["ours"]) == []
    assert violations(result["peers"]["pubsub"]) == ["8 subscribers: 15 lost", "8 subscribers: 8 pairs out of order"]
    assert orjson.loads(orjson.dumps(result)) == result
    result["decoding_per_s"] = 1_200_000.0
    console = Console(width=80, file=StringIO())
    console.print(report(result, "ours"))
    shown = cast(StringIO, console.file).getvalue()
    assert "8 subscribers, 8 regions" in shown
    assert "no: 8/16" in shown
    assert "4000.00" in shown
    assert "1,200,000" in shown


def test_what_costs_allow_is_limited_by_the_busiest_process_or_by_all_cores_together() -> None:
    costs = {"publishers": 1.0, "servers": 0.5, "relays": 0.0, "subscribers": 2.0}
    assert ceiling_per_s(costs, 8) == 1e6 / 2.0
    assert ceiling_per_s(costs, 1) == 1e6 / 3.5
    assert math.isnan(ceiling_per_s({"publishers": 0.0}, 2))


def test_the_cpu_of_a_process_grows_with_its_work_and_that_of_none_is_unknown() -> None:
    before_s, until_s = process_cpu_s([os.getpid()]), time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    assert process_cpu_s([os.getpid()]) - before_s == pytest.approx(0.05, abs=0.03)
    assert process_cpu_s([]) == 0
    assert math.isnan(process_cpu_s([os.getpid(), 2**22 + 1]))


@pytest.mark.parametrize(
    ("text", "seconds"), [("0:00.05", 0.05), (" 01:02:03\n", 3_723.0), ("2-00:00:01", 172_801.0), ("", math.nan)]
)
def test_the_time_that_ps_writes_is_read_where_there_is_no_proc(text: str, seconds: float) -> None:
    assert parse_ps_time(text) == pytest.approx(seconds, nan_ok=True)


@needs_shared_data
def test_servers_of_a_match_that_have_no_region_are_left_out() -> None:
    world = match(30, SHARED_DATA / "game_pr_black_gold")
    assert all(world.members)
    assert f"{len(world.members)} servers" in world.title
    assert len(world.members) < 30
    assert {region for regions in world.members for region in regions} == set(range(len(world.weights or ())))


def test_servers_that_tick_publish_what_is_due_together_and_all_in_the_end() -> None:
    phases = Phases(events=10, paced_s=1.0, rate_per_s=100, window_events=8, seed=1, tick_hz=20)
    both = [[*phases.schedule(phases.paced[index::2], index, 2)] for index in range(2)]
    published = sorted(event for turns in both for _, events in turns for event in events)
    assert published == [*phases.paced]
    for index, turns in enumerate(both):
        assert [due_s for due_s, _ in turns] == pytest.approx([(tick + index / 2) / 20 for tick in range(len(turns))])
        assert {len(events) for _, events in turns} <= {2, 3}


def test_without_ticks_each_event_is_due_alone() -> None:
    phases = Phases(events=10, paced_s=0.1, rate_per_s=100, window_events=8, seed=1)
    [first, second, *_] = phases.schedule(phases.paced[1::2], 1, 2)
    assert first == (0.01, phases.paced[1:2:2])
    assert second[0] == pytest.approx(0.03)
