"""The publishing half on a node that answers at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from adapters.network import Sender
from gamecast.client.configuration import Configuration, Limits
from gamecast.client.outgoing import Outgoing
from gamecast.client.receipts import Token
from gamecast.client.serving import LINGER_FROM_EVENTS
from gamecast.client.watching import Health, PublishErrorReporter
from sequencing.frames import PublishedFrame
from sequencing.node import Answer, Verdict
from sequencing.plan import Plan
from sequencing.record import Record
from sequencing.session import Session
from tests.patience import patience

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, ())


class Accepting:
    """Stands for a network, and for the lane to its only node, which accepts everything."""

    def __init__(self) -> None:
        self._last = Counter[str]()

    def lane(self, node: str, plan: Plan, sender: Sender) -> Accepting:
        self._sender = sender
        return self

    def offer(self) -> None:
        self._sender.must_publish()

    def may_send(self) -> bool:
        return False

    async def publish(self, frames: Sequence[PublishedFrame]) -> list[Answer]:
        await asyncio.sleep(0)
        for frame in frames:
            self._last[frame.region] += frame.count
        return [Answer(Verdict.OK, (1, self._last[frame.region])) for frame in frames]

    async def close(self) -> None:
        pass


async def test_it_ends_also_in_the_round_after_a_large_request() -> None:
    configuration = Configuration(
        url="", name="one", ordering="acyclic", limits=Limits(), when_full="wait", when_behind="wait"
    )
    session: Session[Token] = Session("one", 1)
    outgoing = Outgoing(cast(Any, Accepting()), configuration, session, Health(), PublishErrorReporter())
    outgoing.follow(PLAN)
    outgoing.carry_out(session.changed(Record(PLAN)))
    receipts = [outgoing.publish_async("a", number) for number in range(LINGER_FROM_EVENTS)]
    assert (await receipts[-1]).sequence == LINGER_FROM_EVENTS
    async with patience(5):
        await outgoing.close()
