"""Keys and conditions: at the node, in frames, and what becomes of them on the way to an ingress."""

from __future__ import annotations

import pytest

from sequencing.errors import Conflict, PublishUncertain, TooManyKeys
from sequencing.frames import PublishedFrame, decode_keyed_body
from sequencing.keyed import KEYS_MAX, NO_EXTRAS, RESERVED_KEYS, Condition, Extras, Full, Heads, Named, Position
from sequencing.node import Answer, Node, Verdict
from sequencing.outbox import OpenFrame, Outbox
from sequencing.plan import Plan, Step
from sequencing.publisher import Publisher
from sequencing.record import Record
from sequencing.transition import Transition
from tests.unit.sequencing.test_publisher import assigned

CONFLICT = Answer(Verdict.CONFLICT, (0, 2, 7))


def add(publisher: Publisher[str], event: str, key: str | None = None, *only_if: tuple[str, Position | None]) -> None:
    """Add an event like ``a1``: the letter is the region."""
    conditions = tuple(Condition(*each) for each in only_if)
    about = {"key": key, "deletes": False, "conditions": conditions}
    publisher.add_keyed(event[0], b'"%b"' % event.encode(), False, 0, event, **about)  # type: ignore[arg-type]


def node(*regions: str) -> Node:
    machine = Node("n1")
    machine.install(1, 1, [Step(region, 1, True, None, ()) for region in regions])
    return machine


def frame(first: int, extras: Extras = NO_EXTRAS, count: int = 1, publisher: str = "p") -> PublishedFrame:
    return PublishedFrame("a", 1, publisher, 1, first, count, b"[]", extras=extras)


def test_an_event_with_conditions_has_a_frame_of_its_own_and_others_share_one() -> None:
    publisher = assigned()
    publisher.add("a", b"0", False, 0, "a0")
    add(publisher, "a1", "x")
    add(publisher, "a2", "y", ("x", None))
    publisher.add("a", b"3", False, 0, "a3")
    sent = []
    for number in range(1, 4):
        [frame] = publisher.take("n1")
        sent.append(frame)
        publisher.answered("n1", [Answer(Verdict.OK, (1, number + 1))])
    assert [(each.first, each.count, each.extras) for each in sent] == [
        (1, 2, Extras((Named(1, "x", False, 12, 16, "0 0"),))),
        (3, 1, Extras((Named(0, "y", False, 8, 12, "0 0"),), (Condition("x", None),))),
        (4, 1, NO_EXTRAS),
    ]
    assert [each.body[named.start : named.end] for each in sent for named in each.extras.names] == [b'"a1"', b'"a2"']
    assert [list(decode_keyed_body(each.body)[2]) for each in sent] == [[None, "x"], ["y"], []]


def test_a_refused_event_leaves_its_number_to_the_next_one() -> None:
    publisher = assigned()
    add(publisher, "a1", "x", ("x", (1, 5)))
    publisher.add("a", b"2", False, 0, "a2")
    publisher.take("n1")
    [refused] = publisher.answered("n1", [CONFLICT])
    assert isinstance(refused.error, Conflict)
    assert (refused.error.region, refused.error.key, refused.error.position) == ("a", "x", "2-7")
    [following] = publisher.take("n1")
    assert (following.first, following.extras) == (1, NO_EXTRAS)
    assert publisher.buffered.events == 1
    assert publisher.doubtful() == []


@pytest.mark.parametrize(
    ("position", "is_certain"), [((1, 5), True), (None, False), ((3, 0), False)], ids=["set", "not set", "lost"]
)
def test_after_a_lost_answer_a_refusal_is_certain_if_its_condition_cannot_hold_again(
    position: Position | None, is_certain: bool
) -> None:
    publisher = assigned()
    add(publisher, "a1", "x", ("x", position))
    publisher.take("n1")
    publisher.unanswered("n1")
    [refused] = publisher.answered("n1", [CONFLICT])
    assert isinstance(refused.error, Conflict if is_certain else PublishUncertain)
    assert publisher.doubtful() == ([] if is_certain else ["a"])


def test_after_a_reset_no_refusal_of_what_an_answer_was_lost_to_is_certain() -> None:
    publisher = assigned()
    add(publisher, "a1", "x", ("x", (1, 5)))
    publisher.take("n1")
    publisher.unanswered("n1")
    nodes = {"n1": ""}
    before = Plan(1, 2, "acyclic", nodes, {"a": ("n1",), "b": ("n1",)}, (), runs={"n1": "1"})
    publisher.assign(before)
    publisher.assign(Plan(2, 1, "acyclic", nodes, before.paths, (), runs={"n1": "2"}))
    [lost] = publisher.abandoned()
    assert isinstance(lost.error, PublishUncertain)


def test_a_repeat_is_recognised_before_its_condition_is_looked_at() -> None:
    machine = node("a")
    taken = frame(1, Extras((Named(0, "x", False),), (Condition("x", None),)))
    assert machine.publish([taken, taken]) == [Answer(Verdict.OK, (1, 1)), Answer(Verdict.SEEN, (1, 1))]
    other = frame(1, taken.extras, publisher="q")
    assert machine.publish([other]) == [Answer(Verdict.CONFLICT, (0, 1, 1))]
    assert machine.publish([frame(2, Extras((Named(0, "x", True),))), other]) == [
        Answer(Verdict.OK, (1, 2)),
        Answer(Verdict.OK, (1, 3)),
    ]


def test_the_heads_of_a_frame_are_those_of_its_events_in_order() -> None:
    machine = node("a")
    names = (Named(0, "x", False), Named(1, "y", False), Named(2, "x", False), Named(3, "y", True))
    machine.publish([frame(1, Extras(names), count=4)])
    assert machine.heads["a"] == Heads({"x": (1, 3)}, began=1, values={"x": b" p\n"})


def test_where_heads_were_lost_a_key_is_not_taken_for_free() -> None:
    heads = Heads(lost=5)
    assert heads.head("x") == (5, 0)
    heads.name([Named(0, "x", False)], 5, 9)
    assert (heads.head("x"), heads.head("y")) == ((5, 9), (5, 0))


def test_a_region_that_is_full_takes_keys_that_it_has_and_as_many_as_end() -> None:
    most = KEYS_MAX - RESERVED_KEYS
    heads, full = Heads({f"k{number}": (1, number + 1) for number in range(most)}), (most, Full.REGION)
    assert heads.beyond([Named(0, "k1", False)]) is None
    assert heads.beyond([Named(0, "new", False)]) == full
    assert heads.beyond([Named(0, "k1", True), Named(1, "new", False)]) is None
    assert heads.beyond([Named(0, "k1", True), Named(1, "new", False), Named(2, "newer", False)]) == full
    assert heads.beyond([Named(0, "new", False), Named(1, "new", True)]) is None
    assert heads.beyond([Named(0, "owner:troll", False), Named(1, "@bob", False)]) is None
    assert heads.beyond([Named(0, "owner:troll", False), Named(1, "new", False)]) == full
    publisher = assigned()
    add(publisher, "a1", "x")
    publisher.take("n1")
    [refused] = publisher.answered("n1", [Answer(Verdict.FULL, (KEYS_MAX,))])
    assert isinstance(refused.error, TooManyKeys)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((4_096,), "would have more than 4,096 keys: delete"),
        ((3_584, Full.REGION), "would have more than 3,584 keys: delete"),
        ((256, Full.SHARE_KEYS), "more than 256 keys of '"),
        ((1_048_576, Full.SHARE_BYTES), "more than 1,048,576 bytes of values with keys of '"),
        ((3_072, Full.SHARES_KEYS), "more than 3,072 keys of all clients of gateways"),
        ((8_388_608, Full.SHARES_BYTES), "more than 8,388,608 bytes of values with keys of all clients of gateways"),
    ],
)
def test_too_many_keys_are_refused_with_whose_they_are(numbers: tuple[int, ...], said: str) -> None:
    publisher = assigned()
    add(publisher, "a1", "x")
    publisher.take("n1")
    [refused] = publisher.answered("n1", [Answer(Verdict.FULL, numbers)])
    assert said in str(refused.error)


def test_an_ingress_begins_with_what_it_is_told_and_forgets_what_others_go_on_with() -> None:
    machine = node("a")
    machine.publish([frame(1, Extras((Named(0, "old", False),)))])
    machine.prepare(2, 1, [Step("a", 2, True, None, ())], {"a": 0})
    machine.open("a", 2, {}, Heads({"x": (1, 9)}))
    assert machine.heads["a"] == Heads({"x": (1, 9)}, began=2)
    machine.open("a", 2, {}, Heads())  # again, and late: it is open
    assert machine.heads["a"] == Heads({"x": (1, 9)}, began=2)
    machine.prepare(3, 1, [Step("a", 3, True, None, ())], {"a": 0})
    machine.open("a", 3, {}, None)
    assert machine.heads == {}
    machine.heads["a"], machine.heads["b"] = Heads(began=3), Heads(began=3)
    machine.forget([], (), [("a", 3)])  # late: the region has come back since
    assert [*machine.heads] == ["a", "b"]
    machine.forget([], (), [("a", 4)])
    assert [*machine.heads] == ["b"]


def test_a_transition_that_follows_another_takes_the_heads_of_the_last_ingress_that_was_open() -> None:
    """While region a moves from n1 to n2, another plan moves it on to n3: n2 may have been open, or not."""

    def plan(epoch: int, at: str) -> Plan:
        return Plan(epoch, 1, "acyclic", dict.fromkeys(("n1", "n2", "n3"), ""), {"a": (at,)}, ())

    for is_open in (False, True):
        nodes = {name: Node(name) for name in ("n1", "n2", "n3")}
        nodes["n1"].install(1, 1, plan(1, "n1").steps("n1"))
        nodes["n1"].publish([frame(1, Extras((Named(0, "x", False),)))])
        moving = Transition(Record(plan(2, "n2"), behind=(plan(1, "n1"),)))
        for _ in range(3 if is_open else 1):  # prepare, close, open
            for task in moving.tasks():
                moving.done(task, task.perform(nodes[task.node]))
        expected = Heads({"x": (1, 1)}, began=3, values={"x": b" p\n"})
        if is_open:
            later = PublishedFrame("a", 2, "q", 1, 1, 1, b"[]", extras=Extras((Named(0, "x", False),)))
            assert nodes["n2"].publish([later]) == [Answer(Verdict.OK, (2, 1))]
            expected = Heads({"x": (2, 1)}, began=3, values={"x": b" q\n"})
        following = Transition(Record(plan(3, "n3"), behind=(plan(1, "n1"), plan(2, "n2"))))
        while not following.finished:
            for task in following.tasks():
                following.done(task, task.perform(nodes[task.node]))
        assert {name: each.heads for name, each in nodes.items()} == {"n1": {}, "n2": {}, "n3": {"a": expected}}


def test_who_lost_track_of_a_frame_takes_no_refusal_for_certain() -> None:
    box: Outbox[str] = Outbox("a", 1, node="n1", epoch=1)
    box.frames.append(OpenFrame(False, payloads=[b"1"], sent_at_ns=[0], tokens=["a1"]))
    box.frames[0].conditions = (Condition("x", (1, 5)),)
    box.send("p")
    box.move("n2", 2)
    assert not box.reset("n1", is_asked=False)
    box.lose_answer()
    _, error = box.fail(Conflict())
    assert isinstance(error, PublishUncertain)


def test_one_condition_that_can_hold_again_makes_a_refusal_after_a_lost_answer_uncertain() -> None:
    publisher = assigned()
    add(publisher, "a1", "x", ("x", (1, 5)), ("y", None))
    publisher.take("n1")
    publisher.unanswered("n1")
    [refused] = publisher.answered("n1", [CONFLICT])
    assert isinstance(refused.error, PublishUncertain)


def test_heads_that_an_ingress_was_told_count_although_it_has_numbered_nothing_and_the_one_before_has_forgotten() -> (
    None
):
    def plan(epoch: int, *path: str) -> Plan:
        return Plan(epoch, 1, "acyclic", dict.fromkeys(("n1", "n2", "n3"), ""), {"a": path}, ())

    nodes = {name: Node(name) for name in ("n1", "n2", "n3")}
    nodes["n1"].install(1, 1, plan(1, "n1").steps("n1"))
    nodes["n1"].publish([frame(1, Extras((Named(0, "x", False),)))])
    moving = Transition(Record(plan(2, "n2"), behind=(plan(1, "n1"),)))
    while not moving.finished:  # up to the last task, but the leader cannot say that it is done
        for task in moving.tasks():
            moving.done(task, task.perform(nodes[task.node]))
    following = Transition(Record(plan(3, "n3"), behind=(plan(1, "n1"), plan(2, "n2"))))
    while not following.finished:
        for task in following.tasks():
            following.done(task, task.perform(nodes[task.node]))
    assert nodes["n3"].heads == {"a": Heads({"x": (1, 1)}, began=3, values={"x": b" p\n"})}
