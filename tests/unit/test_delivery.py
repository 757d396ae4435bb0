"""Delivery decides at once, from the stamps at the heads alone; what never comes is told in its place."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from sequencing.delivery import Delivery, Missing, Ready
from sequencing.frames import UNKNOWN_END, StampedFrame
from sequencing.joins import SHOWN_MAX
from sequencing.node import TICK_META
from sequencing.plan import Atom, AtomId

AB, BC, AC, ABC = (
    Atom(AtomId(number), tuple(regions), "n1") for number, regions in enumerate(("ab", "bc", "ac", "abc"), start=1)
)


def frame(event: str, stamp: str = "", *, count: int = 1, epoch: int = 1) -> StampedFrame:
    """``a3`` is the frame whose last event is number 3 of region a."""
    return StampedFrame(event[0], epoch, int(event[1:]), b"0 %d 1 1 p" % count, stamp.encode(), b"")


def tick(place: str) -> StampedFrame:
    """A TICK of a sealed stream: it passed no atom."""
    return StampedFrame(place[0], 1, int(place[1:]), TICK_META, b"", b"")


def names(items: Iterable[Ready | Missing]) -> list[str]:
    """``a3`` for a frame, ``-a1…2`` for what is missing."""
    return [
        f"-{item.region}{item.first}…{item.last}"
        if isinstance(item, Missing)
        else f"{item.frame.region}{item.frame.last}"
        for item in items
    ]


def receive(delivery: Delivery, *frames: StampedFrame) -> list[str]:
    return names(delivery.receive(frames))


def test_a_head_whose_number_is_not_the_next_waits_for_the_one_before() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("b1", "1,2"), frame("b2", "1,4")) == []
    assert (delivery.held("a"), delivery.held("b"), delivery.held_frames) == (0, 2, 2)
    assert receive(delivery, frame("a1", "1,1")) == ["a1", "b1"]
    assert receive(delivery, frame("a2", "1,3")) == ["a2", "b2"]
    assert delivery.held_frames == 0


def test_every_order_of_arrival_ends_in_the_same_order_of_delivery() -> None:
    streams = {"a": [frame("a1", "1,1,3,1")], "b": [frame("b1", "1,2,2,1")], "c": [frame("c1", "2,2,3,2")]}
    for arrival in permutations("abc"):
        delivery = Delivery(1, "abc", [AB, BC, AC])
        assert [name for region in arrival for name in receive(delivery, *streams[region])] == ["a1", "b1", "c1"]
        assert delivery.held_frames == 0


def test_each_atom_of_a_stamp_must_show_the_next_number() -> None:
    delivery = Delivery(1, "abc", [AB, BC])
    assert receive(delivery, frame("b1", "1,2,2,2")) == []
    assert receive(delivery, frame("a1", "1,1")) == ["a1"]
    assert receive(delivery, frame("c1", "2,1")) == ["c1", "b1"]


def test_an_atom_whose_regions_are_not_all_mine_is_ignored() -> None:
    delivery = Delivery(1, "ab", [AB, BC, ABC])
    assert receive(delivery, frame("b1", "1,1,2,7,4,9"), frame("a1", "4,3,1,2")) == ["b1", "a1"]


def test_a_frame_without_stamps_waits_only_for_its_turn_in_its_region() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("b1", "1,2"), frame("b2")) == []
    assert receive(delivery, frame("a1", "1,1")) == ["a1", "b1", "b2"]


def test_repeated_frames_and_those_of_other_regions_and_epochs_are_ignored() -> None:
    delivery = Delivery(1, "ab", [AB])
    frames = [frame("b2", "1,2", count=2), frame("c1"), frame("a1", epoch=2), frame("b2", "1,2", count=2)]
    assert receive(delivery, *frames) == []
    assert delivery.held_frames == 1
    assert receive(delivery, frame("a1", "1,1")) == ["a1", "b2"]
    assert receive(delivery, frame("a1", "1,1"), frame("b2", "1,2", count=2)) == []


def test_numbers_count_events_and_a_jump_of_them_is_told_in_its_place() -> None:
    delivery = Delivery(1, "a", [])
    assert receive(delivery, frame("a3", count=3), frame("a5", count=2)) == ["a3", "a5"]
    assert receive(delivery, frame("a10", count=2), frame("a11")) == ["-a6…8", "a10", "a11"]


def test_what_is_missing_is_told_when_its_successor_is_delivered_and_not_before() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("b5", "1,2")) == []
    assert delivery.receive([frame("a1", "1,1")])[1] == Missing("b", 1, 1, 4)


def test_what_is_missing_at_the_end_of_an_epoch_is_told_when_it_ends() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("a1", "1,1"), frame("b1", "1,3")) == ["a1"]
    assert receive(delivery, tick("a3")) == ["-a2…2", "a3", "b1"]
    assert receive(delivery, tick(f"b{UNKNOWN_END}"))[0] == "-b2…0"
    assert delivery.ended("a")
    assert delivery.ended("b")


def test_a_jump_of_an_atoms_numbers_is_settled_when_all_its_regions_show_a_later_one() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("a2", "1,5")) == []
    assert receive(delivery, frame("b1", "1,4")) == ["b1", "-a1…1", "a2"]
    assert receive(delivery, frame("b2", "1,6")) == ["b2"]


def test_a_jump_is_not_settled_while_the_other_region_may_still_bring_the_number() -> None:
    delivery = Delivery(1, "abc", [ABC])
    assert receive(delivery, frame("a1", "4,2"), frame("b1", "4,3")) == []
    assert receive(delivery, frame("c1", "4,1")) == ["c1", "a1", "b1"]
    delivery = Delivery(1, "abc", [AB, BC])
    # b's head waits for c, and shows that number 1 of the first atom is b's own: nothing jumps.
    assert receive(delivery, frame("a1", "1,2"), frame("b1", "2,2,1,1")) == []
    assert receive(delivery, frame("c1", "2,1")) == ["c1", "b1", "a1"]


def test_after_a_loss_every_atom_of_a_head_is_settled_not_only_the_first_that_blocks() -> None:
    delivery = Delivery(1, "abc", [AB, BC, AC])
    # b1 is lost: with it number 1 of AB and of BC.
    assert receive(delivery, frame("a1", "1,2,3,1")) == []
    assert receive(delivery, frame("c1", "2,2,3,2")) == []
    assert receive(delivery, frame("b2", "1,3,2,3")) == ["a1", "c1", "-b1…1", "b2"]


@pytest.mark.parametrize(
    "foreign",
    [
        frame("a1", "one,two"),
        frame("a1", "1,null"),
        frame("a1", "1,2,3"),
        frame("a1")._replace(meta=b"?"),
        frame("a1", count=0),
        frame("a1")._replace(stamp=b"1,"),
    ],
)
def test_a_frame_that_cannot_be_read_is_told_as_missing(foreign: StampedFrame) -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, foreign) == []
    assert receive(delivery, frame("a2", "1,2"), frame("b1", "1,3")) == ["-a1…1", "a2", "b1"]


def marker(place: str, stamp: str) -> StampedFrame:
    """The JOIN that ``joining`` awaits."""
    return frame(place, stamp)._replace(meta=b"1 1 1 1 me", body=b"mark")


def joining(delivery: Delivery, *regions: str) -> None:
    delivery.join(dict.fromkeys(regions, b"mark"))


def along(place: str, stamp: str) -> StampedFrame:
    """A region that was there before, marked along with what is joined, or once more."""
    return marker(place, stamp)._replace(body=b"along")


def nudged(delivery: Delivery, *marked: str) -> set[str]:
    return set(delivery.nudges(lambda: b"along", set(marked), set(delivery.regions)))


def test_who_was_there_before_is_marked_along_and_all_is_settled_when_that_comes() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery) == set()  # the new region's own marker goes first
    assert (nudged(delivery, "b"), nudged(delivery, "b")) == ({"a"}, set())
    assert receive(delivery, marker("b3", "1,4")) == []
    assert nudged(delivery, "b") == set()
    assert receive(delivery, along("a1", "1,5"), frame("b4", "1,6")) == ["a1", "b4"]
    assert delivery.joined("b")


def test_who_was_marked_along_too_early_is_marked_once_more() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}
    assert receive(delivery, along("a1", "1,2"), marker("b3", "1,4")) == ["a1"]  # 3 may be of either
    assert (nudged(delivery, "b"), nudged(delivery, "b")) == ({"a"}, set())
    assert receive(delivery, frame("b4", "1,6"), frame("a2", "1,3")) == ["a2"]
    assert receive(delivery, along("a3", "1,5")) == ["a3", "b4"]


def test_nobody_is_marked_once_more_when_every_number_is_somebodys() -> None:
    delivery = Delivery(1, "", [AB, ABC])
    joining(delivery, *"abc")
    assert receive(delivery, marker("b1", "1,8,4,2"), marker("a4", "1,7,4,1"), marker("c2", "4,3")) == [
        "b1",
        "a4",
        "c2",
    ]
    assert (nudged(delivery, *"abc"), delivery.joined("a")) == (set(), True)
    assert receive(delivery, frame("a5", "1,9,4,5"), frame("c3", "4,4")) == ["c3", "a5"]


def test_a_number_that_nobody_has_shown_may_still_come() -> None:
    delivery = Delivery(1, "", [AB])
    joining(delivery, *"ab")
    assert receive(delivery, marker("a4", "1,7"), marker("b1", "1,9"), frame("b2", "1,10")) == []
    assert nudged(delivery, *"ab") == {"a"}
    assert receive(delivery, frame("a5", "1,8")) == []  # not handed out: it may be behind what others have of b
    assert receive(delivery, frame("a6", "1,11")) == ["b2", "a6"]


def test_a_number_below_one_that_was_shown_before_tells_nothing_of_what_is_between() -> None:
    delivery = Delivery(1, "", [AB])
    joining(delivery, *"ab")
    assert receive(delivery, marker("b1", "1,9"), marker("a4", "1,7"), frame("b2", "1,10")) == []
    assert receive(delivery, frame("a5", "1,8")) == []
    assert receive(delivery, frame("a6", "1,11")) == ["b2", "a6"]


def test_who_was_marked_along_and_what_it_showed_is_lost_is_marked_once_more() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}
    assert receive(delivery, frame("a2", "1,3"), marker("b3", "1,6")) == ["-a1…1", "a2"]
    assert nudged(delivery, "b") == {"a"}


@pytest.mark.parametrize("left", ["ac", "ca"])
def test_what_was_left_is_behind_what_is_joined_also_when_nobody_is_waited_for_any_more(left: str) -> None:
    delivery = Delivery(1, "a", [ABC])
    joining(delivery, "b", "c")
    assert receive(delivery, frame("a1", "4,10"), marker("b3", "4,4")) == ["a1"]
    assert [name for region in left for name in names(delivery.leave(region))] == []
    assert receive(delivery, frame("b4", "4,5")) == []
    assert receive(delivery, frame("b5", "4,11")) == ["b5"]


def test_a_view_that_has_seen_too_much_marks_once_more() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    for number in range(1, SHOWN_MAX + 2):
        receive(delivery, frame(f"a{number}", f"1,{number}"))
    assert receive(delivery, marker("b3", f"1,{SHOWN_MAX + 2}"), frame("b4", f"1,{SHOWN_MAX + 3}")) == []
    assert nudged(delivery, "b") == {"a"}
    assert receive(delivery, along("a999", f"1,{SHOWN_MAX + 4}")) == ["b4", "-a258…998", "a999"]


def test_what_a_new_region_brings_up_to_what_was_delivered_is_not_handed_out() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,6"), marker("b3", "1,4"), frame("b4", "1,5"), frame("a2", "1,8")) == ["a1"]
    assert not delivery.joined("b")
    assert receive(delivery, frame("b5", "1,7")) == ["b5", "a2"]
    assert delivery.joined("b")


def test_what_was_left_meanwhile_stays_delivered() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,5"), marker("b3", "1,2")) == ["a1"]
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("b4", "1,3"), frame("b5", "1,4")) == []
    assert (delivery.joined("b"), nudged(delivery)) == (False, {"b"})
    assert receive(delivery, frame("b6", "1,9"), frame("b7", "1,12")) == ["b6", "b7"]
    assert delivery.joined("b")


def test_what_is_left_before_the_marker_has_come_stays_delivered() -> None:
    delivery = Delivery(1, "ac", [AB, AC, ABC])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,6,3,1,4,1")) == ["a1"]
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("c1", "4,2,3,2"), marker("b3", "1,4,4,3"), frame("b4", "1,5,4,4")) == ["c1"]
    assert receive(delivery, frame("b5", "1,7,4,5"), frame("c2", "4,6,3,3")) == ["b5", "c2"]


def test_what_was_left_meanwhile_may_be_joined_again() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    receive(delivery, frame("a1", "1,5"), marker("b3", "1,2"))
    delivery.leave("a")
    joining(delivery, "a")
    assert receive(delivery, marker("a4", "1,8"), frame("b4", "1,7"), frame("b5", "1,10")) == []
    assert receive(delivery, frame("a5", "1,9")) == ["a5", "b5"]
    assert delivery.joined("a")


def test_nobody_waits_for_what_is_left_on_both_sides() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    joining(delivery, "b")
    receive(delivery, frame("a1", "1,5,3,1"), marker("b3", "1,2"))
    delivery.leave("a")
    delivery.leave("b")
    assert delivery.regions == {"c"}
    assert receive(delivery, frame("c1", "3,7")) == ["c1"]


def test_another_join_and_leave_change_nothing_for_what_was_left_meanwhile() -> None:
    delivery = Delivery(1, "a", [AB, BC])
    joining(delivery, "b")
    receive(delivery, frame("a1", "1,5"))
    delivery.leave("a")
    joining(delivery, "c")
    delivery.leave("c")
    assert receive(delivery, marker("b3", "1,2,2,1"), frame("b4", "1,4,2,3")) == []
    assert receive(delivery, frame("b5", "1,6,2,5")) == ["b5"]


def test_a_region_that_ends_before_its_marker_comes_orders_the_others_all_the_same() -> None:
    delivery = Delivery(1, "", [ABC])
    joining(delivery, *"abc")
    assert receive(delivery, marker("a1", "4,1"), marker("c1", "4,3"), tick("b7")) == []
    assert (delivery.ended("b"), delivery.joined("b")) == (True, False)
    assert receive(delivery, frame("c2", "4,6")) == []
    assert receive(delivery, frame("a2", "4,4")) == ["a2"]
    assert receive(delivery, frame("a3", "4,7")) == ["c2", "a3"]
