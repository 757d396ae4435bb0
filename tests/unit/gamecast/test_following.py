"""A connection tells what it wants whenever the network may not know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from gamecast.client.following import Following
from gamecast.client.watching import Health
from sequencing.grants import Request
from sequencing.plan import Plan, first_plan, sole_plan
from sequencing.record import Interest, Record

WISH = Interest(1, 1, {"a": 1})
PLANNED = first_plan("acyclic", {"n1": "", "n2": ""}, 1)
SOLE = sole_plan("acyclic", "n1", "", 1)


class Ends:
    """What a `Following` speaks to: a network that answers when it is told to, and both halves of a connection."""

    on_interest: Callable[[], None]
    on_unplaced: Callable[[], None]

    def __init__(self, plan: Plan) -> None:
        self.plan, self.grants = plan, True
        self.requests: list[Request] = []
        self.granted_requests: list[Request] = []
        self.told = 0
        self.answer = asyncio.Event()
        self.asked = asyncio.Event()

    async def set_interest(self, *_: object) -> None:
        self.told += 1
        self.asked.set()
        await self.answer.wait()

    async def join(self, request: Request) -> bool:
        self.requests.append(request)
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
        return None if self.granted_requests else Request(1, 1, {"a": 1})

    def granted(self, request: Request) -> None:
        self.granted_requests.append(request)

    async def stop_watching(self) -> None: ...

    def interest(self) -> Interest:
        return WISH

    def unplaced(self) -> frozenset[str]:
        return frozenset()


async def test_what_is_forgotten_while_it_is_being_told_is_told_again() -> None:
    ends = Ends(PLANNED)
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await ends.asked.wait()
    following.tell_again()
    ends.answer.set()
    await asyncio.sleep(0.1)
    assert ends.told == 2
    await following.close()


async def test_on_one_node_the_control_store_is_asked_once_and_all_of_it_after_it_has_forgotten() -> None:
    ends = Ends(SOLE)
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await asyncio.sleep(0.1)
    assert (ends.requests, ends.told) == ([Request(1, 1, {"a": 1})], 0)
    following.tell_again()
    await asyncio.sleep(0.1)
    assert ends.requests[1:] == [Request(1, 1, {"a": 1}, whole=True)]
    assert ends.granted_requests == ends.requests
    await following.close()


async def test_a_network_that_grants_nothing_in_place_any_more_is_told_what_is_wanted() -> None:
    ends = Ends(SOLE)
    ends.grants = False
    following = Following(*cast("tuple[Any, Any, Any]", (ends, ends, ends)), Health())
    following.start()
    await ends.asked.wait()
    ends.answer.set()
    await asyncio.sleep(0.1)
    assert (len(ends.requests), ends.told, ends.granted_requests) == (1, 1, [])
    await following.close()
