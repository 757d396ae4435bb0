"""What the manager asks the planner for, what it takes from it, and what it leaves as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest

from placement.planner import make_plan
from sequencing.errors import PlanError
from sequencing.manager import next_record
from sequencing.membership import Membership
from sequencing.plan import Atom, AtomId, Plan
from sequencing.record import Record, Wish

NODES = {"n1": "", "n2": ""}
EMPTY = Record(Plan(1, 1, "acyclic", NODES, {}, ()))


@dataclass
class Planner:
    """Plans as usual, and remembers what it was asked for."""

    asked: list[tuple[dict[str, set[str]], set[str], int, int]] = field(default_factory=list)
    """Subscriber → regions; all regions; epoch; first atom."""

    def __call__(self, membership: Membership, epoch: int, first_atom: int) -> Plan:
        members = {name: set(regions) for name, regions in membership.regions_of.items()}
        self.asked.append((members, set(membership.regions), epoch, first_atom))
        return make_plan(membership, NODES, epoch=epoch, first_atom=first_atom)


def wish(regions: str, said: int = 1) -> Wish:
    return Wish(1, said, dict.fromkeys(regions, said))


def changed(
    record: Record, wishes: dict[str, Wish], planner: Callable[..., Plan], published: Iterable[str] = (), **more: object
) -> Record:
    following = next_record(record, wishes, published, planner, **more)  # type: ignore[arg-type]
    assert following is not None
    return following.settled()


def test_only_what_hangs_together_with_what_is_joined_is_planned_anew_with_ids_never_used() -> None:
    planner = Planner()
    wishes = {"s1": wish("ab"), "s2": wish("ab"), "s3": wish("cd"), "s4": wish("cd")}
    first = changed(EMPTY, wishes, planner)
    assert (first.plan.epoch, first.next_atom, sorted(atom.id for atom in first.plan.atoms)) == (2, 3, [1, 2])
    wishes |= {"s5": wish("be"), "s6": wish("be")}
    second = changed(first, wishes, planner, "f")
    everybody = {"s1": set("ab"), "s2": set("ab"), "s3": set("cd"), "s4": set("cd")}
    around_b = {"s1": set("ab"), "s2": set("ab"), "s5": set("be"), "s6": set("be")}
    assert planner.asked == [(everybody, set("abcd"), 2, 1), (around_b, set("abe"), 3, 3)]
    assert second.next_atom == 5
    assert second.plan.version == 1


def test_a_region_without_atoms_uses_up_no_id() -> None:
    planner = Planner()
    lossy = replace(EMPTY.plan, paths={"a": ("n1",)}, runs={"n1": "one"})
    moved = changed(replace(EMPTY, plan=lossy, next_atom=7), {}, planner, runs={"n1": "two"})
    assert (moved.plan.epoch, moved.next_atom, planner.asked) == (2, 7, [({}, {"a"}, 2, 7)])


def test_a_subscriber_alone_ties_nothing_together_and_two_tie_what_they_share() -> None:
    wishes = {"s1": wish("ab"), "s2": wish("ab"), "s3": wish("bc"), "s4": wish("de")}
    record = changed(EMPTY, wishes, Planner())
    planner = Planner()
    joined = changed(record, {**wishes, "s5": wish("cf"), "s6": wish("cf")}, planner)
    assert planner.asked[0][1] == {"c", "f"}, "s3 alone has b and c: nobody can see an order of them"
    assert {region: joined.plan.epoch_of(region) for region in "abcdef"} == {
        **dict.fromkeys("abde", 2),
        **dict.fromkeys("cf", 3),
    }
    ring = changed(record, {**wishes, "s5": wish("ac"), "s6": wish("de")}, Planner())
    assert {region: ring.plan.epoch_of(region) for region in "abcde"} == dict.fromkeys("abcde", 3)
    three = {**wishes, "s6": wish("ab"), "s7": wish("ab")}
    other = changed(record, {**three, "s8": wish("ag"), "s9": wish("ag")}, planner := Planner())
    assert planner.asked[0][1] == {"a", "b", "g"}
    assert other.plan.epoch_of("c") == 2


def test_a_plan_that_does_not_order_what_it_was_asked_to_is_refused() -> None:
    def careless(membership: Membership, epoch: int, first_atom: int) -> Plan:
        return replace(make_plan(membership, NODES, epoch=epoch, first_atom=first_atom), atoms=())

    with pytest.raises(PlanError):
        next_record(EMPTY, {"s1": wish("ab"), "s2": wish("ab")}, (), careless)


def test_who_wants_nothing_any_more_is_reckoned_with_no_longer_once_an_epoch_begins() -> None:
    wishes = {"s1": wish("ab"), "s2": wish("ab")}
    record = changed(EMPTY, wishes, Planner())
    after = changed(record, {"s1": wish("ab"), "s3": wish("ac"), "s4": wish("ac")}, planner := Planner())
    assert after.members == {"s1": set("ab"), "s3": set("ac"), "s4": set("ac")}
    assert "s2" not in planner.asked[0][0]
    stays = changed(record, {"s3": wish("de"), "s4": wish("de")}, Planner())
    assert stays.members["s2"] == set("ab"), "within an epoch it may come back"


def test_regions_get_their_places_in_an_order_that_does_not_depend_on_chance() -> None:
    names = [f"region {number}" for number in range(40)]
    record = changed(EMPTY, {}, Planner(), names)
    paths = [record.plan.paths[name] for name in sorted(names)]
    assert paths == [("n1",), ("n2",)] * 20


def test_who_has_all_that_it_wants_is_heard_without_a_look_at_what_is_ordered() -> None:
    atoms = (Atom(AtomId(1), ("a", "b"), "n1"),)
    paths = {"a": ("n1",), "b": ("n1",), "c": ("n1",), "d": ("n1",)}
    members = {"s1": frozenset("ab"), "s2": frozenset("ab"), "s3": frozenset("cd"), "s4": frozenset("cd")}
    record = Record(Plan(2, 1, "acyclic", NODES, paths, atoms), members, next_atom=2)
    again = changed(record, {"s1": Wish(9, 1, {"a": 1, "b": 1})}, planner := Planner())
    assert (again.plan.epoch, again.plan.version, planner.asked) == (2, 2, [])


LINE = frozenset({("a", "b"), ("b", "c")})


def test_where_overlaps_are_expected_each_subscriber_is_reckoned_with_twice_and_only_pairs_inside_are_asked_for() -> (
    None
):
    planner = Planner()
    record = changed(EMPTY, {"s": wish("d")}, planner, expected=LINE)
    assert record.expected == LINE
    assert sorted("".join(sorted(mine)) for mine in planner.asked[-1][0].values()) == ["ab", "ab", "bc", "bc", "d", "d"]
    more = changed(record, {"s": wish("d")}, planner, expected=LINE | {("x", "y")})
    assert more.expected == LINE | {("x", "y")}
    members, regions, epoch, _ = planner.asked[-1]
    assert (sorted(map(sorted, members.values())), regions, epoch) == ([["x", "y"], ["x", "y"]], {"x", "y"}, 3)
    both = changed(more, {"s": wish("d"), "t": wish("ab")}, planner)
    assert (both.plan.epoch, both.plan.version) == (3, 2)


def test_nobody_is_let_go_of_where_no_overlaps_are_expected() -> None:
    wishes = {"s1": wish("ab"), "s2": wish("ab"), "s3": wish("bc"), "s4": wish("bc")}
    record = changed(EMPTY, wishes, Planner())
    walked = next_record(record, {**wishes, "s1": Wish(1, 2, {"b": 1, "c": 2})}, (), Planner())
    assert walked is not None
    assert walked.leaving == {}


def test_of_several_that_move_at_once_each_must_find_its_regions_ordered() -> None:
    record = changed(EMPTY, {"s1": wish("ab"), "s2": wish("c")}, Planner(), expected=LINE)
    wishes = {"s1": wish("ab", 2), "s2": Wish(1, 2, {"a": 2, "c": 1})}
    assert changed(record, wishes, Planner()).plan.epoch == 3


def test_what_a_join_ties_to_others_begins_anew_with_them_though_no_atom_tied_them_before() -> None:
    for others in ({}, {"s3": wish("a")}, {"s3": wish("ab")}, {"s3": wish("x"), "s4": wish("yz")}):
        wishes = {"s1": wish("ab"), "s2": wish("a"), **others}
        record = changed(EMPTY, wishes, Planner())
        joined = changed(record, {**wishes, "s2": Wish(1, 2, {"a": 1, "b": 2})}, Planner())
        tied = {frozenset(atom.regions) for atom in joined.plan.atoms}
        assert frozenset("ab") in tied, others
        assert joined.plan.epoch_of("a") == joined.plan.epoch_of("b")


def test_three_twins_of_three_subscribers_are_tied_whichever_of_them_is_joined() -> None:
    wishes = {"s1": wish("abc"), "s2": wish("a"), "s3": wish("c")}
    record = changed(EMPTY, wishes, Planner())
    everything = {"s2": Wish(1, 2, {"a": 1, "b": 2, "c": 2}), "s3": Wish(1, 2, {"c": 1, "a": 2, "b": 2})}
    joined = changed(record, {**wishes, **everything}, planner := Planner())
    assert planner.asked[0][1] == set("abc")
    assert {joined.plan.epoch_of(region) for region in "abc"} == {joined.plan.epoch}


def test_what_several_come_to_have_in_common_is_tied_also_where_only_one_of_the_regions_is_joined() -> None:
    wishes = {"s0": wish("a"), "s1": wish("pq"), "s2": wish("q"), "s3": wish("q")}
    record = changed(EMPTY, wishes, Planner())
    both = Wish(1, 2, {"q": 1, "p": 2})
    joined = changed(record, {**wishes, "s2": both, "s3": both}, planner := Planner())
    assert planner.asked[0][1] == set("pq")
    assert [atom.regions for atom in joined.plan.atoms] == [("p", "q")]


def test_what_a_single_subscriber_has_besides_what_a_node_lost_goes_on() -> None:
    wishes = {"s": wish("ab")}
    plan = replace(EMPTY.plan, paths={"a": ("n1",), "b": ("n2",)}, runs={"n2": "one"})
    record = Record(plan, {"s": frozenset("ab")}, wishes)
    following = changed(record, wishes, planner := Planner(), runs={"n2": "two"})
    assert planner.asked[0][1] == {"b"}
    assert {region: following.plan.epoch_of(region) for region in "ab"} == {"a": 1, "b": 2}


def test_nothing_is_decided_while_a_transition_is_under_way_and_no_node_is_lost() -> None:
    record = next_record(EMPTY, {"s1": wish("ab"), "s2": wish("ab")}, (), Planner())
    assert record is not None
    assert next_record(record, {"s3": wish("abc")}, "z", Planner(), expected=LINE) is None


def test_overlaps_are_declared_also_where_all_of_their_regions_have_places() -> None:
    record = changed(EMPTY, {}, Planner(), "abc")
    declared = changed(record, {}, Planner(), expected=LINE)
    assert {tuple(sorted(atom.regions)) for atom in declared.plan.atoms} == LINE
    assert next_record(declared, {}, (), Planner(), expected=LINE) is None


def test_who_alone_has_two_regions_ties_them_where_overlaps_are_expected_and_only_there() -> None:
    wishes = {"s": wish("d")}
    alone = changed(changed(EMPTY, wishes, Planner(), "e"), {"s": Wish(1, 2, {"d": 1, "e": 2})}, Planner())
    assert (alone.plan.epoch_of("d"), alone.plan.epoch_of("e"), alone.plan.atoms) == (1, 1, ())
    record = changed(EMPTY, wishes, Planner(), "e", expected=LINE)
    joined = changed(record, {"s": Wish(1, 2, {"d": 1, "e": 2})}, Planner())
    assert (joined.plan.epoch_of("d"), joined.plan.epoch_of("e"), joined.plan.epoch_of("a")) == (3, 3, 2)
