"""The events/s of a running network's regions, counted between looks."""

from __future__ import annotations

import pytest

from adapters.redis.networkstate import RegionState
from adapters.redis.running import rates_between


def region(name: str, epoch: int, drawn: int | None, at_s: float | None) -> RegionState:
    return RegionState(name, ("n1",), epoch, drawn=drawn, drawn_at_s=at_s)


def test_a_region_counts_by_the_times_in_which_it_began_no_epoch() -> None:
    looks = [
        [region("steady", 1, 100, 0.0), region("moved", 1, 100, 0.0)],
        [region("steady", 1, 150, 1.0), region("moved", 1, 160, 1.0)],
        [region("steady", 1, 200, 2.0), region("moved", 2, 5, 2.0)],
        [region("steady", 1, 240, 3.0), region("moved", 2, 75, 3.0)],
    ]
    assert rates_between(looks) == {"steady": pytest.approx(140 / 3), "moved": pytest.approx(130 / 2)}


def test_a_region_that_begins_an_epoch_at_each_look_or_is_not_read_is_unknown() -> None:
    looks = [
        [region("walks", 1, 100, 0.0), region("silent", 1, None, None), region("new", 1, 7, 0.0)],
        [region("walks", 2, 3, 1.0), region("silent", 1, None, None)],
    ]
    assert rates_between(looks) == {}
