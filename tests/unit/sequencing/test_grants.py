"""Grants: what is wanted, what a plan grants of it, and since when."""

from __future__ import annotations

import pytest

from sequencing.errors import SessionExpired, Superseded
from sequencing.grants import Grants
from sequencing.plan import Plan
from sequencing.record import Interest, Record


def record(
    granted: str, said: int, *, incarnation: int = 7, epoch: int = 3, older: str = "", paths: str = "abcd"
) -> Record:
    """``older``: the regions whose numbering began an epoch before the plan's."""
    epochs = dict.fromkeys(older, epoch - 1)
    plan = Plan(epoch, 1, "acyclic", {"n1": ""}, dict.fromkeys(paths, ("n1",)), (), epochs)
    return Record(plan, {"me": frozenset(granted)}, {"me": Interest(incarnation, said), "other": Interest(7, 99)})


def test_each_change_of_what_is_wanted_is_said_with_the_next_number() -> None:
    grants = Grants("me", 7)
    assert grants.interest() == Interest(7, 0)
    assert grants.want("ab")
    assert grants.interest() == Interest(7, 1, {"a": 1, "b": 1})
    assert grants.want("bc")
    assert grants.interest() == Interest(7, 2, {"a": 1, "b": 1, "c": 2}), "b is wanted without a break since 1"
    assert grants.release("ad") == {"a"}
    assert (grants.interest(), grants.wanted) == (Interest(7, 3, {"b": 1, "c": 2}), {"b", "c"})
    assert grants.want("a")
    assert grants.interest() == Interest(7, 4, {"a": 4, "b": 1, "c": 2})


def test_what_changes_nothing_is_not_said() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    assert not grants.want("a")
    assert grants.release("b") == set()
    assert grants.interest() == Interest(7, 1, {"a": 1})


def test_what_was_said_before_is_not_changed_by_what_is_wanted_later() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    interest = grants.interest()
    grants.want("b")
    assert interest == Interest(7, 1, {"a": 1})


def test_a_plan_that_knew_of_the_wish_grants_it_from_the_epoch_of_the_region_on() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    grants.want("bc")
    assert grants.take(record("abc", 1, older="a")) == ["a"], "it has not heard of b and c yet"
    assert sorted(grants.take(record("abc", 2, epoch=4, older="b"))) == ["b", "c"]
    assert grants.mine == {"a": 2, "b": 3, "c": 4}, "what is granted stays so"
    assert grants.take(record("abc", 2, epoch=5)) == []
    assert grants.mine == {"a": 2, "b": 3, "c": 4}


def test_a_plan_that_knew_of_the_last_wish_grants_what_earlier_ones_named_first() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    grants.want("b")
    assert sorted(grants.take(record("ab", 2))) == ["a", "b"]


def test_a_plan_grants_nothing_that_it_has_no_path_for() -> None:
    grants = Grants("me", 7)
    grants.want("ab")
    assert grants.take(record("ab", 1, paths="b")) == ["b"]


def test_what_another_connection_of_the_name_wanted_is_not_granted_to_this_one() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    assert grants.take(record("a", 5, incarnation=6)) == []
    assert grants.take(Record(record("", 0).plan)) == [], "the name is not known at all"
    assert (grants.mine, grants.granted) == ({}, frozenset())


def test_what_is_wanted_no_more_is_granted_anew_when_it_is_wanted_again() -> None:
    grants = Grants("me", 7)
    grants.want("ab")
    grants.take(record("ab", 1))
    grants.release("a")
    assert grants.mine == {"b": 3}
    grants.want("a")
    assert grants.take(record("ab", 2)) == [], "that knew of the release at most"
    assert grants.take(record("ab", 3, epoch=4)) == ["a"]
    assert grants.mine == {"a": 4, "b": 3}


def test_a_record_tells_nothing_new_when_it_heard_and_reckons_with_the_same() -> None:
    grants = Grants("me", 7)
    grants.want("a")
    grants.take(record("ab", 1))
    assert grants.granted == {"a", "b"}
    assert grants.are_told_by(record("ab", 1, epoch=4))
    assert not grants.are_told_by(record("ab", 2))
    assert not grants.are_told_by(record("a", 1))
    assert not grants.are_told_by(record("ab", 1, incarnation=8))


def test_a_plan_has_to_reckon_with_all_that_was_granted() -> None:
    grants = Grants("me", 7)
    grants.want("ab")
    grants.take(record("ab", 1))
    grants.take(record("abc", 1))
    grants.require_kept(3)
    grants.take(record("ac", 1, epoch=4))
    with pytest.raises(SessionExpired, match=r"went on without 'me' \(epoch 4\), .* open another connection"):
        grants.require_kept(4)
    grants.take(record("ac", 1, epoch=4, incarnation=8))
    with pytest.raises(Superseded, match="another connection has taken the name 'me'"):
        grants.require_kept(4)
    grants.release("b")
    grants.require_kept(4)
