"""The last hour of one region."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from gateway.dashboard.regionhours import MINUTES, STEP_MS, RegionHours
from gateway.dashboard.snapshot import Snapshot
from tests.unit.gateway.test_dashboard_snapshot import network, region

BEGUN_MS = 1_795_000_000_000


def look(minute: float, forest: int | None, *, last: int | None = None, epoch: int = 1) -> Snapshot:
    regions = (
        region("forest", forest, last, epoch=epoch, at_s=60 * minute),
        region("river", 10, at_s=60 * minute),
        region("castle", 10, at_s=60 * minute),
    )
    now = network(regions=regions)
    return Snapshot(now, now, 2.0, BEGUN_MS + int(minute * STEP_MS), 1.0)


def test_a_minute_has_the_rate_between_two_looks_and_what_was_on_its_way() -> None:
    hours = RegionHours()
    for minute, forest, last in ((0, 100, 100), (0.5, 9_999, 0), (1, 160, 150), (2, 160, 160), (3, 460, 460)):
        hours.add(look(minute, forest, last=last))
    found = hours.of("forest")
    assert found["events_per_s"] == [None, 1.0, 0.0, 5.0]
    assert found["behind"] == [0, 10, 0, 0]
    assert found["at_ms"] == [BEGUN_MS + minute * STEP_MS for minute in range(4)]
    assert hours.of("river")["events_per_s"] == [None, 0.0, 0.0, 0.0]
    assert hours.of("nowhere")["at_ms"] == []


def test_what_is_not_known_and_another_epoch_are_no_rate() -> None:
    hours = RegionHours()
    hours.add(look(0, 100))
    hours.add(look(1, None))
    hours.add(look(2, 130))
    hours.add(look(3, 190))
    hours.add(look(4, 250, epoch=2))
    assert hours.of("forest")["events_per_s"] == [None, None, None, 1.0, None]


def test_an_hour_is_kept_and_a_region_that_went_is_forgotten() -> None:
    hours = RegionHours()
    for minute in range(MINUTES + 5):
        hours.add(look(minute, 60 * minute))
    found = hours.of("forest")
    assert len(found["at_ms"]) == MINUTES
    assert found["at_ms"][-1] == BEGUN_MS + (MINUTES + 4) * STEP_MS
    assert found["events_per_s"] == [1.0] * MINUTES
    gone = look(MINUTES + 5, 0)
    hours.add(replace(gone, now=replace(gone.now, regions=gone.now.regions[1:])))
    assert hours.of("forest")["at_ms"] == []


def test_a_clock_that_was_set_back_begins_again() -> None:
    hours = RegionHours()
    hours.add(look(5, 100))
    hours.add(look(2, 130))
    assert hours.of("forest")["at_ms"] == [BEGUN_MS + 2 * STEP_MS]
