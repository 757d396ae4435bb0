"""The roster by an explicit clock: who counts as there, and when membership is open."""

from __future__ import annotations

import pytest

from sequencing.errors import MembershipSettled, Superseded
from sequencing.roster import Roster

TTL_MS = 100


def roster_of(*names: str) -> Roster:
    """A roster on which these connections, each the first of its name, are introduced at time 0."""
    roster = Roster(TTL_MS)
    for name in names:
        assert roster.introduce(name, now_ms=0) == 1
    return roster


def test_regions_add_up_until_traffic_begins() -> None:
    roster = roster_of("s")
    assert roster.subscribe("s", 1, "ab", now_ms=0) == 1
    assert roster.subscribe("s", 1, "bc", now_ms=0) == 1
    assert roster.unsubscribe("s", 1, "ax")
    assert not roster.unsubscribe("nobody", 1, "a")
    assert roster.settle(now_ms=1) == (1, {"s": frozenset("bc")})
    assert not roster.unsubscribe("s", 1, "b")
    with pytest.raises(MembershipSettled, match=r"'s' cannot subscribe to 'd', 'e'.*before the first publish"):
        roster.subscribe("s", 1, "ed", now_ms=2)
    assert roster.settle(now_ms=3) == (1, {"s": frozenset("bc")})
    assert roster.subscribed("s", 1) == frozenset("bc")


def test_only_the_living_are_members_when_traffic_begins() -> None:
    roster = roster_of("silent", "beating")
    roster.subscribe("silent", 1, "a", now_ms=0)
    roster.subscribe("beating", 1, "a", now_ms=0)
    roster.beat("beating", 1, now_ms=1)
    assert roster.settle(now_ms=TTL_MS) == (1, {"beating": frozenset("a")})
    assert roster.subscribed("silent", 1) == frozenset()


def test_a_network_whose_people_are_all_gone_begins_a_new_epoch() -> None:
    roster = roster_of("p", "s", "t")
    roster.subscribe("s", 1, "a", now_ms=0)
    assert roster.publishing("p", 1) == -1
    roster.settle(now_ms=50)
    assert roster.publishing("p", 1) == 1
    roster.leave("p", 1)
    with pytest.raises(MembershipSettled):
        roster.subscribe("t", 1, "b", now_ms=TTL_MS - 1)
    assert roster.subscribe("t", 1, "b", now_ms=TTL_MS) == 2
    assert roster.settle(now_ms=TTL_MS) == (2, {"t": frozenset("b")})


def test_a_publisher_that_lives_keeps_the_membership_settled() -> None:
    roster = roster_of("p", "s", "t")
    roster.subscribe("s", 1, "a", now_ms=0)
    roster.publishing("p", 1)
    roster.settle(now_ms=0)
    roster.leave("s", 1)
    roster.beat("p", 1, now_ms=500)
    with pytest.raises(MembershipSettled):
        roster.subscribe("t", 1, "b", now_ms=599)
    assert roster.subscribe("t", 1, "b", now_ms=600) == 2


def test_whoever_connects_anew_did_not_take_part_yet() -> None:
    roster = roster_of("s")
    roster.subscribe("s", 1, "a", now_ms=0)
    roster.settle(now_ms=0)
    assert roster.introduce("s", now_ms=1) == 2
    assert roster.subscribe("s", 2, "b", now_ms=2) == 2


def test_a_new_incarnation_of_the_same_connection_keeps_its_part() -> None:
    roster = roster_of("s", "t")
    roster.subscribe("s", 1, "a", now_ms=0)
    roster.settle(now_ms=0)
    assert roster.renew("s", 1, now_ms=1) == 2
    assert roster.subscribed("s", 2) == frozenset("a")
    with pytest.raises(MembershipSettled):
        roster.subscribe("t", 1, "b", now_ms=2)


def test_what_an_earlier_connection_of_a_name_says_is_ignored_or_refused() -> None:
    roster = roster_of("s")
    roster.subscribe("s", 1, "abc", now_ms=0)
    assert roster.introduce("s", now_ms=0) == 2
    roster.subscribe("s", 2, "ab", now_ms=0)
    roster.leave("s", 1)
    roster.beat("s", 1, now_ms=10 * TTL_MS)
    assert not roster.unsubscribe("s", 1, "a")
    for refused in (
        lambda: roster.subscribe("s", 1, "x", now_ms=0),
        lambda: roster.renew("s", 1, now_ms=0),
        lambda: roster.publishing("s", 1),
    ):
        with pytest.raises(Superseded, match="'s'"):
            refused()
    assert roster.subscribed("s", 1) == frozenset()
    assert roster.settle(now_ms=1) == (1, {"s": frozenset("ab")})


def test_who_leaves_before_traffic_takes_the_subscriptions_along_and_who_leaves_later_does_not() -> None:
    roster = roster_of("early", "late")
    for name in ("early", "late"):
        roster.subscribe(name, 1, "a", now_ms=0)
    roster.leave("early", 1)
    assert roster.settle(now_ms=0)[1] == {"late": frozenset("a")}
    roster.leave("late", 1)
    assert roster.settle(now_ms=0)[1] == {"late": frozenset("a")}


def test_a_settlement_without_a_plan_can_be_undone() -> None:
    roster = roster_of("s")
    roster.subscribe("s", 1, "a", now_ms=0)
    roster.settle(now_ms=0)
    roster.reopen()
    assert roster.subscribe("s", 1, "b", now_ms=0) == 1
    assert roster.settle(now_ms=0) == (1, {"s": frozenset("ab")})
