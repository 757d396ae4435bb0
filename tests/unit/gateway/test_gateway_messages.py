"""Numbers in the messages of clients, which an engine may write as 0.0, and the size of messages with acks."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.descriptions import asyncapi, openapi
from gateway.eventmessages import acks_messages
from gateway.messages import Hello, Publish, Subscribe, read_message
from gateway.refusal import CLOSES, MEANINGS, Close, Code, Refusal
from tests.integration.gateway_clients import check_sent


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


@pytest.mark.parametrize(
    ("document", "code", "text"),
    [
        (
            {"type": "publish", "region": ["forest"], "payload": 1},
            Code.INVALID_REGION,
            "a region must be a string",
        ),
        ({"type": "publish", "regions": "forest", "payload": 1}, Code.MALFORMED, "a list of 1 to 64 regions"),
        ({"type": "publish", "regions": ["forest", 7], "payload": 1}, Code.INVALID_REGION, "a region must be a string"),
        ({"type": "publish", "region": "forest", "base64": 7}, Code.INVALID_PAYLOAD, "base64 must be a base64 string"),
        ({"type": "publish", "region": "forest", "payload": 1, "key": 7}, Code.INVALID_KEY, "a key must be a string"),
        ({"type": "publish", "region": "forest", "payload": 1, "only_if": {"door": 7}}, Code.MALFORMED, "'3-120'"),
        (
            {"type": "publish", "region": "forest", "payload": 1, "only_if": {"a": {"b": None}}},
            Code.MALFORMED,
            "only_if",
        ),
        (
            {"type": "publish", "region": "forest", "payload": 1, "retry": 1},
            Code.MALFORMED,
            "true or false",
        ),
        ({"type": "subscribe"}, Code.MALFORMED, "regions must be a list"),
        ({"type": "hello", "token": 7}, Code.MALFORMED, "token must be a string"),
    ],
)
def test_a_message_of_another_shape_is_refused_with_its_code(document: dict[str, Any], code: Code, text: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_message(document)
    assert (refused.value.code, text in refused.value.message) == (code, True), refused.value.message


def test_unknown_fields_of_clients_are_ignored_and_payloads_are_kept_as_they_are() -> None:
    payload = {"id": 1.0, "since": 2.0}
    event = read_message({"type": "publish", "region": "forest", "payload": payload, "tomorrow": 1})
    assert isinstance(event, Publish)
    assert event.payload is payload


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Code)
    assert set(CLOSES) == {value for name, value in vars(Close).items() if name.isupper()}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "pong", "id": 1, "tomorrow": 1},
        {"type": "acks", "acks": [{"id": 1, "region": "forest"}]},
        {"type": "events", "events": [{"region": "forest", "position": "3-1", "sender": "a", "sent_at_ms": 1.0}]},
        {"type": "events", "events": [{"region": "forest", "position": "3", "gap": {}}]},
        {"type": "error", "code": "odd", "message": "", "retriable": False, "definite": True},
    ],
)
def test_what_a_gateway_must_not_send_is_noticed(message: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, AssertionError)):
        check_sent(message)


@pytest.mark.parametrize("description", [openapi(), asyncapi()])
def test_all_references_of_a_description_lead_somewhere(description: dict[str, Any]) -> None:
    references = re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(description))
    assert references
    for reference in references:
        found: Any = description
        for part in reference.split("/"):
            found = found[part]
