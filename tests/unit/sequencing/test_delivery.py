"""Delivery decides at once, from the stamps at the heads alone; what never comes is told in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, permutations, repeat

import pytest

from sequencing.delivery import Delivery
from sequencing.frames import UNKNOWN_END, StampedFrame
from sequencing.joins import SHOWN_MAX
from sequencing.node import TICK_META
from sequencing.plan import Atom, AtomId
from sequencing.ready import Missing, Ready

REQUESTS = count(1)
ATOMS = AB, BC, AC, ABC = tuple(
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
    return set(probes(delivery, repeat(b"along"), marked))


def probes(delivery: Delivery, bodies: Iterator[bytes], marked: Iterable[str]) -> dict[str, bytes]:
    unmarked = delivery.regions - set(marked)
    return delivery.join_probes(
        lambda: next(bodies), unmarked=unmarked, is_quiet=delivery.regions.__contains__, request=next(REQUESTS)
    )


def binding(delivery: Delivery) -> set[int]:
    return {int(atom.id) for atom in ATOMS if delivery.binds(atom)}


def holding(delivery: Delivery) -> set[int]:
    return {int(atom.id) for atom in ATOMS if delivery.may_hold(atom)}


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


def test_what_is_ignored_or_unreadable_keeps_nothing_from_what_comes_with_it() -> None:
    delivery = Delivery(2, "ab", [])
    frames = [frame("c1"), frame("a1"), frame("a1", epoch=3), frame("a1", "?", epoch=2), frame("b3", count=3, epoch=2)]
    assert receive(delivery, *frames) == ["b3"]
    assert receive(delivery, frame("b2", epoch=2), frame("b4", epoch=2)) == ["b4"]


def test_it_tells_how_far_each_region_is_and_nothing_of_regions_that_are_not_mine() -> None:
    delivery = Delivery(1, "ab", [AB])
    receive(delivery, frame("a3", "1,1", count=3), frame("b1", "1,3"))
    assert (delivery.delivered("a"), delivery.delivered("b")) == (3, 0)
    assert [delivery.joined(region) for region in "abc"] == [True, True, False]
    assert [delivery.ended(region) for region in "abc"] == [False, False, False]


def test_who_has_shown_no_number_of_an_atom_may_still_bring_the_one_that_is_awaited() -> None:
    delivery = Delivery(1, "abc", [AB, BC])
    assert receive(delivery, frame("a1", "1,2"), frame("b1", "2,2"), frame("b2", "1,1")) == []
    assert receive(delivery, frame("c1", "2,1")) == ["c1", "b1", "b2", "a1"]


def test_a_jump_that_appears_behind_a_head_that_waited_is_settled_too() -> None:
    delivery = Delivery(1, "abc", [AB, AC])
    assert receive(delivery, frame("a1", "3,2"), frame("a2", "1,5"), frame("b1", "1,7")) == []
    assert receive(delivery, frame("c1", "3,1")) == ["c1", "a1", "a2"]


def asked(delivery: Delivery) -> set[str]:
    return set(delivery.gap_probes(lambda: b"?"))


@pytest.mark.parametrize(
    ("place", "events", "gap"), [("a1", 1, False), ("a3", 3, False), ("a2", 1, True), ("a9", 5, True)]
)
def test_what_waits_is_behind_a_gap_when_something_before_it_is_missing(place: str, events: int, gap: bool) -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame(place, "1,2", count=events)) == []
    assert (delivery.is_behind_gap, asked(delivery)) == (gap, {"b"} if gap else set())
    assert receive(delivery, frame("b1", "1,1"))[-1] == place
    assert (delivery.is_behind_gap, asked(delivery)) == (False, set())


def test_a_region_is_asked_again_when_what_it_showed_did_not_answer() -> None:
    delivery = Delivery(1, "ab", [AB])
    receive(delivery, frame("a5", "1,7"))
    assert delivery.gap_probes(lambda: b"?") == {"b": b"?"}
    assert asked(delivery) == set(), "it has not answered yet"
    assert receive(delivery, frame("b1", "1,1")) == ["b1"]
    assert (asked(delivery), asked(delivery)) == ({"b"}, set())
    assert receive(delivery, frame("b2", "1,8")) == ["-a1…4", "a5", "b2"]


def test_only_regions_that_may_bring_what_is_awaited_and_show_nothing_are_asked() -> None:
    delivery = Delivery(1, "abc", [AB, AC])
    receive(delivery, frame("a5", "1,1,3,7"))
    assert asked(delivery) == {"c"}, "the number of the atom with b is the next"
    delivery = Delivery(1, "abc", [ABC])
    receive(delivery, frame("a5", "4,7"), frame("c1", "4,9"))
    assert asked(delivery) == {"b"}, "c has shown what it has"
    delivery = Delivery(1, "abc", [ABC])
    receive(delivery, frame("a5", "4,7"), tick("c1"))
    assert asked(delivery) == {"b"}, "c has ended"
    delivery = Delivery(1, "abc", [AB, AC])
    receive(delivery, frame("b1", "1,1"), frame("a5", "1,2,3,7"))
    assert asked(delivery) == {"c"}


def test_all_that_waits_behind_gaps_asks_for_each_atom() -> None:
    cd = Atom(AtomId(5), ("c", "d"), "n1")
    delivery = Delivery(1, "abcd", [AB, AC, cd])
    receive(delivery, frame("a5", "1,4,3,7"))
    assert asked(delivery) == {"b", "c"}
    receive(delivery, frame("c3", "3,9,5,4"))
    assert asked(delivery) == {"d"}


def test_nobody_is_asked_for_an_atom_that_does_not_bind_yet() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    joining(delivery, "b")
    receive(delivery, frame("a5", "1,6,3,7"))
    assert asked(delivery) == {"c"}


def test_a_region_that_is_left_takes_what_waits_of_it_along_and_frees_what_waits_for_it() -> None:
    delivery = Delivery(1, "abc", [AB, BC])
    assert receive(delivery, frame("b2", "1,2,2,1"), frame("b3", "1,3,2,3"), frame("c1", "2,2")) == []
    assert (delivery.is_behind_gap, delivery.held_frames) == (True, 3)
    assert names(delivery.leave("b")) == ["c1"]
    assert (delivery.is_behind_gap, delivery.held_frames, asked(delivery)) == (False, 0, set())
    delivery = Delivery(1, "abc", [AB, BC])
    assert receive(delivery, frame("b1", "1,2,2,2"), frame("b2", "1,3,2,3")) == []
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("c1", "2,1")) == ["c1", "b1", "b2"]


def test_what_is_held_waits_on_while_another_region_is_joined() -> None:
    delivery = Delivery(1, "ab", [AB])
    assert receive(delivery, frame("b1", "1,2"), frame("b2", "1,3")) == []
    joining(delivery, "c")
    assert delivery.held_frames == 2
    assert receive(delivery, marker("c4", "")) == ["c4"]
    assert receive(delivery, frame("a1", "1,1")) == ["a1", "b1", "b2"]
    assert receive(delivery, frame("a3", "1,6"), frame("b3", "1,5")) == ["b3", "-a2…2", "a3"]


def test_what_is_held_shows_its_numbers_to_what_is_joined_as_well() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    assert receive(delivery, frame("a1", "1,5,3,2")) == []
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,4"), frame("b4", "1,6")) == ["b3"]
    assert receive(delivery, frame("c1", "3,1")) == ["c1", "a1", "b4"]


def test_what_comes_before_the_marker_is_kept_from_the_application_and_shown_to_who_asks() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, frame("b1", "1,1"), frame("b2", "1,2"), frame("a1", "1,3")) == ["a1"]
    assert (names(delivery.silent), delivery.held_frames, delivery.begin("b")) == (["b1", "b2"], 0, 0)
    assert receive(delivery, marker("b3", "1,5")) == []
    assert (names(delivery.silent), delivery.begin("b")) == (["b1", "b2", "b3"], 3)
    assert receive(delivery, frame("a2", "1,4"), frame("b4", "1,7"), along("a3", "1,6")) == ["a2", "a3", "b4"]
    assert (names(delivery.silent), delivery.begin("b")) == (["b1", "b2", "b3"], 3)


def test_a_region_begins_behind_the_last_event_that_others_may_have_before_what_was_delivered() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,6"), marker("b3", "1,4")) == ["a1"]
    assert delivery.begin("b") == 3
    assert receive(delivery, frame("b5", "1,5", count=2), frame("b6", "1,7")) == ["b6"]
    assert (delivery.begin("b"), delivery.joined("b")) == (5, True)
    assert names(delivery.silent) == ["b3", "b5"]


def test_nothing_but_the_join_with_its_body_is_a_marker() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    event, other = marker("b1", "1,1")._replace(meta=b"0 1 1 1 p"), marker("b2", "1,2")._replace(body=b"another")
    assert receive(delivery, event, other) == []
    assert delivery.marker("b") == b"mark"
    assert receive(delivery, marker("b3", "1,3"), frame("b4", "1,5")) == []
    assert (delivery.marker("b"), delivery.begin("b")) == (None, 3)


def test_an_event_that_reads_like_a_marker_is_not_what_was_marked_along() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}
    event = along("a1", "1,2")._replace(meta=b"0 1 1 1 p")
    assert receive(delivery, event, frame("a2", "1,3"), marker("b3", "1,5")) == ["a1", "a2"]
    assert nudged(delivery, "b") == set(), "the marker is under way still"


def test_who_was_marked_along_too_early_is_marked_once_more_also_when_that_was_the_first_number_of_all() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}
    assert receive(delivery, along("a1", "1,1"), marker("b3", "1,4")) == ["a1"]
    assert nudged(delivery, "b") == {"a"}


def test_the_number_behind_a_view_is_the_next_of_its_atom() -> None:
    delivery = Delivery(1, "", [AB])
    joining(delivery, *"ab")
    assert receive(delivery, marker("a1", "1,1"), marker("b1", "1,2")) == ["a1", "b1"]
    assert receive(delivery, frame("a2", "1,4")) == []
    assert receive(delivery, frame("b2", "1,3")) == ["b2", "a2"]
    assert receive(delivery, frame("b3", "1,5")) == ["b3"]


def test_an_ended_region_brings_no_more_numbers_to_a_view() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,4"), frame("b4", "1,5")) == []
    assert receive(delivery, tick("a1")) == ["a1", "b4"]
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, tick("a1"), marker("b3", "1,4"), frame("b4", "1,5")) == ["a1", "b3", "b4"]


def test_a_tick_before_the_marker_ends_the_region_and_is_not_handed_out() -> None:
    delivery = Delivery(1, "ac", [ABC])
    joining(delivery, "b")
    assert receive(delivery, frame("b1", "4,1"), tick("b2")) == []
    assert (names(delivery.silent), delivery.ended("b"), delivery.joined("b")) == (["b1", "b2"], True, False)
    assert (delivery.marker("b"), nudged(delivery, "b")) == (None, {"a", "c"}), "who was there has to begin somewhere"
    assert receive(delivery, frame("a1", "4,3")) == []
    assert receive(delivery, frame("c1", "4,2")) == ["c1", "a1"]
    assert not delivery.joined("b"), "it is joined in its next epoch"


def test_frames_are_held_for_atoms_that_bind_and_those_whose_markers_have_all_come() -> None:
    delivery = Delivery(1, "a", [AB, AC, BC])
    assert (binding(delivery), holding(delivery), delivery.is_joining) == (set(), set(), False)
    joining(delivery, "b", "c")
    assert (binding(delivery), holding(delivery), delivery.is_joining) == (set(), set(), True)
    assert receive(delivery, marker("b3", "1,4,2,1")) == []
    assert (binding(delivery), holding(delivery)) == (set(), {1})
    assert receive(delivery, frame("a1", "1,5,3,1"), marker("c1", "2,2,3,2")) == ["a1", "b3", "c1"]
    assert (binding(delivery), holding(delivery), delivery.is_joining) == ({1, 2, 3}, {1, 2, 3}, False)


def test_who_is_known_to_bring_a_number_behind_the_view_is_not_marked_once_more() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    assert receive(delivery, frame("a1", "1,3,3,2"), frame("a2", "1,8,3,3")) == []
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,6"), frame("b4", "1,7")) == []
    assert nudged(delivery, "b") == set(), "2 of a tells enough as soon as 1 is delivered"
    assert receive(delivery, frame("c1", "3,1")) == ["c1", "a1", "b4", "a2"]


def test_who_holds_nothing_behind_the_view_is_marked_once_more() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    assert receive(delivery, frame("a1", "1,3,3,2"), frame("a2", "1,5,3,3")) == []
    joining(delivery, "b")
    receive(delivery, marker("b3", "1,6"))
    assert nudged(delivery, "b") == {"a"}


def test_who_shows_where_the_view_begins_is_not_marked_once_more() -> None:
    delivery = Delivery(1, "ac", [AB, AC])
    joining(delivery, "b")
    for number in range(1, SHOWN_MAX + 1):
        receive(delivery, frame(f"a{number}", f"1,{number},3,{number}"))
    assert receive(delivery, marker("b3", f"1,{SHOWN_MAX + 1}")) == []
    assert nudged(delivery, "b") == {"a"}


def test_an_atom_of_which_a_region_was_left_binds_nobody_in_the_end() -> None:
    delivery = Delivery(1, "a", [AB, BC])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,5"), marker("b3", "1,2")) == ["a1"]
    delivery.leave("a")
    assert (binding(delivery), holding(delivery)) == (set(), {1})
    assert receive(delivery, frame("b4", "1,6")) == ["b4"]
    assert (binding(delivery), holding(delivery), delivery.regions) == (set(), set(), {"b"})


def test_what_waited_of_a_region_that_was_left_is_not_handed_out_later() -> None:
    delivery = Delivery(1, "a", [ABC])
    joining(delivery, "b", "c")
    assert receive(delivery, marker("b3", "4,4"), marker("c1", "4,6"), frame("a1", "4,10")) == []
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("b4", "4,11")) == ["b4"]


def test_a_marker_below_where_its_view_began_does_not_wait() -> None:
    bd, de = Atom(AtomId(5), ("b", "d"), "n1"), Atom(AtomId(6), ("d", "e"), "n1")
    delivery = Delivery(1, "a", [ABC, bd, de])
    joining(delivery, *"bcde")
    assert receive(delivery, marker("b3", "4,8,5,7"), marker("c1", "4,9"), frame("a1", "4,10")) == ["a1"]
    assert receive(delivery, frame("b4", "4,11,5,9")) == []
    assert delivery.delivered("b") == 2
    assert receive(delivery, marker("d1", "5,8,6,1")) == ["b3", "b4"]
    assert receive(delivery, frame("a2", "4,12"), marker("e1", "6,2")) == ["a2", "d1", "e1"]


def test_a_region_that_ended_before_its_marker_came_may_be_joined_anew() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, tick("b2"), frame("a1", "1,1")) == ["a1"]
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,2"), frame("b4", "1,3")) == ["b3", "b4"]
    assert delivery.joined("b")


def test_a_region_that_is_joined_again_begins_at_its_new_marker() -> None:
    delivery = Delivery(1, "", [])
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "")) == ["b3"]
    delivery.leave("b")
    joining(delivery, "b")
    assert (delivery.begin("b"), receive(delivery, marker("b8", "")), delivery.begin("b")) == (0, ["b8"], 8)


def test_what_was_left_and_ends_before_it_is_joined_again_stays_delivered() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "1,5"), marker("b3", "1,2")) == ["a1"]
    delivery.leave("a")
    joining(delivery, "a")
    assert receive(delivery, tick("a3"), frame("b4", "1,4"), frame("b5", "1,7")) == ["b5"]


def test_leaving_a_region_changes_nothing_for_atoms_that_it_has_no_part_in() -> None:
    delivery = Delivery(1, "ac", [AB, BC])
    joining(delivery, "b")
    assert names(delivery.leave("c")) == []
    assert receive(delivery, marker("b3", "1,1,2,5"), frame("a1", "1,2")) == ["a1"]
    assert (binding(delivery), receive(delivery, frame("b4", "1,4,2,6"))) == ({1}, [])
    assert receive(delivery, frame("a2", "1,3")) == ["a2", "b4"]


def test_when_all_that_is_waited_for_is_left_what_is_joined_is_handed_out() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,4")) == []
    assert not delivery.joined("b")
    assert names(delivery.leave("a")) == []
    assert (delivery.joined("b"), delivery.is_joining) == (True, False)
    assert receive(delivery, frame("b4", "1,9")) == ["b4"]


def test_who_is_joined_after_another_one_was_left_does_not_say_where_the_others_begin() -> None:
    cd = Atom(AtomId(5), ("c", "d"), "n1")
    delivery = Delivery(1, "ac", [ABC, cd])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "4,5")) == ["a1"]
    delivery.leave("a")
    delivery.leave("c")
    joining(delivery, "c", "d")
    assert receive(delivery, marker("c1", "4,9,5,1")) == [], "it waits for the marker in d"
    assert receive(delivery, marker("b3", "4,3"), frame("b4", "4,7")) == ["b4"]


def test_who_is_not_being_joined_waits_for_nobody_when_a_region_of_the_atom_was_left() -> None:
    delivery = Delivery(1, "ac", [ABC])
    joining(delivery, "b")
    assert receive(delivery, frame("a1", "4,8"), marker("b3", "4,6")) == ["a1"]
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("c1", "4,9"), frame("b4", "4,7"), frame("b5", "4,10")) == ["c1", "b5"]


def test_all_that_are_being_joined_wait_for_each_other_also_when_a_region_of_the_atom_was_left() -> None:
    delivery = Delivery(1, "a", [ABC])
    joining(delivery, "b", "c")
    assert receive(delivery, frame("a1", "4,10"), marker("b3", "4,4"), marker("c1", "4,6")) == ["a1"]
    assert names(delivery.leave("a")) == []
    assert receive(delivery, frame("b4", "4,11")) == []
    assert receive(delivery, frame("c2", "4,7"), frame("c3", "4,12")) == ["c3", "b4"]


def test_another_ones_marker_is_not_what_was_marked_along() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}
    other = along("a1", "1,2")._replace(body=b"another")
    assert receive(delivery, other, marker("b3", "1,4")) == ["a1"]
    assert nudged(delivery, "b") == set(), "the marker is under way still"


def test_only_regions_that_a_view_waits_for_are_marked_along() -> None:
    delivery = Delivery(1, "acd", [ABC, AC])
    receive(delivery, tick("c1"))
    joining(delivery, "b")
    assert nudged(delivery, "b") == {"a"}, "c has ended, and d has no part in it"


def test_a_region_is_marked_once_for_all_views_that_wait_for_it() -> None:
    delivery = Delivery(1, "a", [AB, AC, ABC])
    joining(delivery, "b", "c")
    bodies = iter((b"1", b"2"))
    assert probes(delivery, bodies, "bc") == {"a": b"1"}
    assert next(bodies) == b"2"


def test_who_was_marked_once_more_is_not_marked_again_when_something_before_that_is_lost() -> None:
    delivery = Delivery(1, "a", [AB])
    joining(delivery, "b")
    assert receive(delivery, marker("b3", "1,8")) == []
    assert nudged(delivery, "b") == {"a"}
    assert receive(delivery, frame("a2", "1,4")) == ["-a1…1", "a2"]
    assert nudged(delivery, "b") == set()


def test_a_jump_is_settled_by_the_first_head_of_a_region_also_after_another_was_left() -> None:
    delivery = Delivery(1, "abc", [AB])
    delivery.leave("c")
    assert receive(delivery, frame("a1", "1,3")) == []
    assert receive(delivery, frame("b1", "1,5")) == ["a1"]


def test_what_is_delivered_of_a_left_atom_after_the_markers_does_not_move_where_its_view_begins() -> None:
    delivery = Delivery(1, "ab", [ABC])
    delivery.join({"c": b"mark"})
    delivery.leave("b")
    assert receive(delivery, frame("a1", "4,7"), marker("c1", "4,3"), frame("a2", "4,9")) == ["a1", "a2"]
    assert receive(delivery, frame("c2", "4,8")) == ["c2"]


@pytest.mark.parametrize("end", ["number", "tick", "sealed"])
def test_what_waits_for_a_look_at_all_shows_that_a_number_will_never_come(end: str) -> None:
    # b and c are twins, and end where x does; a, which had number 1 of their atom, is lost with its node.
    lanes = {"a": "n1", "b": "n2", "c": "n2", "x": "n2"}
    delivery = Delivery(1, lanes, [Atom(AtomId(1), ("a", "b", "c"), "n1")], lanes)
    assert names(delivery.receive([tick(f"a{UNKNOWN_END}")], {"a": 1})) == ["-a1…0", f"a{UNKNOWN_END}"]
    first = [frame("b1", "0,1,1,2"), frame("x1", "0,2"), frame("x2", "0,3")]
    assert names(delivery.receive(first, {"b": 1, "c": 1, "x": 1})) == []
    shown = {
        "number": frame("c1", "0,9,1,3"),
        "tick": StampedFrame("c", 1, 1, TICK_META, b"0,9,1,3", b""),
        "sealed": tick("c1"),
    }[end]
    # x runs too far ahead to be read: nobody knows what of it comes before c.
    found = names(delivery.receive([shown], {"b": 1, "c": 1}))
    assert [name for name in found if name != "c1"] == ["b1", "x1", "x2"]
    assert delivery.is_ahead == (end != "sealed")
    assert names(delivery.receive([], {"b": 1, "c": 1, "x": 1})) == ([] if end == "sealed" else ["c1"])


LANE = dict.fromkeys("abc", "n1")


@pytest.mark.parametrize("how", ["leave", "miss"])
def test_what_waits_for_a_look_at_a_region_waits_no_more_when_that_is_left_or_has_ended(how: str) -> None:
    delivery = Delivery(1, "ab", [], LANE)
    delivery.join({"c": b"marker"}, LANE)
    delivery.found_end("c")
    assert names(delivery.receive([frame("a1", "0,5"), frame("b1", "0,7")], {"a": 1, "b": 1})) == []
    assert names(getattr(delivery, how)("c")) == ["a1", "b1"]
    assert not delivery.is_ahead


def test_what_a_later_look_brought_that_was_cut_short_waits_on() -> None:
    delivery = Delivery(1, "abc", [], LANE)
    assert names(delivery.receive([frame("a1", "0,5")], {"a": 1, "b": 1})) == []
    assert names(delivery.receive([frame("a2", "0,9"), frame("b1", "0,6")], {"b": 1})) == []
    assert names(delivery.leave("c")) == ["a1", "b1", "a2"]
    delivery = Delivery(1, "abc", [], LANE)
    assert names(delivery.receive([frame("a1", "0,5")], {"a": 1, "b": 1})) == []
    assert names(delivery.receive([frame("a2", "0,9")], {})) == []
    assert names(delivery.leave("c")) == []
    assert names(delivery.receive([frame("b1", "0,7")], {"a": 1, "b": 1})) == ["a1", "b1", "a2"]


def test_another_nodes_look_says_nothing_of_what_waits() -> None:
    delivery = Delivery(1, "abd", [], {"a": "n1", "b": "n1", "d": "n2"})
    assert names(delivery.receive([frame("a1", "0,5")], {"a": 1})) == []
    assert names(delivery.receive([frame("d1", "0,1")], {"d": 1})) == ["d1"]
    assert names(delivery.receive([], {"a": 1, "b": 1})) == ["a1"]


def test_the_end_of_a_region_that_was_never_joined_shows_nothing_to_those_that_wait() -> None:
    lanes = {"a": "n1", "d": "n1", "e": "n2"}
    delivery = Delivery(1, "d", [Atom(AtomId(1), ("a", "e"), "n3")], lanes)
    delivery.join({"a": b"me 1", "e": b"me 2"}, lanes)
    delivery.found_end("a")
    delivery.found_end("e")
    marker = StampedFrame("e", 1, 1, b"1 1 1 1 me", b"0,1,1,1", b"me 2")
    assert names(delivery.receive([marker, StampedFrame("e", 1, 2, TICK_META, b"0,2,1,3", b"")], {"e": 1})) == []
    # d was left out, so the end of a waits for a look at it. Its number 2 will never be delivered.
    end = StampedFrame("a", 1, 1, TICK_META, b"0,9,1,2", b"")
    assert names(delivery.receive([end], {"a": 1})) == ["e1", "e2"]
    assert (delivery.ended("a"), delivery.ended("e"), delivery.held_frames) == (True, True, 0)
