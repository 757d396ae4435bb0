"""Delivery decides at once, from the stamps at the heads alone; what never comes is told in its place."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from sequencing.delivery import Delivery, Missing, Ready
from sequencing.frames import StampedFrame
from sequencing.plan import Atom, AtomId

AB, BC, AC, ABC = (
    Atom(AtomId(number), tuple(regions), "n1") for number, regions in enumerate(("ab", "bc", "ac", "abc"), start=1)
)


def frame(event: str, stamp: str = "", *, count: int = 1, epoch: int = 1) -> StampedFrame:
    """``a3`` is the frame whose last event is number 3 of region a."""
    return StampedFrame(event[0], epoch, int(event[1:]), b"0 %d 1 1 p" % count, stamp.encode(), b"")


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


def test_a_muted_region_is_not_handed_out_and_still_orders_the_others() -> None:
    delivery = Delivery(1, "abc", [ABC])
    delivery.mute("c")
    assert receive(delivery, frame("b1", "4,3")) == []
    assert receive(delivery, frame("a1", "4,2")) == []
    assert receive(delivery, frame("c3", "4,1")) == ["a1", "b1"]
    assert delivery.held_frames == 0


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
