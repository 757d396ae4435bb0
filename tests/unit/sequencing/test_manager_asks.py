"""What the manager asks the planner for, what it takes from it, and what it leaves as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from placement.planner import make_plan
from sequencing.changes import are_usable
from sequencing.conditions import can_follow_all
from sequencing.errors import PlanError
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import GIVEN_UP, Atom, AtomId, Ordering, Plan
from sequencing.record import Interest, Record

NODES = {"n1": "", "n2": ""}
EMPTY = Record(Plan(1, 1, "acyclic", NODES, {}, ()))
BY_OVERLAP = Record(Plan(1, 1, "overlap", NODES, {}, ()))


@dataclass
class Planner:
    """Plans as usual, and remembers what it was asked for."""

    ordering: Ordering = "acyclic"
    asked: list[tuple[dict[str, set[str]], set[str], int, int]] = field(default_factory=list)
    """Subscriber → regions; all regions; epoch; first atom."""

    def __call__(self, membership: Membership, epoch: int, first_atom: int) -> Plan:
        members = {name: set(regions) for name, regions in membership.regions_of.items()}
        self.asked.append((members, set(membership.regions), epoch, first_atom))
        return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom, ordering=self.ordering)


def interest(regions: str, said: int = 1) -> Interest:
    return Interest(1, said, dict.fromkeys(regions, said))


def changed(
    record: Record,
    interests: dict[str, Interest],
    planner: Callable[..., Plan],
    published: Iterable[str] = (),
    **more: object,
) -> Record:
    following = next_record(record, interests, published, planner, **more)  # type: ignore[arg-type]
    assert following is not None
    return following.settled()


def test_only_what_hangs_together_with_what_is_joined_is_planned_anew_with_ids_never_used() -> None:
    planner = Planner()
    pairs = {f"{who}{pair}": pair for pair in ("ab", "cd", "de", "ef", "fg") for who in "st"}
    interests = {name: interest(regions) for name, regions in pairs.items()}
    first = changed(EMPTY, interests, planner, "h")
    assert (first.plan.epoch, first.next_atom, sorted(atom.id for atom in first.plan.atoms)) == (2, 2, [1])
    interests |= {"sbh": interest("bh"), "tbh": interest("bh")}
    second = changed(first, interests, planner, "i")
    everybody = {name: set(regions) for name, regions in pairs.items()}
    around_b = {"sab": set("ab"), "tab": set("ab"), "sbh": set("bh"), "tbh": set("bh")}
    assert planner.asked == [(everybody, set("abcdefg"), 2, 1), (around_b, set("abh"), 3, 2)]
    assert (second.next_atom, sorted(atom.id for atom in second.plan.atoms)) == (3, [1, 2])
    assert second.plan.version == 1


def test_a_region_without_atoms_uses_up_no_id() -> None:
    planner = Planner()
    lossy = replace(EMPTY.plan, paths={"a": ("n1",)}, runs={"n1": "one"})
    moved = changed(replace(EMPTY, plan=lossy, next_atom=7), {}, planner, runs={"n1": "two"})
    assert (moved.plan.epoch, moved.next_atom, planner.asked) == (2, 7, [({}, {"a"}, 2, 7)])


def test_each_subscriber_ties_what_it_has() -> None:
    interests = {"s1": interest("ab"), "s2": interest("ab"), "s3": interest("bc"), "s4": interest("de")}
    record = changed(EMPTY, interests, Planner(), "fg")
    planner = Planner()
    joined = changed(record, {**interests, "s5": interest("cf"), "s6": interest("cf")}, planner)
    assert planner.asked[0][1] == set("abcf"), "s3 alone has b and c: who replays them is to see what it saw"
    assert {region: joined.plan.epoch_of(region) for region in "abcdef"} == {
        **dict.fromkeys("de", 2),
        **dict.fromkeys("abcf", 3),
    }
    three = {**interests, "s6": interest("ab"), "s7": interest("ab")}
    other = changed(record, {**three, "s8": interest("ag"), "s9": interest("ag")}, planner := Planner())
    assert planner.asked[0][1] == set("abcg")
    assert other.plan.epoch_of("d") == 2


def test_where_only_double_overlaps_are_ordered_a_subscriber_alone_ties_nothing_together() -> None:
    interests = {"s1": interest("ab"), "s2": interest("ab"), "s3": interest("bc")}
    record = changed(BY_OVERLAP, interests, Planner("overlap"), "f")
    planner = Planner("overlap")
    changed(record, {**interests, "s5": interest("cf"), "s6": interest("cf")}, planner)
    assert planner.asked[0][1] == {"c", "f"}


def test_a_plan_that_does_not_order_what_it_was_asked_to_is_refused() -> None:
    def careless(membership: Membership, epoch: int, first_atom: int) -> Plan:
        made = make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)
        return replace(made, paths={"a": ("n1",), "b": ("n1", "n2")})

    with pytest.raises(PlanError):
        next_record(EMPTY, {"s1": interest("ab"), "s2": interest("ab")}, (), careless)


def test_who_wants_nothing_any_more_is_reckoned_with_no_longer_once_an_epoch_begins() -> None:
    interests = {"s1": interest("ab"), "s2": interest("ab")}
    record = changed(EMPTY, interests, Planner(), "c")
    after = changed(record, {"s1": interest("ab"), "s3": interest("ac"), "s4": interest("ac")}, planner := Planner())
    assert after.members == {"s1": set("ab"), "s3": set("ac"), "s4": set("ac")}
    assert "s2" not in planner.asked[0][0]
    linked = replace(record, plan=replace(record.plan, paths={**record.plan.paths, "z": ("n1", "n2")}))
    stays = changed(linked, {"s3": interest("de"), "s4": interest("de")}, Planner())
    assert stays.members["s2"] == set("ab"), "what it has delivered may be before what is under way on a link"


def test_a_subscriber_that_has_gone_is_let_go_of_in_place_where_no_link_carries_anything() -> None:
    record = changed(EMPTY, {"s1": interest("ab"), "s2": interest("ab")}, Planner())
    kept = changed(record, {"s3": interest("de"), "s4": interest("de")}, Planner(), away={"s2": frozenset("ab")})
    assert kept.members.keys() == {"s2", "s3", "s4"}, "it may come back for a while"
    for number in range(100):
        record = changed(record, {"s1": interest("ab"), f"guest-{number}": interest("a")}, Planner())
        assert record.members.keys() == {"s1", f"guest-{number}"}


def test_regions_get_their_places_in_an_order_that_does_not_depend_on_chance() -> None:
    names = [f"region {number}" for number in range(40)]
    record = changed(EMPTY, {}, Planner(), names)
    paths = [record.plan.paths[name] for name in sorted(names)]
    assert paths == [("n1",), ("n2",)] * 20


def test_who_has_all_that_it_wants_is_heard_without_a_look_at_what_is_ordered() -> None:
    atoms = (Atom(AtomId(1), ("a", "b"), "n1"),)
    paths = {"a": ("n1",), "b": ("n1",), "c": ("n1",), "d": ("n2",)}
    members = {"s1": frozenset("ab"), "s2": frozenset("ab"), "s3": frozenset("cd"), "s4": frozenset("cd")}
    record = Record(Plan(2, 1, "acyclic", NODES, paths, atoms), members, next_atom=2)
    again = changed(record, {"s1": Interest(9, 1, {"a": 1, "b": 1})}, planner := Planner())
    assert (again.plan.epoch, again.plan.version, planner.asked) == (2, 2, [])


LINE = frozenset({("a", "b"), ("b", "c")})


def test_who_may_come_back_is_reckoned_with_as_if_it_were_there() -> None:
    interests = {"s1": interest("ab"), "s2": interest("ab")}
    record = changed(EMPTY, interests, Planner(), "c")
    without_s2 = {"s1": interest("ab"), "s3": interest("ac"), "s4": interest("ac")}
    after = changed(record, without_s2, planner := Planner(), away={"s2": frozenset("ab")})
    assert after.members["s2"] == set("ab")
    assert planner.asked[0][0]["s2"] == set("ab")


def test_nobody_joins_a_region_in_an_earlier_epoch_than_it_has_had_something_of() -> None:
    record = Record(Plan(5, 1, "acyclic", NODES, {"a": ("n1",), "b": ("n1",)}, (), epochs={"a": 3}))
    begun = {}
    for floor in (0, 3, 4, 5):
        following = changed(record, {"s": Interest(1, 1, {"a": 1}, floor)}, Planner())
        begun[floor] = following.plan.epoch_of("a"), following.plan.epoch_of("b")
    assert begun == {0: (3, 5), 3: (3, 5), 4: (6, 5), 5: (6, 5)}


def test_where_overlaps_are_expected_only_pairs_inside_are_asked_for() -> None:
    planner = Planner()
    record = changed(EMPTY, {"s": interest("d")}, planner, expected=LINE)
    assert record.expected == LINE
    assert sorted("".join(sorted(mine)) for mine in planner.asked[-1][0].values()) == ["ab", "bc", "d"]
    more = changed(record, {"s": interest("d")}, planner, expected=LINE | {("x", "y")})
    assert more.expected == LINE | {("x", "y")}
    members, regions, epoch, _ = planner.asked[-1]
    assert (sorted(map(sorted, members.values())), regions, epoch) == ([["x", "y"]], {"x", "y"}, 3)
    both = changed(more, {"s": interest("d"), "t": interest("ab")}, planner)
    assert (both.plan.epoch, both.plan.version) == (3, 2)


@pytest.mark.parametrize("empty", [EMPTY, BY_OVERLAP], ids=["acyclic", "overlap"])
def test_who_walks_is_let_go_of_unless_double_overlaps_alone_are_ordered_and_none_is_expected(empty: Record) -> None:
    ordering = empty.plan.ordering
    interests = {"s1": interest("ab"), "s2": interest("ab"), "s3": interest("bc"), "s4": interest("bc")}
    record = changed(empty, interests, Planner(ordering))
    walked = next_record(record, {**interests, "s1": Interest(1, 2, {"b": 1, "c": 2})}, (), Planner(ordering))
    assert walked is not None
    assert walked.leaving == ({} if ordering == "overlap" else {"s1": {"a"}})


def test_of_several_that_move_at_once_each_must_find_its_regions_ordered() -> None:
    record = changed(EMPTY, {"s1": interest("ab"), "s2": interest("c")}, Planner(), expected=LINE)
    interests = {"s1": interest("ab", 2), "s2": Interest(1, 2, {"a": 2, "c": 1})}
    assert changed(record, interests, Planner()).plan.epoch == 3


def test_what_a_join_ties_to_others_begins_anew_with_them_unless_they_are_ordered_already() -> None:
    begun = []
    for others in ({}, {"s3": interest("a")}, {"s3": interest("ab")}, {"s3": interest("x")}):
        interests = {"s1": interest("b"), "s2": interest("a"), **others}
        record = changed(EMPTY, interests, Planner())
        joined = changed(record, {**interests, "s2": Interest(1, 2, {"a": 1, "b": 2})}, Planner())
        assert can_follow_all(joined.plan, frozenset("ab")), others
        assert joined.plan.epoch_of("a") == joined.plan.epoch_of("b")
        begun.append(joined.plan.epoch > record.plan.epoch)
        assert begun[-1] != can_follow_all(record.plan, frozenset("ab"))
    assert begun == [True, True, False, True]


def test_three_twins_of_three_subscribers_are_tied_whichever_of_them_is_joined() -> None:
    interests = {"s1": interest("b"), "s2": interest("a"), "s3": interest("c")}
    record = changed(EMPTY, interests, Planner())
    everything = {"s2": Interest(1, 2, {"a": 1, "b": 2, "c": 2}), "s3": Interest(1, 2, {"c": 1, "a": 2, "b": 2})}
    joined = changed(record, {**interests, **everything}, planner := Planner())
    assert planner.asked[0][1] == set("abc")
    assert {joined.plan.epoch_of(region) for region in "abc"} == {joined.plan.epoch}


def test_what_several_come_to_have_in_common_is_tied_also_where_only_one_of_the_regions_is_joined() -> None:
    interests = {"s0": interest("a"), "s1": interest("p"), "s2": interest("q"), "s3": interest("q")}
    record = changed(EMPTY, interests, Planner())
    both = Interest(1, 2, {"q": 1, "p": 2})
    joined = changed(record, {**interests, "s2": both, "s3": both}, planner := Planner())
    assert planner.asked[0][1] == set("pq")
    assert not can_follow_all(record.plan, frozenset("pq"))
    assert can_follow_all(joined.plan, frozenset("pq"))


def test_what_nobody_has_beside_what_a_node_lost_goes_on() -> None:
    interests = {"s": interest("a"), "t": interest("b")}
    plan = replace(EMPTY.plan, paths={"a": ("n1",), "b": ("n2",)}, runs={"n2": "one"})
    record = Record(plan, {"s": frozenset("a"), "t": frozenset("b")}, interests)
    following = changed(record, interests, planner := Planner(), runs={"n2": "two"})
    assert planner.asked[0][1] == {"b"}
    assert {region: following.plan.epoch_of(region) for region in "ab"} == {"a": 1, "b": 2}


def test_nothing_is_decided_while_a_transition_is_under_way_and_no_node_is_lost() -> None:
    record = next_record(EMPTY, {"s1": interest("ab"), "s2": interest("ab")}, (), Planner())
    assert record is not None
    assert next_record(record, {"s3": interest("abc")}, "z", Planner(), expected=LINE) is None


def test_overlaps_are_declared_also_where_all_of_their_regions_have_places() -> None:
    record = changed(EMPTY, {}, Planner(), "abc")
    declared = changed(record, {}, Planner(), expected=LINE)
    assert not all(can_follow_all(record.plan, frozenset(pair)) for pair in LINE)
    assert all(can_follow_all(declared.plan, frozenset(pair)) for pair in LINE)
    ends = declared.plan.egresses
    assert {tuple(sorted(atom.regions)) for atom in declared.plan.atoms} == {
        (a, b) for a, b in LINE if ends[a] != ends[b]
    }
    assert next_record(declared, {}, (), Planner(), expected=LINE) is None


def test_by_overlap_who_alone_has_two_regions_ties_them_where_overlaps_are_expected_and_only_there() -> None:
    interests, planner = {"s": interest("d")}, Planner("overlap")
    alone = changed(changed(BY_OVERLAP, interests, planner, "e"), {"s": Interest(1, 2, {"d": 1, "e": 2})}, planner)
    assert (alone.plan.epoch_of("d"), alone.plan.epoch_of("e"), alone.plan.atoms) == (1, 1, ())
    record = changed(BY_OVERLAP, interests, planner, "e", expected=LINE)
    joined = changed(record, {"s": Interest(1, 2, {"d": 1, "e": 2})}, planner)
    assert (joined.plan.epoch_of("d"), joined.plan.epoch_of("e"), joined.plan.epoch_of("a")) == (3, 3, 2)


def test_a_node_that_was_given_up_is_back_in_another_run_only() -> None:
    """In the same one, those who have not heard of it would go on there; one that is not known may be the same."""
    placed = next_record(EMPTY, {"s": interest("a")}, (), Planner(), announced=True)
    assert placed is not None
    [node] = placed.plan.paths["a"]
    other = next(name for name in NODES if name != node)
    settled = placed.settled()

    def over_other(membership: Membership, epoch: int, first_atom: int) -> Plan:
        return make_plan(membership, {other: ""}, epoch=epoch, first_atom=first_atom, ordering="acyclic")

    gone = next_record(settled, settled.heard, (), over_other, nodes={other: ""}, runs={node: f"{GIVEN_UP}7"})
    assert gone is not None
    assert (gone.plan.paths["a"], gone.plan.given_up) == ((other,), frozenset({node}))
    gone = gone.settled()
    assert next_record(gone, gone.heard, (), Planner(), runs={node: "7"}) is None
    back = next_record(gone, gone.heard, (), Planner(), runs={node: "8"})
    assert back is not None
    assert (back.plan.runs[node], back.plan.given_up) == ("8", frozenset())
    unknown = replace(gone, plan=replace(gone.plan, runs={node: GIVEN_UP}))
    found = next_record(unknown, unknown.heard, (), Planner(), runs={node: "8"})
    assert found is not None
    assert found.plan.runs[node] == f"{GIVEN_UP}8"
    assert are_usable(found.plan, NODES, {node: "8", other: "1"}) == {other: ""}
    assert are_usable(gone.plan, NODES, {node: "7"}) == {other: ""}
