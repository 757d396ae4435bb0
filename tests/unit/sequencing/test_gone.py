"""Whose regions are kept while it is away, and who is gone for good."""

from __future__ import annotations

import pytest

from sequencing.gone import Gone
from sequencing.plan import Plan
from sequencing.record import Interest, Record

PLAN = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ())
RECORD = Record(PLAN, {"s": frozenset("ab"), "t": frozenset("a")}, {"s": Interest(1, 1), "t": Interest(2, 1)})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_a_name_has_is_kept_for_a_while_after_it_has_gone(clock: Clock) -> None:
    away = Gone(60, clock)
    wanted = {"s": Interest(1, 1, {"a": 1, "b": 1}), "t": Interest(2, 1, {"a": 1})}
    away.note(RECORD, wanted, ["s", "t"])
    assert away.away(RECORD) == {}
    del wanted["s"]
    away.note(RECORD, wanted, ["s"])
    clock.now += 59
    assert away.away(RECORD) == {"s": {"a", "b"}}
    assert away.for_good(RECORD, wanted) == set()
    clock.now += 2
    assert away.away(RECORD) == {}
    assert away.for_good(RECORD, wanted) == {"s"}


def test_a_new_connection_of_a_name_is_given_time_to_ask_for_all_that_the_old_one_had(clock: Clock) -> None:
    away = Gone(60, clock)
    away.note(RECORD, {"s": Interest(9, 1, {"a": 1})}, ["s"])
    assert away.away(RECORD) == {"s": {"b"}}
    clock.now += 99
    assert away.for_good(RECORD, {"s": Interest(9, 1, {"a": 1})}) == set(), "it is there"
    away.note(RECORD, {"s": Interest(9, 2, {"a": 1, "b": 2})}, ["s"])
    clock.now -= 99
    assert away.away(RECORD) == {}


def test_whom_the_plan_does_not_count_is_not_kept(clock: Clock) -> None:
    away = Gone(60, clock)
    away.note(RECORD, {}, ["s", "unknown"])
    assert away.away(RECORD).keys() == {"s"}
    assert away.away(Record(PLAN)) == {}


def test_who_is_gone_again_before_it_wanted_all_that_it_had_keeps_what_it_has_by_then(clock: Clock) -> None:
    away = Gone(60, clock)
    back = Interest(9, 1, {"a": 1})
    away.note(RECORD, {"s": back}, ["s"])  # without b
    heard = Record(PLAN, {"s": frozenset("ab")}, {"s": back})
    away.note(heard, {"s": back}, ["s"])
    clock.now += 50
    away.note(heard, {}, ["s"])
    clock.now += 50
    assert away.away(heard) == {"s": {"a", "b"}}
    away.note(heard, {}, ["s"])
    clock.now += 11
    assert away.away(heard) == {}, "it has been away for longer since"
    # Another connection of its name, which the plan does not know yet, has come in the place of the one that is known.
    away = Gone(60, clock)
    away.note(RECORD, {"s": back}, ["s"])
    clock.now += 50
    away.note(heard, {"s": Interest(11, 1, {"b": 1})}, ["s"])
    clock.now += 50
    assert away.away(heard) == {"s": {"a"}}
