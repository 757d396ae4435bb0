"""Returns: what became of a connection's own events, as far as it has delivered what tells so."""

from __future__ import annotations

from sequencing.delivery import Missing, Ready
from sequencing.frames import StampedFrame, parse_meta
from sequencing.returns import Returns


def ready(region: str, meta: bytes, *, epoch: int = 1) -> Ready:
    return Ready(StampedFrame(region, epoch, 50, meta, b"", b""), parse_meta(meta))


def test_own_frames_tell_their_last_number_once() -> None:
    returns = Returns("me", 7)
    returns.note([ready("a", b"0 3 7 5 me"), ready("b", b"1 1 7 2 me"), ready("c", b"0 1 7 9 other")])
    assert (returns.passed(), returns.passed()) == ({"a": 7, "b": 2}, {})


def test_frames_of_an_earlier_connection_of_the_name_are_not_its_own() -> None:
    returns = Returns("me", 7)
    returns.note([ready("a", b"0 3 6 5 me")])
    assert returns.passed() == {}
    returns.note([ready("a", b"0 1 7 1 me"), ready("a", b"0 3 6 8 me")])
    assert returns.passed() == {"a": 1}


def test_the_highest_own_number_counts_also_when_an_older_frame_comes_after_it() -> None:
    returns = Returns("me", 7)
    returns.note([ready("a", b"0 1 7 5 me"), ready("a", b"0 1 7 4 me")])
    assert returns.passed() == {"a": 5}


def test_a_tick_tells_that_the_epoch_of_its_region_is_over_whoever_sent_it() -> None:
    returns = Returns("me", 7)
    returns.note([ready("a", b"2 1 0 0 "), ready("a", b"2 1 0 0 ", epoch=2), ready("b", b"0 1 7 1 me")])
    assert (returns.over(), returns.over()) == ({"a": 2}, {})


def test_what_is_missing_tells_up_to_where() -> None:
    returns = Returns("me", 7)
    returns.note([Missing("a", 1, 3, 4), Missing("b", 2, 1, 9), Missing("a", 1, 6, 8), ready("a", b"0 1 7 1 me")])
    assert (returns.gone(), returns.gone()) == ({"a": (1, 8), "b": (2, 9)}, {})
    assert returns.passed() == {"a": 1}
