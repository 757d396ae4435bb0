"""Watch a network from outside while servers roam: which epochs it begins, and which joins need them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from adapters.redis.announced import Told
from adapters.redis.control import RedisControl
from demo.journey import now_ns
from sequencing.checkers.stays import Stay
from sequencing.plan import Plan

BLOCK_MS = 500
CAUGHT_UP_S = 10.0


class Grant(NamedTuple):
    """A server may be in a region from now on; ``in_place``: without a new epoch."""

    seen_ns: int
    server: str
    region: str
    in_place: bool


class Watch:
    """Follows the announcements, from `start` to `close`, and does nothing else in the network."""

    def __init__(self, url: str) -> None:
        """``url``: of the control Redis."""
        self._control = RedisControl(url)
        self._plan: Plan | None = None
        self._first_epoch = 0
        self._grants: list[Grant] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin with the newest plan; what came before does not count."""
        [first] = await self._control.news(None, block_ms=BLOCK_MS)
        self._plan, self._first_epoch = first.plan, first.plan.epoch
        self._task = asyncio.create_task(self._follow(), name="gamecast demo watch")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._control.close()

    async def caught_up(self, plan: Plan) -> None:
        """Wait until this plan is known; raises `TimeoutError` when it does not come."""
        async with asyncio.timeout(CAUGHT_UP_S):
            while (known := self._plan) and (known.epoch, known.version) < (plan.epoch, plan.version):
                self._changed.clear()
                await self._changed.wait()

    @property
    def epochs(self) -> int:
        """The number of new epochs announced."""
        return self._plan.epoch - self._first_epoch if self._plan is not None else 0

    def in_place(self, stays: Iterable[Stay]) -> int:
        """Return how many of these stays, in the order in which they began, were joined without a new epoch."""
        asked: dict[tuple[str, str], list[Stay]] = {}
        for stay in stays:
            asked.setdefault((stay.subscriber, stay.region), []).append(stay)
        granted = set[tuple[str, str, int]]()
        for grant in self._grants:
            own = asked.get((grant.server, grant.region), [])
            number = bisect_right(own, grant.seen_ns, key=lambda stay: stay.asked_at_ns or 0)
            if grant.in_place and number > 0 and own[number - 1].joined_at_ns is not None:
                granted.add((grant.server, grant.region, number))
        return len(granted)

    async def _follow(self) -> None:
        while True:
            for told in await self._control.news(self._plan, block_ms=BLOCK_MS):
                self._take(told)
            self._changed.set()

    def _take(self, told: Told) -> None:
        assert self._plan is not None
        in_place = told.plan.epoch == self._plan.epoch
        self._grants += (
            Grant(now_ns(), server, region, in_place)
            for server, change in told.people.items()
            for region in change.joined
        )
        self._plan = told.plan
