"""Several tasks that ask for events, and the end of the connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import pytest

from gamecast.client.incoming import Incoming
from gamecast.client.pulling import Puller
from gamecast.client.watching import Callbacks
from gamecast.event import Item
from sequencing.errors import NotConnected


class Silent:
    """An incoming half that brings nothing."""

    has_next = is_over = False

    async def next_batch(self) -> list[Item] | None:
        """Wait for good, unless it is over."""
        if not self.is_over:
            await asyncio.Event().wait()
        return None

    def not_taken(self, *_: object) -> None:
        """Note nothing."""


@pytest.fixture
def incoming() -> Silent:
    """What the puller reads."""
    return Silent()


@pytest.fixture
async def puller(incoming: Silent) -> Puller:
    """What waits for a read that only closing ends."""
    return Puller(cast(Incoming, incoming), deque(), Callbacks("a replay that has ended"))


async def test_who_waits_for_a_read_that_closing_breaks_off_hears_that_the_connection_is_closed(
    incoming: Silent, puller: Puller
) -> None:
    fetching = [asyncio.create_task(puller.fetch(10, None)) for _ in range(2)]
    await asyncio.sleep(0)
    iterating = asyncio.create_task(puller.next_batch())
    await asyncio.sleep(0)
    incoming.is_over = True
    await puller.close()
    for fetched in fetching:
        with pytest.raises(NotConnected):
            await fetched
    assert await iterating is None


async def test_regions_may_be_left_after_closing_broke_off_a_read(puller: Puller) -> None:
    assert await puller.fetch(10, 0) == []
    await asyncio.sleep(0)
    await puller.close()
    assert list(puller.untaken()) == []
    puller.forget({"forest"})
