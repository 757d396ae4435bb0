"""States on their way to their place: what is in them is passed over, and all else keeps its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from adapters.places import Position
from gamecast.client.inbox import Inbox
from gamecast.client.states import Contained, Item, Standing, States, cuts_in
from sequencing.frames import FrameKind, Meta, StampedFrame
from sequencing.keyed import Snapshot
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready


def event(region: str, number: int, epoch: int = 1) -> Ready:
    return Ready(StampedFrame(region, epoch, number, b"", b"", b""), Meta(0, 1, "p"))


def joint(region: str, number: int, other: str, there: int) -> Ready:
    """Return a copy of an event of two regions."""
    parts = b"\n%b\n%d\n1" * 2 % (region.encode(), number, other.encode(), there)
    return Ready(StampedFrame(region, 1, number, b"3 1 1 1 p" + parts, b"", b""), Meta(3, 1, "p"))


def snapshot(last: int) -> Snapshot:
    return Snapshot(last, 0, {})


def told(states: States, begins: dict[str, Position] | None = None, **lasts: int) -> list[Item]:
    """Take a state, where there are no other regions."""
    items, marked = states.told({r: ((1, last), snapshot(last)) for r, last in lasts.items()}, begins or {})
    assert marked is None
    return items


def shown(items: Sequence[Item]) -> list[str]:
    """Return items as texts: a region and number, and states as the regions that are in them."""
    texts = []
    for item in items:
        if isinstance(item, Standing):
            texts.append("".join(sorted(item.snapshots)).upper())
        elif isinstance(item, Missing):
            texts.append(f"{item.region}{item.first}-{item.last}")
        else:
            texts.append(f"{item.frame.region}{item.frame.last}")
    return texts


def test_a_state_comes_at_once_where_all_that_is_in_it_was_before_the_join() -> None:
    states = States()
    states.begin("ab")
    assert shown(states.keep([event("x", 1)])) == ["x1"]
    assert shown(told(states, {"a": (1, 3), "b": (1, 0)}, a=3, b=0)) == ["AB"]
    assert not states
    assert shown(states.keep([event("a", 4)])) == ["a4"]


def test_it_comes_where_the_last_event_that_is_in_it_is_and_others_do_not_wait_for_that() -> None:
    states = States()
    states.begin("ab")
    assert shown(told(states, {"a": (1, 1), "b": (1, 4)}, a=3, b=4)) == []
    assert shown(states.keep([event("a", 2), event("x", 1)])) == ["x1"]
    assert shown(states.keep([event("a", 3), event("x", 2), event("b", 5)])) == ["AB", "x2", "b5"]
    assert not states


def test_it_comes_before_the_first_newer_event_of_any_of_its_regions() -> None:
    states = States()
    states.begin("ab")
    told(states, {"a": (1, 3), "b": (1, 1)}, a=3, b=4)
    assert shown(states.keep([event("b", 2), event("a", 4), event("b", 3), event("b", 4), event("b", 5)])) == [
        *("AB", "a4", "b5")
    ]
    assert not states


def test_from_its_first_event_on_all_is_held_until_the_answer() -> None:
    states = States()
    states.begin("a")
    assert shown(states.keep([event("x", 1), event("a", 1), event("x", 2)])) == ["x1"]
    assert shown(states.keep([event("a", 2), event("x", 3)])) == []
    assert shown(told(states, a=1)) == ["A", "x2", "a2", "x3"]
    assert not states


def test_a_later_epoch_passes_it_and_a_gap_is_cut_to_what_is_not_in_it() -> None:
    states = States()
    states.begin("ab")
    told(states, a=5, b=5)
    assert shown(states.keep([event("a", 1, epoch=2), Missing("b", 1, 3, 8)])) == ["AB", "a1", "b6-8"]
    states.begin("c")
    told(states, c=5)
    assert shown(states.keep([Missing("c", 1, 6, 0)])) == ["C", "c6-0"]


@pytest.mark.parametrize("is_told", [False, True])
def test_what_is_dropped_holds_nothing_up(is_told: bool) -> None:
    states = States()
    states.begin("ab")
    if is_told:
        told(states, a=2, b=5)
        assert shown(states.keep([event("a", 2), event("x", 1)])) == ["x1"]
    else:
        states.keep([event("a", 2), event("x", 1)])
    assert shown(states.drop({"b"})) == (["A"] if is_told else [])
    assert shown(states.drop({"a"})) == ([] if is_told else ["a2", "x1"])
    assert not states


def test_with_other_regions_it_waits_for_a_marker_unless_its_last_event_shows_the_place() -> None:
    states = States()
    states.begin("ab")
    snapshots = {region: ((1, 3), snapshot(3)) for region in "ab"}
    items, marked = states.told(snapshots, {"a": (1, 1), "b": (1, 3)}, {"a", "b", "x"})
    assert (items, marked) == ([], "a")
    assert shown(states.keep([event("a", 3), event("x", 1), event("a", 4), event("x", 2)])) == ["x1", "AB", "a4", "x2"]
    states.begin("ab")
    items, marked = states.told(snapshots, {"a": (1, 1), "b": (1, 2)}, {"a", "b", "x"})
    assert (items, marked) == ([], None)
    assert shown(states.keep([event("a", 3), event("x", 1), event("b", 3), event("x", 2)])) == ["x1", "AB", "x2"]
    assert not states


def test_whatever_the_time_of_the_answer_the_order_is_that_of_the_node() -> None:
    for seed in range(2_000):
        random = Random(seed)
        numbers = dict.fromkeys("abx", 0)
        order: list[Ready] = []
        for _ in range(12):
            region = random.choice("abx")
            numbers[region] += 1
            order.append(event(region, numbers[region]))
        cut = random.randint(0, 12)  # what is before it is in the state
        lasts = {region: sum(item.frame.region == region for item in order[:cut]) for region in "ab"}
        begin = random.randint(0, cut)  # what is after it is delivered of the regions
        begins = {region: (1, sum(item.frame.region == region for item in order[:begin])) for region in "ab"}
        items = [item for place, item in enumerate(order) if place >= begin or item.frame.region == "x"]
        answered = random.randint(0, len(items))
        states = States()
        states.begin("ab")
        out = states.keep(items[:answered])
        snapshots = {region: ((1, last), snapshot(last)) for region, last in lasts.items()}
        now, marked = states.told(snapshots, begins, {"a", "b", "x"})
        out += now + states.keep(items[answered:])
        if marked is not None:
            out += states.keep([event(marked, numbers[marked] + 1)])
            order.append(event(marked, numbers[marked] + 1))
            items.append(order[-1])
        assert not states
        at = next(place for place, item in enumerate(out) if isinstance(item, Standing))
        before, after = shown(out[:at]), shown(out[at + 1 :])
        included = [place for place, item in enumerate(order[:cut]) if item.frame.region != "x"]
        preceding = shown([item for item in order[: included[-1] if included else 0] if item.frame.region == "x"])
        assert set(preceding) <= set(before), "what precedes anything in the state comes before it"
        assert all(text[0] == "x" for text in before)
        assert before + after == shown(
            [item for item in items if item.frame.region == "x" or item.frame.last > lasts[item.frame.region]]
        )


def test_dropping_all_of_a_state_delivers_nothing_of_it() -> None:
    for regions in ("abcd", "dcba"):
        states = States()
        states.begin(regions)
        states.told({r: ((1, 5), snapshot(5)) for r in regions}, {"a": (1, 5)}, {*regions, "x"})
        assert shown(states.drop({*regions})) == []
        assert not states


def test_an_event_of_several_regions_waits_for_the_answer_and_comes_after_the_state_that_it_is_not_in() -> None:
    states = States()
    states.begin("a")
    assert states.keep([joint("x", 1, "a", 4), event("x", 2)]) == []
    assert states.held_events == 2
    items, marked = states.told({"a": ((1, 3), snapshot(3))}, {"a": (1, 3)}, {"a", "x"})
    assert (shown(items), marked, states.held_events) == (["A", "x1", "x2"], None, 0)
    states.begin("a")
    items, marked = states.told({"a": ((1, 5), snapshot(5))}, {"a": (1, 4)}, {"a", "x"})
    assert (items, marked) == ([], None)
    assert shown(states.keep([joint("x", 3, "a", 5), event("a", 5), joint("x", 4, "a", 6)])) == ["x3", "A", "x4"]


@pytest.mark.parametrize("is_last", [True, False])
def test_an_event_of_several_regions_that_is_in_the_state_comes_before_it_at_its_first_copy(is_last: bool) -> None:
    states = States()
    states.begin("a")
    states.told({"a": ((1, 5), snapshot(5))}, {"a": (1, 3)}, {"a", "x"})
    rest = [event("a", 5)] if not is_last else []
    out = states.keep([joint("a", 5 - len(rest), "x", 1), *rest, joint("x", 1, "a", 5 - len(rest))])
    assert shown(out) == ["a5" if is_last else "a4", "A", "x1"]
    assert [type(item) for item in out] == [Contained, Standing, Ready]
    states.begin("a")
    states.told({"a": ((1, 7), snapshot(7))}, {"a": (1, 5)}, {"a", "x"})
    assert shown(states.keep([joint("a", 6, "x", 2), joint("a", 7, "x", 3), joint("a", 8, "x", 4)])) == [
        *("a6", "a7", "A", "a8")
    ]
    assert not states


def test_skipping_leaves_no_gap_where_the_state_has_the_event() -> None:
    inbox = Inbox()
    inbox.put([Contained(*joint("a", 5, "x", 1)), Standing({"a": ((1, 5), snapshot(5))}), joint("x", 1, "a", 5)])
    assert inbox.events == 2
    inbox.skip()
    assert [getattr(item, "region", "") for item in inbox.items] == ["a", "x"]


def test_a_state_belongs_to_the_call_that_asked_for_it() -> None:
    states, first, second = States(), object(), object()
    states.begin("a", first)
    states.drop({"a"})
    states.begin("a", second)
    assert states.asked_by(first) == set()
    assert states.asked_by(second) == {"a"}
    assert states.call_of("a") is second


def test_what_is_held_back_of_a_region_that_is_left_does_not_come_later() -> None:
    states = States()
    states.begin("b")
    assert states.keep([event("b", 1), event("a", 2), event("x", 3)]) == []
    assert states.leave({"a"}) == []
    assert states.held_events == 2
    assert shown(told(states, b=1)) == ["B", "x3"]


def test_a_gap_that_began_before_it_does_not_show_its_place() -> None:
    """What another region has before it may still come; the rest of the gap comes behind the state."""
    states = States()
    states.begin("ab")
    assert shown(told(states, {"a": (1, 1), "b": (1, 1)}, a=3, b=4)) == []
    assert shown(states.keep([Missing("b", 1, 2, 7), event("x", 1)])) == ["x1"]
    assert shown(states.keep([event("a", 2), event("x", 2), event("a", 3), event("x", 3)])) == [
        *("x2", "AB", "b5-7", "x3")
    ]
    assert not states


def test_nor_does_the_end_of_a_stream_that_was_sealed() -> None:
    states = States()
    states.begin("ab")
    assert shown(told(states, {"a": (1, 1), "b": (1, 1)}, a=3, b=4)) == []
    sealed = Ready(StampedFrame("b", 1, 9, b"", b"", b""), Meta(int(FrameKind.TICK), 0, ""))
    assert shown(states.keep([Missing("b", 1, 2, 8), sealed, event("x", 1)])) == ["x1"]
    assert shown(states.keep([event("a", 3)])) == ["AB", "b5-8"]


def test_a_region_that_is_left_takes_what_is_missing_of_it_along() -> None:
    states = States()
    states.begin("ab")
    told(states, {"a": (1, 1), "b": (1, 1)}, a=3, b=4)
    assert states.keep([Missing("b", 1, 2, 7)]) == []
    assert states.leave({"b"}) == []
    assert shown(states.keep([event("a", 3)])) == ["A"]


def test_an_answer_is_a_cut_of_regions_that_have_an_order_only() -> None:
    paths = {"a": ("n1",), "b": ("n1",), "c": ("n1", "n2"), "d": ("n1", "n2")}
    plan = Plan(2, 1, "acyclic", {"n1": "", "n2": ""}, paths, (), {"b": 1})
    assert cuts_in(plan, "abcd") == [["a", "c", "d"], ["b"]]
    assert cuts_in(replace(plan, ordering="overlap"), "abcd") == [["a"], ["b"], ["c", "d"]]
