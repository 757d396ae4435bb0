"""History is put in order from the stamps alone, and says what it lacks."""

from __future__ import annotations

from collections.abc import Iterable

from sequencing.frames import UNKNOWN_END, StampedFrame
from sequencing.plan import Atom, AtomId, Plan
from sequencing.ready import Missing, Ready
from sequencing.replay import Replay, unordered


def frame(place: str, stamp: str = "", *, count: int = 1, kind: int = 0) -> StampedFrame:
    """``a3`` is the frame whose last event is number 3 of region a."""
    return StampedFrame(place[0], 1, int(place[1:]), b"%d %d 1 1 p" % (kind, count), stamp.encode(), b"")


def told(items: Iterable[Ready | Missing]) -> list[str]:
    return [
        f"{item.region}{item.first}-{item.last} missing"
        if isinstance(item, Missing)
        else f"{item.frame.region}{item.frame.last}"
        for item in items
    ]


def test_heads_go_by_the_numbers_of_the_atoms_that_they_share() -> None:
    replay = Replay(1, {"a": (0, 2), "b": (0, 2), "c": (0, 1)})
    assert replay.wanted() == {"a": (1, 0), "b": (1, 0), "c": (1, 0)}
    frames = [
        frame("a1", "7,2"),
        frame("a2", "7,4"),
        frame("b1", "7,1,8,2"),
        frame("b2", "7,3,8,3"),
        frame("c1", "8,1"),
    ]
    assert told(replay.receive("abc", frames)) == ["c1", "b1", "a1", "b2", "a2"]
    assert replay.finished


def test_a_head_waits_for_a_region_of_which_more_is_to_be_read() -> None:
    replay = Replay(1, {"a": (0, 2), "b": (0, 1)})
    assert told(replay.receive("a", [frame("a1", "7,2")])) == []
    assert replay.wanted() == {"b": (1, 0)}
    assert told(replay.receive("b", [frame("b1", "7,1")])) == ["b1", "a1"]
    assert replay.wanted() == {"a": (1, 1)}
    assert told(replay.receive("a", [frame("a2", "7,3"), frame("a3", "7,4")])) == ["a2"]
    assert replay.finished


def test_an_epoch_that_has_ended_is_read_up_to_its_tick() -> None:
    replay = Replay(1, {"a": (4, None)})
    assert told(replay.receive("a", [frame("a6", count=2), frame("a7", kind=2)])) == ["a6", "a7"]
    assert replay.finished


def test_what_is_not_kept_is_missing_in_its_place() -> None:
    replay = Replay(1, {"a": (0, 9), "b": (0, None), "c": (3, 3)})
    assert told(replay.receive("ab", [frame("a5"), frame("b4", kind=2)])) == ["a1-4 missing", "a5"]
    assert told(replay.receive("a", [])) == ["a6-9 missing", "b1-3 missing", "b4"]
    assert replay.finished


def test_of_an_end_that_nobody_knows_it_is_not_known_what_is_missing() -> None:
    sealed, gone = Replay(1, {"a": (2, None)}), Replay(1, {"a": (2, None)})
    assert told(sealed.receive("a", [frame(f"a{UNKNOWN_END}", kind=2)])) == ["a3-0 missing", f"a{UNKNOWN_END}"]
    assert told(gone.receive("a", [])) == ["a3-0 missing"]
    assert gone.finished
    assert told(gone.receive("a", [frame("a3")])) == [], "what was told to be missing does not come"


def test_a_region_that_is_to_end_where_it_begins_or_before_is_not_read() -> None:
    replay = Replay(1, {"a": (3, 3), "b": (5, 3)})
    assert (replay.finished, replay.wanted()) == (True, {})


def test_what_a_node_lost_of_the_end_is_missing_behind_what_it_has_of_the_region() -> None:
    replay = Replay(1, {"a": (0, 5), "b": (0, 4), "c": (2, 3), "d": (0, 1)})
    sealed = [frame(f"{region}{UNKNOWN_END}", kind=2) for region in "ab"]
    found = [frame("a1", "7,1"), frame("b2", "7,2", count=2), *sealed, frame("c9", kind=2), frame("d1")]
    lost = ["c3-3 missing", "a1", "a2-5 missing", "b2", "b3-4 missing", "d1"]
    assert told(replay.receive("abcd", found)) == lost
    assert replay.finished


def test_a_last_frame_that_cannot_be_read_is_missing() -> None:
    replay = Replay(1, {"a": (0, 2)})
    assert told(replay.receive("a", [frame("a1"), StampedFrame("a", 1, 2, b"nonsense", b"", b"")])) == [
        "a1",
        "a2-2 missing",
    ]
    assert replay.finished


def test_regions_have_an_order_that_end_at_one_node_or_share_an_atom() -> None:
    paths = {"a": ("n1",), "b": ("n1",), "c": ("n1", "n2"), "d": ("n2",), "e": ("n3",)}
    atoms = (Atom(AtomId(1), ("a", "c", "e"), "n1"), Atom(AtomId(2), ("d", "e"), "n2"))
    plan = Plan(1, 1, "acyclic", dict.fromkeys(("n1", "n2", "n3"), ""), paths, atoms)
    assert unordered(dict.fromkeys("abcde", plan)) == [("a", "d"), ("b", "c"), ("b", "d"), ("b", "e")]
    assert unordered(dict.fromkeys("ace", plan)) == []
    assert unordered({}) == []
