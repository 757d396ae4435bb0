"""Returns: what became of a connection's own events, as far as it has delivered what tells so."""

from __future__ import annotations

from sequencing.errors import NotConnected, PublishUncertain
from sequencing.frames import StampedFrame, parse_meta
from sequencing.node import Node
from sequencing.owndeliveries import OwnDeliveries
from sequencing.plan import Plan
from sequencing.publisher import Publisher
from sequencing.ready import Missing, Ready

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ())


def ready(region: str, meta: bytes, *, epoch: int = 1) -> Ready:
    return Ready(StampedFrame(region, epoch, 50, meta, b"", b""), parse_meta(meta))


def test_own_frames_tell_their_last_number_once() -> None:
    returns = OwnDeliveries("me", 7)
    returns.note([ready("a", b"0 3 7 5 me"), ready("b", b"1 1 7 2 me"), ready("c", b"0 1 7 9 other")])
    assert (returns.passed(), returns.passed()) == ({"a": 7, "b": 2}, {})


def test_frames_of_an_earlier_connection_of_the_name_are_not_its_own() -> None:
    returns = OwnDeliveries("me", 7)
    returns.note([ready("a", b"0 3 6 5 me")])
    assert returns.passed() == {}
    returns.note([ready("a", b"0 1 7 1 me"), ready("a", b"0 3 6 8 me")])
    assert returns.passed() == {"a": 1}


def test_the_highest_own_number_counts_also_when_an_older_frame_comes_after_it() -> None:
    returns = OwnDeliveries("me", 7)
    returns.note([ready("a", b"0 1 7 5 me"), ready("a", b"0 1 7 4 me")])
    assert returns.passed() == {"a": 5}


def test_a_tick_tells_that_the_epoch_of_its_region_is_over_whoever_sent_it() -> None:
    returns = OwnDeliveries("me", 7)
    returns.note([ready("a", b"2 1 0 0 "), ready("a", b"2 1 0 0 ", epoch=2), ready("b", b"0 1 7 1 me")])
    assert (returns.over(), returns.over()) == ({"a": 2}, {})


def test_what_is_missing_tells_up_to_where() -> None:
    returns = OwnDeliveries("me", 7)
    returns.note([Missing("a", 1, 3, 4), Missing("b", 2, 1, 9), Missing("a", 1, 6, 8), ready("a", b"0 1 7 1 me")])
    assert (returns.gone(), returns.gone()) == ({"a": (1, 8), "b": (2, 9)}, {})
    assert returns.passed() == {"a": 1}


def test_each_event_of_a_renewed_connection_frees_what_waits_for_it_and_nothing_else() -> None:
    node, returns = Node("n1"), OwnDeliveries("p", 1)
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
