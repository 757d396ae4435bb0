"""What of that which was pushed is surely the next."""

from __future__ import annotations

import pytest

from adapters.redis.forgery import PushedFrames
from adapters.redis.pushes import Pushed, next_of
from sequencing.frames import StampedFrame

A, B = b"gamecast:{n1}:egress:7:a", b"gamecast:{n1}:egress:7:b"
STREAMS = {A: ("a", 7), B: ("b", 7)}
META, STAMP = b"0 2 1 1 ann", b"0,5"


def pushed(channel: bytes, last: int, body: bytes = b"[]") -> Pushed:
    return channel, b"%d %d %d\n%b%b%b" % (last, len(META), len(STAMP), META, STAMP, body)


def frame(region: str, last: int, body: bytes = b"[]") -> StampedFrame:
    return StampedFrame(region, 7, last, META, STAMP, body)


def test_what_follows_on_what_is_known_is_next() -> None:
    last_of = {A: 2, B: 0}
    come = [pushed(A, 4), pushed(B, 2, b"\n with a line"), pushed(A, 6)]
    found = next_of(come, STREAMS, last_of, PushedFrames("n1"))
    assert found == ([frame("a", 4), frame("b", 2, b"\n with a line"), frame("a", 6)], True)
    assert last_of == {A: 6, B: 2}


def test_what_is_known_and_what_nobody_asked_for_is_left_out() -> None:
    come = [pushed(A, 2), (A, b"2"), pushed(b"another", 9), pushed(A, 4)]
    before = PushedFrames("n1")
    before.begin({A: 2, B: 0})
    assert next_of(come, STREAMS, {A: 2, B: 0}, before) == ([frame("a", 4)], True)


@pytest.mark.parametrize(
    "come",
    [
        pushed(A, 7),
        pushed(A, 3),
        (A, b"4"),
        (A, b""),
        (A, b"4 1\n"),
        (A, b"4 1 1 1\n"),
        (A, b"x 1 1\n"),
        (A, b"4 2 0\n0 "),
        (A, b"4 1 0\n0"),
        (A, b"4 11 3\n2 2 1 1 ann0,5"),
        (A, b"1002 14 3\n0 1000 1 1 ann0,5[1,[],[]]"),
    ],
    ids=[
        *("after a hole", "in part known", "too large", "empty", "short", "long", "no number", "no count", "no meta"),
        *("a marker", "more events than bytes"),
    ],
)
def test_after_anything_else_only_a_look_tells(come: Pushed) -> None:
    last_of = {A: 2, B: 0}
    found = next_of([pushed(B, 2), come, pushed(B, 4)], STREAMS, last_of, PushedFrames("n1"))
    assert found == ([frame("b", 2)], False)
    assert last_of == {A: 2, B: 2}


def test_a_number_that_is_pushed_twice_in_different_words_is_doubtful() -> None:
    before, last_of = PushedFrames("n1"), {A: 2, B: 0}
    before.begin(last_of)
    assert next_of([pushed(A, 4, b"forged")], STREAMS, last_of, before) == ([frame("a", 4, b"forged")], True)
    assert next_of([pushed(A, 4, b"forged")], STREAMS, last_of, before) == ([], True)
    assert next_of([pushed(A, 4, b"true")], STREAMS, last_of, before) == ([], False)
    assert before.is_doubtful
