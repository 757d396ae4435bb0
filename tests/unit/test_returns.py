"""What a causal connection learns of its own events as it delivers them, also after it was renewed."""

from __future__ import annotations

from sequencing.delivery import Ready
from sequencing.errors import NotConnected, PublishUncertain
from sequencing.frames import parse_meta
from sequencing.node import Node
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.returns import Returns

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ())


def test_each_event_of_a_renewed_connection_frees_what_waits_for_it_and_nothing_else() -> None:
    node, returns = Node("n1"), Returns("p", 1)
    node.install(1, 1, PLAN.steps("n1"))
    publisher: Publisher[str] = Publisher("p", 1, causal=True)
    publisher.assign(PLAN)

    def add(*events: str) -> None:
        for event in events:
            publisher.add(event[0], b"0", binary=False, sent_at_ns=0, token=event)

    def sent() -> list[str]:
        frames = publisher.take("n1")
        publisher.answered("n1", node.publish(frames))
        return [frame.region for frame in frames]

    def delivered(place: int) -> None:
        frame = node.egress[1, "a"][place]
        returns.note([Ready(frame, parse_meta(frame.meta))])
        for region, number in returns.passed().items():
            publisher.passed(region, number)

    add("a1")
    sent()
    add("a2")
    publisher.take("n1")
    publisher.give_up("n1", under_way=PublishUncertain("lost"), waiting=NotConnected("closed"))
    publisher.renew(publisher.doubtful(), 2)
    add("a3", "b1")
    assert sent() == ["a"]
    delivered(0)
    assert sent() == [], "a1 has come back, and a3 has not"
    delivered(1)
    assert sent() == ["b"]
