"""What becomes of events that were published in one call, told once all of it is known."""

from __future__ import annotations

import asyncio

import pytest

from gamecast.client.bundle import Bundle, Outcome
from gamecast.event import Receipt
from sequencing.errors import GamecastError, NotConnected, PartlyPublished, PublishUncertain, Unreachable

ONE, OTHER = Receipt("a", 1, 5), Receipt("b", 1, 7)


async def told(*outcomes: Outcome) -> list[Receipt]:
    """Return what is told of events in a region each, of which the last one becomes known first."""
    future: asyncio.Future[list[Receipt]] = asyncio.Future()
    bundle = Bundle(future, [str(place) for place in range(len(outcomes))])
    for place, outcome in reversed(list(enumerate(outcomes))):
        assert not future.done()
        bundle.note(str(place), [outcome])
    assert future.done()
    return await future


async def test_receipts_come_in_the_order_of_the_call() -> None:
    assert await told(ONE, OTHER) == [ONE, OTHER]
    assert await told(OTHER, ONE) == [OTHER, ONE]


async def test_of_no_events_all_is_known() -> None:
    future: asyncio.Future[list[Receipt]] = asyncio.Future()
    Bundle(future, [])
    assert await future == []


async def test_events_of_one_region_become_known_in_their_order() -> None:
    future: asyncio.Future[list[Receipt]] = asyncio.Future()
    bundle = Bundle(future, "abaa")
    bundle.note("a", [ONE])
    bundle.note("b", [OTHER])
    bundle.note("a", [Receipt("a", 1, 6), Receipt("a", 1, 7)])
    assert await future == [ONE, OTHER, Receipt("a", 1, 6), Receipt("a", 1, 7)]


async def test_when_nothing_was_published_for_certain_the_error_is_the_first_one() -> None:
    with pytest.raises(Unreachable) as raised:
        await told(Unreachable("down"), NotConnected("closed"))
    assert raised.value.definite


@pytest.mark.parametrize(
    "outcomes", [(ONE, Unreachable("down")), (Unreachable("down"), OTHER), (PublishUncertain("lost"),)]
)
async def test_when_some_may_have_been_published_the_error_tells_of_each(outcomes: tuple[Outcome, ...]) -> None:
    with pytest.raises(PartlyPublished) as raised:
        await told(*outcomes)
    assert raised.value.outcomes == outcomes
    assert not raised.value.definite
    assert not raised.value.retriable
    first = next(outcome for outcome in outcomes if isinstance(outcome, GamecastError))
    assert str(raised.value) == f"1 of {len(outcomes)} events were not published, or may not have been: {first}"


async def test_whoever_has_cancelled_the_future_is_told_nothing() -> None:
    future: asyncio.Future[list[Receipt]] = asyncio.Future()
    bundle = Bundle(future, ["a"])
    future.cancel()
    bundle.note("a", [ONE])
    assert future.cancelled()
