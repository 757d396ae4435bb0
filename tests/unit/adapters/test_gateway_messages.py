"""Numbers in the messages of clients, which an engine may write as 0.0, and the size of messages with acks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.gateway.eventmessages import acks_messages
from adapters.gateway.messages import Hello, Refusal, Subscribe, read_message


def test_a_float_without_a_fraction_is_an_integer() -> None:
    hello = read_message({"type": "hello", "protocol": 1.0, "batch_ms": 20.0, "message_bytes_max": 60000.0})
    assert isinstance(hello, Hello)
    assert (repr(hello.batch_ms), repr(hello.message_bytes_max)) == ("20", "60000")
    subscribe = read_message({"type": "subscribe", "id": 7.0, "regions": ["forest"], "since": 0.0})
    assert isinstance(subscribe, Subscribe)
    assert (repr(subscribe.id), repr(subscribe.since)) == ("7", "0")


@pytest.mark.parametrize(
    "document",
    [
        *({"type": "hello", "batch_ms": each} for each in (0.5, True, -1.0, 1001.0, float("inf"), float("nan"), "1")),
        *({"type": "hello", "message_bytes_max": each} for each in (0.0, 0.5, False)),
        *({"type": "ping", "id": each} for each in (0.5, 2.0**53, True)),
        {"type": "subscribe", "regions": ["forest"], "since": 0.5},
    ],
)
def test_other_numbers_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        read_message(document)


@pytest.mark.parametrize("bytes_max", [1, 200, 1_000, 60_000])
def test_acks_are_split_into_messages_of_a_size(bytes_max: int) -> None:
    acks = [{"id": number, "region": "forest", "position": f"1-{number}"} for number in range(1_024)]
    messages = list(acks_messages(acks, bytes_max))
    assert [ack for message in messages for ack in json.loads(message)["acks"]] == acks
    largest = max(map(len, messages))
    assert largest <= bytes_max if bytes_max > 100 else len(messages) == len(acks)
    assert list(acks_messages([], bytes_max)) == []
