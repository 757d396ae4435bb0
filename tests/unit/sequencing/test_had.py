"""What was had of regions: an event of several is passed over where another region has brought it, and only there."""

from __future__ import annotations

from sequencing.frames import JointPart
from sequencing.had import REGIONS_MAX, STRETCHES_MAX, Had, Position


def had_of(passed: dict[str, Position], had: Had, region: str, position: Position, behind: int = 0) -> bool:
    """Tell whether an event comes again by some region, if it was in another at a position."""
    parts = (JointPart("other", 1, 1), JointPart(region, position[1] + behind, 1))
    return had.has(parts, position[0], behind, by="other")


def test_what_lies_within_a_stay_was_had() -> None:
    passed: dict[str, Position] = {}
    had = Had(passed)
    assert not had_of(passed, had, "a", (1, 1))
    had.begin("a", (1, 3))
    passed["a"] = 1, 6
    assert [number for number in range(1, 9) if had_of(passed, had, "a", (1, number))] == [4, 5, 6]
    assert had_of(passed, had, "a", (1, 5), behind=2)
    passed["a"] = 2, 1
    assert had_of(passed, had, "a", (1, 100))
    assert not had.has((JointPart("a", 5, 1),), 1, 0, by="a")


def test_a_gap_was_not_had_and_what_was_before_it_was() -> None:
    passed: dict[str, Position] = {}
    had = Had(passed)
    had.begin("a", (1, 0))
    passed["a"] = 1, 3
    had.miss("a", (1, 5))
    passed["a"] = 1, 7
    assert [number for number in range(1, 9) if had_of(passed, had, "a", (1, number))] == [1, 2, 3, 6, 7]


def test_an_earlier_stay_counts_and_what_was_had_before_a_resumption() -> None:
    passed: dict[str, Position] = {"a": (1, 4)}
    had = Had(passed)
    had.begin("a", (1, 1))
    had.leave("a")
    del passed["a"]
    assert [number for number in range(1, 9) if had_of(passed, had, "a", (1, number))] == [2, 3, 4]
    had.resume("b", (1, 5))
    assert not had_of(passed, had, "b", (1, 5)), "it may be where another stay began"
    assert not had_of(passed, had, "b", (1, 6))
    passed["b"] = 1, 6
    assert had_of(passed, had, "b", (1, 6))


def test_what_is_known_of_the_past_is_bounded() -> None:
    passed: dict[str, Position] = {}
    had = Had(passed)
    for region in ("a", *(f"r{number}" for number in range(REGIONS_MAX))):
        had.begin(region, (1, 0))
        passed[region] = 1, 1
        had.leave(region)
    assert not had_of(passed, had, "a", (1, 1))
    assert had_of(passed, had, "r0", (1, 1))
    for number in range(1, STRETCHES_MAX + 2):
        had.begin("b", (1, number - 1))
        passed["b"] = 1, number
        had.leave("b")
    assert not had_of(passed, had, "b", (1, 1))
    assert had_of(passed, had, "b", (1, 2))


def test_what_was_dropped_was_not_had_but_for_what_stayed_as_another_regions() -> None:
    passed: dict[str, Position] = {"a": (1, 6)}
    had = Had(passed)
    had.begin("a", (1, 0))
    had.leave("a")
    had.take_back("a", (1, 2))
    had.keep("a", (1, 5))
    had.keep("a", (1, 6))
    had.drop("a", (1, 6))
    assert [number for number in range(1, 9) if had_of(passed, had, "a", (1, number))] == [1, 2, 5]
