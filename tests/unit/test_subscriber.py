"""The subscriber: what it reads and marks, and what it hands out, through joins, leaves and epochs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sequencing.delivery import Missing, Ready
from sequencing.errors import Superseded
from sequencing.frames import StampedFrame
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Record, Wish
from sequencing.subscriber import Read, Subscriber

AB = Atom(AtomId(1), ("a", "b"), "n1")
ABC = Atom(AtomId(2), ("a", "b", "c"), "n1")
ACD = Atom(AtomId(3), ("a", "c", "d"), "n1")


def record(granted: str, said: int, *atoms: Atom, epoch: int = 1, version: int = 1) -> Record:
    paths = dict.fromkeys("abcd", ("n1",))
    plan = Plan(epoch, version, "acyclic", {"n1": ""}, paths, atoms)
    return Record(plan, {"me": frozenset(granted)}, {"me": Wish(1, said)})


def frame(place: str, stamp: str = "", *, epoch: int = 1, meta: str = "0 1 1 1 p", body: bytes = b"") -> StampedFrame:
    """``a3`` is the frame whose last event is number 3 of region a."""
    return StampedFrame(place[0], epoch, int(place[1:]), meta.encode(), stamp.encode(), body)


def tick(place: str, stamp: str = "", *, epoch: int = 1) -> StampedFrame:
    return frame(place, stamp, epoch=epoch, meta="2 1 0 0 ")


def names(items: Iterable[Ready | Missing]) -> list[str]:
    return [f"{item.frame.region}{item.frame.last}" for item in items if isinstance(item, Ready) and not item.meta.kind]


def joined(regions: str, *atoms: Atom, granted: str = "") -> Subscriber:
    """A subscriber that has joined regions whose markers were their first frames."""
    me = Subscriber("me", 1)
    me.subscribe(regions)
    me.update(record(granted or regions, 1, *atoms))
    for region, read in me.reads().items():
        me.found_end(region, read.epoch, None)
    numbers: dict[int, int] = {}
    while marks := me.marks():
        frames = []
        for region, body in sorted(marks):
            stamp = []
            for atom in atoms:
                if region in atom.regions:
                    numbers[atom.id] = numbers.get(atom.id, 0) + 1
                    stamp += [atom.id, numbers[atom.id]]
            last = (me.reads()[region].after or 0) + 1
            frames.append(frame(f"{region}{last}", ",".join(map(str, stamp)), meta="1 1 1 1 me", body=body))
        me.receive(frames)
    assert me.joined == set(regions)
    return me


def test_nothing_is_read_before_a_plan_grants_it_in_answer_to_the_wish() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 0))
    assert (me.reads(), me.wish()) == ({}, Wish(1, 1, {"a": 1}))
    me.update(record("a", 1, version=2))
    assert me.reads() == {"a": Read("n1", 1, None)}


def test_a_region_is_marked_once_its_end_is_known_and_handed_out_after_the_marker() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 1))
    assert me.marks() == []
    me.found_end("a", 1, frame("a7"))
    [(region, body)] = me.marks()
    assert (region, me.marks(), me.reads()["a"].after) == ("a", [], 7)
    assert names(me.receive([frame("a8"), frame("a9", meta="1 1 1 1 me", body=body), frame("a10")])) == ["a10"]
    assert me.joined == {"a"}


def test_an_epoch_is_handed_out_when_all_regions_have_ended_the_one_before() -> None:
    me = joined("ab", AB)
    a, b = me.reads()["a"].after or 0, me.reads()["b"].after or 0
    after = Atom(AtomId(9), ("a", "b"), "n1")
    me.update(record("ab", 1, after, epoch=2))
    me.receive([tick(f"a{a + 1}", "1,100")])
    assert me.reads()["a"] == Read("n1", 1, a + 1)  # the TICK waits for numbers of b
    numbers = a + b
    assert names(me.receive([frame(f"b{b + 1 + n}", f"1,{numbers + 1 + n}") for n in range(99 - numbers)])) != []
    assert me.reads()["a"] == Read("n1", 2, 0)
    assert names(me.receive([frame("a1", "9,1", epoch=2)])) == []
    assert names(me.receive([tick(f"b{b + 100 - numbers}", "1,101")])) == ["a1"]


def test_a_region_left_is_followed_in_the_shadow_while_an_atom_needs_it() -> None:
    me = joined("abc", ABC)
    me.unsubscribe("c")
    assert (set(me.reads()), me.joined) == ({"a", "b", "c"}, {"a", "b"})
    me.unsubscribe("b")
    assert set(me.reads()) == {"a"}


def test_a_region_left_is_read_no_more_when_no_atom_needs_it() -> None:
    me = joined("ab", AB)
    me.unsubscribe("b")
    assert (set(me.reads()), me.joined) == ({"a"}, {"a"})


def test_a_region_wanted_again_waits_for_a_plan_that_knows() -> None:
    me = joined("ab", AB)
    me.unsubscribe("b")
    me.subscribe("b")
    assert set(me.reads()) == {"a"}
    me.update(record("ab", 3, AB, version=2))
    assert me.reads()["b"] == Read("n1", 1, None)


def test_a_stream_that_has_ended_is_joined_in_its_next_epoch() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 1))
    me.found_end("a", 1, tick("a4"))
    me.update(record("a", 1, epoch=2))
    assert me.reads() == {"a": Read("n1", 2, 0)}
    assert names(me.receive([frame("a1", epoch=2)])) == ["a1"]


def test_own_frames_are_noted_when_they_are_delivered_and_not_when_they_are_received() -> None:
    me = joined("ab", AB)
    me.returns.passed()
    a, b = me.reads()["a"].after or 0, me.reads()["b"].after or 0
    me.receive([frame(f"b{b + 1}", f"1,{a + b + 2}", meta="0 1 1 7 me")])
    assert me.returns.passed() == {}
    me.receive([frame(f"a{a + 1}", f"1,{a + b + 1}", meta="0 2 1 3 me")])
    assert me.returns.passed() == {"a": 4, "b": 7}
    me.receive([frame(f"a{a + 2}", f"1,{a + b + 3}", meta="0 1 0 5 me")])
    assert me.returns.passed() == {}, "of a connection before"


def test_the_end_of_an_epoch_is_noted_when_it_is_delivered() -> None:
    me = joined("ab", AB)
    a, b = me.reads()["a"].after or 0, me.reads()["b"].after or 0
    me.receive([tick(f"b{b + 1}", f"1,{a + b + 2}")])
    assert me.returns.over() == {}
    me.receive([tick(f"a{a + 1}", f"1,{a + b + 1}")])
    assert (me.returns.over(), me.returns.over()) == ({"a": 1, "b": 1}, {})


def test_a_shadow_whose_epoch_has_ended_still_keeps_a_new_region_in_its_place() -> None:
    """b is followed for the atom that orders a and c; it ends before c, which is being joined, has shown enough."""
    me = joined("ab", AB, ABC, granted="abc")
    a, b = me.reads()["a"].after or 0, me.reads()["b"].after or 0
    me.subscribe("c")
    me.update(record("abc", 2, AB, ABC, version=2))
    me.found_end("c", 1, None)
    (_, body), *along = me.marks()
    assert [region for region, _ in along] == ["a", "b"]
    me.unsubscribe("b")
    assert names(me.receive([frame(f"a{a + 1}", f"1,{a + b + 1},2,20")])) == [f"a{a + 1}"]
    me.update(record("abc", 3, epoch=2))
    me.receive([tick(f"b{b + 1}", f"1,{a + b + 2},2,21")])
    assert set(me.reads()) == {"a", "c"}
    me.receive([frame("c1", "2,12", meta="1 1 1 1 me", body=body)])
    assert names(me.receive([frame("c2", "2,13")])) == []
    assert names(me.receive([frame("c3", "2,22"), frame(f"a{a + 2}", f"1,{a + b + 3},2,23")])) == ["c3", f"a{a + 2}"]
    assert names(me.receive([frame(f"a{a + 3}", f"1,{a + b + 4},2,25")])) == []
    assert names(me.receive([frame("c4", "2,24")])) == ["c4", f"a{a + 3}"]


def test_what_orders_two_regions_is_left_when_what_takes_over_has_begun() -> None:
    """a and c are ordered with d; b is being joined, and then they are ordered with b, too; d is left before that."""
    me = joined("acd", ABC, ACD)
    last = {region: read.after or 0 for region, read in me.reads().items()}
    me.subscribe("b")
    me.update(record("abcd", 2, ABC, ACD, version=2))
    me.found_end("b", 1, None)
    marks = dict(me.marks())
    assert names(me.receive([frame(f"c{last['c'] + 1}", "2,52,3,5")])) == []
    assert names(me.unsubscribe("d")) == []
    assert "d" in me.reads()
    a, c = (f"{region}{last[region] + 1}" for region in "ac")
    assert names(me.receive([frame(a, "2,51,3,4")])) == [a, c]
    me.receive([frame("b1", "2,60", meta="1 1 1 1 me", body=marks["b"])])
    me.receive([frame(f"a{last['a'] + 2}", "2,61,3,6"), frame(f"c{last['c'] + 2}", "2,62,3,7")])
    assert "d" not in me.reads()
    assert me.joined == set("abc")


def test_a_region_that_is_granted_as_an_epoch_begins_is_ordered_by_what_was_left_before() -> None:
    """b is left while it still comes from epochs before; only its atom orders c, which is new, with a."""
    me = joined("ab", AB)
    last = {region: read.after or 0 for region, read in me.reads().items()}
    me.update(record("ab", 1, AB, epoch=2))
    me.unsubscribe("b")
    me.subscribe("c")
    me.update(record("abc", 3, ABC, epoch=3))
    me.receive([tick(f"a{last['a'] + 1}", "1,3"), tick(f"b{last['b'] + 1}", "1,4")])
    me.receive([tick("a1", "1,1", epoch=2), tick("b1", "1,2", epoch=2)])
    assert names(me.receive([frame("c1", "2,3", epoch=3)])) == []
    assert names(me.receive([frame("b1", "2,2", epoch=3)])) == []
    assert names(me.receive([frame("a1", "2,1", epoch=3)])) == ["a1", "c1"]


@pytest.mark.parametrize(("wanted", "last"), [("c", ["a2", "c2"]), ("bc", ["a2", "c2", "b2"])])
def test_a_region_is_not_joined_before_one_that_was_left_and_orders_it(wanted: str, last: list[str]) -> None:
    """b still comes from epochs before when c is granted, which only b's atom orders with a; b may be wanted again."""
    me = joined("ab", AB)
    begun = {region: read.after or 0 for region, read in me.reads().items()}
    me.update(record("ab", 1, AB, epoch=2))
    me.unsubscribe("b")
    me.update(record("ab", 1, ABC, epoch=3))
    me.subscribe(wanted)
    me.update(record("abc", 3, ABC, epoch=3, version=2))
    me.receive([tick(f"a{begun['a'] + 1}", "1,3"), tick(f"b{begun['b'] + 1}", "1,4")])
    me.receive([tick("a1", "1,1", epoch=2)])
    assert me.reads() == {"a": Read("n1", 3, 0), "b": Read("n1", 2, 0)}
    me.receive([tick("b1", "1,2", epoch=2)])
    assert me.reads() == {"a": Read("n1", 3, 0), "b": Read("n1", 3, None), "c": Read("n1", 3, None)}
    for region in "bc":
        me.found_end(region, 3, None)
    bodies = dict(me.marks())
    for number, region in enumerate("cb", start=4):
        me.receive([frame(f"{region}1", f"2,{number}", epoch=3, meta="1 1 1 1 me", body=bodies[region])])
    assert names(me.receive([frame("c2", "2,7", epoch=3), frame("b2", "2,8", epoch=3)])) == []
    assert names(me.receive([frame("a1", "2,3", epoch=3)])) == ["a1"]
    assert names(me.receive([frame("a2", "2,6", epoch=3)])) == last


def test_a_region_that_is_left_after_its_epoch_has_ended_orders_the_others_in_it_all_the_same() -> None:
    me = joined("abc", ABC)
    last = {region: read.after or 0 for region, read in me.reads().items()}
    number = sum(last.values())
    me.update(record("abc", 1, epoch=2))
    me.receive([tick(f"a{last['a'] + 1}", f"2,{number + 1}")])
    assert me.reads()["a"] == Read("n1", 2, 0)
    me.unsubscribe("a")
    assert names(me.receive([frame(f"c{last['c'] + 1}", f"2,{number + 3}")])) == []
    assert names(me.receive([frame(f"b{last['b'] + 1}", f"2,{number + 2}")])) == [
        f"b{last['b'] + 1}",
        f"c{last['c'] + 1}",
    ]


def test_who_is_left_out_of_a_plan_is_told_and_delivers_nothing_of_it() -> None:
    me = joined("ab")
    gone = Record(record("ab", 1, epoch=2).plan, {"other": frozenset("ab")}, {"other": Wish(1, 1)})
    with pytest.raises(Superseded, match="goes on without 'me'"):
        me.update(gone)


def test_what_is_wanted_no_more_need_not_be_granted() -> None:
    me = joined("ab")
    me.unsubscribe("b")
    assert me.update(record("a", 2, version=2)) == []
    assert me.joined == {"a"}


def marked(place: str, body: bytes, stamp: str = "", *, epoch: int = 1) -> StampedFrame:
    return frame(place, stamp, epoch=epoch, meta="1 1 1 1 me", body=body)


def joining_b_in_epoch_2() -> tuple[Subscriber, bytes]:
    """A subscriber that reads b from its beginning, and its marker there."""
    me = joined("a", AB, granted="ab")
    me.subscribe("b")
    me.update(record("ab", 2, AB, epoch=2))
    assert me.reads()["b"] == Read("n1", 2, 0)
    [(region, marker)] = me.marks()
    assert region == "b"
    return me, marker


def test_a_region_that_is_granted_as_an_epoch_begins_is_read_from_its_beginning_and_joined_at_its_marker() -> None:
    me, marker = joining_b_in_epoch_2()
    me.receive([tick("a2")])
    assert me.joined == {"a"}, "events of b may still be published in the old epoch"
    assert names(me.receive([frame("b1", "1,2", epoch=2)])) == []
    assert me.joined == {"a"}, "an earlier connection of this name may still publish in b"
    me.receive([marked("b2", b"me 1 99", "1,3", epoch=2)])
    assert me.joined == {"a"}, "that is another marker"
    me.receive([marked("b3", marker, "1,4", epoch=2)])
    assert me.joined == {"a", "b"}
    assert names(me.receive([frame("a1", "1,1", epoch=2)])) == ["a1", "b1"]
    assert me.begin("b") == (2, 0)


def test_a_marker_that_may_be_in_what_is_missing_is_not_waited_for() -> None:
    me, _ = joining_b_in_epoch_2()
    me.receive([tick("a2"), frame("b5", "1,9", epoch=2, meta="0 2 1 1 p")])
    assert me.joined == {"a", "b"}


@pytest.mark.parametrize("has_come", [False, True])
def test_a_region_that_ends_before_its_marker_comes_is_marked_in_the_next_epoch(has_come: bool) -> None:
    me, marker = joining_b_in_epoch_2()
    me.receive([tick("a2")])
    if has_come:
        me.receive([marked("b1", marker, "1,1", epoch=2)])
    me.update(record("ab", 2, AB, epoch=3))
    me.receive([tick("a1", "1,3", epoch=2), tick("b2", "1,2", epoch=2)])
    again = me.marks()
    assert [region for region, _ in again] == ([] if has_come else ["b"])
    assert ("b" in me.joined) == has_come
    me.receive([marked("b1", body, "1,1", epoch=3) for _, body in again])
    assert me.joined == {"a", "b"}


def test_a_region_that_is_granted_as_an_epoch_begins_waits_for_the_old_epoch_of_the_others() -> None:
    me, marker = joining_b_in_epoch_2()
    assert names(me.receive([frame("b1", "1,1", epoch=2), marked("b2", marker, "1,2", epoch=2)])) == []
    assert me.joined == {"a"}
    assert names(me.receive([frame("a2", "1,2"), tick("a2")])) == ["a2"]
    assert names(me.receive([tick("a3")])) == ["b1"]
    assert me.joined == {"a", "b"}


def test_whoever_hears_of_an_epoch_that_runs_already_marks_what_it_joins() -> None:
    me = Subscriber("me", 1)
    me.subscribe("b")
    me.update(record("b", 1, AB, epoch=2, version=3))
    assert me.reads()["b"] == Read("n1", 2, None)
