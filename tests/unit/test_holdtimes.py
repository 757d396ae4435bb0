"""How long frames are held is counted from when they came to when they could be delivered."""

from __future__ import annotations

import pytest

import gamecast.holdtimes
from gamecast.event import HOLD_BOUNDS_MS
from gamecast.holdtimes import WAITING_MAX, HoldTimes
from sequencing.delivery import Missing, Ready
from sequencing.frames import Meta, StampedFrame


def frame(last: int, region: str = "forest") -> StampedFrame:
    return StampedFrame(region, 1, last, b"0 1 1 1 s1", b"", b"")


def ready(*lasts: int) -> list[Ready | Missing]:
    return [Ready(frame(last), Meta(0, 1, "s1")) for last in lasts]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def told(holds: HoldTimes) -> dict[float | None, int]:
    return {bound: count for bound, count in zip((*HOLD_BOUNDS_MS, None), holds.counts, strict=True) if count}


def test_what_is_delivered_at_once_was_not_held() -> None:
    holds = HoldTimes()
    holds.note([frame(1), frame(2)], ready(1, 2), held_frames=0)
    assert told(holds) == {0: 2}


def test_a_frame_is_held_until_it_is_released_by_a_later_one() -> None:
    clock = Clock()
    holds = HoldTimes(clock)
    holds.note([frame(2), frame(3)], [], held_frames=2)
    clock.now_s += 0.030
    holds.note([frame(1)], ready(1, 2), held_frames=1)
    assert told(holds) == {0: 1, 50: 1}
    clock.now_s += 10
    holds.note([], [Missing("forest", 1, 7, 8), *ready(3)], held_frames=0)
    assert told(holds) == {0: 1, 50: 1, None: 1}


def test_what_is_dropped_is_forgotten_when_nothing_waits_any_more() -> None:
    clock = Clock()
    holds = HoldTimes(clock)
    holds.note([frame(1), frame(2)], [], held_frames=2)
    holds.note([], ready(2), held_frames=0)
    clock.now_s += 1
    holds.note([frame(1)], ready(1), held_frames=0)
    assert told(holds) == {0: 2}


def test_a_frame_that_is_released_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gamecast.holdtimes, "WAITING_MAX", 3)
    holds = HoldTimes(Clock())
    holds.note([frame(1_000)], [], held_frames=1)
    for last in range(1, 20):
        holds.note([frame(last)], [], held_frames=2)
        holds.note([], ready(last), held_frames=1)
    assert told(holds) == {0: 19}


def test_memory_is_bounded() -> None:
    holds = HoldTimes(Clock())
    holds.note([frame(last) for last in range(WAITING_MAX + 50)], [], held_frames=WAITING_MAX + 50)
    holds.note([], ready(*range(WAITING_MAX + 50)), held_frames=1)
    assert sum(holds.counts) == WAITING_MAX
