"""Connections of one process that share a node publish together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from adapters.network import Answered
from adapters.redis.ingress import Ingress, IngressLane
from sequencing.errors import NetworkError, NotConnected
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from tests.patience import until

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, ())


class Node:
    """Stands for the connection to a node: what is published without a task waits for `answer`."""

    name = "n1"

    def __init__(self) -> None:
        self.can_publish, self.closed, self.broken_off = True, False, 0
        self.under_way: list[tuple[Sequence[PublishedFrame], Answered]] = []
        self.requests: list[list[str]] = []

    def follow(self, plan: Plan) -> None:
        pass

    def can_publish_at_once(self) -> bool:
        return self.can_publish

    def publish_at_once(self, frames: Sequence[PublishedFrame], told: Answered) -> None:
        assert not self.under_way
        self.under_way.append((frames, told))
        self.requests.append([frame.region for frame in frames])

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


class Offering:
    """A connection that publishes some regions' frames: what `offers` has is taken at once. Implements `Sender`."""

    def __init__(self, limit_s: float = 9.0) -> None:
        self.limit_s = limit_s
        self.offers: list[str] = []
        self.told: list[Any] = []
        self.must = 0
        self.lane: IngressLane

    def offer(self, regions: str) -> None:
        self.offers += regions
        self.lane.offer()

    def take(self) -> Sequence[PublishedFrame]:
        taken, self.offers = self.offers, []
        return [frame(region) for region in taken]

    def answered(self, given: Sequence[Answer], error: Exception | None) -> None:
        self.told.append(error or [answer.numbers[1] for answer in given])

    def must_publish(self) -> None:
        self.must += 1


def answers(frames: Sequence[PublishedFrame]) -> list[Answer]:
    return [Answer(Verdict.OK, (1, ord(frame.region))) for frame in frames]


def frame(region: str) -> PublishedFrame:
    return PublishedFrame(region, 1, "p", 1, 1, 1, b"x")


def sharing(*limits_s: float) -> tuple[Node, Ingress, list[Offering]]:
    node = Node()
    ingress = Ingress(cast(Any, node), PLAN)
    senders = [Offering(limit_s) for limit_s in limits_s or (9.0, 9.0, 9.0)]
    for sender in senders:
        sender.lane = ingress.lane(PLAN, sender)
    return node, ingress, senders


async def rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_what_connections_offer_in_one_round_is_one_request() -> None:
    node, ingress, (one, two, three) = sharing()
    one.offer("ab")
    two.offer("c")
    two.offer("")
    await rounds()
    three.offer("d")
    await rounds()
    assert node.requests == [["a", "b", "c"]]
    node.answer()
    assert (one.told, two.told, three.told) == ([[97, 98]], [[99]], [])
    await rounds()
    node.answer()
    assert (three.told, node.requests[1:]) == ([[100]], [["d"]])
    await ingress.close()
    assert node.closed


async def test_one_frame_may_be_sent_now_if_nothing_could_go_with_it() -> None:
    node, ingress, (one, two, _) = sharing()
    assert one.lane.may_send()
    one.lane.send(frame("a"))
    assert node.requests == [["a"]]
    assert not two.lane.may_send(), "something is under way"
    node.answer()
    assert one.told == [[97]]
    asyncio.get_running_loop().call_soon(two.offer, "c")
    assert not one.lane.may_send(), "something is about to run that may publish"
    one.offer("b")
    assert not two.lane.may_send(), "something waits"
    await rounds()
    assert node.requests == [["a"], ["b", "c"]]
    node.answer()
    node.can_publish = False
    assert not one.lane.may_send(), "something is to be opened first"
    node.can_publish = True
    two.lane.follow(Plan(2, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, (), runs={"n1": "again"}))
    assert [each.lane.may_send() for each in (one, two)] == [False, True]
    await ingress.close()
    assert not two.lane.may_send()


async def test_what_is_offered_while_a_request_is_under_way_goes_together_in_the_next_one() -> None:
    node, ingress, (one, two, three) = sharing()
    one.offer("a")
    await rounds()
    two.offer("b")
    three.offer("c")
    two.offer("d")
    await rounds()
    node.answer()
    await rounds()
    node.answer()
    assert node.requests == [["a"], ["b", "d", "c"]]
    assert (two.told, three.told) == ([[98, 100]], [[99]])
    await ingress.close()


async def test_who_waits_no_longer_is_told_alone_and_once() -> None:
    node, ingress, (one, two) = sharing(0.02, 9.0)
    one.offer("a")
    two.offer("b")
    await rounds()
    async with asyncio.timeout(5):
        await until(lambda: one.told)
    [error] = one.told
    assert isinstance(error, NetworkError)
    assert not node.broken_off
    node.answer()
    assert (len(one.told), two.told) == (1, [[98]])
    await ingress.close()


async def test_a_request_without_any_more_waiting_for_it_is_broken_off() -> None:
    node, ingress, (one, two) = sharing(0.02, 0.05)
    one.offer("a")
    two.offer("b")
    await rounds()
    async with asyncio.timeout(5):
        await until(lambda: two.told)
    assert node.broken_off == 1
    assert [isinstance(error, NetworkError) for [error] in (one.told, two.told)] == [True, True]
    one.offer("c")
    await rounds()
    node.answer()
    assert one.told[1:] == [[99]]
    await ingress.close()


async def test_where_something_is_in_the_way_a_task_publishes_and_both_ways_take_turns() -> None:
    node, ingress, (one, two, _) = sharing()
    node.can_publish = False
    one.offer("a")
    await rounds()
    assert (one.told, node.requests) == ([[97]], [["a"]])
    node.can_publish = True
    two.offer("b")
    await rounds()
    waiting = asyncio.create_task(one.lane.publish([frame("c")]))
    await rounds()
    assert node.requests == [["a"], ["b"]]
    node.answer()
    assert [answer.numbers[1] for answer in await waiting] == [99]
    assert not node.under_way, "what a connection publishes itself was refused without a task"
    two.offer("d")
    await rounds()
    node.answer()
    assert node.requests == [["a"], ["b"], ["c"], ["d"]]
    await ingress.close()


async def test_who_has_not_heard_of_a_nodes_new_run_publishes_nothing_there() -> None:
    node, ingress, (one, two, _) = sharing()
    newer = Plan(2, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, (), runs={"n1": "again"})
    two.lane.follow(newer)
    one.offer("a")
    two.offer("b")
    await rounds()
    assert node.requests == [["b"]]
    [error] = one.told
    assert isinstance(error, NetworkError)
    node.answer()
    await ingress.close()


async def test_what_is_under_way_is_answered_before_it_is_closed_and_nothing_is_taken_then() -> None:
    node, ingress, (one, two, three) = sharing()
    one.offer("a")
    await rounds()
    three.offer("c")
    closing = asyncio.create_task(ingress.close())
    await rounds()
    two.offer("b")
    assert two.must == 1
    with pytest.raises(NotConnected):
        await two.lane.publish([frame("b")])
    assert not closing.done()
    node.answer()
    await closing
    assert (one.told, three.must, node.closed) == ([[97]], 1, True)
