"""Events of several regions: one frame in the outboxes of all, accepted in all or in none."""

from __future__ import annotations

import pytest

from sequencing.errors import NotTogether, PublishUncertain, Unreachable
from sequencing.everywhere import everywhere
from sequencing.frames import FrameKind, JointPart, LinkedFrame, PublishedFrame, joint_parts, own_number, parse_meta
from sequencing.joint import set_name
from sequencing.keyed import KEYS_MAX, RESERVED_KEYS, Condition, Extras, Full, Named, Part
from sequencing.keyspace import link_words, linked_of
from sequencing.node import Answer, Node, Verdict
from sequencing.plan import Atom, AtomId, Ordering, Plan, Step
from sequencing.publisher import Publisher
from sequencing.steps import StepState

OK = Verdict.OK
AB = set_name("ab")


def assigned(*, sole: bool = True, ordering: Ordering = "acyclic") -> Publisher[str]:
    publisher: Publisher[str] = Publisher("p", 1)
    paths = everywhere("n1") if sole else {"a": ("n1",), "b": ("n1",), "c": ("n1",)}
    publisher.assign(Plan(1, 1, ordering, {"n1": ""}, paths, (), sole="n1" if sole else ""))
    return publisher


def on_two(epoch: int, *sets: str, ordering: Ordering = "acyclic", **nodes: str) -> Plan:
    """Return a plan on two nodes: region → where it is."""
    paths = {region: (node,) for region, node in nodes.items()}
    return Plan(epoch, 1, ordering, {"n1": "", "n2": ""}, paths, (), joint=frozenset(sets))


def add(publisher: Publisher[str], event: str) -> str | None:
    """Add an event like ``ab1``: the letters are its regions."""
    regions = tuple(event.rstrip("0123456789"))
    if len(regions) == 1:
        return publisher.add(regions[0], b"1", False, 0, event)
    return publisher.add_joint(regions, b"1", False, 0, event)


def places(frame: PublishedFrame) -> list[tuple[str, int]]:
    return [(part.region, part.first) for part in frame.parts]


def test_a_joint_frame_goes_when_it_is_the_next_in_all_of_its_regions() -> None:
    publisher = assigned()
    for event in ("a1", "ab2", "b3", "bc4"):
        assert add(publisher, event) == "n1"
    sent = [places(frame) for frame in publisher.take("n1")]
    assert sent == [[("a", 1)]]
    publisher.answered("n1", [Answer(OK, (1, 1))])
    [joint] = publisher.take("n1")
    assert places(joint) == [("a", 2), ("b", 1)]
    [resolved] = publisher.answered("n1", [Answer(OK, (1, 2, 5))])
    assert (resolved.tokens, resolved.first_sequence, list(resolved.also)) == (["ab2"], 2, [("b", 5)])
    assert [places(frame) for frame in publisher.take("n1")] == [[("b", 2)]]
    publisher.answered("n1", [Answer(OK, (1, 6))])
    assert [places(frame) for frame in publisher.take("n1")] == [[("b", 3), ("c", 1)]]
    publisher.answered("n1", [Answer(OK, (1, 7, 1))])
    assert not publisher.buffered.events


def test_joint_events_share_a_frame_while_nothing_else_comes_between() -> None:
    publisher = assigned()
    for event in ("c0", "ab1", "ab2", "b3", "ab4"):
        add(publisher, event)
    [_, joint] = publisher.take("n1")
    assert (joint.count, places(joint)) == (2, [("a", 1), ("b", 1)])
    publisher.answered("n1", [Answer(OK, (1, 1)), Answer(OK, (1, 2, 2))])
    [plain] = publisher.take("n1")
    assert (plain.region, plain.first) == ("b", 3)
    publisher.answered("n1", [Answer(OK, (1, 3))])
    assert [places(frame) for frame in publisher.take("n1")] == [[("a", 3), ("b", 4)]]


def test_what_becomes_of_it_becomes_of_it_in_all_regions() -> None:
    publisher = assigned()
    add(publisher, "ab1")
    add(publisher, "a2")
    add(publisher, "b3")
    publisher.take("n1")
    publisher.unanswered("n1")
    lost, gone = PublishUncertain(), Unreachable()
    failed = publisher.give_up("n1", under_way=lost, waiting=gone)
    assert [(list(each.tokens), each.error) for each in failed] == [(["ab1"], lost), (["a2"], gone), (["b3"], gone)]
    assert publisher.doubtful() == ["a", "b"]
    assert publisher.buffered.events == publisher.buffered.bytes == 0
    publisher.renew(["a"], 5)
    add(publisher, "ab4")
    assert publisher.take("n1") == []
    publisher.renew(["b"], 6)
    [frame] = publisher.take("n1")
    assert (frame.incarnation, places(frame)) == (6, [("a", 2), ("b", 2)])
    add(publisher, "a5")
    publisher.answered("n1", [Answer(OK, (1, 1, 1))])
    assert [(frame.incarnation, frame.first) for frame in publisher.take("n1")] == [(6, 3)]


def test_a_refused_frame_goes_out_again_and_is_given_up_where_its_regions_have_parted() -> None:
    publisher = assigned(sole=False, ordering="overlap")
    add(publisher, "ab1")
    publisher.take("n1")
    assert publisher.answered("n1", [Answer(Verdict.WAIT, (1,))]) == []
    [again] = publisher.take("n1")
    publisher.assign(on_two(2, ordering="overlap", a="n1", b="n2"))
    [parted] = publisher.answered("n1", [Answer(Verdict.STALE, (2,))])
    assert isinstance(parted.error, NotTogether)
    assert not publisher.doubtful()
    assert (publisher.take("n1"), publisher.buffered.events) == ([], 0)
    with pytest.raises(NotTogether):
        add(publisher, "ab2")
    assert places(again) == [("a", 1), ("b", 1)]


def test_what_waits_for_regions_that_part_is_given_up_and_what_may_have_been_accepted_is_uncertain() -> None:
    publisher = assigned(sole=False, ordering="overlap")
    add(publisher, "ab1")
    add(publisher, "ab2")
    publisher.take("n1")
    publisher.unanswered("n1")
    add(publisher, "bc3")
    assert publisher.answered("n1", [Answer(Verdict.STALE, (1,))]) == []
    parted = on_two(2, ordering="overlap", a="n1", b="n2", c="n2")
    publisher.assign(parted)
    fates = {token: each.error for each in publisher.abandoned() for token in each.tokens}
    assert {token: type(error) for token, error in fates.items()} == {
        "ab1": PublishUncertain,
        "ab2": NotTogether if len(parted.nodes) == 1 else PublishUncertain,
        "bc3": NotTogether,
    }
    assert publisher.doubtful() == ["a", "b"]


def test_regions_without_a_place_are_waited_for() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    assert add(publisher, "ab1") is None
    assert publisher.unassigned() == ["a", "b", AB]
    publisher.assign(Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, ()))
    assert publisher.take("n1") == []
    publisher.assign(Plan(1, 2, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, ()))
    assert [places(frame) for frame in publisher.take("n1")] == [[("a", 1), ("b", 1)]]


def test_on_several_nodes_it_waits_for_a_plan_with_the_set() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(on_two(1, a="n1", b="n2"))
    assert add(publisher, "ab1") is None
    add(publisher, "a2")
    assert publisher.take("n1") == publisher.take("n2") == []
    assert publisher.unassigned() == [AB]
    publisher.assign(on_two(2, a="n1", b="n1"))
    assert (publisher.take("n1"), publisher.unassigned()) == ([], [AB])
    publisher.assign(on_two(3, AB, a="n2", b="n2"))
    assert (publisher.woken(), publisher.unassigned()) == ({"n2"}, [])
    assert [places(frame) for frame in publisher.take("n2")] == [[("a", 1), ("b", 1)]]
    publisher.answered("n2", [Answer(OK, (3, 1, 1))])
    assert [places(frame) for frame in publisher.take("n2")] == [[("a", 2)]]


def test_what_is_refused_while_another_node_comes_waits_for_a_plan_with_the_set() -> None:
    publisher = assigned(sole=False)
    add(publisher, "ab1")
    [sent] = publisher.take("n1")
    publisher.assign(on_two(2, a="n1", b="n2"))
    assert publisher.answered("n1", [Answer(Verdict.STALE, (2,))]) == []
    assert (publisher.take("n1"), publisher.unassigned()) == ([], [AB])
    publisher.assign(on_two(3, AB, a="n2", b="n2"))
    [again] = publisher.take("n2")
    assert (again.epoch, again.body, places(again)) == (3, sent.body, places(sent))


def test_what_was_ready_on_one_node_waits_when_there_is_another() -> None:
    publisher = assigned(sole=False)
    add(publisher, "ab1")
    publisher.assign(on_two(2, a="n1", b="n1"))
    assert (publisher.waiting_events("n1"), publisher.take("n1"), bool(publisher.under_way("n1"))) == (0, [], False)
    publisher.assign(on_two(2, AB, a="n1", b="n1"))
    assert [places(frame) for frame in publisher.take("n1")] == [[("a", 1), ("b", 1)]]


def test_a_set_that_no_plan_has_in_time_is_given_up_and_its_regions_go_on() -> None:
    publisher: Publisher[str] = Publisher("p", 1)
    publisher.assign(on_two(1, a="n1", b="n2"))
    for event in ("ab1", "a2", "bc3"):
        add(publisher, event)
    lost, gone = PublishUncertain(), Unreachable()
    [failed] = publisher.failed([AB], under_way=lost, waiting=gone)
    assert (list(failed.tokens), failed.error) == (["ab1"], gone)
    assert [places(frame) for frame in publisher.take("n1")] == [[("a", 1)]]
    assert publisher.unassigned() == ["c", set_name("bc")]
    # One that was refused, and whose answer was lost before, may have been accepted.
    publisher = assigned(sole=False)
    add(publisher, "ab1")
    publisher.take("n1")
    publisher.unanswered("n1")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.STALE, (1,))])
    publisher.assign(on_two(2, a="n1", b="n2"))
    [failed] = publisher.failed([AB], under_way=lost, waiting=gone)
    assert (failed.error, publisher.doubtful()) == (lost, ["a", "b"])


def joint(first: int = 1, other: int = 1, *, incarnation: int = 1, extras: Extras | None = None) -> PublishedFrame:
    extras = extras or Extras(also=(Part("b", other),))
    return PublishedFrame("a", 1, "p", incarnation, first, 1, b"x", FrameKind.JOINT, extras)


def node(*nexts: str | None, atoms: tuple[int, ...] = ()) -> Node:
    machine = Node("n1")
    numbered = tuple(AtomId(atom) for atom in atoms)
    steps = [Step(region, 1, True, following, numbered) for region, following in zip("abc", nexts, strict=False)]
    machine.install(1, 1, steps)
    return machine


def test_a_node_accepts_it_in_all_regions_or_in_none() -> None:
    machine = node(None, None)
    assert machine.publish([joint()]) == [Answer(OK, (1, 1, 1))]
    assert machine.publish([joint()]) == [Answer(Verdict.SEEN, (1, 1, 1))]
    assert machine.publish([joint(2, 1)]) == [Answer(Verdict.PAST, (1,))]
    assert machine.publish([joint(2, 3)]) == [Answer(Verdict.GAP, (1,))]
    unmet = Extras((Named(0, "k", False),), (Condition("k", None, 0), Condition("k", (1, 9), 1)), (Part("b", 2),))
    assert machine.publish([joint(2, extras=unmet)]) == [Answer(Verdict.CONFLICT, (1, 0, 0))]
    assert machine.publish([joint(2, 2, incarnation=1)]) == [Answer(OK, (1, 2, 2))]
    assert (
        [frame.last for frame in machine.egress[1, "a"]] == [frame.last for frame in machine.egress[1, "b"]] == [1, 2]
    )
    elsewhere = Extras(also=(Part("z", 1),))
    assert machine.publish([joint(3, extras=elsewhere)]) == [Answer(Verdict.STALE, (1,))]
    assert machine.region_last[1, "a"] == 2


def test_who_is_known_in_one_region_and_forgotten_in_the_other_was_accepted_or_was_not() -> None:
    machine = node(None, None)
    machine.publish([joint()])
    machine.forget_publishers([("b", "p")], 1)
    assert machine.publish([joint()]) == [Answer(Verdict.FORGOTTEN, (1,))]


def test_the_copies_follow_one_another_and_are_one_entry_of_a_link() -> None:
    machine = node(None, "n2", "n2", atoms=(7,))
    also = (Part("b", 1), Part("c", 5))
    assert machine.publish([joint(extras=Extras(also=also))]) == [Answer(OK, (1, 1, 1, 1))]
    [ended] = machine.egress[1, "a"]
    [linked] = machine.links["n2"]
    assert (ended.stamp, [copy.stamp for copy in linked.copies]) == (b"0,1,7,1", [b"7,2", b"7,3"])
    assert joint_parts(ended.meta) == (JointPart("a", 1, 1), JointPart("b", 1, 1), JointPart("c", 1, 5))
    assert parse_meta(ended.meta).publisher == "p"
    assert [own_number(ended.meta, 1, region) for region in "abc"] == [1, 1, 5]
    assert linked_of(1, *link_words(linked).values()) == linked
    following = Node("n2")
    following.install(1, 1, [Step("b", 1, False, None, ()), Step("c", 1, False, "n3", ())])
    following.transfer("n1", [linked])
    assert [frame.stamp for frame in following.egress[1, "b"]] == [b"0,1,7,2"]
    assert [each.copies[0].region for each in following.links["n3"]] == ["c"]
    assert not following.links["n3"][0].also


def test_a_copy_is_marked_where_the_call_has_ended_another_elsewhere_before() -> None:
    machine = node(None, None, None)
    plain = PublishedFrame("c", 1, "p", 1, 1, 1, b"x")
    machine.publish([joint(), plain, joint(2, 2)])
    stamps = [frame.stamp for region in "abc" for frame in machine.egress[1, region]]
    assert stamps == [b"0,1", b"0,-4", b"0,-2", b"0,-5", b"0,-3"]


def test_a_link_entry_of_one_region_reads_as_ever() -> None:
    machine = node("n2")
    machine.publish([PublishedFrame("a", 1, "p", 1, 1, 1, b"x")])
    [linked] = machine.links["n2"]
    assert linked == LinkedFrame(1, linked.frame)
    assert linked_of(1, *link_words(linked).values()) == linked


def test_an_atom_of_both_regions_numbers_each_copy() -> None:
    plan = Plan(1, 1, "acyclic", {"n1": ""}, {"a": ("n1",), "b": ("n1",)}, (Atom(AtomId(3), ("a", "b"), "n1"),))
    machine = Node("n1")
    machine.install(1, 1, plan.steps("n1"))
    machine.publish([joint()])
    assert [machine.egress[1, region][0].stamp for region in "ab"] == [b"0,1,3,1", b"0,-2,3,2"]


def test_a_key_needs_room_in_all_regions() -> None:
    machine = node(None, None)
    most = KEYS_MAX - RESERVED_KEYS
    keyed = Extras(tuple(Named(place, f"k{place}", False, end=0) for place in range(most)))
    full = PublishedFrame("b", 1, "p", 1, 1, most, b"x", extras=keyed)
    assert machine.publish([full]) == [Answer(OK, (1, most))]
    more = Extras((Named(0, "more", False, end=0),), also=(Part("b", most + 1),))
    assert machine.publish([joint(extras=more)]) == [Answer(Verdict.FULL, (most, Full.REGION))]
    assert (1, "a") not in machine.region_last
    known = Extras((Named(0, "k7", False, end=0),), also=(Part("b", most + 1),))
    assert machine.publish([joint(extras=known)]) == [Answer(OK, (1, 1, most + 1))]


def test_where_the_stream_of_one_copy_is_sealed_the_others_pass() -> None:
    for sealed in "abc":
        machine = node("n2", "n2", "n2")
        machine.publish([joint(extras=Extras(also=(Part("b", 1), Part("c", 1))))])
        following = Node("n2")
        following.install(1, 1, [Step(region, 1, False, None, ()) for region in "abc"])
        following.steps[1, sealed].state = StepState.SEALED
        following.transfer("n1", machine.links["n2"])
        assert {region for _, region in following.egress} == set("abc") - {sealed}


def test_what_was_refused_while_regions_were_listed_is_offered_again_with_the_first_list() -> None:
    publisher = assigned()
    add(publisher, "a1")
    publisher.take("n1")
    assert publisher.answered("n1", [Answer(Verdict.STALE, (2,))]) == []
    assert publisher.take("n1") == []
    publisher.assign(Plan(2, 1, "acyclic", {"n1": ""}, {"a": ("n1",)}, (), epochs={"a": 1}))
    assert [frame.region for frame in publisher.take("n1")] == ["a"]


def test_a_joint_frame_that_is_given_up_in_one_region_leaves_its_first_one_not_ready() -> None:
    publisher = assigned()
    add(publisher, "ab1")
    failed = publisher.failed(["b"], under_way=PublishUncertain(), waiting=Unreachable())
    assert [list(each.tokens) for each in failed] == [["ab1"]]
    assert publisher.take("n1") == []
    add(publisher, "ab2")
    publisher.take("n1")
    publisher.answered("n1", [Answer(Verdict.WAIT, (1,))])
    publisher.failed(["b"], under_way=PublishUncertain(), waiting=Unreachable())
    assert publisher.take("n1") == []
    add(publisher, "a3")
    assert [frame.region for frame in publisher.take("n1")] == ["a"]
