"""Those who wait for something to arrive are woken together."""

from __future__ import annotations

import asyncio

from gamecast.client.inbox import Arrivals


async def test_all_who_wait_are_woken_and_who_gave_up_is_forgotten() -> None:
    arrivals = Arrivals()
    waiting = [asyncio.create_task(arrivals.next()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    assert len(arrivals._waiting) == 2
    arrivals.set()
    waiting[1].cancel()  # woken and cancelled in one round
    assert [type(each) for each in await asyncio.gather(*waiting[1:], return_exceptions=True)] == [
        asyncio.CancelledError,
        type(None),
    ]
    arrivals.set()
    assert not arrivals._waiting
