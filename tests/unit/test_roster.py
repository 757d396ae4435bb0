"""The roster by an explicit clock: who counts as there, and when membership is open."""

from __future__ import annotations

import pytest

from sequencing.errors import MembershipSettled
from sequencing.roster import Roster

TTL_MS = 100


def test_regions_add_up_until_traffic_begins() -> None:
    roster = Roster(TTL_MS)
    assert roster.subscribe("s", "ab", now_ms=0) == 1
    assert roster.subscribe("s", "bc", now_ms=0) == 1
    roster.unsubscribe("s", "ax")
    roster.unsubscribe("nobody", "a")
    assert roster.settle("p", now_ms=1) == (1, {"s": frozenset("bc")})
    roster.unsubscribe("s", "b")
    with pytest.raises(MembershipSettled, match=r"'s' cannot subscribe to 'd', 'e'.*before the first publish"):
        roster.subscribe("s", "ed", now_ms=2)
    assert roster.settle("q", now_ms=3) == (1, {"s": frozenset("bc")})


def test_only_the_living_are_members_when_traffic_begins() -> None:
    roster = Roster(TTL_MS)
    roster.subscribe("silent", "a", now_ms=0)
    roster.subscribe("beating", "a", now_ms=0)
    roster.beat("beating", now_ms=1)
    assert roster.settle("p", now_ms=TTL_MS) == (1, {"beating": frozenset("a")})


def test_a_network_whose_people_are_all_gone_begins_a_new_epoch() -> None:
    roster = Roster(TTL_MS)
    roster.incarnate("p", now_ms=0)
    roster.subscribe("s", "a", now_ms=0)
    roster.settle("p", now_ms=50)
    roster.leave("p")
    with pytest.raises(MembershipSettled):
        roster.subscribe("t", "b", now_ms=TTL_MS - 1)
    assert roster.subscribe("t", "b", now_ms=TTL_MS) == 2
    assert roster.settle("t", now_ms=TTL_MS) == (2, {"t": frozenset("b")})


def test_a_publisher_that_lives_keeps_the_membership_settled() -> None:
    roster = Roster(TTL_MS)
    roster.incarnate("p", now_ms=0)
    roster.subscribe("s", "a", now_ms=0)
    roster.settle("p", now_ms=0)
    roster.leave("s")
    roster.beat("p", now_ms=500)
    with pytest.raises(MembershipSettled):
        roster.subscribe("t", "b", now_ms=599)
    assert roster.subscribe("t", "b", now_ms=600) == 2


def test_whoever_connects_anew_did_not_take_part_yet() -> None:
    roster = Roster(TTL_MS)
    assert roster.incarnate("s", now_ms=0) == 1
    roster.subscribe("s", "a", now_ms=0)
    roster.settle("s", now_ms=0)
    assert roster.incarnate("s", now_ms=1) == 2
    assert roster.subscribe("s", "b", now_ms=2) == 2
    assert roster.incarnate("t", now_ms=2) == 1


def test_who_leaves_before_traffic_takes_the_subscriptions_along_and_who_leaves_later_does_not() -> None:
    roster = Roster(TTL_MS)
    for name in ("early", "late"):
        roster.subscribe(name, "a", now_ms=0)
    roster.leave("early")
    assert roster.settle("p", now_ms=0)[1] == {"late": frozenset("a")}
    roster.leave("late")
    assert roster.settle("p", now_ms=0)[1] == {"late": frozenset("a")}


def test_a_settlement_without_a_plan_can_be_undone() -> None:
    roster = Roster(TTL_MS)
    roster.subscribe("s", "a", now_ms=0)
    roster.settle("p", now_ms=0)
    roster.reopen()
    assert roster.subscribe("s", "b", now_ms=0) == 1
    assert roster.settle("p", now_ms=0) == (1, {"s": frozenset("ab")})
