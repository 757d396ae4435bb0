"""Names of regions from outside, patterns, rates, bounded memory, and the audit log."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.logs import JsonLines
from gamecast.event import Event
from gateway.audit import AuditLog
from gateway.eventmessages import encode_event
from gateway.eventtexts import EventTexts
from gateway.grants import Bucket, Grant, Subjects
from gateway.guard import Guard
from gateway.messages import read_json, read_message, read_publication
from gateway.metrics import OTHER, BoundedLabels
from gateway.refusal import Refusal
from gateway.regions import check_public_region, checked_patterns
from gateway.replaycache import RedisReplayCache
from gateway.settings import GatewayLimits, GatewaySettings, parse_limits
from sequencing.depth import PAYLOAD_LISTS_MAX
from sequencing.errors import InvalidName, UsageError


@pytest.mark.parametrize(
    "region", ["forest", "arena/1", "cell:12,-3", "лес", "東の森", "ünïcode", "a b", "match-7/team.red", "a..b", "é"]
)
def test_ordinary_regions_are_taken(region: str) -> None:
    assert check_public_region(region) == region


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ("../admin", "must not be empty, '.' or '..'"),
        ("arena/../admin", "must not be empty"),
        ("arena/./1", "must not be empty"),
        ("/arena", "must not be empty"),
        ("arena//1", "must not be empty"),
        ("arena/", "must not be empty"),
        ("arena/*", "reserved for patterns"),
        ("arena/?", "must not contain ?"),
        ("arena/[ab]", "must not contain [ ]"),
        ("arena\\1", "must not contain \\"),
        ("ａｒｅｎａ", "normal form NFKC"),
        ("ﬁeld", "normal form NFKC"),
        ("e\u0301", "normal form NFKC"),
        ("\u2024\u2024/admin", "normal form NFKC"),
        ("arenа", "must not mix CYRILLIC and LATIN"),
        ("αrena", "must not mix GREEK and LATIN"),
        ("arena\u200b", "control characters"),
        ("arena\u202e1", "control characters"),
        ("a\nb", "control characters"),
        ("a\x00b", "control characters"),
        ("a\x7fb", "control characters"),
        (" arena", "begin or end with a space"),
        ("", "must not be empty"),
        ("x" * 201, "at most 200 bytes"),
    ],
)
def test_regions_that_look_like_others_or_mean_several_are_refused(region: str, said: str) -> None:
    with pytest.raises(InvalidName) as raised:
        check_public_region(region)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("patterns", "inside", "outside"),
    [
        (["arena/*"], ["arena/1", "arena/x.y"], ["arena", "arena/1/2", "arenas/1", "xarena/1"]),
        (["arena/**"], ["arena/1", "arena/1/2"], ["arena"]),
        (["*"], ["forest"], ["arena/1"]),
        (["**"], ["forest", "arena/1"], []),
        (["a.b"], ["a.b"], ["axb"]),
        (["cell:*"], ["cell:1,2"], ["cell:1/2", "cells"]),
        ([], [], ["forest", ""]),
    ],
)
def test_patterns_mean_what_they_say(patterns: list[str], inside: list[str], outside: list[str]) -> None:
    allowed = checked_patterns(patterns)
    assert all(region in allowed for region in inside)
    assert not any(region in allowed for region in outside)


@given(st.text())
def test_whatever_is_taken_as_a_region_is_no_pattern_and_has_no_parts_that_climb(text: str) -> None:
    try:
        region = check_public_region(text)
    except InvalidName:
        return
    assert region in checked_patterns([region])
    assert ".." not in region.split("/")
    assert "*" not in region


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_whatever_is_no_message_is_refused_and_nothing_else_happens(document: object) -> None:
    with pytest.raises(Refusal):
        read_message(document)
    with pytest.raises(Refusal):
        read_message({"type": "publish", "region": document})
    with pytest.raises(Refusal):
        read_message({"type": "subscribe", "regions": [document, "*"]})


def test_json_that_is_too_deep_is_refused() -> None:
    with pytest.raises(Refusal):
        read_json("[" * 100_000)


def test_a_payload_of_very_many_lists_is_refused_and_one_of_long_texts_is_not() -> None:
    many: list[Any] = [[[]] * PAYLOAD_LISTS_MAX, {"a": [{"b": 1}] * PAYLOAD_LISTS_MAX}]
    few: list[Any] = [[[]] * (PAYLOAD_LISTS_MAX - 1), "[" * 3 * PAYLOAD_LISTS_MAX, [1] * 3 * PAYLOAD_LISTS_MAX]
    for payload in many:
        with pytest.raises(Refusal, match="lists and objects"):
            read_publication({"region": "r", "payload": payload})
    for payload in few:
        assert read_publication({"region": "r", "payload": payload}).payload == payload


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    now = [0.0]
    bucket = Bucket(10.0, 5, lambda: now[0])
    assert [bucket.take() for _ in range(5)] == [0.0] * 5
    assert bucket.take() == pytest.approx(0.1)
    now[0] = 0.1
    assert bucket.take() == 0.0
    assert bucket.take() > 0.0
    now[0] = 100.0
    assert bucket.is_full


def test_the_rate_of_a_token_holds_for_all_sessions_of_its_subject() -> None:
    subjects = Subjects(GatewayLimits())
    nowhere = checked_patterns([])
    grant = Grant(subject="alice", read=nowhere, write=nowhere, events_per_s=3, sessions_max=1)
    for _ in range(3):
        subjects.of(grant).require_events(1)
    with pytest.raises(Refusal, match="too many events"):
        subjects.of(grant).require_events(1)
    subjects.of(grant).enter(grant)
    with pytest.raises(Refusal, match="limit is 1"):
        subjects.of(grant).enter(grant)
    subjects.of(grant).leave()
    subjects.of(grant).enter(grant)


def test_a_holder_is_called_what_the_token_says() -> None:
    grant = Grant(subject="alice", read=checked_patterns([]), write=checked_patterns([]))
    assert grant.require_name("alice~phone") == "alice~phone"
    for name in ("bob", "alice2", "ALICE", "alic", "~alice"):
        with pytest.raises(Refusal, match="allows the name 'alice'"):
            grant.require_name(name)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "game.example"])
def test_without_keys_a_gateway_listens_to_this_machine_only(host: str) -> None:
    with pytest.raises(UsageError, match="without keys"):
        Guard(GatewaySettings(host=host), RedisReplayCache("redis://127.0.0.1:1"))
    Guard(GatewaySettings(host="127.0.0.1"), RedisReplayCache("redis://127.0.0.1:1"))


def test_labels_are_bounded() -> None:
    labels = BoundedLabels(2)
    assert [labels.of(value) for value in "abcab"] == ["a", "b", OTHER, "a", "b"]


def test_the_audit_log_is_bounded_and_says_what_it_left_out() -> None:
    now, out = [100.0], io.StringIO()
    log = AuditLog(out, gateway="g", lines_per_s_max=3, clock=lambda: now[0])
    for number in range(10):
        log.note("refused", reason="x" * 1000, number=number)
    now[0] = 101.0
    log.note("session-opened", name="a\nb")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["what"] for line in lines] == ["refused"] * 3 + ["audit-lines-dropped", "session-opened"]
    assert lines[3]["lines"] == 7
    assert len(lines[0]["reason"]) == 201
    assert lines[4]["name"] == "a\nb"


def test_one_peer_that_is_refused_all_the_time_does_not_hide_the_others() -> None:
    out = io.StringIO()
    log = AuditLog(out, lines_per_s_max=2, clock=lambda: 100.0)
    for number in range(50):
        log.note("refused", peer="192.0.2.1", number=number)
    log.note("refused", peer="192.0.2.2")
    log.note("session-opened", peer="192.0.2.1")
    for number in range(100):
        log.note("refused", peer=f"198.51.100.{number}")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["peer"] for line in lines][:4] == ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"]
    assert len(lines) == 20


def test_a_log_line_is_one_line_of_json_with_its_traceback() -> None:
    try:
        raise ValueError('a "quoted"\nmessage')
    except ValueError:
        record = logging.LogRecord("gamecast", logging.ERROR, "", 0, "it %s", ("broke",), sys.exc_info())
    text = JsonLines().format(record)
    assert "\n" not in text
    told = json.loads(text)
    assert (told["message"], told["level"], told["logger"]) == ("it broke", "ERROR", "gamecast")
    assert 'ValueError: a "quoted"\nmessage' in told["traceback"]


@pytest.mark.parametrize("letter", ["\u034f", "\u1160", "\u2800", "\u3164", "\ufe0f", "\U000e0100", "\u180b"])
def test_a_region_with_letters_that_nobody_sees_is_refused(letter: str) -> None:
    with pytest.raises(InvalidName, match=r"invisible letters|normal form"):
        check_public_region(f"arena{letter}")


def test_events_are_encoded_once_and_what_is_kept_is_bounded() -> None:
    texts = EventTexts()
    for number in range(300):
        event = Event("forest", "s", "x" * 60_000, 1, number, 0, 0)
        assert texts.encode(event).text == encode_event(event)
        assert texts.encode(event) is texts.encode(event)
    assert sum(len(told.text) for half in (texts._new, texts._old) for told in half.values()) < 9_000_000


def test_limits_are_changed_by_name_and_only_those_that_there_are() -> None:
    assert parse_limits(["sessions_max=7", "heartbeat_s=0.5"]) == GatewayLimits(sessions_max=7, heartbeat_s=0.5)
    for wrong in ("sessions", "sessions_max=x", "nothing=1", "sessions_max=0"):
        with pytest.raises(UsageError):
            parse_limits([wrong])
