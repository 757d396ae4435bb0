"""The `subscribe` and `unsubscribe` calls of a connection that are under way: of two for one region, the later wins.

Either may wait before it takes effect: an `unsubscribe` for own events that have to come back, or for the leave that it
publishes. So each call is noted here before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager


class Entering:
    """One `subscribe` call."""

    def __init__(self, regions: frozenset[str], before: list[asyncio.Future[None]]) -> None:
        """``before``: done when the earlier `unsubscribe` calls for these regions have ended."""
        self.regions = regions
        """Those that no later `unsubscribe` call has left."""
        self._before = before

    async def begun(self) -> None:
        """Wait for the earlier `unsubscribe` calls, which would undo this one."""
        if self._before:
            await asyncio.wait(self._before)


class Calls:
    """All calls that are under way."""

    def __init__(self) -> None:
        self._entering: set[Entering] = set()
        self._leaving: dict[asyncio.Future[None], AbstractSet[str]] = {}

    @contextmanager
    def entering(self, regions: frozenset[str]) -> Iterator[Entering]:
        """Note a `subscribe` call while it is under way."""
        call = Entering(regions, [done for done, left in self._leaving.items() if not regions.isdisjoint(left)])
        self._entering.add(call)
        try:
            yield call
        finally:
            self._entering.discard(call)

    @contextmanager
    def leaving(self, regions: frozenset[str]) -> Iterator[None]:
        """Note an `unsubscribe` call while it is under way."""
        for call in self._entering:
            call.regions -= regions
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving[done] = regions
        try:
            yield
        finally:
            del self._leaving[done]
            done.set_result(None)
