"""What is announced, read once for all connections of a process."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from adapters.background import keep_running
from adapters.backoff import Backoff
from adapters.redis.announced import Told
from adapters.redis.control import RedisControl
from adapters.redis.together import closed_error
from sequencing.errors import NetworkRestarted, is_passing
from sequencing.plan import Plan

BLOCK_MS = 3_000

Place = tuple[int, int]
"""Epoch and version of a plan."""

RECORDS_KEPT = 64
"""A connection that is further behind requests what it missed, unless all of that was read at once."""


class Hearer(Protocol):
    """One connection, which waits for what concerns it."""

    changed: asyncio.Event

    @property
    def name(self) -> str:
        """The name of the connection."""

    @property
    def connection(self) -> int:
        """Its incarnation."""

    @property
    def awaits_places(self) -> bool:
        """Whether it waits for a first place of a region."""

    def is_concerned_by(self, told: Sequence[Told]) -> bool:
        """Return whether one of some announcements has news for it."""

    def wake(self, passed: Place) -> None:
        """Have it look for news after a plan; those before it did not concern it."""


class News:
    """What is announced, read once for all connections of this process."""

    def __init__(self, control: RedisControl) -> None:
        self._control = control
        self._told: list[Told] = []
        self._waiting: dict[str, set[Hearer]] = {}
        """Name → its connections that wait."""
        self._awaiting_places: set[Hearer] = set()
        """Those of them that wait for a place of a region, too."""
        self._failure: Exception | None = None
        self._closing = False
        self.superseded: dict[str, int] = {}
        """Name → incarnation, of connections of this process that others have superseded."""
        self.restarts: list[NetworkRestarted] = []
        """The times at which the control Redis lost what it had announced."""
        self._task = keep_running(self._run, name="gamecast news", on_failure=self._fail)

    def after(self, place: Place | None) -> list[Told] | None:
        """Return what was announced after a plan, in order, or the newest of all; None if that is not kept here."""
        if place is None or not self._told:
            return self._told[-1:]
        if place < place_of(self._told[0].plan):
            return None
        return self._told[bisect_right(self._told, place, key=lambda told: place_of(told.plan)) :]

    async def change(self, view: Hearer) -> None:
        """Wait until a view is woken: by a record that concerns it, or because there will be no more records.

        Raises the error that ended the reading, and `NotConnected` when it was closed: a wait that returned at once
        would have its caller wait again, for good, and nothing else of the event loop would run.
        """
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise closed_error()
        self._waiting.setdefault(view.name, set()).add(view)
        self.await_places(view)
        try:
            await view.changed.wait()
        finally:
            self._awaiting_places.discard(view)
            self._waiting[view.name].discard(view)
            if not self._waiting[view.name]:
                del self._waiting[view.name]

    def await_places(self, view: Hearer) -> None:
        """Tell a view of the first places that it waits for, if it waits at all."""
        if view.awaits_places and view in self._waiting.get(view.name, ()):
            self._awaiting_places.add(view)

    @property
    def latest(self) -> Place:
        """The newest plan."""
        return place_of(self._told[-1].plan) if self._told else (0, 0)

    def _wake(self) -> None:
        for view in chain.from_iterable(self._waiting.values()):
            view.wake(self.latest)

    def _offer(self, told: Sequence[Told]) -> None:
        """Add announcements, and wake those whom they concern."""
        passed = self.latest
        self._told += told
        del self._told[: -max(RECORDS_KEPT, len(told) + 1)]
        concerned = set(self._awaiting_places)
        for each in told:
            names = each.people if each.is_growth else self._waiting
            concerned.update(chain.from_iterable(self._waiting.get(name, ()) for name in names))
        for view in concerned:
            if view.is_concerned_by(told):
                view.wake(passed)

    def _tell_superseded(self) -> None:
        newer, self._control.superseded = self._control.superseded, {}
        for name, incarnation in newer.items():
            for view in self._waiting.get(name, ()):
                if incarnation > view.connection:
                    self.superseded[name] = incarnation
                    view.wake(self.latest)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()

    async def close(self) -> None:
        """Stop."""
        self._closing = True
        self._wake()
        await self._control.close(for_good=True)  # else what reads, of several requests, may open it again for the next
        await self._task

    async def _run(self) -> None:
        backoff = Backoff()
        plan: Plan | None = None
        while not self._closing:
            try:
                told = await self._control.news(plan, block_ms=BLOCK_MS, at_box=True)
                backoff.reset()
            except Exception as error:  # noqa: BLE001 - whatever it is, the applications must hear of it
                if self._closing:
                    break
                if isinstance(error, NetworkRestarted):  # for existing connections, not for new ones
                    self.restarts.append(error)
                    self._told, plan = [], None
                    self._wake()
                    continue
                if not is_passing(error):
                    self._fail(error)
                    break
                await backoff.wait()
                continue
            self._tell_superseded()
            if told:
                self._offer(told)
                plan = told[-1].plan
        await self._control.close()


def place_of(plan: Plan) -> Place:
    """Return the place of a plan in the order of plans."""
    return plan.epoch, plan.version
