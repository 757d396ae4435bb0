"""The judge of the conformance kit, over logs that are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.eventmessages import position_text
from laboratory.conformance.judging import judge
from laboratory.conformance.log import (
    Asked,
    Closed,
    Entry,
    Exited,
    Happened,
    Heard,
    Left,
    Missing,
    Opened,
    Reported,
    Said,
)

HELLO = {"type": "hello", "protocol": 1, "name": "ann", "token": "t"}
WELCOME = {"type": "welcome", "name": "~ann"}


def event(sequence: int, region: str = "forest", **more: Any) -> dict[str, Any]:
    return {"region": region, "position": position_text((3, sequence)), "sender": "~bob", "payload": sequence} | more


def happened(sequence: int, region: str = "forest") -> Happened:
    return Happened({region: (3, sequence)}, "~bob", sequence)


def sent(connection: int, *events: dict[str, Any]) -> Said:
    return Said(connection, {"type": "events", "events": list(events)})


def begun(connection: int = 0, **hello: Any) -> list[Entry]:
    return [Opened(connection, connection), Heard(connection, HELLO | hello), Said(connection, WELCOME)]


def joined(*regions: str, at: int = 6) -> list[Entry]:
    """Return the entries of a subscribe, with its id 1, over the first connection."""
    asked: dict[str, Any] = {"id": 1, "regions": list(regions)}
    answer = {"type": "subscribed", "id": 1, "regions": dict.fromkeys(regions, f"3-{at}")}
    return [Asked({"do": "subscribe", **asked}), Heard(0, {"type": "subscribe", **asked}), Said(0, answer), DONE]


def resumed(connection: int, **since: str) -> list[Entry]:
    regions = list(since)
    return [
        *begun(connection),
        Heard(connection, {"type": "subscribe", "id": "r", "regions": regions, "since": since}),
        Said(connection, {"type": "subscribed", "id": "r", "regions": since}),
    ]


DONE = Reported({"done": 1})
PUBLISH = {"id": 2, "region": "forest", "payload": {"mine": 1}}
ASKED_PUBLISH = Asked({"do": "publish", **PUBLISH})
SENT_PUBLISH = Heard(0, {"type": "publish", **PUBLISH})
PUBLISHED = Happened({"forest": (3, 9)}, "~ann", {"mine": 1})
ACKED = Said(0, {"type": "acks", "acks": [{"id": 2, "region": "forest", "position": "3-9"}]})
RECEIPT = Reported({"receipt": 2, "region": "forest", "position": "3-9"})
SEVEN, EIGHT = Reported({"event": event(7)}), Reported({"event": event(8)})

GOOD: list[Entry] = [
    *begun(),
    *joined("forest"),
    *(happened(7), happened(8), sent(0, event(7), event(8)), SEVEN),
    Closed(0, None),
    *resumed(1, forest="3-7"),
    *(sent(1, event(8)), EIGHT),
    *(ASKED_PUBLISH, SENT_PUBLISH, PUBLISHED, ACKED, RECEIPT),
    *(sent(1, event(9)), Reported({"event": event(9)})),
    Asked({"do": "close", "id": 3}),
    Left(1, 1000),
    Exited(0),
]

BAD: dict[str, tuple[list[Entry], list[str]]] = {
    "an event is lost": ([*begun(), *joined("forest"), happened(7), sent(0, event(7))], ["lost"]),
    "an event is reported twice": (
        [*begun(), *joined("forest"), happened(7), sent(0, event(7)), SEVEN, SEVEN],
        ["repeated"],
    ),
    "events are reported in another order": (
        [*begun(), *joined("forest"), sent(0, event(7), event(8)), EIGHT, SEVEN],
        ["order"],
    ),
    "an event has another payload": (
        [*begun(), *joined("forest"), sent(0, event(7)), Reported({"event": event(7, payload=[])})],
        ["changed"],
    ),
    "an event was not sent": ([*begun(), *joined("forest"), SEVEN], ["unexpected"]),
    "a gap is reported as an event": (
        [
            *(*begun(), *joined("forest"), sent(0, {"region": "forest", "position": "3-7", "gap": {"first": "3-7"}})),
            Reported({"event": {"region": "forest", "position": "3-7", "gap": {"first": "3-7"}}}),
        ],
        ["kind"],
    ),
    "the client resumes behind an event": (
        [*begun(), *joined("forest"), happened(7), happened(8), Closed(0, None), *resumed(1, forest="3-8")],
        ["lost", "lost"],
    ),
    "the client resumes its regions one by one": (
        [*begun(), *joined("forest", "river"), Closed(0, None), *resumed(1, forest="3-6")],
        ["resume"],
    ),
    "the client has another name after a reconnect": (
        [*begun(), Closed(0, None), Opened(1, 1), Heard(1, HELLO | {"name": "eve"})],
        ["name"],
    ),
    "the client has no token": ([*begun(token=None)], ["token"]),
    "the first message is no hello": ([Opened(0), Heard(0, {"type": "ping"})], ["hello"]),
    "a message is malformed": ([*begun(), Heard(0, {"type": "subscribe", "regions": "forest"})], ["malformed"]),
    "a message is no JSON": ([*begun(), Heard(0, None)], ["malformed"]),
    "a publish is sent again without retry": (
        [*begun(), ASKED_PUBLISH, SENT_PUBLISH, Heard(1, {"type": "publish", **PUBLISH}), PUBLISHED, RECEIPT],
        ["hello", "retry"],
    ),
    "an event is published twice": (
        [*begun(), ASKED_PUBLISH, SENT_PUBLISH, PUBLISHED, PUBLISHED, RECEIPT],
        ["doubled"],
    ),
    "a receipt has another position": (
        [*begun(), ASKED_PUBLISH, SENT_PUBLISH, PUBLISHED, Reported({"receipt": 2, "position": "3-8"})],
        ["receipt"],
    ),
    "a publish has no answer": ([*begun(), ASKED_PUBLISH, SENT_PUBLISH, PUBLISHED], ["answer"]),
    "a publish has two answers": ([*begun(), ASKED_PUBLISH, SENT_PUBLISH, PUBLISHED, RECEIPT, RECEIPT], ["answer"]),
    "a publish over the limits is sent": (
        [*begun(), Asked({"do": "publish", **PUBLISH}, "too-large", True), SENT_PUBLISH, Reported({"refused": 2})],
        ["publish"],
    ),
    "a refusal has another code": (
        [*begun(), Asked({"do": "publish", **PUBLISH}, "forbidden"), Reported({"refused": 2, "code": "closed"})],
        ["answer"],
    ),
    "the client connects after a final close": ([*begun(), Closed(0, 4009), Opened(1, 1)], ["reconnect"]),
    "the client connects after it was closed": (
        [*begun(), Asked({"do": "close", "id": 1}), Opened(1, 1)],
        ["reconnect"],
    ),
    "the client leaves without a close": ([*begun(), Asked({"do": "close", "id": 1}), Left(0, 1006)], ["close"]),
    "the client does not wait between attempts": ([Opened(number, number / 20) for number in range(20)], ["backoff"]),
    "the client resumes before retry_after_ms": (
        [
            *(*begun(), *joined("forest"), Closed(0, None), *begun(1)),
            Heard(1, {"type": "subscribe", "id": "r", "regions": ["forest"], "since": {"forest": "3-6"}}, 10.0),
            Said(1, {"type": "error", "id": "r", "code": "rate", "retriable": True, "retry_after_ms": 300}, 10.0),
            *begun(2),
            Heard(2, {"type": "subscribe", "id": "r", "regions": ["forest"], "since": {"forest": "3-6"}}, 10.1),
        ],
        ["early"],
    ),
    "the program ends by itself": ([*begun(), Exited(1, "TypeError")], ["exit"]),
    "the program writes something else": ([*begun(), Reported("hello")], ["line"]),
    "a wait ends": ([*begun(), Missing("the client did not answer")], ["waited"]),
}


def test_a_client_that_does_everything_right_has_no_violations() -> None:
    assert judge(GOOD, token="t") == []


@pytest.mark.parametrize("name", BAD)
def test_each_fault_is_found_and_nothing_else(name: str) -> None:
    entries, rules = BAD[name]
    assert [violation.rule for violation in judge(entries, token="t")] == rules


def test_a_state_in_parts_is_due_once_and_as_a_whole() -> None:
    parts: list[dict[str, Any]] = [
        {"region": "forest", "position": None, "part": 0, "more": True, "state": {"a": {"payload": 1}}},
        {"region": "forest", "position": "3-6", "part": 1, "more": False, "state": {"b": {"payload": 2}}},
    ]
    whole = {"region": "forest", "position": "3-6", "state": {"a": {"payload": 1}, "b": {"payload": 2}}}
    log = [*begun(), sent(0, parts[0]), sent(0, parts[1])]
    assert judge([*log, Reported({"state": whole})], token="t") == []
    half = whole | {"state": {"b": {"payload": 2}}}
    assert [each.rule for each in judge([*log, Reported({"state": half})], token="t")] == ["changed"]
