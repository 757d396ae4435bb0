"""The subscriber: what it reads and marks, and what it hands out, through joins, leaves and epochs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sequencing.errors import SessionExpired
from sequencing.followed import Read
from sequencing.frames import StampedFrame
from sequencing.plan import GIVEN_UP, Atom, AtomId, Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Interest, Record
from sequencing.subscriber import Subscriber

AB = Atom(AtomId(1), ("a", "b"), "n1")
ABC = Atom(AtomId(2), ("a", "b", "c"), "n1")
ACD = Atom(AtomId(3), ("a", "c", "d"), "n1")


CDE = Atom(AtomId(4), ("c", "d", "e"), "n1")


def record(
    granted: str,
    said: int,
    *atoms: Atom,
    epoch: int = 1,
    version: int = 1,
    older: str = "",
    path: tuple[str, ...] = ("n1",),
) -> Record:
    """``older``: the regions whose numbering began in epoch 1."""
    paths = dict.fromkeys("abcde", path)
    plan = Plan(epoch, version, "acyclic", dict.fromkeys(path, ""), paths, atoms, dict.fromkeys(older, 1))
    return Record(plan, {"me": frozenset(granted)}, {"me": Interest(1, said)})


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
        me.found_ends([(region, read.epoch, None)])
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
    assert (me.reads(), me.interest()) == ({}, Interest(1, 1, {"a": 1}))
    me.update(record("a", 1, version=2))
    assert me.reads() == {"a": Read("n1", 1, None)}


def test_a_region_is_marked_once_its_end_is_known_and_handed_out_after_the_marker() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 1))
    assert me.marks() == []
    me.found_ends([("a", 1, frame("a7"))])
    [(region, body)] = me.marks()
    assert (region, me.marks(), me.reads()["a"].after) == ("a", [], 7)
    assert names(me.receive([frame("a8"), frame("a9", meta="1 1 1 1 me", body=body), frame("a10")])) == ["a10"]
    assert me.joined == {"a"}


def test_where_only_its_node_orders_it_a_region_is_joined_where_it_ends() -> None:
    me = joined("a")
    me.subscribe("b")
    me.update(record("ab", 2, version=2))
    assert me.joined == {"a"}
    me.found_ends([("b", 1, frame("b7", "0,5"))])
    assert (me.joined, me.marks(), me.begin("b"), me.is_settled) == ({"a", "b"}, [], (1, 7), True)
    assert names(me.receive([frame("a2", "0,9")], {"a": 1})) == []  # what of b comes before is not known
    assert names(me.receive([frame("b8", "0,7"), frame("b9", "0,10")], {"a": 1, "b": 1})) == ["b8", "a2", "b9"]


def with_more(before: Record, region: str, path: tuple[str, ...] = ("n1",), *, epoch: int = 1) -> Record:
    """Return the record that grants one region more, which is new in the plan."""
    plan = replace(before.plan, version=before.plan.version + 1, paths={**before.plan.paths, region: path})
    plan = replace(plan, epoch=epoch, epochs=dict.fromkeys(before.plan.paths, 1) if epoch > 1 else {})
    return Record(plan, {"me": before.members["me"] | {region}}, {"me": Interest(1, 2)})


def asking_for_f() -> tuple[Subscriber, Record]:
    """A subscriber that has joined region a, and wants f, which no plan has; and the last record."""
    me = joined("a")
    me.subscribe("f")
    return me, record("a", 1)


def test_where_nothing_was_ever_published_a_region_is_joined_at_the_beginning_without_a_marker() -> None:
    me, before = asking_for_f()
    me.update(with_more(before, "f"))
    me.found_ends([("f", 1, None)])
    assert (me.marks(), me.joined) == ([], {"a", "f"})
    assert names(me.receive([frame("f1", "0,9")])) == ["f1"]


@pytest.mark.parametrize("why", ["it had a place before", "its path is longer", "it has moved since"])
def test_an_empty_stream_is_marked_where_something_may_be_under_way_to_it(why: str) -> None:
    me, before = asking_for_f()
    granted = with_more(before, "f", ("n0", "n1") if "longer" in why else ("n1",))
    if "before" in why:
        me.update(replace(granted, heard=before.heard))
        granted = replace(granted, plan=replace(granted.plan, version=9))
    me.update(granted)
    if "moved" in why:
        moved = replace(granted.plan, epoch=2, epochs=dict.fromkeys("abcde", 1))
        me.update(replace(granted, plan=moved))
        me.found_ends([("f", 1, tick("f1"))])
        me.receive([])
    me.found_ends([("f", me.reads()["f"].epoch, None)])
    assert [region for region, _ in me.marks()] == ["f"]
    assert me.joined == {"a"}


@pytest.mark.parametrize("why", ["no event", "no number", "two nodes", "causal", "an atom", "it has ended", "returns"])
def test_a_region_is_marked_where_more_than_its_node_orders_it_or_its_epoch_may_not_have_begun(why: str) -> None:
    news = record("ab", 1, *[AB] * (why == "an atom"), path=("n1", "n2") if why == "two nodes" else ("n1",))
    if why == "causal":
        news = replace(news, plan=replace(news.plan, ordering="causal"))
    me = Subscriber("me", 1)
    me.subscribe("ab", returns=why == "returns")
    me.update(news)
    newest = {"no event": None, "no number": frame("a7"), "it has ended": tick("a7", "0,5")}
    me.found_ends([("a", 1, newest.get(why, frame("a7", "0,5,1,3")))])
    me.found_ends([("b", 1, frame("b2", "0,4,1,2"))])
    assert "a" in dict(me.marks())
    assert "a" not in me.joined


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


def test_regions_that_leave_an_epoch_with_one_plan_wait_for_each_other_wherever_they_go() -> None:
    me = joined("ab")
    a, b = (me.reads()[region].after or 0 for region in "ab")
    both = record("ab", 1, epoch=3)  # what began epoch 2, for both, was abandoned before anybody was told
    me.update(replace(both, plan=replace(both.plan, epochs={"a": 2})))
    assert names(me.receive([tick(f"a{a + 1}", "0,1"), frame("a1", "0,2", epoch=2)])) == []
    assert me.reads()["a"].epoch == 2
    assert names(me.receive([frame("a1", "0,2", epoch=2), frame(f"b{b + 1}", "0,1")])) == [f"b{b + 1}"]
    assert names(me.receive([tick(f"b{b + 2}", "0,2")])) == ["a1"]


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
    me.found_ends([("a", 1, tick("a4"))])
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
    me.found_ends([("c", 1, None)])
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
    me.found_ends([("b", 1, None)])
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
        me.found_ends([(region, 3, None)])
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
    gone = Record(record("ab", 1, epoch=2).plan, {"other": frozenset("ab")}, {"other": Interest(1, 1)})
    with pytest.raises(SessionExpired, match=r"went on without 'me' \(epoch 2\)"):
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


def test_before_anything_is_wanted_all_is_settled_and_nothing_is_there_to_leave() -> None:
    me = Subscriber("me", 1)
    assert (me.unsubscribe("a"), me.is_settled, me.joined) == ([], True, set())
    assert (me.subscribe("ab"), me.unsubscribe("b"), me.wanted) == ([], [], {"a"})
    assert (me.reads(), me.marks(), me.held_frames) == ({}, [], 0)


def test_a_marker_tells_who_published_it_and_which_of_its_markers_it_is() -> None:
    me = Subscriber("me", 7)
    me.subscribe("ab")
    found = Record(record("ab", 1).plan, {"me": frozenset("ab")}, {"me": Interest(7, 1)})
    me.update(found)
    for region in "ab":
        me.found_ends([(region, 1, None)])
    assert me.marks() == [("a", b"me 7 1"), ("b", b"me 7 2")]


def test_a_plan_that_stays_as_it_was_may_grant_what_is_wanted_by_now() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    plan = record("a", 0).plan
    me.update(Record(plan, {"me": frozenset("a")}, {"me": Interest(1, 0)}))
    generation = me.generation
    me.update(Record(plan, {"me": frozenset("a"), "other": frozenset("b")}, {"me": Interest(1, 0)}))
    assert (me.reads(), me.generation) == ({}, generation), "it is about others"
    me.update(Record(plan, {"me": frozenset("a")}, {"me": Interest(1, 1)}))
    assert me.reads() == {"a": Read("n1", 1, None)}
    assert me.generation > generation, "there is something else to read"


def test_each_node_is_asked_for_what_leaves_the_network_there() -> None:
    me = Subscriber("me", 1)
    me.update(record("", 0, path=("n1", "n2")))
    me.subscribe("a")
    me.update(record("a", 1, path=("n1", "n2"), version=2))
    assert (me.reads("n2"), me.reads("n1")) == ({"a": Read("n2", 1, None)}, {})
    me.found_ends([("a", 1, tick("a4"))])
    me.update(record("a", 1, epoch=2, path=("n2", "n3")))
    assert me.reads() == {"a": Read("n3", 2, 0)}
    me.subscribe("b")
    me.update(record("ab", 2, epoch=3, path=("n3", "n4"), older=""))
    assert me.reads("n4") == {"b": Read("n4", 3, 0)}


def test_a_region_that_is_granted_as_an_epoch_begins_may_be_the_only_one() -> None:
    me = Subscriber("me", 1)
    me.update(record("", 0))
    me.subscribe("b")
    me.update(record("b", 1, epoch=2))
    assert me.reads() == {"b": Read("n1", 2, 0)}
    [(_, marker)] = me.marks()
    event = frame("b1", epoch=2, body=marker)
    assert names(me.receive([event])) == ["b1"]
    assert me.joined == set(), "an event that reads like the marker is none"
    me.receive([marked("b2", marker, epoch=2)])
    assert (me.joined, me.is_settled) == ({"b"}, True)


def test_a_region_of_an_epoch_that_runs_is_joined_at_its_marker_also_when_others_have_a_newer_one() -> None:
    me = Subscriber("me", 1)
    me.update(record("", 0, epoch=3, older="b"))
    me.subscribe("b")
    me.update(record("b", 1, epoch=3, version=2, older="b"))
    assert me.reads() == {"b": Read("n1", 1, None)}


def test_only_what_is_wanted_is_marked_as_an_epoch_begins() -> None:
    me = joined("a", granted="abc")
    me.subscribe("c")
    me.update(record("abc", 2, ABC, epoch=2))
    assert set(me.reads()) == set("abc"), "b orders a and c"
    assert [region for region, _ in me.marks()] == ["c"]
    me.receive([tick("a2")])
    me.update(record("abc", 2, ABC, epoch=3))
    me.receive([tick("a1", "2,1", epoch=2), tick("b1", "2,2", epoch=2)])
    assert (me.reads()["b"], me.marks()) == (Read("n1", 3, 0), [])


def test_an_end_is_found_once_in_the_epoch_that_is_read() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 1, epoch=2))
    assert me.found_ends([("b", 2, frame("b7", epoch=2))]) == []
    for epoch in (1, 3):
        assert me.found_ends([("a", epoch, frame("a7", epoch=epoch))]) == []
    assert me.reads()["a"].after is None
    assert me.receive([frame("a8", epoch=2)]) == [], "it is not known yet what comes before"
    assert me.reads()["a"].after is None
    me.found_ends([("a", 2, frame("a7", epoch=2))])
    me.found_ends([("a", 2, frame("a9", epoch=2))])
    assert me.reads()["a"].after == 7


def test_what_is_not_read_and_what_was_received_before_keeps_nothing_from_what_comes_with_it() -> None:
    me = joined("a")
    again = [frame("b1"), frame("a2", epoch=2), frame("a1"), frame("a2"), frame("a3"), frame("a2"), frame("a3")]
    assert names(me.receive(again)) == ["a2", "a3"]
    assert me.reads()["a"].after == 3
    assert names(me.receive([frame("a2"), frame("a4", epoch=0), frame("a4")])) == ["a4"]
    assert me.receive([frame("a3")]) == []
    assert me.reads()["a"].after == 4


def test_nobody_is_marked_along_before_the_marker_of_what_is_joined_may_go() -> None:
    me = joined("a", AB, granted="ab")
    me.subscribe("b")
    me.update(record("ab", 2, AB, version=2))
    assert (me.marks(), me.joined) == ([], {"a"})
    me.found_ends([("b", 1, frame("b7"))])
    assert [region for region, _ in me.marks()] == ["b", "a"]
    assert (me.joined, me.is_settled) == ({"a"}, False)


def test_who_has_not_reached_an_epoch_is_not_marked_along_for_what_is_joined_in_it() -> None:
    me = joined("a", AB, granted="ab")
    me.update(record("ab", 1, AB, epoch=2))
    me.subscribe("b")
    me.update(record("ab", 2, AB, epoch=2, version=2))
    me.found_ends([("b", 2, None)])
    assert [region for region, _ in me.marks()] == ["b"]


def test_a_marker_that_may_be_missing_is_published_again() -> None:
    me = Subscriber("me", 1)
    me.subscribe("a")
    me.update(record("a", 1))
    me.found_ends([("a", 1, frame("a7"))])
    [(_, marker)] = me.marks()
    assert me.receive([frame("a8"), frame("a9")]) == []
    assert me.marks() == []
    assert me.receive([frame("a20")]) == []
    assert me.marks() == [("a", marker)]


def test_a_marker_that_was_not_published_yet_is_not_missing() -> None:
    me = joined("a", AB, granted="ab")
    me.subscribe("b")
    me.update(record("ab", 2, AB, epoch=2))
    me.receive([frame("b5", "1,9", epoch=2)])
    assert [region for region, _ in me.marks()] == ["b"]


def test_who_waits_behind_a_gap_asks_those_that_show_nothing() -> None:
    me = joined("ab", AB)
    a, b = (me.reads()[region].after or 0 for region in "ab")
    assert (me.is_settled, me.marks()) == (True, [])
    assert names(me.receive([frame(f"a{a + 9}", f"1,{a + b + 7}")])) == []
    assert (me.is_settled, me.held("a"), me.held("b"), me.held_frames) == (False, 1, 0, 1)
    assert [region for region, _ in me.marks()] == ["b"]
    assert names(me.receive([frame(f"b{b + 1}", f"1,{a + b + 9}")])) == [f"a{a + 9}"]
    assert names(me.unsubscribe("a")) == [f"b{b + 1}"], "nothing waits for a any more"
    assert (me.is_settled, me.held_frames) == (True, 0)


def test_an_epoch_is_settled_when_the_one_before_has_ended_and_nothing_of_that_is_kept() -> None:
    me = joined("ab", AB)
    a, b = (me.reads()[region].after or 0 for region in "ab")
    me.update(record("ab", 1, AB, epoch=2))
    assert (me.joined, me.is_settled) == (set("ab"), False)
    me.receive([tick(f"a{a + 1}", f"1,{a + b + 1}")])
    assert (me.joined, me.is_settled) == (set("ab"), False), "it stays joined on its way"
    again = frame("a1", "1,2", epoch=2)
    assert names(me.receive([again, again])) == []
    assert names(me.receive([again])) == []
    assert (me.held("a"), me.held("b"), me.held_frames) == (1, 0, 1)
    me.receive([tick(f"b{b + 1}", f"1,{a + b + 2}")])
    assert (me.held("a"), me.held_frames, me.is_settled, me.marks()) == (1, 1, True, [])
    assert names(me.receive([frame("b1", "1,1", epoch=2)])) == ["b1", "a1"]
    assert list(me._epochs.all) == [2]


def test_what_is_left_while_its_epoch_waits_for_others_takes_its_frames_along_and_no_others() -> None:
    me = joined("abc")
    me.update(record("abc", 1, epoch=2))
    me.receive([tick("a2"), tick("b2")])
    assert names(me.receive([frame("a1", epoch=2), frame("b1", epoch=2), frame("b2", epoch=2)])) == []
    assert me.held_frames == 3
    me.unsubscribe("b")
    assert (me.held_frames, set(me.reads()), me.joined) == (1, set("ac"), set("ac"))
    assert names(me.receive([tick("c2")])) == ["a1"]


def test_regions_of_different_epochs_are_left_alone_by_each_other() -> None:
    me = joined("a", granted="ab")
    me.subscribe("b")
    me.update(record("ab", 2, epoch=2, older="a"))
    assert me.reads() == {"a": Read("n1", 1, 1), "b": Read("n1", 2, 0)}
    assert names(me.receive([frame("a2"), frame("b1", epoch=2)])) == ["a2", "b1"]
    assert me.unsubscribe("b") == []
    assert (me.reads(), names(me.receive([frame("a3")]))) == ({"a": Read("n1", 1, 2)}, ["a3"])


def test_own_events_are_noted_also_where_they_are_not_handed_out() -> None:
    me = joined("ab", AB, granted="abc")
    me.returns.passed()
    a, b = (me.reads()[region].after or 0 for region in "ab")
    me.subscribe("c")
    me.update(record("abc", 2, AB, version=2))
    me.found_ends([("c", 1, frame("c3"))])
    [(_, marker), *_] = me.marks()
    assert me.receive([frame("c4", meta="0 2 1 5 me")]) == []
    assert (me.returns.passed(), me.receive([frame("c5")]), me.returns.passed()) == ({"c": 6}, [], {})
    assert names(me.receive([frame(f"a{a + 1}", f"1,{a + b + 1}", meta="0 1 1 8 me")])) == [f"a{a + 1}"]
    assert me.returns.passed() == {"a": 8}
    me.receive([marked("c6", marker)])
    assert me.joined == set("abc")


def silent_c(keep: str, joins: str, granted: str = "abcde") -> tuple[Subscriber, dict[str, int], dict[AtomId, int]]:
    """A subscriber that follows c for the atom with what it keeps, has joined another region, and wants c again.

    Returns it, the last sequences that it has received, and the last numbers of the atoms.
    """
    me = joined("abcde", ABC, CDE)
    last = {region: read.after or 0 for region, read in me.reads().items()}
    numbers = {atom.id: sum(last[region] for region in atom.regions) for atom in (ABC, CDE)}
    me.unsubscribe(set("abcde") - set(keep))
    assert set(me.reads()) == {"c", *keep}
    me.subscribe(joins)
    me.update(record(granted, 3, ABC, CDE, version=2))
    me.found_ends([(joins, 1, frame(f"{joins}{last[joins]}"))])
    marks = dict(me.marks())
    last[joins] += 1
    [atom] = [atom for atom in (ABC, CDE) if joins in atom.regions]
    numbers[atom.id] += 1
    me.receive([marked(f"{joins}{last[joins]}", marks[joins], f"{atom.id},{numbers[atom.id]}")])
    assert me.joined == {*keep, joins}
    me.subscribe("c")
    me.update(record(granted, 4, ABC, CDE, version=3))
    return me, last, numbers


@pytest.mark.parametrize(("keep", "joins", "orders"), [("de", "a", "b"), ("ab", "e", "d")])
def test_a_shadow_that_is_wanted_again_is_handed_out_behind_where_atoms_begin_to_order_it(
    keep: str, joins: str, orders: str
) -> None:
    me, last, numbers = silent_c(keep, joins)
    assert (me.joined, me.reads()[orders].after) == ({*keep, joins}, None)
    with_joined, with_kept = (ABC.id, CDE.id) if joins == "a" else (CDE.id, ABC.id)
    binding, free = numbers[with_kept], numbers[with_joined]
    place = last["c"]

    def c(number: int, *, others: int) -> StampedFrame:
        stamp = {with_kept: binding + 1 + others, with_joined: free + number}
        return frame(f"c{place + others}", ",".join(f"{atom},{each}" for atom, each in stamp.items()))

    me.receive([frame(f"{keep[0]}{last[keep[0]] + 1}", f"{with_kept},{binding + 1}")])
    assert names(me.receive([c(1, others=1)])) == [], "it is followed, and not handed out"
    me.found_ends([(orders, 1, frame(f"{orders}{last[orders]}"))])
    marks = dict(me.marks())
    me.receive([marked(f"{orders}{last[orders] + 1}", marks[orders], f"{with_joined},{free + 3}")])
    assert me.joined == {*keep, joins}
    me.receive([frame(f"{joins}{last[joins] + 1}", f"{with_joined},{free + 5}")])
    assert names(me.receive([c(2, others=2)])) == []
    assert names(me.receive([c(4, others=3)])) == [f"{joins}{last[joins] + 1}"], "that is how far c is by then"
    assert (me.joined, me.begin("c")) == ({*keep, joins, "c"}, (1, place + 3))
    assert names(me.receive([c(6, others=4)])) == [f"c{place + 4}"]


@pytest.mark.parametrize(("keep", "joins"), [("de", "a"), ("ab", "e")])
def test_a_shadow_is_ordered_by_atoms_that_the_plan_reckons_with_only(keep: str, joins: str) -> None:
    me, last, _ = silent_c(keep, joins, granted="".join({*keep, joins, "c"}))
    assert (me.joined, me.begin("c")) == ({*keep, joins, "c"}, (1, last["c"]))


def test_a_shadow_that_is_wanted_again_and_left_again_is_a_shadow_as_before() -> None:
    me, last, numbers = silent_c("de", "a")
    assert me.unsubscribe("c") == []
    assert (me.joined, set(me.reads())) == (set("ade"), set("acde"))
    event = frame(f"c{last['c'] + 1}", f"{CDE.id},{numbers[CDE.id] + 1},{ABC.id},{numbers[ABC.id] + 1}")
    assert names(me.receive([event])) == []
    assert "c" not in me.joined


def test_a_shadow_that_is_wanted_again_alone_needs_no_order() -> None:
    me, *_ = silent_c("de", "a")
    me.unsubscribe("ade")
    assert me.joined == {"c"}


def test_a_shadow_that_is_wanted_again_does_not_wait_for_what_is_being_joined() -> None:
    me = joined("abcde", ABC, CDE)
    me.unsubscribe("abc")
    me.subscribe("a")
    me.update(record("abcde", 3, ABC, CDE, version=2))
    me.subscribe("c")
    me.update(record("abcde", 4, ABC, CDE, version=3))
    assert me.joined == set("cde")


def test_a_shadow_that_goes_to_another_epoch_needs_all_atoms_of_the_one_that_it_is_in() -> None:
    me, *_ = silent_c("de", "a")
    me.update(record("acde", 4, ABC, CDE, epoch=2))
    assert me.joined == set("ade"), "who has all three may have them in the other order"


def test_a_shadow_that_was_not_ordered_in_its_epoch_is_joined_in_the_next() -> None:
    me, last, _ = silent_c("de", "a")
    me.update(record("abcde", 4, ABC, CDE, epoch=2))
    me.found_ends([("b", 1, tick(f"b{last['b'] + 1}"))])
    me.receive([tick(f"{region}{last[region] + 1}") for region in "acde"])
    assert me.joined == set("ade")
    me.receive([marked(f"{region}1", body, epoch=2) for region, body in me.marks()])
    assert me.joined == set("acde")


def test_a_shadow_that_is_wanted_again_before_its_epoch_begins_is_handed_out_behind_what_it_has_received() -> None:
    me = joined("abc", ABC)
    last = {region: read.after or 0 for region, read in me.reads().items()}
    me.unsubscribe("c")
    me.update(record("abc", 2, ABC, epoch=2))
    me.receive([tick(f"{region}{last[region] + 1}") for region in "bc"])
    me.subscribe("c")
    me.update(record("abc", 3, ABC, epoch=2, version=2))
    assert names(me.receive([frame("c1", "2,1", epoch=2)])) == []
    assert names(me.receive([tick(f"a{last['a'] + 1}")])) == []
    assert (me.joined, me.begin("c")) == (set("abc"), (2, 1))


def test_a_region_that_is_joined_with_an_epoch_is_delivered_before_its_marker_has_come() -> None:
    me = joined("a")
    assert (me.delivers_after("a"), me.delivers_after("b")) == (me.begin("a"), None)
    me.subscribe("b")
    assert me.delivers_after("b") is None
    me.update(record("ab", 2, AB, epoch=2))
    assert me.delivers_after("b") is None  # before the end of a's epoch nothing of the next one is
    me.receive([tick("a2", "0,2")])
    assert (me.joined, me.delivers_after("b")) == ({"a"}, (2, 0))
    assert names(me.receive([frame("b1", "1,1", epoch=2), frame("b2", "1,2", epoch=2)])) == ["b1", "b2"]
    assert (me.joined, me.delivers_after("b")) == ({"a"}, (2, 0))
    [(_, body)] = [mark for mark in me.marks() if mark[0] == "b"]
    me.receive([frame("b3", "1,3", epoch=2, meta="1 1 1 1 me", body=body)])
    assert (me.joined, me.delivers_after("b")) == ({"a", "b"}, (2, 0))


def test_what_is_joined_in_place_is_delivered_behind_its_marker_only() -> None:
    me = joined("a", AB)
    me.subscribe("b")
    me.update(record("ab", 2, AB, version=2))
    me.found_ends([("b", 1, frame("b7", "1,5"))])
    assert me.delivers_after("b") is None


def given_up(before: Record, *nodes: str, epoch: int, path: tuple[str, ...]) -> Record:
    """Return the record in which all regions go on at another node, because some were given up."""
    plan = before.plan
    fresh = replace(
        plan, epoch=epoch, version=1, nodes={**plan.nodes, path[0]: ""}, paths=dict.fromkeys(plan.paths, path)
    )
    return replace(before, plan=replace(fresh, runs={**plan.runs, **dict.fromkeys(nodes, f"{GIVEN_UP}7")}))


def test_a_stream_at_a_node_that_was_given_up_ends_where_it_was_read() -> None:
    me = joined("ab")
    assert names(me.receive([frame("a3"), frame("b3")])) == ["a3", "b3"]
    items = me.update(given_up(record("ab", 1), "n1", epoch=2, path=("n2",)))
    assert [item for item in items if isinstance(item, Missing)] == [Missing("a", 1, 4, 0), Missing("b", 1, 4, 0)]
    assert me.reads() == {"a": Read("n2", 2, 0), "b": Read("n2", 2, 0)}


def test_so_does_one_that_a_region_comes_to_afterwards() -> None:
    """It was to move to a node, which is given up before the region's end has come where it was."""
    me = joined("a")
    moved = replace(
        record("a", 1), plan=replace(record("a", 1).plan, epoch=2, nodes={"n1": "", "n2": ""}, paths={"a": ("n2",)})
    )
    me.update(moved)
    me.update(given_up(moved, "n2", epoch=3, path=("n3",)))
    assert me.reads()["a"] == Read("n1", 1, 1)
    items = me.receive([tick("a2")])
    assert Missing("a", 2, 1, 0) in items
    assert me.reads() == {"a": Read("n3", 3, 0)}


def test_what_a_node_brings_says_nothing_of_what_another_one_brings_when_that_is_given_up() -> None:
    """Frames of other nodes that may have a predecessor still wait for it."""
    me = Subscriber("me", 1)
    me.subscribe("abc")
    paths = {"a": ("n1",), "b": ("n1",), "c": ("n2",)}
    first = record("abc", 1)
    first = replace(first, plan=replace(first.plan, nodes={"n1": "", "n2": ""}, paths=paths))
    me.update(first)
    me.found_ends([(region, 1, None) for region in "abc"])
    for region, body in me.marks():
        me.receive([frame(f"{region}1", meta="1 1 1 1 me", body=body)])
    assert names(me.receive([frame("a2", "0,8")], {"a": 1})) == []
    fresh = replace(first.plan, epoch=2, version=1, nodes={"n1": "", "n2": ""}, paths={**paths, "c": ("n1",)})
    fresh = replace(fresh, epochs={"a": 1, "b": 1}, runs={"n2": f"{GIVEN_UP}7"})
    assert names(me.update(replace(first, plan=fresh))) == []
    assert names(me.receive([frame("b2", "0,7")], {"a": 1, "b": 1})) == ["b2", "a2"]
