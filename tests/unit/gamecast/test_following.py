"""A connection tells what it wants whenever the network may not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from adapters.network import Forgotten
from gamecast.client.following import Following
from gamecast.client.watching import Health
from sequencing.plan import Plan, first_plan, sole_plan
from sequencing.record import Record, Request

PLANNED = first_plan("acyclic", {"n1": "", "n2": ""}, 1)
SOLE = sole_plan("acyclic", "n1", "", 1)


class Ends:
    """What a `Following` speaks to: a network that answers when it is told to, and both halves of a connection."""

    on_interest: Callable[[], None]
    on_unplaced: Callable[[], None]

    def __init__(self, plan: Plan, *, grants: bool) -> None:
        self.plan, self.grants = plan, grants
        self.requests: list[Request] = []
        self.taken: list[Request] = []
        self.placed: list[frozenset[str]] = []
        self.waiting = frozenset[str]()
        self.forgets = 0
        self.changes: dict[str, int] = {}
        self.answer = asyncio.Event()
        self.asked = asyncio.Event()

    async def place(self, regions: frozenset[str]) -> None:
        self.placed.append(regions)

    async def join(self, request: Request) -> bool:
        self.requests.append(request)
        self.asked.set()
        await self.answer.wait()
        if self.forgets and not request.whole:
            self.forgets -= 1
            raise Forgotten
        return self.grants

    async def news(self, after: Plan | None, **__: object) -> list[Any]:
        await asyncio.sleep(0.01)
        return [Record(self.plan)] if after is None else []

    def require_name(self, record: Record) -> None: ...

    def follow(self, what: Record | Plan) -> None: ...

    def await_places(self) -> None: ...

    def request(self, *, whole: bool) -> Request | None:
        if whole:
            return Request(1, 1, {"a": 1}, whole=True)
        if self.changes and len(self.taken) < 2:
            return Request(1, 2, self.changes)
        return None if self.taken else Request(1, 1, {"a": 1})

    def granted(self, request: Request) -> None:
        assert self.grants
        self.taken.append(request)

    def noted(self, request: Request) -> None:
        assert not self.grants
        self.taken.append(request)

    async def stop_watching(self) -> None: ...

    def unplaced(self) -> frozenset[str]:
        return self.waiting


@pytest.mark.parametrize(("plan", "grants"), [(PLANNED, False), (SOLE, True), (SOLE, False)])
async def test_the_network_is_asked_once_and_for_all_after_it_has_forgotten(plan: Plan, grants: bool) -> None:
    ends = Ends(plan, grants=grants)
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    ends.answer.set()
    await ends.asked.wait()
    await asyncio.sleep(0.1)
    assert ends.requests == [Request(1, 1, {"a": 1}, whole=True)]
    ends.asked.clear()
    following.tell_again()
    await ends.asked.wait()
    await asyncio.sleep(0.1)
    assert ends.requests[1:] == [Request(1, 1, {"a": 1}, whole=True)]
    assert ends.taken == ends.requests
    await following.close()


async def test_what_is_forgotten_while_it_is_being_told_is_told_again() -> None:
    ends = Ends(PLANNED, grants=False)
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await ends.asked.wait()
    following.tell_again()
    ends.answer.set()
    await asyncio.sleep(0.1)
    assert [request.whole for request in ends.requests] == [True, True]
    await following.close()


async def test_places_are_asked_for_once_and_again_after_the_network_has_forgotten() -> None:
    ends = Ends(PLANNED, grants=False)
    ends.answer.set()
    ends.waiting = frozenset("x")
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await asyncio.sleep(0.1)
    assert ends.placed == [{"x"}]
    ends.waiting = frozenset("xy")
    ends.on_unplaced()
    await asyncio.sleep(0.1)
    following.tell_again()
    await asyncio.sleep(0.1)
    assert ends.placed == [{"x"}, {"x", "y"}, {"x", "y"}]
    await following.close()


async def test_what_is_not_enough_for_a_network_that_has_forgotten_the_rest_is_followed_by_all() -> None:
    ends = Ends(PLANNED, grants=False)
    ends.answer.set()
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await asyncio.sleep(0.1)
    ends.forgets, ends.changes = 1, {"b": 2}
    ends.on_interest()
    await asyncio.sleep(0.1)
    assert [request.whole for request in ends.requests] == [True, False, True]
    assert len(ends.taken) == 2
    await following.close()
