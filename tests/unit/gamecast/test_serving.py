"""Requests to a node go out without the task, as long as nothing is in the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from adapters.network import Answered, Sender
from gamecast.client import serving
from gamecast.client.configuration import Configuration, Limits
from gamecast.client.outgoing import Outgoing
from gamecast.client.receipts import Token
from gamecast.client.watching import Health, PublishErrorReporter
from sequencing.errors import NetworkError, OtherSideError, PublishUncertain
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from sequencing.record import Record
from sequencing.session import Session
from tests.patience import scaled

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ())


class Lane:
    """Stands for a network, and the lane to its only node: what is offered without the task waits for `answer`."""

    def __init__(self) -> None:
        self._last = Counter[str]()
        self.under_way: list[tuple[Sequence[PublishedFrame], Answered]] = []
        self.offered: list[list[bytes]] = []
        self.published: list[Sequence[PublishedFrame]] = []
        self.can_offer, self.closed = True, False
        self.is_silent = False

    def lane(self, node: str, plan: Plan, sender: Sender) -> Lane:
        self.sender = sender
        return self

    def offer(self) -> None:
        if not self.can_offer:
            self.sender.must_publish()
        else:
            asyncio.get_running_loop().call_soon(self.look)

    def may_send(self) -> bool:
        return self.can_offer and not self.under_way

    def send(self, frame: PublishedFrame) -> None:
        self.under_way.append(((frame,), self.sender.answered))
        self.offered.append([frame.body])

    def look(self) -> None:
        if not self.under_way and (offered := self.sender.take()):
            self.under_way.append((offered, self.sender.answered))
            self.offered.append([frame.body for frame in offered])

    def answers(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        for frame in frames:
            self._last[frame.region] += frame.count
        return [Answer(Verdict.OK, (1, self._last[frame.region])) for frame in frames]

    def answer(self, error: Exception | None = None) -> None:
        [(frames, told)] = self.under_way
        self.under_way.clear()
        told(self.answers(frames) if error is None else (), error)

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        self.published.append(frames)
        await asyncio.sleep(3600 if self.is_silent else 0)
        return self.answers(frames)

    async def close(self) -> None:
        assert not self.under_way
        self.closed = True


@asynccontextmanager
async def opened(lane: Lane, **limits: float) -> AsyncIterator[Outgoing]:
    configuration = Configuration(
        url="",
        name="one",
        ordering="acyclic",
        limits=Limits(**limits),  # type: ignore[arg-type]
        when_full="wait",
        when_behind="wait",
    )
    session: Session[Token] = Session("one", 1)
    outgoing = Outgoing(cast(Any, lane), configuration, session, Health(), PublishErrorReporter())
    outgoing.follow(PLAN)
    session.changed(Record(PLAN))
    await asyncio.sleep(0)
    yield outgoing
    await outgoing.close()
    assert lane.closed


async def rounds(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_published_in_one_round_is_one_request_and_the_next_waits_for_its_answer() -> None:
    lane = Lane()
    async with opened(lane) as outgoing:
        first = [outgoing.publish_async("a", 1), outgoing.publish_async("a", 2), outgoing.publish_async("b", 3)]
        await rounds()
        assert [len(request) for request in lane.offered] == [2]
        more = outgoing.publish_async("a", 4)
        await rounds()
        assert len(lane.offered) == 1
        lane.answer()
        assert [future.result().sequence for future in first] == [1, 2, 1]
        await rounds()
        lane.answer()
        assert more.result().sequence == 3
        assert not lane.published


async def test_where_something_is_in_the_way_the_task_publishes() -> None:
    lane = Lane()
    lane.can_offer = False
    async with opened(lane) as outgoing:
        assert (await outgoing.publish("a", 1)).sequence == 1
        lane.can_offer = True
        waiting = outgoing.publish_async("a", 2)
        await rounds()
        lane.answer()
        assert (await waiting).sequence == 2
    assert [len(frames) for frames in lane.published] == [1]


async def test_a_lost_answer_is_asked_for_again_by_the_task_and_counts_as_one() -> None:
    lane = Lane()
    async with opened(lane) as outgoing:
        waiting = outgoing.publish_async("a", 1)
        await rounds()
        [(frames, _)] = lane.under_way
        lane.answer(NetworkError("lost"))
        assert (await waiting).sequence == 1
        assert lane.published == [frames]
        assert outgoing.reconnects == 1


async def test_what_the_other_side_refuses_is_offered_again_and_no_answer_counts_as_lost() -> None:
    lane = Lane()
    async with opened(lane) as outgoing:
        waiting = outgoing.publish_async("a", 1)
        await rounds()
        lane.answer(OtherSideError("no such script"))
        assert (await waiting).sequence == 1
        assert (len(lane.published), outgoing.reconnects) == (1, 0)


async def test_what_is_under_way_gets_its_answer_when_the_connection_closes() -> None:
    lane = Lane()
    async with opened(lane) as outgoing:
        waiting = outgoing.publish_async("a", 1)
        await rounds()
        closing = asyncio.create_task(outgoing.close())
        await rounds()
        assert not closing.done()
        lane.answer()
        await closing
        assert waiting.result().sequence == 1


async def test_when_the_way_is_lost_while_the_connection_closes_it_is_not_known_what_became_of_it() -> None:
    lane = Lane()
    async with opened(lane) as outgoing:
        waiting = outgoing.publish_async("a", 1)
        await rounds()
        closing = asyncio.create_task(outgoing.close())
        await rounds()
        lane.answer(NetworkError("lost"))
        await closing
        with pytest.raises(PublishUncertain):
            await waiting


async def test_the_time_of_a_request_counts_from_when_it_was_sent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_S_MIN", 0.02)
    lane = Lane()
    lane.is_silent = True
    async with opened(lane, publish_timeout_s=0.5) as outgoing:
        began = asyncio.get_running_loop().time()
        asyncio.get_running_loop().call_later(0.1, lambda: lane.answer(NetworkError("broken off")))
        with pytest.raises(PublishUncertain):
            await outgoing.publish("a", 1)
        assert 0.4 < asyncio.get_running_loop().time() - began < 0.5 + scaled(0.4)
        assert lane.sender.limit_s == 0.5
        assert lane.published
