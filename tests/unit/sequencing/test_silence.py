"""Silence: what was followed before it was wanted is handed out from one place on, and not before."""

from __future__ import annotations

from sequencing.shadows import Silence


def covered(silence: Silence, *places: tuple[int, int]) -> list[bool]:
    return [silence.covers("a", epoch, last) for epoch, last in places]


def test_what_was_wanted_all_along_is_handed_out() -> None:
    silence = Silence()
    assert (silence.covers("a", 1, 1), silence.begin("a")) == (False, None)


def test_nothing_is_handed_out_before_it_ends_and_then_what_comes_behind_that_place() -> None:
    silence = Silence()
    silence.regions.add("a")
    assert covered(silence, (1, 1), (9, 9)) == [True, True]
    assert silence.begin("a") is None
    silence.end("a", 2, 5)
    assert (silence.regions, silence.begin("a")) == (set(), (2, 5))
    assert covered(silence, (1, 9), (2, 4), (2, 5), (2, 6), (3, 1)) == [True, True, True, False, False]


def test_what_is_missing_up_to_nobody_knows_where_is_behind_each_place_of_its_epoch() -> None:
    silence = Silence()
    silence.end("a", 2, 5)
    assert covered(silence, (1, 0), (2, 0)) == [True, False]


def test_what_is_forgotten_is_handed_out_as_if_it_had_been_wanted_all_along() -> None:
    silence = Silence()
    silence.end("a", 2, 5)
    silence.forget("a")
    assert (covered(silence, (1, 1)), silence.begin("a")) == ([False], None)
    silence.regions.add("a")
    silence.forget("a")
    silence.forget("b")
    assert silence.regions == set()
