"""Connections of one process that share a node publish together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from adapters.network import Answered
from adapters.shared import lane as shared_lane
from adapters.shared.lane import SharedIngress, SharedLane
from sequencing.errors import NetworkError, NotConnected
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, ())


class Node:
    """Stands for the connection to a node: what is offered without a task waits for `answer`."""

    name = "n1"

    def __init__(self) -> None:
        self.can_offer, self.closed, self.broken_off = True, False, 0
        self.under_way: list[tuple[Sequence[PublishedFrame], Answered]] = []
        self.requests: list[list[str]] = []

    def follow(self, plan: Plan) -> None:
        pass

    def offer(self, frames: Callable[[], Sequence[PublishedFrame]], told: Answered) -> bool:
        if not self.can_offer:
            return False
        if offered := frames():
            assert not self.under_way
            self.under_way.append((offered, told))
            self.requests.append([frame.region for frame in offered])
        return True

    def answer(self, error: Exception | None = None) -> None:
        [(frames, told)] = self.under_way
        self.under_way.clear()
        told(answers(frames) if error is None else (), error)

    def break_off(self) -> None:
        self.broken_off += 1
        self.answer(NetworkError("broken off"))

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        self.requests.append([frame.region for frame in frames])
        await asyncio.sleep(0)
        return answers(frames)

    async def close(self) -> None:
        assert not self.under_way
        self.closed = True


def answers(frames: Sequence[PublishedFrame]) -> list[Answer]:
    return [Answer(Verdict.OK, (1, ord(frame.region))) for frame in frames]


def frame(region: str) -> PublishedFrame:
    return PublishedFrame(region, 1, "p", 1, 1, 1, b"x")


class Told(list[Any]):
    def __call__(self, given: Sequence[Answer], error: Exception | None) -> None:
        self.append(error or [answer.numbers[1] for answer in given])


def sharing(count: int = 3) -> tuple[Node, SharedIngress, list[SharedLane]]:
    node = Node()
    ingress = SharedIngress(cast(Any, node), PLAN)
    return node, ingress, [ingress.lane(PLAN) for _ in range(count)]


async def rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_connections_offer_in_one_round_is_one_request() -> None:
    node, ingress, (one, two, three) = sharing()
    told = [Told() for _ in range(3)]
    assert one.offer(lambda: [frame("a"), frame("b")], told[0])
    assert two.offer(lambda: [frame("c")], told[1])
    assert two.offer(list, told[2])
    await rounds()
    assert three.offer(lambda: [frame("d")], told[2])
    await rounds()
    assert node.requests == [["a", "b", "c"]]
    node.answer()
    assert told == [[[97, 98]], [[99]], []]
    await rounds()
    node.answer()
    assert (told[2], node.requests[1:]) == ([[100]], [["d"]])
    await ingress.close()
    assert node.closed


async def test_who_gives_up_is_told_alone_and_once() -> None:
    node, ingress, (one, two, _) = sharing()
    told = [Told(), Told()]
    one.offer(lambda: [frame("a")], told[0])
    two.offer(lambda: [frame("b")], told[1])
    await rounds()
    one.break_off()
    [error] = told[0]
    assert isinstance(error, NetworkError)
    node.answer()
    assert (len(told[0]), told[1]) == (1, [[98]])
    await ingress.close()


async def test_an_error_is_told_to_all_and_a_request_without_an_answer_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_lane, "REPLY_S_MAX", 0.02)
    node, ingress, (one, two, _) = sharing()
    told = [Told(), Told()]
    one.offer(lambda: [frame("a")], told[0])
    two.offer(lambda: [frame("b")], told[1])
    await rounds()
    async with asyncio.timeout(5):
        while not told[1]:  # noqa: ASYNC110 - a timer of the loop
            await asyncio.sleep(0.01)
    assert node.broken_off == 1
    assert all(isinstance(error, NetworkError) for [error] in told)
    await ingress.close()


async def test_where_something_is_in_the_way_a_task_publishes_and_both_ways_take_turns() -> None:
    node, ingress, (one, two, _) = sharing()
    node.can_offer = False
    told = Told()
    one.offer(lambda: [frame("a")], told)
    await rounds()
    assert (told, node.requests) == ([[97]], [["a"]])
    node.can_offer = True
    two.offer(lambda: [frame("b")], told)
    await rounds()
    waiting = asyncio.create_task(one.publish([frame("c")]))
    await rounds()
    assert node.requests == [["a"], ["b"]]
    node.answer()
    await rounds()
    node.answer()
    assert [answer.numbers[1] for answer in await waiting] == [99]
    await ingress.close()


async def test_what_is_under_way_is_answered_before_it_is_closed_and_nothing_is_taken_then() -> None:
    node, ingress, (one, two, _) = sharing()
    told = Told()
    one.offer(lambda: [frame("a")], told)
    await rounds()
    closing = asyncio.create_task(ingress.close())
    await rounds()
    assert not two.offer(lambda: [frame("b")], Told())
    with pytest.raises(NotConnected):
        await two.publish([frame("b")])
    assert not closing.done()
    node.answer()
    await closing
    assert (told, node.closed) == ([[97]], True)
