"""How long frames waited for others, as `Client.statistics` tells it."""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import pytest

import gamecast
from gamecast.holding import EDGES_MS, HOLD_BOUNDS_MS, Holding, HoldTimes
from gamecast.testing import memory_url
from sequencing.frames import FrameKind, Meta, StampedFrame
from sequencing.ready import Missing, Ready
from sequencing.subscriber import Subscriber
from tests.events import take
from tests.patience import until


def frame(region: str, last: int) -> StampedFrame:
    return StampedFrame(region, 1, last, b"", b"", b"")


def ready(region: str, last: int) -> Ready:
    return Ready(frame(region, last), Meta(FrameKind.EVENTS, 1, "s1"))


def test_only_frames_that_were_not_handed_out_with_their_read_have_waited() -> None:
    holding = Holding()
    holding.received([frame("a", 1), frame("a", 2), frame("b", 1)], [ready("a", 1)])
    assert holding
    holding.handed_out([ready("b", 1)], still_held=1)
    assert holding.times.frames == 1
    holding.handed_out([ready("a", 2), ready("a", 3)], still_held=0)
    assert holding.times.frames == 2
    assert holding.times.longest_ms > 0
    assert not holding


def test_frames_that_are_dropped_unseen_are_forgotten_when_nothing_is_held_any_more() -> None:
    holding = Holding()
    holding.received([frame("a", 1)], [])
    holding.handed_out([], still_held=0)
    assert not holding
    assert holding.times.frames == 0


def test_quantiles_count_frames_that_did_not_wait_where_their_number_is_given() -> None:
    counts = [0] * (len(EDGES_MS) + 1)
    counts[10], counts[20] = 8, 2
    times = HoldTimes(tuple(counts), longest_ms=0.9)
    assert times.frames == 10
    assert times.quantile_ms(0.5) == EDGES_MS[10]
    assert times.quantile_ms(0.99) == 0.9, "no quantile is above what was seen"
    assert times.quantile_ms(0.5, frames=100) == 0.0
    assert times.quantile_ms(0.95, frames=100) == EDGES_MS[10]
    assert math.isnan(HoldTimes().quantile_ms(0.5))
    assert list(times.waits_ms()) == [EDGES_MS[10]] * 8 + [EDGES_MS[20]] * 2


def test_snapshots_can_be_subtracted_and_added() -> None:
    holding = Holding()
    holding.received([frame("a", 1)], [])
    holding.handed_out([ready("a", 1)], still_held=0)
    before = holding.times
    holding.received([frame("a", 2), frame("a", 3)], [])
    holding.handed_out([ready("a", 2), ready("a", 3)], still_held=0)
    assert holding.times.since(before).frames == 2
    assert HoldTimes.together([before, holding.times]).frames == 4
    assert HoldTimes.together([]) == HoldTimes()


def test_edges_reach_from_ten_microseconds_to_more_than_a_minute() -> None:
    assert EDGES_MS[0] == pytest.approx(0.01)
    assert EDGES_MS[-1] > 60_000


class Withholding(Subscriber):
    """Delivers what it receives only with what it receives next."""

    withheld: list[Ready | Missing]

    def receive(self, frames: Sequence[StampedFrame], whole: Mapping[str, int] | None = None) -> list[Ready | Missing]:
        before, now = self.withheld, super().receive(frames, whole)
        self.withheld = [] if before else now
        return before + now if before else []

    @property
    def held_frames(self) -> int:
        return len(self.withheld)


async def test_a_connection_tells_how_long_its_frames_waited() -> None:
    async with gamecast.connect(memory_url()) as client:
        await client.subscribe("forest")
        assert client.statistics().hold.frames == 0
        subscriber = client._halves()[1]._session._subscriber
        subscriber.__class__ = Withholding
        assert isinstance(subscriber, Withholding)
        subscriber.withheld = []
        await client.publish("forest", "first")
        await until(lambda: client.statistics().held_frames, 5)
        await asyncio.sleep(0.05)
        await client.publish("forest", "second")
        assert [event.payload for event in await take(client, 2)] == ["first", "second"]
        hold = client.statistics().hold
        assert hold.frames == 1
        assert hold.longest_ms >= 50


async def test_fewer_large_frames_may_wait_for_others_than_small_ones() -> None:
    async with gamecast.connect(memory_url(), held_bytes_max=10_000, held_frames_max=50) as client:
        await client.subscribe("forest")
        readers = client._halves()[1]._readings
        [reading] = readers._readings.values()

        async def may_wait(payload: str) -> int:
            await client.publish("forest", payload)
            await take(client, 1)
            return readers._held_max(reading)

        assert await may_wait("small") == 50
        assert 2 <= await may_wait("x" * 3_000) <= 3
        assert await may_wait("x" * 50_000) == 1, "or nothing would go on"


def test_waits_are_told_by_coarser_bounds_with_those_that_did_not_wait() -> None:
    counts = [0] * (len(EDGES_MS) + 1)
    for waited_ms in (0.4, 1.9, 4.9, 5.5, 4_000, 99_000):
        counts[bisect_left(EDGES_MS, waited_ms)] += 1
    counts[-1] += 1  # longer than all edges
    coarse = dict(zip((*HOLD_BOUNDS_MS, None), HoldTimes(tuple(counts)).within(HOLD_BOUNDS_MS, at_once=7), strict=True))
    assert {bound: count for bound, count in coarse.items() if count} == {
        0: 7,
        1: 1,
        2: 1,
        5: 1,
        10: 1,
        5_000: 1,
        None: 2,
    }
